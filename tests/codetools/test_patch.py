"""Reading a patch, and what it does to bytes; pure."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from codetools.patch import Add, Delete, PatchError, Update, parse_patch, same_path
from codetools.patch_plan import apply_hunks


def patch_text(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"]) + "\n"


def applied(data: bytes, *hunk_lines: str) -> bytes:
    """The bytes after a patch of one file with these lines."""
    section = parse_patch(patch_text("*** Update File: f", *hunk_lines)).sections[0]
    assert isinstance(section, Update)
    return apply_hunks("f", data, section.hunks).data


def complaint(data: bytes, *hunk_lines: str) -> str:
    with pytest.raises(PatchError) as caught:
        applied(data, *hunk_lines)
    return str(caught.value)


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.spec("FT-02")
def test_all_kinds_of_sections_are_read() -> None:
    sections = parse_patch(
        patch_text(
            "*** Add File: new.txt",
            "+one",
            "+",
            "+two",
            "*** Delete File: old.txt",
            "",
            "*** Update File: a.py",
            "*** Move to: b/c.py",
            "@@ def f",
            " x",
            "-y",
            "+z",
            "*** Update File: d",
            "*** Move to: e",
        )
    ).sections
    assert sections[0] == Add("new.txt", "one\n\ntwo\n", 2)
    assert sections[1] == Delete("old.txt", 6)
    assert isinstance(sections[2], Update)
    assert (sections[2].path, sections[2].move_to) == ("a.py", "b/c.py")
    assert sections[2].hunks[0].anchors == ("def f",)
    assert sections[2].hunks[0].old == ("x", "y")
    assert sections[3] == Update("d", "e", (), 14)


@pytest.mark.spec("XT-30")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("```\n", "```"),
        ("```diff\n", "```\n"),
        ("apply_patch <<'EOF'\n", "EOF\n"),
        ('apply_patch <<"EOF"\n', "EOF"),
        ("<<PATCH\n", "PATCH\n"),
        ("Here is the patch:\n\n", "\n\n"),
        ("  ", ""),
    ],
)
def test_a_wrapper_is_taken_off(before: str, after: str) -> None:
    text = before + patch_text("*** Delete File: a") + after
    assert [section.path for section in parse_patch(text).sections] == ["a"]


@pytest.mark.spec("XT-30")
def test_a_patch_with_crlf_line_ends_is_read() -> None:
    text = patch_text("*** Update File: f", "@@", " a", "-b", "+c", "*** Add File: g", "+x").replace(
        "\n", "\r\n"
    )
    update, add = parse_patch(text).sections
    assert isinstance(update, Update) and isinstance(add, Add)
    assert apply_hunks("f", b"a\nb\n", update.hunks).data == b"a\nc\n"
    assert (add.path, add.content) == ("g", "x\n")


WRONG = [
    ("*** End Patch", "no '*** Begin Patch' line"),
    ("*** Begin Patch\n*** Delete File: a", "no '*** End Patch' line"),
    ("*** Begin Patch\n*** End Patch", "changes no file"),
    (patch_text("nonsense"), "line 2 of the patch"),
    (patch_text("*** Frobnicate File: a"), "line 2 of the patch"),
    (patch_text("*** Delete File: a", "-x"), "line 3 of the patch"),
    (patch_text("*** Delete File:"), "name of a file is missing"),
    (patch_text("*** Add File: d/"), "name of a file is missing"),
    (patch_text("*** Add File: a", "x"), "line 3 of the patch: each line of a new file starts with '+'"),
    (patch_text("*** Update File: a"), "changes nothing"),
    (patch_text("*** Update File: a", "@@", " x"), "line 3 of the patch: the hunk adds and removes nothing"),
    (
        patch_text("*** Update File: a", "@@", "-x", "stray"),
        "line 5 of the patch: a line of a hunk starts with",
    ),
    (patch_text("*** Update File: a", "@@", "-x", "\tstray"), "line 5 of the patch"),
    (patch_text("*** Update File: a", "-x", "", "stray"), "line 5 of the patch"),
    (patch_text("*** Delete File: a") + "more\ntext", "line 4 of the patch: unexpected text"),
    (patch_text("*** Delete File: \ud800"), "surrogate"),
]


@pytest.mark.spec("XT-31", "FT-02")
@pytest.mark.parametrize(("text", "words"), WRONG, ids=lambda value: ascii(value)[-40:])
def test_a_wrong_patch_is_refused_with_the_line(text: str, words: str) -> None:
    with pytest.raises(PatchError) as caught:
        parse_patch(text)
    assert words in str(caught.value)


@pytest.mark.spec("FT-06")
@pytest.mark.parametrize(
    "sections",
    [
        ["*** Update File: a", "-x", "*** Update File: a", "-y"],
        ["*** Update File: a", "-x", "*** Update File: ./a", "-y"],
        ["*** Update File: a", "-x", "*** Delete File: b/../a"],
        ["*** Add File: a", "+x", "*** Update File: a", "-y"],
        ["*** Add File: a", "+x", "*** Add File: a", "+y"],
        ["*** Delete File: a", "*** Delete File: a"],
        ["*** Update File: a", "*** Move to: b", "*** Add File: b", "+x"],
        ["*** Update File: a", "*** Move to: b", "*** Update File: b", "-x"],
        ["*** Update File: a", "*** Move to: c", "*** Update File: b", "*** Move to: ./c"],
        ["*** Update File: a", "*** Move to: c", "*** Add File: a", "+x"],
    ],
)
def test_two_sections_for_one_path_are_refused(sections: list[str]) -> None:
    with pytest.raises(PatchError, match="two sections"):
        parse_patch(patch_text(*sections))


@pytest.mark.spec("FT-06")
@pytest.mark.parametrize(
    "sections",
    [
        ["*** Delete File: a", "*** Add File: a", "+x"],
        ["*** Add File: a", "+x", "*** Delete File: ./a"],
        ["*** Delete File: b", "*** Update File: a", "*** Move to: b"],
    ],
)
def test_a_delete_and_an_add_make_a_new_file(sections: list[str]) -> None:
    assert len(parse_patch(patch_text(*sections)).sections) == 2


@pytest.mark.spec("FT-06")
def test_a_move_onto_its_own_path_is_a_plain_update() -> None:
    section = parse_patch(patch_text("*** Update File: a", "*** Move to: ./a", "-x")).sections[0]
    assert isinstance(section, Update) and section.move_to is None
    assert same_path("./a/../a") == "a"


# -- matching -------------------------------------------------------------------------------------


@pytest.mark.spec("FT-04")
def test_hunks_match_whole_lines_only() -> None:
    assert "does not fit" in complaint(b"max = 10\n", "-x = 1", "+x = 2")
    assert applied(b"max = 10\nx = 1\n", "-x = 1", "+x = 2") == b"max = 10\nx = 2\n"


@pytest.mark.spec("FT-04")
def test_hunks_go_from_top_to_bottom() -> None:
    data = b"a\nb\na\nb\n"
    assert applied(data, "@@ a", "-b", "+1", "@@", "-b", "+2") == b"a\n1\na\n2\n"
    assert "top to bottom" in complaint(b"a\nb\n", "@@", "-b", "+2", "@@", "-a", "+1")


@pytest.mark.spec("XT-32")
def test_a_place_that_is_not_unique_is_reported() -> None:
    text = complaint(b"x\ny\nx\nz\nx\n", "-x", "+1")
    assert "3 places (lines 1, 3, 5)" in text
    assert applied(b"x\ny\nx\nz\nx\n", "@@ y", "-x", "+1") == b"x\ny\n1\nz\nx\n"
    assert applied(b"x\ny\nx\n", "-x", "+1", "*** End of File") == b"x\ny\n1\n"


@pytest.mark.spec("FT-05")
@pytest.mark.parametrize(
    "header",
    [
        "@@",
        "@@ def f():",
        "@@ def f(): @@",
        "@@ -1,3 +1,3 @@",
        "@@ -1 +1 @@",
        "@@ -10,2 +12,2 @@ def f():",
        "@@ -10,2 +12,2 @@ cut heading that is no line",
    ],
)
def test_forms_of_a_hunk_header(header: str) -> None:
    data = b"class A:\n    def f():\n        old\n"
    assert applied(data, header, "-        old", "+        new") == data.replace(b"old", b"new")


@pytest.mark.spec("FT-05", "XT-33")
def test_stacked_anchors_go_from_outer_to_inner() -> None:
    data = b"class A\n  def m\n  old\nclass B\n  def m\n  old\n"
    out = applied(data, "@@ class B", "@@   def m", "-  old", "+  new")
    assert out == b"class A\n  def m\n  old\nclass B\n  def m\n  new\n"
    assert "'class C'" in complaint(data, "@@ class C", "-  old", "+  new")


@pytest.mark.spec("FT-08")
def test_a_blank_line_in_a_hunk_is_context_if_more_follows() -> None:
    assert applied(b"a\n\nb\n", "@@", " a", "", "-b", "+c") == b"a\n\nc\n"
    assert applied(b"a\nb\n", "@@", "-a", "+x", "", "@@", "-b", "+y") == b"x\ny\n"
    assert applied(b"a\nb\n", "-a", "+x", "", "") == b"x\nb\n"
    assert applied(b"a\n\n\nb\n", "@@", " a", "", "", "-b", "+c") == b"a\n\n\nc\n"


@pytest.mark.spec("FT-10", "XT-34")
def test_lines_that_are_only_added_need_a_place() -> None:
    data = b"alpha\nbeta\ngamma\n"
    assert applied(data, "@@ beta", "+NEW") == b"alpha\nbeta\nNEW\ngamma\n"
    assert applied(data, "+END", "*** End of File") == b"alpha\nbeta\ngamma\nEND\n"
    assert applied(data, " beta", "+NEW") == b"alpha\nbeta\nNEW\ngamma\n"
    assert "only adds lines" in complaint(data, "@@", "+NEW")
    assert applied(b"", "@@", "+first") == b"first\n"


@pytest.mark.spec("XT-35")
@pytest.mark.parametrize(
    ("data", "hunk", "after"),
    [
        (b"a\nlast", [" last", "+more"], b"a\nlast\nmore"),
        (b"a\nlast", ["@@ last", "+more"], b"a\nlast\nmore"),
        (b"a\nlast", ["-last", "+new"], b"a\nnew"),
        (b"a\nlast", ["-a", "+b"], b"b\nlast"),
        (b"a\nlast", ["-last"], b"a\n"),
        (b"a\nlast\n", ["-last", "+new"], b"a\nnew\n"),
        (b"a\nlast\n", [" last", "+more"], b"a\nlast\nmore\n"),
        (b"one", ["-one", "+two", "\\ No newline at end of file"], b"two"),
        (b"a\n\n", [" ", "+b", "*** End of File"], b"a\n\nb\n"),
    ],
)
def test_the_end_of_a_file_stays_as_it_was(data: bytes, hunk: list[str], after: bytes) -> None:
    assert applied(data, *hunk) == after


@pytest.mark.spec("XT-36")
@pytest.mark.parametrize(
    ("data", "hunk", "after"),
    [
        (b"a\r\nb\r\nc\r\n", [" a", "-b", "+B", "+B2", " c"], b"a\r\nB\r\nB2\r\nc\r\n"),
        (b"alpha\nbeta\r\ngamma\n", ["-alpha", "-beta", "+A", "+B"], b"A\r\nB\r\ngamma\n"),
        (b"alpha\nbeta\r\ngamma\n", [" beta", "+X"], b"alpha\nbeta\r\nX\r\ngamma\n"),
        (b"alpha\nbeta\r\ngamma\n", ["-gamma", "+X"], b"alpha\nbeta\r\nX\n"),
        (b"a\r\nb", [" b", "+c"], b"a\r\nb\r\nc"),
        (b"a\rb\nc\n", ["-c", "+d"], b"a\rb\nd\n"),
    ],
)
def test_line_ends_are_those_of_the_neighbours(data: bytes, hunk: list[str], after: bytes) -> None:
    assert applied(data, *hunk) == after


@pytest.mark.spec("XT-37")
def test_a_bom_is_kept_and_does_not_hide_the_first_line() -> None:
    assert applied(b"\xef\xbb\xbffirst\nsecond\n", "-first", "+1st") == b"\xef\xbb\xbf1st\nsecond\n"
    assert applied(b"\xef\xbb\xbffirst\n", "@@ first", "+x") == b"\xef\xbb\xbffirst\nx\n"


@pytest.mark.spec("XT-38")
def test_bytes_that_are_not_utf8_stay_or_the_hunk_is_refused() -> None:
    data = b"caf\xe9 = False\nx = 1\n\x80\xff\n"
    assert applied(data, "-x = 1", "+x = 2") == b"caf\xe9 = False\nx = 2\n\x80\xff\n"
    assert applied(data, " caf\ufffd = False", "-x = 1", "+x = 2") == b"caf\xe9 = False\nx = 2\n\x80\xff\n"
    assert applied(data, "-caf\ufffd = False", "+cafe = True") == b"cafe = True\nx = 1\n\x80\xff\n"
    assert "are no text" in complaint(data, "-caf\ufffd = False", "+caf\ufffd = True")
    assert "does not fit" in complaint(data, "-cafe = False", "+x")


@pytest.mark.spec("XT-39")
def test_blanks_at_line_ends_may_differ_if_the_place_is_unique() -> None:
    data = b"  x;   \n  y;   \n}\n"
    section = parse_patch(patch_text("*** Update File: f", "-  x;", "-  y;", "+z")).sections[0]
    assert isinstance(section, Update)
    edited = apply_hunks("f", data, section.hunks)
    assert edited.data == b"z\n}\n"
    assert "but for blanks at line ends" in edited.notes[0]
    assert "fits no place exactly, and 2 places" in complaint(b"a \na \n", "-a", "+b")
    assert "does not fit" in complaint(b"if ok:\n  foo()\n  bar()\n", "-    foo()", "+x")
    assert applied(b"a \na\n", "-a", "+b") == b"a \nb\n"


@pytest.mark.spec("XT-32")
def test_a_hunk_that_does_not_fit_says_how_far_it_fits() -> None:
    text = complaint(b"a\nb\nc\n", " a", " b", "-x", "+y")
    assert "the hunk at line 3 of the patch" in text
    assert "after line 2 the patch has 'x', the file has 'c'" in text
    assert "the file has the end of the file" in complaint(b"a\n", " a", "-b")
    assert "no line is 'q'" in complaint(b"a\n", "-q")
    assert "'*** End of File'" in complaint(b"a\nb\n", "-a", "+x", "*** End of File")


LINES = st.lists(st.text(alphabet="ab \t漢", max_size=4), max_size=12)


@pytest.mark.spec("FT-02", "XT-36")
@given(LINES, LINES, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_a_patch_of_all_lines_turns_one_text_into_another(
    old: list[str], new: list[str], end: str, ends: bool
) -> None:
    hunk = [
        ("- " if line.startswith("- ") else line)[0] + line[2:]
        for line in difflib.ndiff(old, new)
        if not line.startswith("? ")
    ]
    assume(any(line[0] in "+-" for line in hunk) and old and new)
    # Without a line end after it, an empty last line is no line.
    assume(ends or (old[-1] and new[-1]))

    def joined(lines: list[str]) -> bytes:
        return (end.join(lines) + (end if ends else "")).encode()

    after = applied(joined(old), "@@", *hunk, "*** End of File")
    kept_last = old[-1] == new[-1] or not ends
    if ends or after.decode().split(end)[-1] == new[-1]:
        assert after == joined(new)
    else:
        assert after == joined(new) + end.encode() or kept_last


@pytest.mark.spec("XT-38")
@given(st.binary(max_size=60), st.integers(0, 5))
def test_what_a_hunk_does_not_touch_comes_out_as_it_went_in(noise: bytes, where: int) -> None:
    assume(b"MARK" not in noise)
    lines = noise.split(b"\n")
    at = min(where, len(lines))
    before, after = lines[:at], lines[at:]
    data = b"\n".join([*before, b"MARK", *after])
    expected = b"\n".join([*before, b"NEW", *after])
    assert applied(data, "-MARK", "+NEW") == expected


PATCH_LINES = st.sampled_from(
    ["*** Begin Patch", "*** End Patch", "*** Add File: a", "*** Delete File: b", "*** Update File: c"]
    + ["*** Move to: d", "*** End of File", "@@", "@@ x", "@@ -1,2 +1,2 @@ x", "", " ", " x", "-x", "+y", "+"]
    + ["\\ No newline at end of file", "stray", "```", "EOF", "-", "*** ", "\t"]
)


@pytest.mark.spec("XT-31")
@given(st.lists(PATCH_LINES, max_size=14), st.text(alphabet="xy\n\r \ufeff\ufffd", max_size=12))
def test_every_patch_is_applied_or_refused_in_words(lines: list[str], content: str) -> None:
    try:
        for section in parse_patch("\n".join(["*** Begin Patch", *lines, "*** End Patch"])).sections:
            if isinstance(section, Update):
                assert isinstance(apply_hunks("c", content.encode(), section.hunks).data, bytes)
    except PatchError as error:
        assert 0 < len(str(error)) < 1000
