PATH=/nowhere; ls; echo $?; cd /nosuch; echo $?
