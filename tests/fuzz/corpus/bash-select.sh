select i in a b; do echo "$i"; break; done <<<2
