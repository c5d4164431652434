trap 'echo bye $?' EXIT
echo in
