echo "${BASH_EXECUTION_STRING-none}" "$#"; set | grep '^cr_'
