nosuch1
echo $LINENO

nosuch4
f() { nosuch5; }
f
