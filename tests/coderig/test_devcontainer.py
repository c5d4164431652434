"""What devcontainer.json and coderig.toml come to, without a daemon."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coderig.devcontainer import find_config, read_config
from coderig.devcontainer_config import ConfigError, DevConfig, Step
from coderig.devcontainer_jsonc import JsoncError, loads
from coderig.devcontainer_variables import fill_container_env
from sandbox.backends.docker_options import DockerMount

HOST = {"HOME": "/home/me", "TOKEN": "t0k"}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """An empty workspace."""
    made = tmp_path / "app"
    (made / ".devcontainer").mkdir(parents=True)
    return made


def read(
    work: Path, raw: Mapping[str, Any] | str, name: str = ".devcontainer/devcontainer.json"
) -> DevConfig:
    text = raw if isinstance(raw, str) else json.dumps(raw)
    (work / name).write_text(text)
    return read_config(work, find_config(work), HOST)


@pytest.mark.spec("DC-01")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, // one\n "b": [1, 2,], }', {"a": 1, "b": [1, 2]}),
        ('/* x */ {"u": "http://x/*y*/", "c": "a,]"}', {"u": "http://x/*y*/", "c": "a,]"}),
        ('\ufeff{"q": "\\"//", /* , */ }', {"q": '"//'}),
        ('{"a": [1, /* last */ ] // end\n}', {"a": [1]}),
    ],
)
def test_comments_and_trailing_commas_are_read_over_and_texts_are_kept(text: str, value: object) -> None:
    assert loads(text) == value


@pytest.mark.spec("DC-02")
@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', 3, 3, "delimiter"),
        ('{\n // x\n "a": /* no end', 3, 7, "does not end"),
        ('{"a": 1,\n "a": 2}', 1, 2, "twice"),
        ('{"a": NaN}', 1, 7, "NaN"),
        ('{"a": 1 1}', 1, 9, "delimiter"),
        ("", 1, 1, "value"),
    ],
)
def test_what_is_no_json_is_told_with_its_line_and_column(
    text: str, line: int, column: int, words: str
) -> None:
    with pytest.raises(JsoncError, match=words) as caught:
        loads(text)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.spec("DC-02")
def test_a_mistake_names_the_file_and_the_place(work: Path) -> None:
    with pytest.raises(ConfigError, match=r"devcontainer\.json:2:1: "):
        read(work, "{\n!}")


@pytest.mark.spec("DC-03")
def test_variables_of_the_specification_are_filled_in_and_the_shells_own_are_left(work: Path) -> None:
    config = read(
        work,
        {
            "image": "i",
            "workspaceFolder": "/src/${localWorkspaceFolderBasename}",
            "containerEnv": {
                "A": "${localWorkspaceFolder}:${containerWorkspaceFolder}",
                "N": "${containerWorkspaceFolderBasename}",
                "B": "${localEnv:HOME} ${localEnv:NONE} ${localEnv:NONE:a:b}",
            },
            "remoteEnv": {"PATH": "${containerEnv:PATH}:/x", "N": None, "D": "${containerEnv:NONE:d}"},
            "mounts": ["type=volume,source=v-${devcontainerId},target=/v"],
            "postCreateCommand": "echo ${HOME} ${x:-y}",
        },
    )
    assert config.folder == "/src/app"
    assert config.options.env == {"A": f"{work}:/src/app", "N": "app", "B": "/home/me  a:b"}
    assert fill_container_env(config.remote_env, {"PATH": "/bin"}) == {"PATH": "/bin:/x", "N": None, "D": "d"}
    assert config.stages["postCreate"] == (Step("echo ${HOME} ${x:-y}"),)
    (volume,) = (mount for mount in config.options.mounts if mount.type == "volume")
    assert len(volume.source.removeprefix("v-")) == 52


@pytest.mark.spec("DC-04")
def test_the_workspace_is_mounted_where_the_specification_says(work: Path) -> None:
    plain = read(work, {"image": "i"})
    assert (plain.folder, plain.options.mounts) == (
        "/workspaces/app",
        (DockerMount(str(work), "/workspaces/app"),),
    )
    below = read(work, {"image": "i", "workspaceFolder": "/workspaces/app/sub"})
    assert below.folder == "/workspaces/app/sub"
    assert below.options.mounts == plain.options.mounts
    own = read(
        work,
        {
            "image": "i",
            "workspaceMount": "source=${localWorkspaceFolder}/sub,target=/w,type=bind,consistency=cached",
            "workspaceFolder": "/w",
        },
    )
    assert own.options.mounts == (DockerMount(f"{work}/sub", "/w"),)
    none = read(work, {"image": "i", "workspaceMount": "", "workspaceFolder": "/w"})
    assert none.options.mounts == ()


@pytest.mark.spec("DC-05")
def test_commands_may_be_a_text_a_list_or_an_object_of_these(work: Path) -> None:
    config = read(
        work,
        {
            "image": "i",
            "onCreateCommand": "a b",
            "postCreateCommand": ["a", "b c"],
            "postStartCommand": {"one": "x", "two": ["y"]},
            "updateContentCommand": "",
        },
    )
    assert config.stages["onCreate"] == (Step("a b"),)
    assert config.stages["postCreate"] == (Step(("a", "b c")),)
    assert config.stages["postStart"] == (Step("x", "one"), Step(("y",), "two"))
    assert config.stages["updateContent"] == ()


@pytest.mark.spec("DC-06")
def test_run_args_become_options_as_docker_run_would_read_them(work: Path) -> None:
    options = read(
        work,
        {
            "image": "i",
            "runArgs": [
                "--cap-add=CAP_SYS_PTRACE",
                "--cap-add",
                "net_admin",
                "--security-opt",
                "no-new-privileges:true",
                "-m=512m",
                "--cpus",
                "2.5",
                "--pids-limit=99",
                "-eA=b=c",
                "-e",
                "D=",
                "-u",
                "1000:1000",
                "--net=bridge",
                "-v",
                "cache:/cache:ro",
                "--mount",
                "type=bind,src=/opt,dst=/opt,readonly",
                "--name=mine",
                "--read-only",
                "--init",
                "--platform",
                "linux/amd64",
                "--runtime=runc",
            ],
        },
    ).options
    assert options.cap_add == ("SYS_PTRACE", "NET_ADMIN")
    assert (options.memory_bytes, options.cpus, options.pids_limit) == (512 << 20, 2.5, 99)
    assert options.env == {"A": "b=c", "D": ""}
    assert (options.user, options.network, options.name) == ("1000:1000", "bridge", "mine")
    assert options.mounts[1:] == (
        DockerMount("cache", "/cache", True, "volume"),
        DockerMount("/opt", "/opt", True),
    )
    assert (options.read_only, options.platform, options.runtime) == (True, "linux/amd64", "runc")


@pytest.mark.spec("DC-07")
def test_what_is_not_supported_is_named_one_line_each(work: Path) -> None:
    config = read(
        work,
        {
            "image": "i",
            "features": {"ghcr.io/devcontainers/features/node:1": {}},
            "privileged": True,
            "overrideCommand": False,
            "securityOpt": ["seccomp=unconfined"],
            "runArgs": ["--shm-size=1g", "--gpus", "all", "--privileged"],
            "hostRequirements": {"gpu": "optional"},
            "mounts": ["type=tmpfs,target=/t"],
            "forwardPorts": ["db:5432"],
            "customization": {},
            "customizations": {"vscode": {"extensions": ["x"]}},
            "portsAttributes": {},
        },
    )
    words = "\n".join(config.unsupported)
    for part in (
        "features: ghcr.io/devcontainers/features/node:1",
        "privileged",
        "overrideCommand",
        "seccomp=unconfined",
        "--shm-size 1g",
        "--gpus all",
        "--privileged",
        "GPU",
        "tmpfs",
        "db:5432",
        "did you mean customizations?",
    ):
        assert part in words
    assert len(config.unsupported) == 11


@pytest.mark.spec("DC-08")
def test_what_a_file_opens_beyond_the_defaults_is_listed(work: Path) -> None:
    assert read(work, {"image": "i", "containerEnv": {"H": "${localEnv:HOME}"}}).loosens == ()
    opened = read(
        work,
        {
            "image": "i",
            "mounts": [
                "type=bind,source=${localEnv:HOME}/.ssh,target=/ssh,readonly",
                f"type=bind,source={work}/sub,target=/sub",
            ],
            "capAdd": ["SYS_PTRACE"],
            "containerEnv": {"T": "${localEnv:TOKEN}"},
            "runArgs": ["--network=bridge"],
            "initializeCommand": "make key",
        },
    ).loosens
    assert sorted(opened) == [
        "connects the container to the network bridge",
        "gives the container /home/me/.ssh of this machine to read",
        "gives the container the capability SYS_PTRACE",
        "reads TOKEN of this machine's environment",
        "wants to run on this machine: make key",
    ]


@pytest.mark.spec("DC-08")
def test_a_link_in_the_workspace_that_leads_out_of_it_is_outside(work: Path) -> None:
    (work / "out").symlink_to("/etc")
    config = read(work, {"image": "i", "mounts": [f"type=bind,source={work}/out,target=/x"]})
    assert config.loosens == (f"gives the container {work}/out of this machine to read and write",)


@pytest.mark.spec("DC-09")
@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({}, "neither image nor build"),
        ({"image": "a", "build": {}}, "both"),
        ({"image": "a b"}, "'a b'"),
        ({"image": 3}, "image: "),
        ({"image": "i", "postCreateCommand": 3}, "postCreateCommand: this must be a text, a list"),
        ({"image": "i", "forwardPorts": [70000]}, "forwardPorts: '70000'"),
        ({"image": "i", "forwardPorts": [80], "runArgs": ["--network=none"]}, "network is none"),
        ({"image": "i", "runArgs": ["--memory=much"]}, "runArgs: --memory much: this is not a size"),
        ({"image": "i", "runArgs": ["--memory"]}, "--memory has no value"),
        ({"image": "i", "runArgs": ["ls"]}, "'ls' is no option"),
        ({"image": "i", "mounts": ["type=bind,source=x,target=/x"]}, "source 'x' is relative"),
        ({"image": "i", "mounts": ["type=volume,source=xx,target=y"]}, "must be an absolute path"),
        ({"image": "i", "workspaceMount": "source=/x,target=/x,type=bind"}, "needs workspaceFolder"),
        ({"image": "i", "workspaceFolder": "x"}, "absolute"),
        ({"image": "i", "customizations": {"coderig": {"netwrok": "x"}}}, "netwrok"),
        ({"image": "i", "runArgs": ["--pids-limit=0"]}, "pids_limit"),
        ({"image": "i", "runArgs": ["--name=../x"]}, "no name of a container"),
        ([1], "object"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_property(work: Path, raw: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read(work, json.dumps(raw))
    assert str(work / ".devcontainer/devcontainer.json") in str(caught.value)


@pytest.mark.spec("DC-10")
def test_the_file_is_found_where_the_specification_looks_and_coderig_toml_comes_first(work: Path) -> None:
    with pytest.raises(ConfigError, match=r"coderig\.toml with"):
        find_config(work)
    for name in ("a", "b"):
        (work / ".devcontainer" / name).mkdir()
        (work / ".devcontainer" / name / "devcontainer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"--config one of \.devcontainer/a/devcontainer\.json, "):
        find_config(work)
    chosen = work / ".devcontainer/b/devcontainer.json"
    assert find_config(work, chosen) == chosen
    for name in (".devcontainer.json", ".devcontainer/devcontainer.json", "coderig.toml"):
        (work / name).write_text("{}")
        assert find_config(work) == work / name
    with pytest.raises(ConfigError, match="no file"):
        find_config(work, work / "x.json")


@pytest.mark.spec("DC-11")
def test_coderig_toml_says_the_same_in_its_own_words(work: Path) -> None:
    config = read(
        work,
        """
        image = "i"
        name = "box"
        user = "dev"
        memory = "1g"
        cpus = 2
        env = { A = "b" }
        mounts = ["cache:/cache", "./data:/data:ro"]
        network = "bridge"
        post_create = ["make", "all"]
        post_start = { a = "x" }
        """,
        "coderig.toml",
    )
    assert (config.name, config.folder, config.image) == ("box", "/workspace", "i")
    assert (config.options.memory_bytes, config.options.cpus) == (1 << 30, 2.0)
    assert config.options.mounts == (
        DockerMount(str(work), "/workspace"),
        DockerMount("cache", "/cache", type="volume"),
        DockerMount(f"{work}/data", "/data", True),
    )
    assert config.stages["postCreate"] == (Step(("make", "all")),)
    assert config.stages["postStart"] == (Step("x", "a"),)
    assert config.loosens == ("connects the container to the network bridge",)
    for text, words in (('imag = "i"', "imag: this setting is not known"), ("image = ", "Invalid value")):
        with pytest.raises(ConfigError, match=words):
            read(work, text, "coderig.toml")


@pytest.mark.spec("DC-12")
def test_a_build_is_relative_to_its_file_and_the_old_spelling_means_the_same(work: Path) -> None:
    new = read(
        work,
        {"build": {"dockerfile": "Dockerfile", "context": "..", "args": {"V": "3", "N": 4}, "target": "dev"}},
    ).build
    assert new is not None
    assert (new.dockerfile, new.context) == (work / ".devcontainer/Dockerfile", work)
    assert (new.args, new.target) == ({"V": "3", "N": "4"}, "dev")
    old = read(work, {"dockerFile": "Dockerfile", "context": ".."}).build
    assert old is not None
    assert (old.dockerfile, old.context) == (new.dockerfile, new.context)


@pytest.mark.spec("DC-13")
def test_the_same_directory_always_gets_the_same_name_and_another_one_another(tmp_path: Path) -> None:
    names = []
    for path in ("a/app", "b/app", "b/Ünï cøde"):
        work = tmp_path / path
        (work / ".devcontainer").mkdir(parents=True)
        names.append(read(work, {"image": "i"}).name)
        assert read(work, {"image": "j"}).name == names[-1]
    assert len(set(names)) == 3
    assert all(name.isascii() and name.startswith("coderig-") for name in names)
    assert names[0].startswith("coderig-app-")
