"""`coderig doctor`."""

from __future__ import annotations

import re

import pytest
from coderig_kit import Cli
from services.docker_service import DockerService

from coderig.doctor import examine


@pytest.mark.spec("CLI-90")
def test_doctor_tells_what_is_here_and_what_to_do_and_exits_0(cli: Cli) -> None:
    done = cli.run("doctor")
    assert done.code == 0
    for word in (
        "coderig",
        "docker",
        "ssh",
        "isolation",
        "bubblewrap",
        "landlock",
        "openai",
        "anthropic",
        "git",
    ):
        assert f" {word}" in done.out
    assert "none: commands in a local place can do whatever you can do" in done.out
    found = {line["subject"]: line for line in cli.run("doctor", "--json").lines}
    assert set(found["git"]) == {"subject", "status", "detail", "advice"}
    assert all(line["advice"] for line in found.values() if line["status"] == "missing")


@pytest.mark.spec("CLI-91")
def test_doctor_says_that_a_key_is_set_and_never_shows_it(cli: Cli) -> None:
    env = {"OPENAI_API_KEY": "sk-very-secret-value"}
    for arguments in (["doctor"], ["doctor", "--json"]):
        done = cli.run(*arguments, env=env)
        assert "OPENAI_API_KEY is set" in done.out
        assert "ANTHROPIC_API_KEY is not set" in done.out
        assert "very-secret" not in done.out + done.err


@pytest.mark.spec("CLI-92")
def test_a_daemon_that_does_not_answer_is_advice_not_a_failure() -> None:
    found = {each.subject: each for each in examine({"HOME": "/", "DOCKER_HOST": "unix:///nowhere.sock"})}
    assert found["docker"].status == "missing"
    assert "DOCKER_HOST" in found["docker"].advice


@pytest.mark.spec("CLI-92")
@pytest.mark.docker
def test_a_daemon_that_answers_is_named_with_its_images(docker_daemon: DockerService) -> None:
    found = {each.subject: each for each in examine({"HOME": "/", "DOCKER_HOST": docker_daemon.url})}
    assert found["docker"].status == "ok"
    assert docker_daemon.url in found["docker"].detail
    told = found["docker images"].detail
    # The first of them by name; a daemon that is kept for later runs may have any number.
    assert docker_daemon.debian_image in told or re.search(r" and \d+ more$", told)
    assert "<none>" not in told
