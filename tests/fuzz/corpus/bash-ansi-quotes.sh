echo $'a\tb\'\x41\u00e9' $"loc"
