echo 'abc[0m'
