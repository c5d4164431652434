coproc { cat; }; echo hi >&${COPROC[1]}; read -r x <&${COPROC[0]}; echo "$x"
