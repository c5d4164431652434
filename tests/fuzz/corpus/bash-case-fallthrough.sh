case x in x) echo 1;& y) echo 2;; z) echo 3;; esac
case x in x) echo 1;;& [x]) echo 2;; esac
