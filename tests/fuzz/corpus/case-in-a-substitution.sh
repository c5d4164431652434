echo $(case x in x) echo one;; esac) $(case x in (x) echo two;; esac)
