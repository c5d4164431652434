cat <<E
no end