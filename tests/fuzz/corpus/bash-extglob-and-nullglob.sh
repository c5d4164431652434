shopt -s extglob nullglob
case ab in +(a|b)) echo ext;; esac; echo nosuch*
