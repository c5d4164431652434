) echo
