a=(1 'two 3' [5]=six); declare -A m=([k]=v); echo "${#a[@]} ${!a[*]} ${m[k]}"
