"""The names of places. Pure: nothing is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from coderig.place import DockerPlace, LocalPlace, PlaceError, SshPlace, parse_place

BASE = Path("/base")


@pytest.mark.spec("CLI-80")
@pytest.mark.parametrize(
    ("text", "directory"),
    [
        ("local", "/base"),
        ("local:", "/base"),
        ("local:/srv/x", "/srv/x"),
        ("local:sub/dir", "/base/sub/dir"),
        ("local:with space?and=mark", "/base/with space?and=mark"),
    ],
)
def test_local_places(text: str, directory: str) -> None:
    place = parse_place(text, BASE)
    assert isinstance(place, LocalPlace)
    assert str(place.directory) == directory


@pytest.mark.spec("CLI-80")
def test_a_tilde_is_the_home_directory() -> None:
    place = parse_place("local:~/x", BASE)
    assert isinstance(place, LocalPlace)
    assert place.directory == Path.home() / "x"


@pytest.mark.spec("CLI-81")
@pytest.mark.parametrize(
    ("text", "host", "user", "port", "directory"),
    [
        ("ssh://box", "box", None, None, None),
        ("ssh://me@box:2222/srv/x%20y", "box", "me", 2222, "/srv/x y"),
        ("ssh://me@box/", "box", "me", None, None),
        ("ssh://box/~", "box", None, None, None),
        ("ssh://box/~/work", "box", None, None, "work"),
        ("ssh://[::1]:22/x", "::1", None, 22, "/x"),
        ("ssh://a%40b@box", "box", "a@b", None, None),
    ],
)
def test_ssh_places(text: str, host: str, user: str | None, port: int | None, directory: str | None) -> None:
    place = parse_place(text, BASE)
    assert isinstance(place, SshPlace)
    options = place.options
    assert (options.host, options.user, options.port, place.directory) == (host, user, port, directory)


@pytest.mark.spec("CLI-81")
def test_ssh_options_in_the_query() -> None:
    place = parse_place("ssh://box?identity_file=k/id&use_agent=0&keepalive_s=2.5&proxy_jump=a,b", BASE)
    assert isinstance(place, SshPlace)
    options = place.options
    assert (options.identity_file, options.use_agent) == ("/base/k/id", False)
    assert (options.keepalive_s, options.proxy_jump) == (2.5, "a,b")


@pytest.mark.spec("CLI-82")
def test_docker_places() -> None:
    text = (
        "docker://registry:5000/org/image:tag@sha256:abc?name=dev&network=bridge&user=1:2&memory=1.5g&cpus=2"
        "&pids=50&bind=src&keep=1&host=tcp://localhost:1&workdir=sub&read_only=yes&tmpfs=64m"
    )
    place = parse_place(text, BASE)
    assert isinstance(place, DockerPlace)
    options = place.options
    assert options.image == "registry:5000/org/image:tag@sha256:abc"
    assert (options.name, options.network, options.user) == ("dev", "bridge", "1:2")
    assert (options.memory_bytes, options.cpus, options.pids_limit) == (1536 << 20, 2.0, 50)
    assert (options.directory, options.keep, options.host) == ("/base/src", True, "tcp://localhost:1")
    assert (options.workdir, options.read_only, options.tmpfs_bytes) == ("/workspace/sub", True, 64 << 20)


@pytest.mark.spec("CLI-83")
def test_a_container_without_a_name_gets_the_runs_and_goes_with_it() -> None:
    place = parse_place("docker://image").for_run("12345678")
    assert isinstance(place, DockerPlace)
    assert place.ours
    assert (place.options.name, place.options.keep) == ("coderig-run-12345678", True)
    assert place.options.user == "65534:65534"
    named = parse_place("docker://image?name=mine")
    assert named.for_run("12345678") == named


@pytest.mark.spec("CLI-83")
@pytest.mark.parametrize(
    ("query", "name", "goes"),
    [
        ("keep=1", "coderig-run-1", False),
        ("keep=0", "coderig-run-1", True),
        ("name=mine&keep=0", "mine", True),
    ],
)
def test_keep_is_about_the_end_of_the_run_not_of_the_process(query: str, name: str, goes: bool) -> None:
    place = parse_place(f"docker://image?{query}").for_run("1")
    assert isinstance(place, DockerPlace)
    assert (place.options.name, place.options.keep, place.ours) == (name, True, goes)


@pytest.mark.spec("CLI-80", "CLI-81", "CLI-82")
@pytest.mark.parametrize(
    "text", ["local:/a", "ssh://me@box:1/a?use_agent=0", "docker://image", "docker://i?name=x"]
)
def test_a_place_at_another_directory_has_a_name_that_leads_there(text: str) -> None:
    moved = parse_place(text, BASE).at("/workspace/b c")
    assert parse_place(moved.text, BASE) == moved


@pytest.mark.spec("CLI-84")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "local"),
        ("lokal", "did you mean local"),
        ("local:///x", "without //"),
        ("local:~nobody-is-called-so/x", "nobody-is-called-so"),
        ("ssh:box", "ssh://user@host"),
        ("docker:image", "docker://IMAGE"),
        ("ssh://", "host is missing"),
        ("ssh://me@", "host is missing"),
        ("ssh://@box", "user before @"),
        ("ssh://me:secret@box", "use a key or an agent"),
        ("ssh://box:0", "port '0'"),
        ("ssh://box:ssh", "port 'ssh'"),
        ("ssh://box:65536", "port '65536'"),
        ("ssh://box?identity=x", "did you mean identity_file"),
        ("ssh://box?use_agent=perhaps", "use_agent=perhaps"),
        ("docker://", "image is missing"),
        ("docker://a b", "holds a space"),
        ("docker://i?nam=x", "did you mean name"),
        ("docker://i?zzz=x", "known are bind"),
        ("docker://i?name=a&name=b", "given twice"),
        ("docker://i?name", "has no value"),
        ("docker://i?memory=lots", "memory=lots"),
        ("docker://i?pids=-1", "pids=-1"),
        ("docker://i?memory=0", "above 0"),
        ("docker://i?workdir=/etc", "/workspace"),
        ("docker://i?bind=a&volume=b", "/workspace"),
        ("local:a\0b", "NUL"),
    ],
)
def test_what_is_wrong_with_a_name_is_told(text: str, words: str) -> None:
    with pytest.raises(PlaceError) as caught:
        parse_place(text, BASE)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
