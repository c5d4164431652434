"""apply_patch in a real sandbox: all or nothing."""

from __future__ import annotations

import json
import threading
from os import PathLike
from pathlib import Path

import pytest
from codetools_bench import Bench, MakeBench

from codetools.apply_patch import apply_patch
from codetools.policy import Policy
from runtime.tools import BadArguments, ToolContext, ToolFailed
from sandbox import BackendError, LocalSandbox, PermissionDenied


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.mark.spec("FT-02", "FT-03")
def test_a_patch_adds_updates_moves_and_deletes(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "b.py").write_text("x\n")
    (tmp_path / "gone").write_text("bye\n")
    result = bench.result(
        "apply_patch",
        patch=patch(
            "*** Add File: new/deep.txt",
            "+hello",
            "*** Update File: a.py",
            "@@ one",
            "-two",
            "+2",
            "*** Update File: b.py",
            "*** Move to: c/b.py",
            "-x",
            "+y",
            "*** Delete File: gone",
        ),
    )
    assert tree(tmp_path) == {"a.py": b"one\n2\nthree\n", "c/b.py": b"y\n", "new/deep.txt": b"hello\n"}
    assert set(result.text.split("\n")) == {"A new/deep.txt", "M a.py", "R b.py -> c/b.py", "D gone"}
    assert result.summary == "4 files changed"
    assert result.details is not None


@pytest.mark.spec("FT-03")
def test_a_hunk_that_does_not_fit_changes_nothing(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    text = bench.call(
        "apply_patch", patch=patch("*** Add File: new", "+x", "*** Update File: a", "-two", "+2")
    )
    assert text.startswith("ToolFailed: nothing was changed. a: the hunk at line 5 of the patch does not fit")
    assert tree(tmp_path) == {"a": b"one\n"}


@pytest.mark.spec("FT-07")
@pytest.mark.parametrize(
    "sections",
    [
        ["*** Update File: a", "-one", "+1", "*** Add File: taken", "+x"],
        ["*** Add File: first", "+x", "*** Update File: a", "*** Move to: taken"],
        ["*** Delete File: b", "*** Add File: taken", "+x"],
        ["*** Update File: b", "*** Move to: c", "-bee", "+B", "*** Add File: taken", "+x"],
    ],
)
def test_a_taken_name_is_refused_and_what_was_done_is_taken_back(
    bench: Bench, tmp_path: Path, sections: list[str]
) -> None:
    before = {"a": b"one\n", "b": b"bee\n", "taken": b"mine\n"}
    for name, data in before.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "b").chmod(0o750)
    text = bench.call("apply_patch", patch=patch(*sections))
    assert text.startswith("ToolFailed: nothing was changed. ")
    assert "taken" in text
    assert tree(tmp_path) == before
    assert (tmp_path / "b").stat().st_mode & 0o7777 == 0o750


@pytest.mark.spec("XT-40")
@pytest.mark.parametrize("mode", [0o755, 0o640, 0o600])
def test_modes_stay_with_updates_moves_and_rollback(bench: Bench, tmp_path: Path, mode: int) -> None:
    for name in ("u", "m", "d"):
        (tmp_path / name).write_text("x\n")
        (tmp_path / name).chmod(mode)
    bench.call(
        "apply_patch",
        patch=patch("*** Update File: u", "-x", "+y", "*** Update File: m", "*** Move to: n", "-x", "+y"),
    )
    assert [(tmp_path / name).stat().st_mode & 0o7777 for name in ("u", "n")] == [mode, mode]
    text = bench.call("apply_patch", patch=patch("*** Delete File: d", "*** Add File: u", "+x"))
    assert "nothing was changed" in text
    assert (tmp_path / "d").stat().st_mode & 0o7777 == mode


@pytest.mark.spec("XT-41")
def test_links_are_followed_by_updates_and_deleted_themselves(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x\n")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "loose").symlink_to("nowhere")
    bench.call("apply_patch", patch=patch("*** Update File: link", "-x", "+y"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "y\n"
    bench.call("apply_patch", patch=patch("*** Delete File: link", "*** Delete File: loose"))
    assert [path.name for path in tmp_path.iterdir()] == ["real"]


@pytest.mark.spec("FT-06", "FT-07")
def test_delete_and_add_of_one_path_make_a_new_file(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old\n")
    text = bench.call("apply_patch", patch=patch("*** Add File: a", "+new", "*** Delete File: ./a"))
    assert text == "D ./a\nA a"
    assert tree(tmp_path) == {"a": b"new\n"}


@pytest.mark.spec("XT-42")
def test_a_large_file_can_be_deleted_and_comes_back(bench: Bench, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"z" * (9 << 20))
    text = bench.call("apply_patch", patch=patch("*** Delete File: big", "*** Add File: d/../x/", "+x"))
    assert "BadArguments" in text
    (tmp_path / "x").write_text("")
    assert "nothing was changed" in bench.call(
        "apply_patch", patch=patch("*** Delete File: big", "*** Add File: x", "+x")
    )
    assert big.stat().st_size == 9 << 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["big", "x"]
    assert bench.call("apply_patch", patch=patch("*** Delete File: big")) == "D big"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.spec("FT-09")
@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (["*** Update File: missing", "-x"], "missing"),
        (["*** Delete File: missing"], "missing"),
        (["*** Delete File: d"], "d is a directory"),
        (["*** Update File: d", "-x"], "d"),
    ],
)
def test_failures_are_words(bench: Bench, tmp_path: Path, sections: list[str], words: str) -> None:
    (tmp_path / "d").mkdir()
    text = bench.call("apply_patch", patch=patch(*sections))
    assert text.startswith("ToolFailed: nothing was changed. ")
    assert words in text
    assert str(tmp_path) not in text


@pytest.mark.spec("FT-09", "XT-31")
def test_a_patch_that_cannot_be_read_never_reaches_a_person(bench: Bench) -> None:
    tool = bench.tools["apply_patch"]
    with pytest.raises(BadArguments, match="line 2 of the patch"):
        tool.parse(json.dumps({"patch": patch("nonsense")}))
    assert tool.preview is not None
    shown = tool.preview(tool.parse(json.dumps({"patch": patch("*** Delete File: a\x1b[8m")})))
    assert "\x1b" not in shown


class Meddling(LocalSandbox):
    """A place where something happens right before a call of a method."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.before_create: list[BaseException | tuple[Path, bytes]] = []
        self.fail_write: BaseException | None = None

    def create_exclusive(self, path: str | PathLike[str], data: bytes) -> None:
        for event in self.before_create:
            if isinstance(event, BaseException):
                raise event
            event[0].write_bytes(event[1])
        super().create_exclusive(path, data)

    def write_file(self, path: str | PathLike[str], data: bytes) -> None:
        if self.fail_write is not None:
            error, self.fail_write = self.fail_write, None
            super().write_file(path, data[: len(data) // 2])
            raise error
        super().write_file(path, data)


def run_patch(box: LocalSandbox, text: str, cancelled: threading.Event | None = None) -> str:
    tool = apply_patch(box, Policy(), threading.Lock())
    context = ToolContext(
        call_id="1",
        tool_name="apply_patch",
        cancelled=cancelled or threading.Event(),
        emit=lambda _: None,
    )
    with pytest.raises(ToolFailed) as caught:
        tool.run(context, tool.parse(json.dumps({"patch": text})))
    return str(caught.value)


@pytest.mark.spec("XT-43")
def test_a_file_that_changed_between_plan_and_commit_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    with Meddling(tmp_path) as box:
        box.before_create = [(tmp_path / "a", b"theirs\n")]
        text = run_patch(box, patch("*** Add File: new", "+x", "*** Update File: a", "-one", "+1"))
    assert text.startswith("nothing was changed.")
    assert "changed by something else" in text
    assert tree(tmp_path) == {"a": b"theirs\n"}


@pytest.mark.spec("XT-44")
def test_a_half_written_file_is_restored_byte_for_byte(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbfone\r\ntwo\n\xff"
    (tmp_path / "a").write_bytes(data)
    with Meddling(tmp_path) as box:
        box.fail_write = PermissionDenied("write", "a", "disk is tired")
        text = run_patch(box, patch("*** Add File: new", "+x", "*** Update File: a", "-one", "+1"))
    assert text == "nothing was changed. write a: disk is tired"
    assert tree(tmp_path) == {"a": data}


@pytest.mark.spec("XT-44")
def test_a_file_that_someone_else_wrote_over_ours_is_left_and_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    with Meddling(tmp_path) as box:
        original = box.write_file

        def write_file(path: str | PathLike[str], data: bytes) -> None:
            (tmp_path / "new").write_text("theirs")
            original(path, data)

        box.write_file = write_file  # type: ignore[method-assign]
        box.fail_write = BackendError("the link is down")
        text = run_patch(box, patch("*** Add File: new", "+x", "*** Update File: a", "-one", "+1"))
    assert "the sandbox is unavailable: the link is down" in text
    assert "new could not be taken back" in text
    assert tree(tmp_path) == {"a": b"one\n", "new": b"theirs"}


@pytest.mark.spec("XT-44")
def test_a_place_that_is_gone_is_told_with_what_could_not_be_taken_back(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    with Meddling(tmp_path) as box:
        box.before_create = [BackendError("the link is down")]
        text = run_patch(box, patch("*** Delete File: a", "*** Add File: b", "+x"))
    assert "the sandbox is unavailable" in text
    assert tree(tmp_path) == {"a": b"one\n"}


@pytest.mark.spec("XT-45")
def test_a_cancelled_patch_changes_nothing_even_while_it_waits(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    cancelled = threading.Event()
    cancelled.set()
    with LocalSandbox(tmp_path) as box:
        text = run_patch(box, patch("*** Update File: a", "-one", "+1"), cancelled)
        assert "cancelled" in text
        lock = threading.Lock()
        tool = apply_patch(box, Policy(), lock)
        context = ToolContext(call_id="1", tool_name="p", cancelled=cancelled, emit=lambda _: None)
        with lock, pytest.raises(ToolFailed, match="cancelled while it waited"):
            tool.run(context, tool.parse(json.dumps({"patch": patch("*** Delete File: a")})))
    assert tree(tmp_path) == {"a": b"one\n"}


@pytest.mark.spec("XT-36", "XT-37")
def test_what_read_file_shows_is_what_a_patch_can_name(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbffirst\r\nsecond\nthird \x0c\n")
    shown = bench.call("read_file", path="a").split("\n")[1:]
    lines = [row.split("\t", 1)[1] for row in shown]
    bench.call("apply_patch", patch=patch("*** Update File: a", *(f"-{line}" for line in lines), "+done"))
    assert (tmp_path / "a").read_bytes() == b"\xef\xbb\xbfdone\n"


@pytest.mark.spec("XT-45")
def test_patches_and_writes_do_not_mix(make_bench: MakeBench, tmp_path: Path) -> None:
    bench = make_bench()
    (tmp_path / "n").write_text("0\n" * 40)
    failures: list[str] = []

    def work(n: int) -> None:
        text = bench.call("apply_patch", patch=patch(f"*** Add File: f{n}", f"+{n}"))
        if text != f"A f{n}":
            failures.append(text)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert failures == []
    assert {f"f{n}" for n in range(6)} < set(tree(tmp_path))
