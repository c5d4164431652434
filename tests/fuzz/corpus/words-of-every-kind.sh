v1='a  b'; echo $v1 "$v1" ${v1#a} ${#v1} ${nosuch:-d e} "${nosuch:+x}" ~+ {a,b}c [z]* \* '' ""
