"""What the subcommands do, once their arguments are read."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

from rich.text import Text

from coderig.approvals import ask, can_ask
from coderig.guard import UsageError, complain
from coderig.json_view import JsonView
from coderig.masking import Mask
from coderig.place import PlaceError
from coderig.session import Decisions, Session, model_of, place_of, policy_of
from coderig.signals import OK
from coderig.store import RunMeta, Store, home, new_id, now_s
from coderig.terminal_io import OutputGone, Stream, console
from coderig.view import Ending, TextView, View, short_place
from codetools.render import clean
from sandbox import SandboxError


def start_run(
    task: str,
    place: str,
    model: str,
    policy: Path | None,
    base_url: str | None,
    max_turns: int,
    decisions: Decisions,
    json_lines: bool,
) -> int:
    """`coderig run`. Raises what `guard.guarded` knows."""
    if not task.strip():
        raise UsageError("the task is empty")
    meta = RunMeta(
        id=new_id(),
        created_s=now_s(),
        task=task,
        place=place,
        model=model,
        base_url=base_url,
        cwd=str(Path.cwd()),
        policy_path=str(policy.absolute()) if policy is not None else "",
        policy_text=_read_policy(policy) if policy is not None else None,
        max_turns=max_turns,
        env={},
    )
    # Whatever is wrong with the request is told before anything is kept.
    place_of(meta)
    policy_of(meta)
    model_of(meta)
    store = _store()
    store.create(meta)
    session = _session(store, meta, decisions, json_lines)
    return _finish(session, session.start())


def resume_stored(
    run_id: str, decisions: Decisions, say: str | None, max_turns: int | None, json_lines: bool
) -> int:
    """`coderig resume`. Raises what `guard.guarded` knows."""
    store = _store()
    meta = store.find(run_id)
    session = _session(store, meta, decisions, json_lines)
    return _finish(session, session.resume(say, max_turns))


def forget_run(run_id: str) -> int:
    """`coderig forget`. Raises what `guard.guarded` knows."""
    store = _store()
    meta = store.find(run_id)
    # Held: a run that is going on somewhere is not pulled from under it.
    with store.journal(meta.id):
        try:
            place_of(meta).remove()
        except (PlaceError, SandboxError) as error:
            complain(f"what the run left in {short_place(clean(meta.place))} could not be removed: {error}")
        store.forget(meta.id)
    return OK


def list_runs(json_lines: bool) -> int:
    """`coderig runs`."""
    out = Stream(1)
    for summary in _store().all():
        meta = summary.meta
        if json_lines:
            line = {"status": summary.status, **asdict(meta)}
            del line["policy_text"], line["env"]
            out.write_bytes(json.dumps(line).encode("ascii") + b"\n")
            continue
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(meta.created_s))
        task = " ".join(clean(meta.task).split())
        out.write(f"{meta.id}  {when}  {summary.status:<11}  {short_place(clean(meta.place))}  {task[:60]}\n")
    return OK


def show_findings(json_lines: bool) -> int:
    """`coderig doctor`."""
    from coderig.doctor import examine

    out = Stream(1)
    findings = examine(os.environ)
    if json_lines:
        for finding in findings:
            out.write_bytes(json.dumps(asdict(finding)).encode("ascii") + b"\n")
        return OK
    screen = console(out)
    marks = {"ok": ("+", "green"), "missing": ("x", "red"), "note": ("-", "yellow")}
    for finding in findings:
        mark, style = marks[finding.status]
        screen.print(Text(mark, style=style).append(f" {finding.subject}: {clean(finding.detail)}", style=""))
        if finding.advice:
            screen.print(Text(f"    {clean(finding.advice)}", style="dim"))
    return OK


def show_demo(
    place: str, model: str | None, base_url: str | None, ask_person: bool, yes: bool, keep: bool
) -> int:
    """`coderig demo`. Raises what `guard.guarded` knows."""
    from coderig.demo.scene import Demo, DemoError

    if base_url is not None and model is None:
        raise UsageError("--base-url needs --model")
    mask = Mask(os.environ)
    remarks = Stream(2, quiet=True, mask=mask.text)
    demo = Demo(
        store=_store(),
        place=place,
        out=Stream(1, mask=mask.text),
        remarks=remarks,
        mask=mask,
        model=model,
        base_url=base_url,
        ask=ask_person,
        keep=keep,
        decisions=Decisions(approve_all=yes),
        person=(lambda call: ask(call, remarks)) if can_ask() else None,
    )
    try:
        return demo.show()
    except DemoError as error:
        complain(error)
        return 1


def _store() -> Store:
    return Store(home(os.environ))


def _session(store: Store, meta: RunMeta, decisions: Decisions, json_lines: bool) -> Session:
    mask = Mask(os.environ)
    remarks = Stream(2, quiet=True, mask=mask.text)
    text = Stream(1, mask=mask.text)
    view: View = JsonView(Stream(1), mask.value) if json_lines else TextView(text, remarks)
    return Session(
        store=store,
        meta=meta,
        view=view,
        mask=mask,
        decisions=decisions,
        ask=(lambda call: ask(call, remarks)) if can_ask() and not json_lines else None,
        remark=complain,
    )


def _finish(session: Session, ending: Ending) -> int:
    try:
        session.view.end(ending)
    except OutputGone:
        complain(ending.message or "the output could not be written to its end")
        if ending.resume:
            complain(f"go on with: {ending.resume}")
        return ending.exit_code or 1
    return ending.exit_code


def _read_policy(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the policy {path}: {error}") from None
