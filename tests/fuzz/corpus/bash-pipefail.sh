set -o pipefail; false | true; echo $? "${PIPESTATUS[@]}"; set -e; true | false | true; echo never
