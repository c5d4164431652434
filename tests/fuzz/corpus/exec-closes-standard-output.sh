exec >&-; echo lost; echo $? >f2
