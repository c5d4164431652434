"""The command line. Exit codes of `run`, `resume` and `demo`: 0 done, 1 failed, 2 wrong use, 3 an approval
is needed, 130 interrupted. `exec` has its command's own, 124 for a timeout, 125 for a place that failed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coderig.containers_cli import register_containers
from coderig.guard import complain, guarded
from coderig.signals import FAILED, USAGE, Interrupted, raise_on_signals
from coderig.terminal_io import flush_standard_streams, hold_standard_streams

app = typer.Typer(
    name="coderig",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Run commands, and an agent that edits code, in a local, SSH or Docker place.",
    epilog="PLACE is local[:DIR], dev[:DIR], ssh://[user@]host[:port][/DIR] or "
    "docker://IMAGE[?option=value&...]. "
    "MODEL is openai:NAME, anthropic:NAME or script:FILE.",
)

_Place = Annotated[
    str, typer.Option("--place", metavar="PLACE", help="Where commands run; default: the current directory.")
]
_Json = Annotated[bool, typer.Option("--json", help="JSON lines on standard output, and nothing else there.")]
_Yes = Annotated[bool, typer.Option("--yes", help="Approve whatever the policy asks about.")]
_BaseUrl = Annotated[
    str | None, typer.Option("--base-url", metavar="URL", help="A server that speaks the provider's wire.")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        from coderig.doctor import own_version

        typer.echo(f"coderig {own_version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command("run")
def run_command(
    task: Annotated[str, typer.Argument(metavar="TASK", help="What the agent is to do; - reads stdin.")],
    model: Annotated[
        str, typer.Option("--model", metavar="MODEL", help="openai:NAME, anthropic:NAME or script:FILE.")
    ],
    place: _Place = "local",
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="FILE", help="Rules for commands and paths (TOML).")
    ] = None,
    yes: _Yes = False,
    base_url: _BaseUrl = None,
    max_turns: Annotated[
        int, typer.Option("--max-turns", metavar="N", help="Model calls; -1: no limit.")
    ] = 50,
    json_lines: _Json = False,
) -> None:
    """Let an agent work on a task in a place.

    Without a policy, every command and every edit asks; with one, what it does not allow. Ctrl-C stops the
    run and its command. A run that stopped goes on with `coderig resume`.

    Exit codes: 0 done, 1 failed, 2 wrong use, 3 an approval is needed, 130 interrupted.
    """
    from coderig.commands import start_run
    from coderig.session import Decisions

    with guarded():
        if task == "-":
            task = sys.stdin.read()
        decisions = Decisions(approve_all=yes)
        raise typer.Exit(start_run(task, place, model, policy, base_url, max_turns, decisions, json_lines))


@app.command()
def resume(
    run_id: Annotated[str, typer.Argument(metavar="ID", help="The run; first letters, or `last`, will do.")],
    yes: _Yes = False,
    approve: Annotated[
        list[str] | None,
        typer.Option("--approve", metavar="CALL", help="Approve this call; `all`: all."),
    ] = None,
    reject: Annotated[
        list[str] | None, typer.Option("--reject", metavar="CALL", help="Refuse this call; `all`: all.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="WORDS", help="Told to the model with rejections.")
    ] = None,
    say: Annotated[str | None, typer.Option("--say", metavar="WORDS", help="Tell the agent more.")] = None,
    max_turns: Annotated[int | None, typer.Option("--max-turns", metavar="N", help="A new limit.")] = None,
    json_lines: _Json = False,
) -> None:
    """Go on with a run that stopped.

    It may have paused, failed, been interrupted or been killed. Nothing that had finished runs again. A
    command that was cut off is reported to the model as such, and what a killed run had left running in its
    place is ended first.
    """
    from coderig.commands import resume_stored
    from coderig.session import Decisions

    with guarded():
        decisions = Decisions(approve_all=yes, approve=approve or (), reject=reject or (), reason=reason)
        raise typer.Exit(resume_stored(run_id, decisions, say, max_turns, json_lines))


@app.command()
def runs(json_lines: _Json = False) -> None:
    """List the runs that are kept, the newest last."""
    from coderig.commands import list_runs

    with guarded():
        raise typer.Exit(list_runs(json_lines))


@app.command()
def forget(
    run_id: Annotated[str, typer.Argument(metavar="ID", help="The run; first letters will do.")],
) -> None:
    """Remove a run, and the container that was made for it.

    What it did elsewhere in its place stays.
    """
    from coderig.commands import forget_run

    with guarded():
        raise typer.Exit(forget_run(run_id))


@app.command("exec", context_settings={"allow_interspersed_args": False})
def exec_command(
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND...", help="One word: text for a shell; more: run as given."),
    ],
    place: _Place = "local",
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", help="Seconds until it is killed; 0: a day.")
    ] = 0,
    cwd: Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="Where it runs.")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="K=V", help="Set for the command; may be repeated.")
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Give it all of standard input.")] = False,
) -> None:
    """Run one command in a place.

    Its output passes through as it comes, and its exit code is ours.

    Timed out: 124. The place failed, or the output cannot be written: 125. Wrong use: 2.
    """
    from coderig.exec_cli import run_one

    with guarded(place_failed=125):
        raise typer.Exit(run_one(command, place, timeout, cwd, env or [], stdin))


@app.command("serve-script")
def serve_script_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A script, or a recording.")],
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", help="0: a free one.", min=0, max=65535)] = 0,
) -> None:
    """Serve a script as a model, to any client.

    Speaks OpenAI's Responses and Anthropic's Messages wire, whole and streamed; needs no key and no network.
    It is as strict as the services: each request is told on standard error, with the reason where it is
    refused. Ctrl-C ends it.
    """
    from coderig.serve import serve_script

    with guarded():
        raise typer.Exit(serve_script(file, host, port))


@app.command()
def doctor(json_lines: _Json = False) -> None:
    """Tell what is here, and what to do about what is not.

    Docker, SSH, isolation, keys (set or not, never their values), programs.
    """
    from coderig.commands import show_findings

    with guarded():
        raise typer.Exit(show_findings(json_lines))


@app.command()
def demo(
    place: Annotated[
        str, typer.Option("--place", metavar="PLACE", help="Where; a directory is made for it there.")
    ] = "local",
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="A real model instead of the script.")
    ] = None,
    base_url: _BaseUrl = None,
    ask: Annotated[bool, typer.Option("--ask", help="Be asked about every command and edit.")] = False,
    yes: _Yes = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the project in the place.")] = False,
) -> None:
    """Watch an agent repair a small project.

    Its tests fail first. This needs no key and no network: the model's words come from a script unless
    --model is given. All the rest is real. The exit code is 0 only if the tests were red before and are green
    afterwards.
    """
    from coderig.commands import show_demo

    with guarded():
        raise typer.Exit(show_demo(place, model, base_url, ask, yes, keep))


register_containers(app)


def main() -> int:
    """The console script: runs the command line and returns its exit code; no traceback reaches a person."""
    hold_standard_streams()
    raise_on_signals()
    try:
        app(prog_name="coderig")
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else USAGE if ending.code else 0
    except Interrupted as stop:
        code = stop.exit_code
    except OSError as error:
        complain(f"cannot write the output: {error.strerror or error}")
        code = FAILED
    if not flush_standard_streams() and code == 0:
        code = 1
    return code
