"""Files of a place: the same calls wherever it is, paths as the shell there means them."""

import tempfile

from coderig import LocalSandbox, SandboxError

with tempfile.TemporaryDirectory() as directory, LocalSandbox(directory) as box:
    box.write_file("notes/today.txt", b"one\n")
    box.exec("echo two >> notes/today.txt")
    print(box.read_file("notes/today.txt").decode(), end="")
    print([entry.name for entry in box.list_dir("notes")])
    try:
        box.read_file("notes/tomorrow.txt")
    except SandboxError as error:
        print(error)
