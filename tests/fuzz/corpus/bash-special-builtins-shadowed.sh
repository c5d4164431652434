eval() { builtin echo "e:$*"; }; exec() { builtin echo "x:$*"; }; eval a; exec b; exit() { builtin echo "q:$*"; }; exit 3
