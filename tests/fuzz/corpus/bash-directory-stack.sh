mkdir d1 d2; pushd d1 >/dev/null; pushd ../d2 >/dev/null; dirs -p | wc -l; popd >/dev/null; basename "$PWD"
