f() {
echo a
