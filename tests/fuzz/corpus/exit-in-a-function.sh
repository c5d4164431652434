f() { exit 7; }
f
echo never
