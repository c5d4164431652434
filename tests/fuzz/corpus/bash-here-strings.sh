cat <<<"a $((1+1))"; read -r x y <<<'one two three'; echo "$y"
