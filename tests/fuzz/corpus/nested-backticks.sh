echo `echo \`echo "in $(echo deep)"\``
