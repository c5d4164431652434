echo ÿþ 'aÃ' "é"; x=â‚; echo ${#x}
