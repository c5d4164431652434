echo() { printf 'E:%s\n' "$*"; }
cd() { command cd "$@" && pwd; }
test() { return 1; }
echo hi; cd .; test 1 = 1 || echo shadowed
