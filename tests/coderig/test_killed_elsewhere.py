"""A run that is killed while its command runs in another place, and goes on there."""

from __future__ import annotations

import signal

import pytest
from coderig_kit import Cli, Script, command
from services.docker_service import DockerService
from services.ssh_service import SshService


@pytest.fixture(params=[pytest.param("ssh", marks=pytest.mark.ssh), "debian", "busybox"])
def elsewhere(request: pytest.FixtureRequest, cli: Cli) -> str:
    """The name of a place that is not here."""
    if request.param == "ssh":
        service: SshService = request.getfixturevalue("ssh_service")
        return service.place(str(cli.work))
    daemon: DockerService = request.getfixturevalue("docker_daemon")
    cli.env["DOCKER_HOST"] = daemon.url
    image = daemon.debian_image if request.param == "debian" else daemon.busybox_image
    return f"docker://{image}"


@pytest.mark.spec("CLI-15")
@pytest.mark.docker
def test_what_a_killed_run_left_is_ended_where_it_runs_and_the_files_are_still_there(
    cli: Cli, elsewhere: str
) -> None:
    answers: Script = [
        command("echo x >>first", id="c1"),
        command("echo x >>second; echo begun; sleep 300", id="c2"),
        command("cat first second", id="c3"),
        "Done.",
    ]
    process = cli.start("run", "x", "--place", elsewhere, "--model", cli.script(answers), "--yes")
    assert process.stdout is not None
    assert any(line == "  begun\n" for line in iter(process.stdout.readline, ""))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = cli.run("resume", "last", "--yes")
    assert done.code == 0, done
    assert "had left running" in done.err
    assert "  x\n  x\n" in done.out
    assert [len(found) for found in cli.outputs(cli.only_id).values()] == [1, 1, 1]
