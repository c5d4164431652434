IFS=:; v1=a:b:c; set -- $v1; echo $# "$*"; unset IFS; echo $v1
