"""What the file operations mean, on every place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from places import Place

from sandbox import (
    AlreadyExists,
    FileError,
    LocalSandbox,
    NotADirectory,
    NotAFile,
    NotFound,
    RequestError,
    TooLarge,
)

ODD_NAMES = [
    "-n",
    "--",
    "a b",
    "new\nline",
    "tab\t",
    "漢字",
    "it's",
    '"q"',
    "$(id)",
    "*",
    "back\\slash",
    "x\udcff",
    " ",
]


@pytest.mark.spec("FI-01")
def test_what_is_written_is_read_listed_and_seen_by_commands(place: Place) -> None:
    base = place.fresh()
    place.box.write_file(f"{base}/dir/hello.txt", b"hi\n")
    assert place.box.read_file(f"{base}/dir/hello.txt") == b"hi\n"
    assert [(e.name, e.kind, e.size_bytes) for e in place.box.list_dir(f"{base}/dir")] == [
        ("hello.txt", "file", 3)
    ]
    assert place.box.exec("cat hello.txt", cwd=f"{base}/dir").stdout == "hi\n"
    place.box.exec("echo more >made", cwd=base)
    assert place.box.read_file(f"{base}/made") == b"more\n"


@pytest.mark.spec("FI-02")
@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_survive_every_operation(place: Place, name: str) -> None:
    base = place.fresh()
    path = f"{base}/{name}"
    place.box.write_file(path, b"1")
    place.box.create_exclusive(f"{base}/d/{name}", b"2")
    assert sorted(e.name for e in place.box.list_dir(base)) == sorted([name, "d"])
    place.box.rename(path, f"{base}/e/{name}")
    assert place.box.read_file(f"{base}/e/{name}") == b"1"
    assert place.box.stat(f"{base}/d/{name}").size_bytes == 1
    place.box.remove(f"{base}/d/{name}")
    assert place.box.list_dir(f"{base}/d") == []


@pytest.mark.spec("FI-03")
@pytest.mark.parametrize("size", [0, 1, 100_000, 5_000_000])
def test_every_byte_comes_back(place: Place, size: int) -> None:
    base = place.fresh()
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    place.box.write_file(f"{base}/f", data)
    assert place.box.read_file(f"{base}/f") == data
    place.box.create_exclusive(f"{base}/g", data)
    assert place.box.read_file(f"{base}/g") == data


@pytest.mark.spec("FI-04")
def test_relative_absolute_and_dotted_paths_agree_with_a_shell(place: Place) -> None:
    place.box.write_file("rel/../rel.txt", b"x")
    cwd = place.box.exec("pwd").stdout.strip()
    assert place.box.cwd == cwd
    assert place.box.read_file(f"{cwd}/rel.txt") == b"x"
    assert place.box.exec("cat rel.txt").stdout == "x"
    assert "rel.txt" in [e.name for e in place.box.list_dir()]
    place.box.remove("rel.txt")


@pytest.mark.spec("FI-05")
def test_failures_have_their_kind(place: Place) -> None:
    box, base = place.box, place.fresh()
    box.write_file(f"{base}/file", b"12345")
    box.make_dirs(f"{base}/dir")
    failures: list[tuple[type[Exception], Callable[[], object]]] = [
        (NotFound, lambda: box.read_file(f"{base}/none")),
        (NotFound, lambda: box.list_dir(f"{base}/none")),
        (NotFound, lambda: box.stat(f"{base}/none")),
        (NotFound, lambda: box.remove(f"{base}/none")),
        (NotFound, lambda: box.rename(f"{base}/none", f"{base}/x")),
        (NotAFile, lambda: box.read_file(f"{base}/dir")),
        (NotAFile, lambda: box.write_file(f"{base}/dir", b"")),
        (NotAFile, lambda: box.read_file("/dev/null")),
        (NotAFile, lambda: box.rename(f"{base}/file", f"{base}/dir")),
        (NotADirectory, lambda: box.list_dir(f"{base}/file")),
        (NotADirectory, lambda: box.read_file(f"{base}/file/x")),
        (NotADirectory, lambda: box.write_file(f"{base}/file/x", b"")),
        (NotADirectory, lambda: box.make_dirs(f"{base}/file/x")),
        (AlreadyExists, lambda: box.create_exclusive(f"{base}/file", b"")),
        (TooLarge, lambda: box.read_file(f"{base}/file", 4)),
        (FileError, lambda: box.read_file("")),
        (FileError, lambda: box.read_file("a\0b")),
    ]
    for error, call in failures:
        with pytest.raises(error):
            call()
    assert box.read_file(f"{base}/file", 5) == b"12345"
    assert [e.name for e in box.list_dir(base)] == ["dir", "file"]


@pytest.mark.spec("FI-06")
def test_the_errors_are_also_the_standard_ones(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.box.read_file("/nope/nope")
    with pytest.raises(FileExistsError):
        place.box.create_exclusive("/dev/null", b"")


@pytest.mark.spec("FI-07")
@pytest.mark.parametrize("mode", ["755", "640", "600"])
def test_a_write_keeps_the_mode(place: Place, mode: str) -> None:
    base = place.fresh()
    place.box.write_file(f"{base}/f", b"old")
    place.box.exec(f"chmod {mode} {base}/f")
    place.box.write_file(f"{base}/f", b"new")
    assert oct(place.box.stat(f"{base}/f").mode) == f"0o{mode}"
    assert place.box.read_file(f"{base}/f") == b"new"


@pytest.mark.spec("FI-08")
def test_a_new_file_has_the_mode_of_the_umask(place: Place) -> None:
    base = place.fresh()
    expected = int(place.box.exec("umask").stdout, 8)
    place.box.write_file(f"{base}/f", b"")
    place.box.create_exclusive(f"{base}/g", b"")
    assert place.box.stat(f"{base}/f").mode == 0o666 & ~expected
    assert place.box.stat(f"{base}/g").mode == 0o666 & ~expected


@pytest.mark.spec("FI-09")
def test_links_are_followed_and_stay_links(place: Place) -> None:
    base = place.fresh()
    place.box.exec(
        "echo old >real; ln -s real one; ln -s one two; ln -s new dangling; mkdir d; ln -s d dl", cwd=base
    )
    place.box.write_file(f"{base}/two", b"via")
    place.box.write_file(f"{base}/dangling", b"made")
    place.box.write_file(f"{base}/dl/x", b"in")
    assert place.box.read_file(f"{base}/real") == b"via"
    assert place.box.read_file(f"{base}/new") == b"made"
    assert place.box.read_file(f"{base}/d/x") == b"in"
    kinds = {e.name: e.kind for e in place.box.list_dir(base)}
    assert kinds == {
        "real": "file",
        "one": "link",
        "two": "link",
        "dangling": "link",
        "new": "file",
        "d": "directory",
        "dl": "link",
    }
    place.box.remove(f"{base}/two")
    assert place.box.read_file(f"{base}/real") == b"via"
    place.box.exec(f"ln -s loop {base}/loop")
    with pytest.raises(FileError):
        place.box.write_file(f"{base}/loop", b"")


@pytest.mark.spec("FI-10")
def test_a_hard_link_shows_the_new_content_under_all_names(place: Place) -> None:
    base = place.fresh()
    place.box.exec(f"cd {base} && echo old >a && ln a b")
    place.box.write_file(f"{base}/a", b"new")
    assert place.box.read_file(f"{base}/b") == b"new"


@pytest.mark.spec("FI-11")
def test_an_exclusive_file_is_made_once(place: Place) -> None:
    base = place.fresh()
    place.box.create_exclusive(f"{base}/deep/er/f", b"first")
    place.box.exec(f"ln -s nowhere {base}/dangling")
    for path in (f"{base}/deep/er/f", f"{base}/dangling"):
        with pytest.raises(AlreadyExists):
            place.box.create_exclusive(path, b"second")
    assert place.box.read_file(f"{base}/deep/er/f") == b"first"


@pytest.mark.spec("FI-12")
def test_a_rename_makes_parents_and_replaces_a_file(place: Place) -> None:
    base = place.fresh()
    place.box.write_file(f"{base}/a", b"a")
    place.box.write_file(f"{base}/b", b"b")
    place.box.rename(f"{base}/a", f"{base}/x/y/z")
    place.box.rename(f"{base}/b", f"{base}/x/y/z")
    assert place.box.read_file(f"{base}/x/y/z") == b"b"
    assert [e.name for e in place.box.list_dir(base)] == ["x"]


@pytest.mark.spec("FI-17")
def test_a_path_that_can_only_be_a_directory_is_refused_before_anything_is_made(place: Place) -> None:
    base = place.fresh()
    for path in ("tail/", "new/.", "new/.."):
        with pytest.raises(NotAFile):
            place.box.write_file(f"{base}/{path}", b"x")
        with pytest.raises(NotAFile):
            place.box.create_exclusive(f"{base}/{path}", b"x")
    assert place.box.list_dir(base) == []


@pytest.mark.spec("FI-12")
def test_a_rename_onto_a_link_replaces_the_link(place: Place) -> None:
    base = place.fresh()
    place.box.exec("mkdir sub; ln -s sub link; echo 1 >f; echo 2 >same", cwd=base)
    place.box.rename(f"{base}/same", f"{base}/same")
    assert place.box.read_file(f"{base}/same") == b"2\n"
    place.box.exec(f"ln -s sub/nothing {base}/dangling")
    place.box.rename(f"{base}/f", f"{base}/dangling")
    assert place.box.read_file(f"{base}/dangling") == b"1\n"
    assert place.box.list_dir(f"{base}/sub") == []


@pytest.mark.spec("FI-13")
def test_nothing_is_left_beside_a_written_file(place: Place) -> None:
    base = place.fresh()
    place.box.write_file(f"{base}/f", b"1")
    place.box.write_file(f"{base}/f", b"2")
    place.box.create_exclusive(f"{base}/g", b"3")
    assert sorted(e.name for e in place.box.list_dir(base)) == ["f", "g"]


@pytest.mark.spec("FI-14")
def test_a_directory_with_a_thousand_entries_is_listed_whole(place: Place) -> None:
    base = place.fresh()
    place.box.exec("i=0; while [ $i -lt 1000 ]; do : >f$i; i=$((i+1)); done; : >.hidden", cwd=base)
    names = [e.name for e in place.box.list_dir(base)]
    assert names == sorted([".hidden", *(f"f{n}" for n in range(1000))])


@pytest.mark.spec("FI-15")
def test_files_travel_both_ways(place: Place, tmp_path: Path) -> None:
    base = place.fresh()
    local = tmp_path / "up"
    local.write_bytes(b"\0\xff" * 1000)
    local.chmod(0o755)
    place.box.upload(local, f"{base}/up")
    assert place.box.stat(f"{base}/up").mode & 0o100
    place.box.download(f"{base}/up", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == local.read_bytes()


@pytest.mark.spec("FI-16")
def test_a_vanished_working_directory_is_a_clear_error(place: Place) -> None:
    base = place.fresh()
    with pytest.raises(NotFound, match="nothing was run"):
        place.box.exec("echo no", cwd=f"{base}/gone")


@pytest.mark.spec("FI-18")
def test_paths_are_texts_or_paths_and_content_is_bytes(tmp_path: Path) -> None:
    with LocalSandbox(tmp_path) as box:
        box.write_file(tmp_path / "a", b"whole")
        assert box.read_file(Path("a")) == b"whole"
        refused: list[Callable[..., object]] = [
            box.read_file,
            box.list_dir,
            box.stat,
            box.remove,
            box.make_dirs,
        ]
        for verb in refused:
            for path in (5, b"a", None):
                with pytest.raises(RequestError, match="path"):
                    verb(path)
        for data in ("text", None, 5):
            with pytest.raises(RequestError, match="bytes"):
                box.write_file("a", data)  # type: ignore[arg-type]
        assert box.read_file("a") == b"whole"
