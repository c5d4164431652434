export v7='a b
c' v8=; v9=hidden; unset HOME; mkdir d1; cd d1
