printf '%q|%5s|%-5s|%03d|%b\n' 'a b' x y 7 'c\x41'; printf '%s-%s\n' a b c
