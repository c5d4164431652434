read x; echo "$? [$x]"; cat; echo end
