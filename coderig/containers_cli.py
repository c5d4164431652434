"""The commands about dev containers. Exit codes: 0 done, 1 failed or different, 2 wrong use, 3 not agreed;
`shell` has its program's own, and 125 for a container that failed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coderig.guard import guarded

_Target = Annotated[
    str | None,
    typer.Argument(
        metavar="[TARGET]", help="A directory, or a container's name; default: the current directory."
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="JSON lines on standard output, and nothing else there.")]


def register_containers(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(up)
    app.command("ls")(list_containers)
    for command in (shell, status, start, stop, diff, logs, cp, gc):
        app.command()(command)
    app.command("rm")(remove)


def up(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="The workspace.")] = Path(),
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="The file that describes the container.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Make the container again if it is not as the file says.")
    ] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Agree to what the file opens beyond the defaults.")
    ] = False,
    json_lines: _Json = False,
) -> None:
    """Make a directory's dev container, or start it again.

    It is described by coderig.toml or .devcontainer/devcontainer.json. A file that has changed since is shown
    as a diff, and applied with --replace. What the file opens beyond the defaults has to be agreed to once.

    Exit codes: 0 it runs, 1 it failed or is not as the file says, 2 wrong use, 3 --trust is needed.
    """
    from coderig import containers

    with guarded():
        raise typer.Exit(
            containers.up(directory, config, replace_it=replace, trust=trust, json_lines=json_lines)
        )


def shell(
    target: _Target = None,
    command: Annotated[
        str | None, typer.Option("--command", "-c", metavar="TEXT", help="Run this instead of a shell.")
    ] = None,
    place: Annotated[
        str | None, typer.Option("--place", metavar="PLACE", help="Any place instead of a dev container.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="K=V", help="Set in it; may be repeated.")
    ] = None,
) -> None:
    """Open a terminal in a dev container.

    Every key goes to it, Ctrl-C too. The exit code is the shell's own.

    The container failed: 125. Wrong use: 2.
    """
    from coderig.shell_cli import run_shell

    with guarded(place_failed=125):
        raise typer.Exit(run_shell(target, place, command, env or []))


def list_containers(json_lines: _Json = False) -> None:
    """List the containers that coderig has made."""
    from coderig import containers

    with guarded():
        raise typer.Exit(containers.list_all(json_lines))


def status(target: _Target = None, json_lines: _Json = False) -> None:
    """Tell how a container is.

    Exit code 0: it runs and is as its file says; else 1.
    """
    from coderig import containers

    with guarded():
        raise typer.Exit(containers.status(target, json_lines))


def start(target: _Target = None) -> None:
    """Start a container that was stopped."""
    from coderig import containers

    with guarded():
        raise typer.Exit(containers.start(target))


def stop(target: _Target = None) -> None:
    """Stop a container. Its files stay, its programs end."""
    from coderig import containers

    with guarded():
        raise typer.Exit(containers.stop(target))


def remove(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...", help="Directories or containers' names; default: the current directory."
        ),
    ] = None,
) -> None:
    """Remove containers, with what only they hold.

    The directory on this machine and named volumes stay.
    """
    from coderig import containers

    with guarded():
        raise typer.Exit(containers.remove(targets or []))


def diff(target: _Target = None, json_lines: _Json = False) -> None:
    """Show how a container's file, and the container itself, differ from what was made.

    Exit code 0: not at all; 1: they do.
    """
    from coderig import containers

    with guarded():
        raise typer.Exit(containers.show_diff(target, json_lines))


def logs(
    target: _Target = None,
    tail: Annotated[int, typer.Option("--tail", metavar="N", help="Only the last lines; 0: all.", min=0)] = 0,
) -> None:
    """Show what a container's lifecycle commands, and the container itself, have printed."""
    from coderig import containers

    with guarded():
        raise typer.Exit(containers.logs(target, tail))


def cp(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A path, or [CONTAINER]:PATH.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A path, or [CONTAINER]:PATH.")],
) -> None:
    """Copy a file or a directory to or from a dev container.

    `:PATH` is in the dev container of the current directory, `NAME:PATH` in the container of that name.
    Links and special files are named and left out (exit code 1).
    """
    from coderig.containers_cp import copy

    with guarded():
        raise typer.Exit(copy(source, target))


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be removed.")] = False,
    json_lines: _Json = False,
) -> None:
    """Remove what nobody can use any more.

    Temporary containers whose process is gone, stopped dev containers whose
    directory is gone, and records of containers that are gone.
    """
    from coderig import containers

    with guarded():
        raise typer.Exit(containers.collect(dry_run, json_lines))
