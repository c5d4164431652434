return 3
echo after $?
