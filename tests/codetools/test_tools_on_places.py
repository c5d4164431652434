"""The tools mean the same in every place."""

from __future__ import annotations

import pytest
from codetools_bench import Bench
from places import Place

from codetools import code_tools


@pytest.fixture
def tools(place: Place) -> Bench:
    """The tools over the place under test."""
    return Bench(place.box, {tool.name: tool for tool in code_tools(place.box)})


@pytest.mark.spec("XT-46")
def test_a_change_from_looking_to_patching_in_every_place(place: Place, tools: Bench) -> None:
    base = place.fresh()
    tools.call("write_file", path=f"{base}/a.sh", content="#!/bin/sh\necho old\n")
    assert tools.call("exec_command", cmd="chmod 750 a.sh && ./a.sh", workdir=base).endswith("stdout:\nold")
    assert tools.call("read_file", path=f"{base}/a.sh").endswith("\n2\techo old")
    patch = [
        "*** Begin Patch",
        f"*** Update File: {base}/a.sh",
        f"*** Move to: {base}/b/c.sh",
        "@@ #!/bin/sh",
        "-echo old",
        "+echo new",
        f"*** Add File: {base}/note",
        "+done",
        "*** End Patch",
    ]
    assert f"R {base}/a.sh -> {base}/b/c.sh" in tools.call("apply_patch", patch="\n".join(patch))
    assert tools.call("exec_command", cmd="b/c.sh && cat note", workdir=base).endswith("new\ndone")
    assert tools.call("list_files", path=base) == "b/\tdirectory\nnote\tfile\t5 bytes"
    assert "nothing was changed" in tools.call("apply_patch", patch="\n".join(patch))


@pytest.mark.spec("XT-46")
def test_a_session_and_a_failed_patch_in_every_place(place: Place, tools: Bench) -> None:
    base = place.fresh()
    session = base.rsplit("/", 1)[1]
    assert tools.call("exec_command", cmd="x=1; cd ..", workdir=base, session_id=session).startswith(
        "exit code: 0"
    )
    text = tools.call("exec_command", cmd='echo "x is $x"; false', session_id=session)
    assert text.startswith("exit code: 1\n") and text.endswith("x is 1")
    tools.call("write_file", path=f"{base}/keep", content="mine\n")
    tools.call("write_file", path=f"{base}/gone", content="still here\n")
    patch = f"*** Begin Patch\n*** Delete File: {base}/gone\n*** Add File: {base}/keep\n+x\n*** End Patch"
    assert "nothing was changed" in tools.call("apply_patch", patch=patch)
    shown = tools.call("exec_command", cmd="cat keep gone; ls -A", workdir=base)
    assert shown.endswith("mine\nstill here\ngone\nkeep")
