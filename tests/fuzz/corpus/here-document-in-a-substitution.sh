x=$(cat <<E
$(echo inner)
E
); echo "[$x]"
