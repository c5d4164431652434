trap 'echo bye $?' EXIT
(exit 3)
exit
