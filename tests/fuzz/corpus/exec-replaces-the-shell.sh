exec sh -c 'echo replaced; exit 5'
echo never
