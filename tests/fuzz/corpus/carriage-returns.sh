echo a
echo b
[ a = a ]
