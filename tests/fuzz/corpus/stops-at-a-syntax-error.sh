echo before
if true; fi
echo never
