cat <<-E
	one
		two
	E
