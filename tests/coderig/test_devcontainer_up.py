"""`coderig up` on files like those that people have, against the real daemon."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from coderig_kit import Cli, command, wait_until
from devcontainer_kit import NODE_IMAGE, PYTHON_IMAGE, Dev, make_images, opened
from services.docker_service import DockerService

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]


@pytest.fixture(scope="session")
def dev_images(docker_daemon: DockerService) -> DockerService:
    """The daemon, with images like those that people use."""
    client = docker.DockerClient(base_url=docker_daemon.url)
    try:
        make_images(client, docker_daemon.debian_image)
    finally:
        client.close()
    return docker_daemon


@pytest.fixture
def dev(cli: Cli, dev_images: DockerService) -> Iterator[Dev]:
    """An empty workspace and a daemon."""
    with opened(cli, dev_images.url) as made:
        yield made


PYTHON = """\
// For format details, see https://aka.ms/devcontainer.json.
{
    "name": "Python 3",
    "image": "%s",
    "features": {
        "ghcr.io/devcontainers/features/common-utils:2": {}, // not here
    },
    "forwardPorts": [8000],
    "portsAttributes": { "8000": { "label": "app" } },
    "postCreateCommand": "python3 -m venv --without-pip .venv && echo created >> log",
    "postStartCommand": "nohup python3 -m http.server 8000 >/dev/null 2>&1 & echo started >> log",
    "customizations": {
        "vscode": { "extensions": ["ms-python.python"], "settings": { "a": true, } },
    },
    // "remoteUser": "root"
}
"""


@pytest.mark.spec("DC-20", "DC-21", "DC-07", "DC-27")
def test_a_python_file_gives_a_container_with_its_user_commands_and_port(dev: Dev) -> None:
    os.chown(dev.cli.work, 1000, 1000)
    dev.write(PYTHON % PYTHON_IMAGE)
    code, end, _ = dev.up()
    assert (code, end["status"]) == (3, "untrusted")
    assert end["opens"] == ["connects the container to the network bridge (for the ports)"]
    assert dev.client.containers.list(all=True, filters={"name": end["name"]}) == []
    code, end, lines = dev.up("--trust")
    assert (code, end["status"], end["user"], end["folder"]) == (0, "made", "vscode", "/workspaces/work")
    remarks = [line["text"] for line in lines if line["type"] == "remark"]
    assert any("features/common-utils:2 is not installed" in text for text in remarks)
    assert any("the image itself asks for capAdd" in text for text in remarks)
    assert dev.inside("whoami; cat log; test -x .venv/bin/python && echo venv").splitlines() == [
        "vscode",
        "created",
        "started",
        "venv",
    ]
    assert (dev.cli.work / "log").stat().st_uid == 1000
    where = end["ports"]["8000"]
    assert where.startswith("127.0.0.1:")

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://{where}/log", timeout=5) as answer:
                return bool(answer.read() == b"created\nstarted\n")
        except OSError:
            return False

    wait_until(answers, "the server in the container")


@pytest.mark.spec("DC-20", "DC-22", "DC-28")
def test_a_node_file_gives_a_container_with_its_volume_environment_and_parallel_commands(dev: Dev) -> None:
    os.chown(dev.cli.work, 1000, 1000)
    dev.write(
        {
            "name": "Node.js",
            "image": NODE_IMAGE,
            "remoteUser": "node",
            "workspaceFolder": "/workspace",
            "workspaceMount": "source=${localWorkspaceFolder},target=/workspace,type=bind,consistency=cached",
            "mounts": ["source=nm-${devcontainerId},target=/workspace/node_modules,type=volume"],
            "containerEnv": {"NODE_ENV": "development"},
            "remoteEnv": {"PATH": "${containerEnv:PATH}:${containerWorkspaceFolder}/node_modules/.bin"},
            "onCreateCommand": ["touch", "a b"],
            "updateContentCommand": "node --version >version",
            "postCreateCommand": {
                "one": "until [ -e two ]; do sleep 0.05; done; echo one",
                "two": "touch two; mkdir node_modules/.bin",
            },
        }
    )
    end = dev.ready()
    assert (end["user"], end["folder"]) == ("node", "/workspace")
    out = dev.inside("cat version; echo $NODE_ENV; echo $PATH; ls -d 'a b' node_modules/.bin")
    version, environment, path, made, volume = out.splitlines()
    assert (version, environment) == ("v20.11.0", "development")
    assert path.endswith(":/bin:/workspace/node_modules/.bin")
    assert (made, volume) == ("a b", "node_modules/.bin")
    assert "[one] one" in dev.run("logs").out
    (mount,) = (each for each in dev.container().attrs["Mounts"] if each["Type"] == "volume")
    dev.run("rm")
    dev.client.volumes.get(mount["Name"]).remove()


@pytest.mark.spec("DC-20", "DC-23", "DC-24")
def test_a_dockerfile_is_built_with_progress_and_an_edit_of_it_is_noticed(dev: Dev, root: Path) -> None:
    dev.write(
        {
            "build": {"dockerfile": "Dockerfile", "context": "..", "args": {"WORD": "one"}, "target": "dev"},
            "postCreateCommand": "cat /word /note",
        }
    )
    dockerfile = dev.cli.work / ".devcontainer/Dockerfile"
    dockerfile.write_text(
        "FROM coderig-test-debian:latest AS dev\nARG WORD\nCOPY note /note\nRUN echo $WORD >/word\n"
        "FROM dev\nRUN exit 9\n"
    )
    (dev.cli.work / "note").write_text("copied\n")
    code, end, lines = dev.up()
    assert (code, end["status"]) == (0, "made")
    assert any("RUN echo $WORD" in line.get("text", "") for line in lines)
    assert "one\ncopied\n" in "".join(line["text"] for line in lines if line["type"] == "output")
    assert dev.ready()["id"] == end["id"]
    dockerfile.write_text(dockerfile.read_text().replace("echo $WORD", "echo new $WORD"))
    code, changed, _ = dev.up()
    assert (code, changed["status"]) == (1, "changed")
    assert changed["changes"] == ["Dockerfile: its text or the build's settings have changed"]
    assert dev.inside("cat /word") == "one\n"
    assert dev.ready("--replace")["id"] != end["id"]
    assert dev.inside("cat /word") == "new one\n"
    dockerfile.write_text("FROM coderig-test-debian:latest AS dev\nRUN echo told; exit 9\n")
    before = dev.container().id
    failed = dev.run("up", "--replace")
    assert failed.code == 1
    assert "cannot build" in failed.err
    assert "returned a non-zero code: 9" in failed.err
    assert dev.container().id == before


@pytest.mark.spec("DC-24", "DC-25")
def test_an_edited_file_is_shown_as_a_diff_and_applied_with_replace(dev: Dev) -> None:
    base = {
        "image": PYTHON_IMAGE,
        "remoteUser": "root",
        "postCreateCommand": "echo x >>/workspaces/work/created",
    }
    dev.write({**base, "containerEnv": {"SECRET": "s1"}})
    first = dev.ready()
    assert dev.run("diff").code == 0
    dev.write(
        {
            **base,
            "containerEnv": {"SECRET": "s2"},
            "runArgs": ["--memory=300m"],
            "mounts": ["source=vv,target=/v"],
        }
    )
    code, end, _ = dev.up()
    assert (code, end["status"], dev.container().id) == (1, "changed", first["id"])
    assert end["changes"] == [
        "env: another value of SECRET",
        f"memory_bytes: was {2048 << 20}, now {300 << 20}",
        "mounts: new volume vv at /v",
    ]
    shown = dev.run("up")
    assert "--replace" in shown.err
    assert "+++ " + str(dev.file) in shown.err
    assert dev.run("status").code == 1
    diff = dev.run("diff")
    assert diff.code == 1
    assert "mounts: new volume vv at /v" in diff.out
    used = dev.run("exec", "--place", "dev", "echo $SECRET")
    assert used.out == "s1\n"
    after = dev.ready("--replace")
    assert after["id"] != first["id"]
    assert dev.inside("echo $SECRET") == "s2\n"
    assert (dev.cli.work / "created").read_text() == "x\nx\n"
    assert dev.ready("--replace")["id"] == after["id"]
    dev.write(
        {
            **base,
            "containerEnv": {"SECRET": "s2"},
            "runArgs": ["--memory=300m"],
            "mounts": ["source=vv,target=/v"],
            "customizations": {"vscode": {}},
            "postStartCommand": "true",
        }
    )
    assert dev.ready()["id"] == after["id"]
    dev.run("rm")
    dev.client.volumes.get("vv").remove()


@pytest.mark.spec("DC-26")
def test_a_container_that_was_changed_by_others_is_noticed_and_made_again(dev: Dev) -> None:
    dev.write({"image": PYTHON_IMAGE})
    first = dev.ready()
    dev.container().update(mem_limit="1g", memswap_limit="1g")
    code, end, _ = dev.up()
    assert (code, end["status"]) == (1, "changed")
    assert any(row.startswith("memory_bytes: wanted") for row in end["changes"])
    refused = dev.run("exec", "--place", "dev", "true")
    assert refused.code == 125
    assert "memory_bytes" in refused.err
    assert "memory_bytes" in dev.run("diff").out
    assert dev.ready("--replace")["id"] != first["id"]
    assert dev.inside("echo fine") == "fine\n"


@pytest.mark.spec("DC-26")
def test_a_container_of_others_is_left_alone(dev: Dev) -> None:
    dev.write({"image": PYTHON_IMAGE, "runArgs": ["--name=coderig-test-foreign"]})
    foreign = dev.client.containers.create(PYTHON_IMAGE, ["sleep", "60"], name="coderig-test-foreign")
    dev.made.add("coderig-test-foreign")
    for arguments in (
        ["up"],
        ["up", "--replace"],
        ["rm", "coderig-test-foreign"],
        ["stop", "coderig-test-foreign"],
    ):
        done = dev.run(*arguments)
        assert done.code == 1
        assert "was not made by coderig" in done.err
    foreign.reload()
    assert foreign.status == "created"


@pytest.mark.spec("DC-22", "DC-29")
def test_a_command_that_failed_runs_again_and_what_had_finished_does_not(dev: Dev) -> None:
    dev.write(
        {
            "image": PYTHON_IMAGE,
            "remoteUser": "root",
            "onCreateCommand": "echo once >>count",
            "postCreateCommand": "echo again >>count; test -e go",
            "postStartCommand": "echo start >>count",
        }
    )
    code, end, _ = dev.up()
    assert (code, end["status"]) == (1, "failed")
    assert "postCreateCommand failed with exit code 1: echo again >>count; test -e go" in end["message"]
    assert "no network" in end["message"]
    assert "postCreate" in dev.run("status").out
    (dev.cli.work / "go").touch()
    dev.ready()
    dev.ready()
    assert (dev.cli.work / "count").read_text().split() == ["once", "again", "again", "start"]
    dev.run("stop")
    assert dev.run("start").code == 0
    dev.run("stop")
    dev.ready()
    assert (dev.cli.work / "count").read_text().split()[3:] == ["start", "start", "start"]


@pytest.mark.spec("DC-29")
def test_an_up_that_is_stopped_ends_its_command_and_the_next_one_goes_on(dev: Dev) -> None:
    dev.write(
        {
            "image": PYTHON_IMAGE,
            "remoteUser": "root",
            "postCreateCommand": "echo $$ >pid; test -e go || sleep 300",
        }
    )
    process = dev.cli.start("up")
    wait_until(lambda: (dev.cli.work / "pid").exists(), "the command")
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert dev.inside("kill -0 $(cat pid) 2>/dev/null || echo gone") == "gone\n"
    (dev.cli.work / "go").touch()
    assert dev.ready()["status"] == "ready"


@pytest.mark.spec("DC-30")
def test_without_its_record_a_container_is_used_with_proof_and_not_created_twice(dev: Dev) -> None:
    dev.write({"image": PYTHON_IMAGE, "remoteUser": "root", "postCreateCommand": "echo x >>created"})
    first = dev.ready()
    (dev.cli.home / "state/containers" / f"{first['name']}.json").unlink()
    code, end, lines = dev.up()
    assert (code, end["id"]) == (0, first["id"])
    assert any("was there already" in line["text"] for line in lines if line["type"] == "remark")
    assert (dev.cli.work / "created").read_text() == "x\n"
    (dev.cli.home / "state/containers" / f"{first['name']}.json").unlink()
    dev.write({"image": PYTHON_IMAGE, "remoteUser": "root", "containerEnv": {"A": "b"}})
    refused = dev.run("up")
    assert refused.code == 1
    assert "configured differently" in refused.err
    assert dev.ready("--replace")["id"] != first["id"]


@pytest.mark.spec("DC-08", "DC-21")
def test_a_command_on_this_machine_runs_only_with_consent_which_is_kept_until_more_is_asked(dev: Dev) -> None:
    dev.write({"image": PYTHON_IMAGE, "remoteUser": "root", "initializeCommand": "echo $PWD >here"})
    assert dev.up()[0] == 3
    assert not (dev.cli.work / "here").exists()
    dev.ready("--trust")
    assert (dev.cli.work / "here").read_text() == f"{dev.cli.work}\n"
    dev.ready()
    dev.write({"image": PYTHON_IMAGE, "remoteUser": "root", "initializeCommand": "echo other"})
    code, end, _ = dev.up()
    assert (code, end["opens"]) == (3, ["wants to run on this machine: echo other"])


@pytest.mark.spec("DC-31")
def test_what_cannot_work_is_told_before_anything_is_made(dev: Dev) -> None:
    nothing = dev.run("up")
    assert nothing.code == 2
    assert "coderig.toml" in nothing.err
    dev.write('{"image": }')
    assert dev.run("up").code == 2
    dev.write({"image": "no-such-registry.invalid/x:1"})
    code, end, _ = dev.up()
    assert (code, end["status"]) == (1, "failed")
    missing = dev.run("up")
    assert missing.code == 1
    assert "no-such-registry.invalid/x:1 is not here and cannot be pulled" in missing.err
    dev.write({"build": {"dockerfile": "Nofile"}})
    assert "Nofile" in dev.run("up").err
    remote = dev.cli.run("up", env={"DOCKER_HOST": "tcp://127.0.0.1:9"})
    assert remote.code == 2
    assert "may be on another" in remote.err
    away = dev.cli.run("up", env={"DOCKER_HOST": "unix:///nowhere.sock"})
    assert away.code == 1
    assert dev.client.containers.list(all=True, filters={"name": "coderig-work-"}) == []


@pytest.mark.spec("DC-20")
def test_a_coderig_toml_gives_the_owner_of_the_directory_and_no_network(dev: Dev) -> None:
    os.chown(dev.cli.work, 1234, 1234)
    (dev.cli.work / "coderig.toml").write_text(f'image = "{PYTHON_IMAGE}"\nuser = "1234:1234"\npids = 200\n')
    end = dev.ready()
    assert end["user"] == "1234:1234"
    assert dev.inside("id -u; pwd; touch mine; ls /sys/class/net") == "1234\n/workspace\nlo\n"
    assert (dev.cli.work / "mine").stat().st_uid == 1234
    host = dev.container().attrs["HostConfig"]
    assert (host["PidsLimit"], host["CapDrop"], host["CapAdd"]) == (200, ["ALL"], None)


@pytest.mark.spec("DC-32")
def test_json_lines_are_all_that_is_on_standard_output(dev: Dev) -> None:
    dev.write({"image": NODE_IMAGE, "remoteUser": "root", "postCreateCommand": "echo out; echo err >&2"})
    done = dev.run("up", "--json")
    assert done.code == 0
    kinds = [line["type"] for line in done.lines]
    assert kinds[-1] == "end"
    assert {"progress", "output", "end"} == set(kinds)
    streams = {line["stream"]: line["text"] for line in done.lines if line["type"] == "output"}
    assert streams == {"stdout": "out\n", "stderr": "err\n"}
    (row,) = dev.run("ls", "--json").lines
    assert row == {**row, "state": "running", "directory": str(dev.cli.work)}
    assert json.loads(dev.run("status", "--json").out)["changes"] == []


@pytest.mark.spec("DC-33")
def test_two_directories_that_ask_for_one_name_do_not_destroy_each_others_container(dev: Dev) -> None:
    text = f'image = "{NODE_IMAGE}"\nname = "coderig-test-shared"\n'
    (dev.cli.work / "coderig.toml").write_text(text)
    first = dev.ready()
    other = dev.cli.work / "other"
    other.mkdir()
    (other / "coderig.toml").write_text(text)
    refused = dev.run("up", "other", "--replace")
    assert refused.code == 2
    assert f"the dev container of {dev.cli.work}" in refused.err
    assert dev.container().id == first["id"]


@pytest.mark.spec("DC-34")
def test_a_container_that_is_gone_is_made_again_by_up_and_by_nothing_else(dev: Dev) -> None:
    dev.write({"image": NODE_IMAGE, "remoteUser": "root", "postCreateCommand": "echo x >>created"})
    first = dev.ready()
    dev.container().remove(force=True)
    for arguments, code in ((["exec", "--place", "dev", "true"], 125), (["start"], 2), (["stop"], 2)):
        gone = dev.run(*arguments)
        assert gone.code == code
        assert "is gone; `coderig up` makes it again" in gone.err
    assert dev.client.containers.list(all=True, filters={"name": first["name"]}) == []
    assert dev.ready()["id"] != first["id"]
    assert (dev.cli.work / "created").read_text() == "x\nx\n"


@pytest.mark.spec("DC-43")
def test_an_agent_works_in_a_dev_container(dev: Dev) -> None:
    dev.write({"image": NODE_IMAGE, "remoteUser": "root", "remoteEnv": {"GREETING": "hello"}})
    dev.ready()
    model = dev.cli.script([command("echo $GREETING $PWD >said"), "done"])
    done = dev.run("run", "--place", "dev", "--model", model, "--yes", "say it")
    assert done.code == 0, done
    assert (dev.cli.work / "said").read_text() == "hello /workspaces/work\n"
