f() {
cat <<E
<$1>
E
}
f a; f 'b c'
