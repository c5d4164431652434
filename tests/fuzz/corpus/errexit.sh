set -e
false || echo or
f() { false; echo in; }
if f; then echo if; fi
false
echo never
