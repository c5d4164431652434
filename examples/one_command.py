"""Run one command. The same code works over SSH and in a container: only the sandbox differs."""

from coderig import LocalSandbox

with LocalSandbox() as box:
    result = box.exec("printf 'hello from %s\\n' \"$0\"; exit 3", timeout_s=10)
    print(result.stdout, end="")
    print("exit code", result.exit_code)

    late = box.exec("echo before; sleep 60", timeout_s=0.5)
    print("timed out:", late.timed_out, "- it printed", late.stdout.strip())
