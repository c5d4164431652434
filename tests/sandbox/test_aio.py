"""The async face: the same meaning, and a cancellation that reaches the command."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from places import Place

from sandbox import Cancelled, Closed, ExecRequest, LocalSandbox, NotFound, Sandbox, Shell
from sandbox.aio import MAX_COMMANDS, AsyncSandbox, AsyncShell
from sandbox.shells import MAX_SHELLS

LIMIT_S = 30.0
THREADS = "coderig-aio"
SCRIPT = "echo $$ >pid.new; mv pid.new pid; while :; do echo x; sleep 0.01; done"


def bounded(test: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine of one test, for so long at most."""
    asyncio.run(asyncio.wait_for(test, LIMIT_S))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so; the test's own bound ends it."""
    while not await condition():  # noqa: ASYNC110 - it changes in another process
        await asyncio.sleep(0.01)


async def begun(box: AsyncSandbox, path: str) -> None:
    """Wait until a command has made this file."""

    async def there() -> bool:
        try:
            await box.stat(path)
        except NotFound:
            return False
        return True

    await until(there)


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    # A zombie has ended; its new parent may take its time.
    return not stat.rpartition(") ")[2].startswith(("Z", "X"))


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(THREADS)]


# --- the same meaning --------------------------------------------------------------------------------


# The backend is for its optional abilities; idle shells are closed by their pool.
INTERNAL = ("backend", "close_if_idle")


@pytest.mark.spec("AS-01")
@pytest.mark.parametrize(("face", "plain"), [(AsyncSandbox, Sandbox), (AsyncShell, Shell)])
def test_the_async_face_has_every_public_method_with_the_same_parameters(face: type, plain: type) -> None:
    names = [name for name in vars(plain) if not name.startswith("_") and name not in INTERNAL]
    assert names
    for name in names:
        method, original = getattr(face, name), getattr(plain, name)
        if not callable(original):
            continue
        assert list(inspect.signature(method).parameters) == list(inspect.signature(original).parameters)
        assert inspect.iscoroutinefunction(method) or name in ("shell", "shells", "info")


@pytest.mark.spec("AS-01")
def test_commands_shells_and_files_mean_the_same(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncSandbox(LocalSandbox(tmp_path)) as box:
            result = await box.exec("cat; exit 3", stdin=b"in", env={"A": "b"})
            assert (result.stdout, result.exit_code) == ("in", 3)
            assert (await box.run(ExecRequest(command=["printf", "%s", "x"]))).stdout == "x"
            await box.write_file("a/b", b"data")
            assert await box.read_file("a/b") == b"data"
            assert [entry.name for entry in await box.list_dir("a")] == ["b"]
            await box.rename("a/b", "c")
            await box.remove("c")
            with pytest.raises(NotFound):
                await box.stat("c")
            shell = box.shell("s")
            await shell.run("cd a; x=1")
            assert (await shell.run("echo $x ${PWD##*/}")).output == "1 a\n"
            assert [each.name for each in box.shells()] == ["s"]
            left = await shell.run("read line; echo got $line", stdin_tty=True, yield_s=0)
            assert left.running
            await shell.write(b"typed\n")
            assert (await shell.poll(LIMIT_S)).exit_code == 0
            await shell.close()
            assert not shell.is_open
            assert await box.cwd() == str(tmp_path)

    bounded(test())


@pytest.mark.spec("AS-02")
def test_the_event_loop_goes_on_while_a_command_runs(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncSandbox(LocalSandbox(tmp_path)) as box:
            command = asyncio.create_task(box.exec("touch began; while [ ! -e stop ]; do sleep 0.02; done"))
            await begun(box, "began")
            assert not command.done()
            await box.write_file("stop", b"")
            assert (await command).exit_code == 0

    bounded(test())


# --- cancellation ------------------------------------------------------------------------------------


@pytest.mark.spec("AS-03")
def test_cancelling_the_task_ends_the_tree_where_it_runs(place: Place) -> None:
    where = place.fresh()

    async def test() -> None:
        box = AsyncSandbox(place.box)
        script = "sh -c 'trap \"\" TERM; touch began; sleep 4211; sleep 4211' & sleep 4211"
        command = asyncio.create_task(box.exec(script, cwd=where))
        await begun(box, f"{where}/began")
        command.cancel()
        with pytest.raises(asyncio.CancelledError):
            await command
        # Ended before the exception came, not some time after.
        assert place.processes("sleep 4211") == []

    bounded(test())


@pytest.mark.spec("AS-03")
def test_cancelling_a_command_in_a_shell_ends_it_and_leaves_the_shell(place: Place) -> None:
    where = place.fresh()

    async def test() -> None:
        shell = AsyncSandbox(place.box).shell(f"aio-{where}")
        await shell.run(f"cd {where}; kept=1")
        command = asyncio.create_task(shell.run("touch began; sleep 4212"))
        await begun(AsyncSandbox(place.box), f"{where}/began")
        command.cancel()
        with pytest.raises(asyncio.CancelledError):
            await command
        assert place.processes("sleep 4212") == []
        assert (await shell.run("echo $kept")).output == "1\n"
        await shell.close()

    bounded(test())


@pytest.mark.spec("AS-04")
def test_cancelling_a_poll_ends_the_waiting_only(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncSandbox(LocalSandbox(tmp_path)) as box:
            shell = box.shell("s")
            left = await shell.run("while [ ! -e stop ]; do sleep 0.02; done; echo end", yield_s=0)
            assert left.running
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await shell.poll(LIMIT_S)
            await box.write_file("stop", b"")
            assert (await shell.poll(LIMIT_S)).output == "end\n"

    bounded(test())


@pytest.mark.spec("AS-03")
def test_a_timeout_of_asyncio_ends_the_command(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncSandbox(LocalSandbox(tmp_path)) as box:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await box.exec("sleep 1; touch late")
            # The next call is not touched by the timeout before.
            assert (await box.exec("sleep 1.2; ls")).stdout == ""

    bounded(test())


@pytest.mark.spec("AS-03")
def test_being_cancelled_twice_still_waits_for_the_end_of_the_command(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncSandbox(LocalSandbox(tmp_path)) as box:
            command = asyncio.create_task(box.exec(f"trap '' TERM; {SCRIPT}"))
            await begun(box, "pid")
            command.cancel()
            await asyncio.sleep(0)
            command.cancel()
            with pytest.raises(asyncio.CancelledError):
                await command
            assert not alive(int(await box.read_file("pid")))

    bounded(test())


@pytest.mark.spec("AS-04")
def test_a_call_that_is_cancelled_before_its_turn_runs_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncSandbox(LocalSandbox(tmp_path)) as box:
            shell = box.shell("s")
            first = asyncio.create_task(shell.run("touch began; while [ ! -e stop ]; do sleep 0.02; done"))
            await begun(box, "began")
            second = asyncio.create_task(shell.run("touch second"))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            await box.write_file("stop", b"")
            await first
            assert (await shell.run("ls")).output.split() == ["began", "stop"]

    bounded(test())


@pytest.mark.spec("AS-05")
def test_the_callers_own_cancel_event_still_ends_the_command(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncSandbox(LocalSandbox(tmp_path)) as box:
            cancel = threading.Event()
            command = asyncio.create_task(box.exec("touch began; sleep 60", cancel=cancel))
            await begun(box, "began")
            cancel.set()
            with pytest.raises(Cancelled):
                await command
            another = threading.Event()
            task = asyncio.create_task(box.exec("touch again; sleep 60", cancel=another))
            await begun(box, "again")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # It may belong to other calls as well: it is looked at, never set.
            assert not another.is_set()

    bounded(test())


# --- output as it comes ------------------------------------------------------------------------------


@pytest.mark.spec("AS-06")
def test_on_output_is_called_in_order_on_the_loops_thread_in_the_callers_context(tmp_path: Path) -> None:
    who = contextvars.ContextVar("who", default="nobody")

    async def test() -> None:
        got: list[tuple[str, bytes]] = []
        seen: set[tuple[int, str]] = set()

        def on_output(stream: str, data: bytes) -> None:
            got.append((stream, data))
            seen.add((threading.get_ident(), who.get()))

        async with AsyncSandbox(LocalSandbox(tmp_path)) as box:
            who.set("me")
            await box.exec("seq 20000; echo err >&2", on_output=on_output)
        assert b"".join(data for stream, data in got if stream == "stdout").split() == [
            b"%d" % number for number in range(1, 20001)
        ]
        assert b"".join(data for stream, data in got if stream == "stderr") == b"err\n"
        assert seen == {(threading.get_ident(), "me")}

    bounded(test())


@pytest.mark.spec("AS-06")
def test_a_callback_that_raises_ends_the_command_and_is_raised(tmp_path: Path) -> None:
    class Enough(TimeoutError):
        """Of the kind that a wait for the callback could be mistaken for."""

    def on_output(stream: str, data: bytes) -> None:
        raise Enough

    async def test() -> None:
        async with AsyncSandbox(LocalSandbox(tmp_path)) as box:
            for call in (box.exec, box.shell("s").run):
                with pytest.raises(Enough):
                    await call(
                        "echo $$ >pid; sh -c 'echo $$ >pid; echo x; exec sleep 60'", on_output=on_output
                    )
                assert not alive(int(await box.read_file("pid")))

    bounded(test())


@pytest.mark.spec("AS-07")
def test_a_stream_gives_the_output_as_it_comes_and_then_the_result(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncSandbox(LocalSandbox(tmp_path)) as box:
            stream = box.stream("echo one; while [ ! -e go ]; do sleep 0.02; done; echo two >&2; exit 5")
            got = []
            async for name, data in stream:
                got.append((name, data))
                await box.write_file("go", b"")
            assert got == [("stdout", b"one\n"), ("stderr", b"two\n")]
            assert (await stream.result()).exit_code == 5
            shell = box.shell("s").stream("echo a; (exit 6)")
            assert [data async for _, data in shell] == [b"a\n"]
            assert (await shell.result()).exit_code == 6
            assert (await box.stream("seq 100000").result()).stdout.endswith("\n100000\n")

    bounded(test())


@pytest.mark.spec("AS-07")
def test_a_consumer_that_takes_its_time_holds_the_program_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncSandbox(LocalSandbox(tmp_path)) as box:
            # The shell notes how far it has come; a line is 10,000 bytes.
            script = "n=0; while [ $n -lt 400 ]; do n=$((n+1)); printf %010000d 0; echo $n >at; done"
            total = 0
            async with box.stream(script) as stream:
                async for _, data in stream:
                    if not total:
                        await stuck(box, "at")
                        assert int(await box.read_file("at")) < 300
                    total += len(data)
            assert total == 4_000_000

    bounded(test())


async def stuck(box: AsyncSandbox, path: str) -> None:
    """Wait until a file has not changed for a while."""
    before, since = b"", time.monotonic()
    while time.monotonic() - since < 0.5:
        now = await box.read_file(path)
        if now != before:
            before, since = now, time.monotonic()


@pytest.mark.spec("AS-08")
@pytest.mark.parametrize("how", ["break", "with", "raise", "cancel"])
def test_a_stream_that_is_abandoned_ends_its_command(tmp_path: Path, how: str) -> None:
    async def consume(box: AsyncSandbox) -> None:
        if how == "break":
            async for _ in box.stream(SCRIPT):
                return
        async with box.stream(SCRIPT) as stream:
            async for _ in stream:
                if how == "with":
                    return
                if how == "raise":
                    raise ArithmeticError
                await asyncio.sleep(LIMIT_S)

    async def test() -> None:
        async with AsyncSandbox(LocalSandbox(tmp_path)) as box:
            task = asyncio.create_task(consume(box))
            await begun(box, "pid")
            if how == "cancel":
                task.cancel()
            await asyncio.wait({task})
            pid = int(await box.read_file("pid"))

            async def gone() -> bool:
                return not alive(pid)

            await until(gone)
            assert not alive(pid)

    bounded(test())


@pytest.mark.spec("AS-08")
def test_a_closed_stream_has_no_result(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncSandbox(LocalSandbox(tmp_path)) as box:
            async with box.stream(SCRIPT) as stream:
                async for _ in stream:
                    break
            with pytest.raises(Cancelled):
                await stream.result()

    bounded(test())


# --- threads -----------------------------------------------------------------------------------------


@pytest.mark.spec("AS-09")
def test_waiting_shells_hold_up_neither_commands_nor_files_nor_another_sandbox(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncSandbox(LocalSandbox(tmp_path)) as box, AsyncSandbox(LocalSandbox(tmp_path)) as other:
            # They end when nobody holds this open for writing any more.
            os.mkfifo(tmp_path / "fifo")
            writer = os.open(tmp_path / "fifo", os.O_RDWR)
            wait = "cat fifo; exit"
            shells = [asyncio.create_task(box.shell(str(n)).run(wait)) for n in range(MAX_SHELLS)]
            # Of each shell, one call waits in a thread, and others wait for it without one.
            more = [asyncio.create_task(box.shell("1").run("echo next")) for _ in range(MAX_SHELLS)]
            assert (await box.exec("echo x")).stdout == "x\n"
            assert (await other.exec("echo y")).stdout == "y\n"
            assert [entry.name for entry in await box.list_dir()] == ["fifo"]
            assert not any(task.done() for task in shells)
            os.close(writer)
            results = await asyncio.gather(*shells, *more)
            assert {result.exit_code for result in results} == {0}

    bounded(test())


@pytest.mark.spec("AS-10")
def test_more_commands_than_may_run_at_once_wait_for_their_turn(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncSandbox(LocalSandbox(tmp_path)) as box:
            calls = [box.exec(f"echo {number}", timeout_s=60) for number in range(2 * MAX_COMMANDS)]
            results = await asyncio.gather(*calls)
            assert [int(result.stdout) for result in results] == list(range(2 * MAX_COMMANDS))
            assert len(own_threads()) <= MAX_COMMANDS

    bounded(test())


@pytest.mark.spec("AS-11")
def test_closing_ends_what_runs_and_leaves_no_thread(tmp_path: Path) -> None:
    async def test() -> None:
        box = AsyncSandbox(LocalSandbox(tmp_path))
        running = asyncio.create_task(box.exec("touch one; sleep 60"))
        shell = asyncio.create_task(box.shell("s").run("touch two; sleep 60"))
        held = box.stream("touch three; yes")
        assert await held.__anext__()
        waiting = asyncio.create_task(box.shell("s").run("touch never"))
        for name in ("one", "two", "three"):
            await begun(box, name)
        await asyncio.gather(box.close(), box.close())
        with pytest.raises(Closed):
            await running
        result = await shell
        assert result.ended and "closed" in result.notice
        with pytest.raises(Closed):
            await held.result()
        with pytest.raises(Closed):
            await waiting
        with pytest.raises(Closed):
            await box.exec("echo late")
        assert not (tmp_path / "never").exists()

        async def no_thread() -> bool:
            return own_threads() == []

        await until(no_thread)

    bounded(test())


@pytest.mark.spec("AS-11")
def test_ctrl_c_in_the_program_ends_its_commands(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from sandbox import LocalSandbox\n"
        "from sandbox.aio import AsyncSandbox\n"
        "async def main():\n"
        "    async with AsyncSandbox(LocalSandbox(sys.argv[1])) as box:\n"
        "        await box.exec('echo $$ >pid.new; mv pid.new pid; sleep 60')\n"
        "asyncio.run(main())\n"
    )
    root = Path(__file__).parents[2]
    child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=root, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + LIMIT_S
        while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        child.send_signal(2)
        _, said = child.communicate(timeout=LIMIT_S)
    finally:
        child.kill()
    assert b"KeyboardInterrupt" in said
    assert not alive(int((tmp_path / "pid").read_text()))
