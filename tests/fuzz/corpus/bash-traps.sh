trap 'echo err $?' ERR
false
f() { return 2; }; f
trap 'echo ret' RETURN; f
