"""A named shell keeps its directory and its variables from one command to the next."""

import tempfile

from coderig import LocalSandbox

with tempfile.TemporaryDirectory() as directory, LocalSandbox(directory) as box:
    shell = box.shell("build")
    shell.run("mkdir src && cd src && export STAGE=test")
    result = shell.run('echo "$STAGE in ${PWD##*/}"')
    print(result.output.strip(), "- exit code", result.exit_code)

    shell.run("exit 7")
    again = shell.run("pwd")
    print(again.notice)
