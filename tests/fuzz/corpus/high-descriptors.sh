exec 7>f7 9>&1; echo seven >&7; echo nine >&9; exec 7>&-; cat f7
