cat <(echo one) <(echo two); while read -r x; do echo "<$x>"; done < <(printf 'a\nb\n')
