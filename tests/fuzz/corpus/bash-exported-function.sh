f() { echo "f:$1"; }; export -f f; bash -c 'f sub'
