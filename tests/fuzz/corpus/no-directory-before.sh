echo "${OLDPWD-none}"; cd -; mkdir d1; cd d1; echo "$OLDPWD" | wc -l; cd - >/dev/null; pwd
