cat <<A; cat <<'B'
$HOME
A
$HOME `x`
B
