set -Cf; echo a >f1; echo b >f1; echo * $?
