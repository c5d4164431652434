"""Ends what a run that was killed has left running in its place."""

from __future__ import annotations

from sandbox import Sandbox

RUN_VARIABLE = "CODERIG_RUN"
"""Set for every command of a run, to the run's id."""

# A command that is still waited for has its waiting shell, the leader of its session, above it. What a
# command that has ended left in the background on purpose has no living leader, and is left alone.
_SCRIPT = r"""
mark="CODERIG_RUN=$1" alone=$2
fields() {
  read -r line <"/proc/$1/stat" || return 1
  set -- ${line##*) }
  session=$4
}
ours() {
  sessions=
  fields $$ && own=$session
  for file in $(grep -lsF -e "$mark" /proc/[0-9]*/environ; [ -z "$alone" ] || echo /proc/[0-9]*/environ); do
    pid=${file#/proc/}; pid=${pid%/environ}
    fields "$pid" 2>/dev/null || continue
    case $session in "$pid"|"$own"|1|0) continue;; esac
    [ -d "/proc/$session" ] || continue
    grep -qsF -e "$mark" "/proc/$session/environ" && continue
    case " $sessions " in *" $session "*) ;; *) sessions="$sessions $session";; esac
  done
}
members() {
  found=
  for file in /proc/[0-9]*/stat; do
    pid=${file#/proc/}; pid=${pid%/stat}
    fields "$pid" 2>/dev/null || continue
    case " $sessions " in *" $session "*) found="$found $pid";; esac
  done
}
[ -d /proc/self ] || exit 0
ours
[ -n "$sessions" ] || exit 0
members
printf '%s\n' "$found"
kill -TERM $found 2>/dev/null
for wait in 1 2 3 4 5 6 7 8 9 10; do
  members
  [ -n "$found" ] || exit 0
  sleep 0.1 2>/dev/null || { sleep 1; break; }
done
members
[ -z "$found" ] || kill -KILL $found 2>/dev/null
"""


def end_leftovers(sandbox: Sandbox, run_id: str, *, alone: bool) -> int:
    """End the commands that a killed run had begun and not ended; returns how many processes they were.

    alone  nothing but this run uses the place: there it is found too where a process does not show the mark
           (a busybox shell runs its own programs without starting them anew)

    Raises SandboxError if the place fails. A place without /proc keeps what it has.
    """
    argv = ["sh", "-c", _SCRIPT, "sh", run_id, "1" if alone else ""]
    return len(sandbox.exec(argv, env={RUN_VARIABLE: ""}).stdout.split())
