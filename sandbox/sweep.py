"""The end of a process tree, where it runs.

One small program runs beside what it is to end, in the same process namespace, and is driven over its
standard input: a line names a signal (0: none), it sends that to every member of the tree and answers
with the members that are alive. It finds them through /proc by process group, session, parenthood and
an environment marker, with shell built-ins only (a grep that looks beyond a NUL, which busybox's does
not, only as a shortcut).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from sandbox.backend import Backend
from sandbox.errors import BackendError
from sandbox.shell import quote
from sandbox.values import GRACE_S, START_TIMEOUT_S, Deadline, SpawnRequest, Survivor

_SWEEP = r"""
alive() {
  cr_table= cr_found=" "
  if [ -n "$marker" ] && printf 'a\0b' | grep -qF b 2>/dev/null; then
    cr_marked=" $(grep -lsF -e "$marker" /proc/[0-9]*/environ 2>/dev/null | while IFS= read -r f; do
      f=${f#/proc/}; printf '%s ' "${f%/environ}"; done)"
  else cr_marked=; fi
  for d in /proc/[0-9]*; do
    q=${d#/proc/}
    [ "$q" = "$$" ] && continue
    { IFS= read -r s <"$d/stat"; } 2>/dev/null || continue
    n=${s#*\(}; n=${n%\)*}
    set -- ${s##*\) }
    case $1 in Z|X|x) continue;; esac
    cr_table="$cr_table $q:$2"
    case $mode in
      foreground) 
        if [ "$q" != "$root" ] && [ "$3" = "$front" ] && [ "$4" = "$root" ]; then member "$q"; continue; fi;;
      *) if [ "$q" = "$root" ] || [ "$3" = "$root" ] || [ "$4" = "$root" ]; then member "$q"; continue; fi;;
    esac
    case $cr_marked in *" $q "*) member "$q"; continue;; esac
    if [ -n "$marker" ] && [ -z "$cr_marked" ] && marked "$d"; then member "$q"; fi
  done
  cr_more=1
  while [ -n "$cr_more" ]; do
    cr_more=
    for e in $cr_table; do
      case $cr_found in *" ${e%%:*} "*) continue;; esac
      case $cr_found in *" ${e##*:} "*) member "${e%%:*}"; cr_more=1;; esac
    done
  done
}
each() { for q in $cr_found; do send "$1" "$q"; done; }
send() { kill -s "$1" -- "$2" 2>/dev/null; }
member() { cr_found="$cr_found$1 "; }
marked() {
  while IFS= read -r e || [ -n "$e" ]; do
    case $e in *"$marker"*) return 0;; esac
  done 2>/dev/null <"$1/environ"
  return 1
}
front() { { IFS= read -r s <"/proc/$root/stat"; } 2>/dev/null && set -- ${s##*\) } && front=$6; }
front=$root
printf '%s ready\n' "$token"
while IFS= read -r signal; do
  [ "$mode" = foreground ] && front
  alive
  if [ "$signal" != 0 ]; then
    # Stopped first, or a shell whose child has died runs its next command before its own turn comes.
    # Not in the foreground of a shell: that would take its job for suspended; there, the group at once.
    if [ "$mode" = tree ]; then each STOP; elif [ "$front" != "$root" ]; then send "$signal" "-$front"; fi
    each "$signal"
    [ "$signal" = KILL ] || each CONT
    alive
  fi
  printf '%s' "$token"
  for q in $cr_found; do
    n='?'; { IFS= read -r s <"/proc/$q/stat"; } 2>/dev/null && n=${s#*\(} && n=${n%\)*}
    printf ' %s=%s' "$q" "${n%% *}"
  done
  printf ' .\n'
done
"""


def sweep_argv(pid: int, *, marker: str, foreground: bool, token: str) -> list[str]:
    """The program that ends the tree of a process (pid as seen where it runs).

    marker      an environment entry that marks members, or ""
    foreground  only what runs in the foreground of the terminal whose shell is pid; spare the shell
    """
    head = f"root={pid} mode={'foreground' if foreground else 'tree'} marker={quote(marker)} token={token}\n"
    return ["sh", "-c", head + _SWEEP, "sh"]


def read_sweep(line: bytes) -> tuple[Survivor, ...] | None:
    """The members that a sweep says are alive, from one answer line; None for the ready line."""
    words = line.decode("utf-8", "replace").split()
    if words[1:] == ["ready"]:
        return None
    pairs = [word.partition("=") for word in words[1:] if word != "."]
    return tuple(Survivor(pid=int(pid), name=name) for pid, _, name in pairs)


def end_tree(
    backend: Backend,
    pid: int,
    *,
    marker: str = "",
    foreground: bool = False,
    pump: Callable[[float], None],
    done: Callable[[], bool],
    first: str = "TERM",
) -> tuple[Survivor, ...]:
    """End a process tree where it runs: the first signal, a grace, then KILL; returns who is left.

    pid    as seen in the place
    pump   called while waiting, to take output for up to so many seconds
    done   whether the process itself has ended
    """
    sweep = _Sweep(backend, pid, marker, foreground, pump)
    try:
        left = sweep.signal(first)
        grace = Deadline.after(GRACE_S)
        while left and not grace.passed:
            pump(min(0.05, grace.remaining_s()))
            left = sweep.signal("0")
        for _ in range(5):  # forks may race with a sweep: again, until it finds nobody
            if not left:
                break
            left = sweep.signal("KILL")
            pump(0.02)
        settle = Deadline.after(GRACE_S)
        while (left or not done()) and not settle.passed and not foreground:
            pump(0.02)
            left = sweep.signal("0")
        return left
    finally:
        sweep.close()


def front_processes(backend: Backend, pid: int) -> tuple[Survivor, ...]:
    """What runs in the foreground of the terminal whose shell is pid; empty: the shell is at its prompt."""
    sweep = _Sweep(backend, pid, "", True, lambda _: None)
    try:
        return sweep.signal("0")
    finally:
        sweep.close()


class _Sweep:
    """A sweep program beside the tree, driven over its input."""

    def __init__(
        self, backend: Backend, pid: int, marker: str, foreground: bool, pump: Callable[[float], None]
    ) -> None:
        self._token = secrets.token_hex(8)
        self._buffer = b""
        self._pump = pump
        argv = sweep_argv(pid, marker=marker, foreground=foreground, token=self._token)
        self._process = backend.spawn(SpawnRequest(argv=argv))
        try:
            self._answer()
        except BaseException:
            self._process.close()
            raise

    def signal(self, name: str) -> tuple[Survivor, ...]:
        self._process.write(f"{name}\n".encode(), START_TIMEOUT_S)
        return read_sweep(self._answer()) or ()

    def _answer(self) -> bytes:
        deadline = Deadline.after(START_TIMEOUT_S)
        token = self._token.encode()
        while True:
            at = self._buffer.find(token)
            end = self._buffer.find(b"\n", at) if at >= 0 else -1
            if end >= 0:
                line, self._buffer = self._buffer[at:end], self._buffer[end + 1 :]
                return line
            chunk = self._process.read(0.01)
            self._buffer += chunk.stdout
            if chunk.eof or deadline.passed:
                raise BackendError("the command could not be ended: no shell could be started beside it")
            if not chunk.stdout:
                self._pump(0)

    def close(self) -> None:
        self._process.close_stdin()
        self._process.close()
