"""Which host keys are trusted: the known_hosts file, read as OpenSSH reads it."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from sandbox.backends.ssh_known_hosts import HostKey, find_keys, host_name

ED = HostKey("ssh-ed25519", b"one key")
EC = HostKey("ecdsa-sha2-nistp256", b"another key")


def line(names: str, key: HostKey = ED, marker: str = "") -> str:
    return f"{marker} {names} {key.type} {base64.b64encode(key.blob).decode()} somebody@somewhere\n".lstrip()


def hashed(name: str) -> str:
    salt = b"0123456789abcdefghij"
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


@pytest.mark.spec("SSH-02")
@pytest.mark.parametrize(
    ("names", "host", "port"),
    [
        ("build.example.org", "build.example.org", 22),
        ("build.example.org", "Build.Example.ORG", 22),
        ("other,build.example.org,10.0.0.1", "10.0.0.1", 22),
        ("[build.example.org]:2222", "build.example.org", 2222),
        ("[::1]:2222", "::1", 2222),
        ("*.example.org", "build.example.org", 22),
        ("build?.example.org", "build1.example.org", 22),
        (hashed("build.example.org"), "build.example.org", 22),
        (hashed("[build.example.org]:2222"), "build.example.org", 2222),
        ("build.example.org", "build.example.org", 2222),
    ],
)
def test_a_host_is_found_by_name_pattern_port_and_hash(names: str, host: str, port: int) -> None:
    assert find_keys([line(names)], host, port).judge(ED) == "known"


@pytest.mark.spec("SSH-02")
@pytest.mark.parametrize(
    ("names", "host", "port"),
    [
        ("build.example.org", "example.org", 22),
        ("[build.example.org]:2222", "build.example.org", 22),
        ("[build.example.org]:2222", "build.example.org", 2223),
        ("*.example.org,!build.example.org", "build.example.org", 22),
        ("[b]:2222", "bb", 2222),
        (hashed("other.example.org"), "build.example.org", 22),
        ("|1|not base64|x", "build.example.org", 22),
        ("|2|a|b", "build.example.org", 22),
    ],
)
def test_another_host_is_not_found(names: str, host: str, port: int) -> None:
    assert find_keys([line(names)], host, port).judge(ED) == "unknown"


@pytest.mark.spec("SSH-03")
def test_another_key_than_the_known_one_is_changed_and_not_unknown() -> None:
    known = find_keys([line("h")], "h", 22)
    assert known.judge(HostKey("ssh-ed25519", b"a third key")) == "changed"
    assert known.judge(EC) == "changed"


@pytest.mark.spec("SSH-03")
def test_a_line_for_the_port_counts_more_than_one_for_the_bare_name() -> None:
    known = find_keys([line("h", EC) + line("[h]:2222", ED)], "h", 2222)
    assert known.judge(ED) == "known"
    assert known.judge(EC) == "changed"


@pytest.mark.spec("SSH-05")
def test_a_revoked_key_is_revoked_even_where_another_line_trusts_it() -> None:
    known = find_keys([line("h"), line("*", marker="@revoked")], "h", 22)
    assert known.judge(ED) == "revoked"


@pytest.mark.spec("SSH-05")
def test_a_certificate_authority_is_not_taken_for_a_host_key() -> None:
    known = find_keys([line("*", marker="@cert-authority")], "h", 22)
    assert known.judge(ED) == "unknown"
    assert known.authority


@pytest.mark.spec("SSH-02")
def test_lines_that_make_no_sense_are_passed_over() -> None:
    text = "# a comment\n\n h\nh ssh-ed25519 ???\n@marker\nh ssh-ed25519\n" + line("h", EC) + line("h", ED)
    known = find_keys([text], "h", 22)
    assert known.judge(ED) == "known"
    assert known.key_types() == (EC.type, ED.type)


@pytest.mark.spec("SSH-03")
def test_a_fingerprint_is_written_as_openssh_writes_it() -> None:
    assert ED.fingerprint == "ssh-ed25519 SHA256:" + base64.b64encode(
        hashlib.sha256(b"one key").digest()
    ).decode().rstrip("=")
    assert host_name("Host", 22) == "host"
    assert host_name("Host", 2222) == "[host]:2222"
