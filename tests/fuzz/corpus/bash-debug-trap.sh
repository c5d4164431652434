trap 'echo "d:$BASH_COMMAND"' DEBUG
echo one
true && echo two
