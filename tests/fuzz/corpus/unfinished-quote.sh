echo before
echo 'abc
