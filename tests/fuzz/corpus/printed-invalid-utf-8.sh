printf '\377\n'; printf 'caf\351 \303\251\n' >&2
