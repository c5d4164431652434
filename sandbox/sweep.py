"""The program that ends process trees, where they run; pure text, and the reading of its answers.

It runs beside what it is to end, in the same process namespace and in a session of its own, and is told
over its standard input what to do. Once it runs it starts no process, so a place where none can be started
any more does not stop it: it needs a shell's built-ins and /proc.

A tree is found by process group, session, parenthood and a mark. The mark is a number that every
descendant inherits whatever it does to its session, parents or environment: the soft limit of the resident
set, which Linux has not enforced since 2.4.30. It is far above any memory, so nothing else meets it. Where
a place does not keep it, the same number in the environment serves.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Literal

from sandbox.values import Survivor

MARKER = "CODERIG_EXEC"
"""The environment variable that holds a command's mark."""
_LOW_KIB, _SPAN_KIB = 1 << 51, 1 << 51

# `return` always says what: inside a trap, bash would return what came before the trap.
# One line of input is one word and its fields:
#   ask ID ROOT MODE MARK BORN SIGNAL KNOWN...   one pass; see `Ask`
#   watch ROOT SIGNAL MARK                       end this tree when our input ends without a farewell
#   forget ROOT                                  that is over
#   bye                                          farewell: end nothing
# found: pids of members in blanks; said: the same as PID:BORN=NAME; loose: others, as PID:PARENT:BORN=NAME.
_SWEEP = r"""
trap '' HUP INT TERM PIPE
exec 2>/dev/null
send() { kill "-$1" "$2"; }
look() {
  # A name has 15 bytes at most, and may hold blanks, brackets and line ends: then it is cut off the slow way.
  read -r x n state parent group session tty front flags f10 x x x x x x x x x x x start x \
    <"/proc/$1/stat" || return 1
  case $start:$n:$state$parent$group$session$tty$front$flags$f10 in
    :* | *')':*')'*) apart "$1" || return 1;;
    *')':*) n=${n#?}; n=${n%?};;
    *) apart "$1" || return 1;;
  esac
  case $state in Z|X|x) return 1;; esac
}
apart() {
  s=
  while IFS= read -r l; do s="$s$l "; done <"/proc/$1/stat"
  case $s in *') '*) ;; *) return 1;; esac
  n=${s#*\(}; n=${n%\)*}; n=${n%% *}
  set -- ${s##*\) }
  state=$1 parent=$2 group=$3 session=$4 front=$6 start=${20}
}
carries() {
  {
    read -r x; read -r x; read -r x; read -r x; read -r x; read -r x
    read -r x x f l x
  } <"/proc/$1/limits" && [ "$f $l" = "set $mark" ]
}
mentions() {
  while IFS= read -r l || [ -n "$l" ]; do
    case $l in *"$name=$mark"*) return 0;; esac
  done <"/proc/$1/environ"
  return 1
}
marked() {
  case $mark in -) return 1;; esac
  if [ -n "$kept" ]; then carries "$1"; else carries "$1" || mentions "$1"; fi
}
member() {
  found="$found$1 " said="$said $2"
  [ -n "$halting" ] || return 0
  case $halted in *" $1 "*) return 0;; esac
  halted="$halted$1 "
  if send STOP "$1" && [ "$3" != "$root" ]; then again=1; fi
}
scan() {
  found=' ' said= loose= again= others= leaders=
  set +f; set -- /proc/[0-9]*; set -f
  for d; do
    q=${d#/proc/}
    if [ "$q" = "$$" ] || ! look "$q"; then continue; fi
    if [ -z "$frozen" ]; then :
    elif [ "$session" = "$q" ]; then leaders="$leaders $q"
    else others="$others $q"; fi
    case $known in *" $q:$start "*) member "$q" "$q:$start=$n" "$group"; continue;; esac
    case $mode in
      foreground)
        if [ "$q" != "$root" ] && [ "$group" = "$fore" ] && [ "$session" = "$root" ]; then
          member "$q" "$q:$start=$n" "$group"; continue
        fi;;
      background) if [ "$q" = "$root" ]; then continue; fi;;
      *)
        if [ "$q" = "$root" ] || [ "$group" = "$root" ] || [ "$session" = "$root" ]; then
          member "$q" "$q:$start=$n" "$group"; continue
        fi;;
    esac
    case $found in *" $parent "*) member "$q" "$q:$start=$n" "$group"; continue;; esac
    [ "$start" -ge "$born" ] || continue
    if marked "$q"; then member "$q" "$q:$start=$n" "$group"; else loose="$loose $q:$parent:$start=$n"; fi
  done
  more=$loose
  while [ -n "$more" ]; do
    more=
    for e in $loose; do
      q=${e%%:*} t=${e#*:}
      case $found in *" $q "*) continue;; esac
      case $found in *" ${t%%:*} "*) member "$q" "$q:${t#*:}" -; more=1;; esac
    done
  done
}
lasting() {
  found=' ' said=
  for e in $known; do
    q=${e%%:*}
    if look "$q" && [ "$start" = "${e#*:}" ]; then found="$found$q " said="$said $q:$start=$n"; fi
  done
  [ "$found" != ' ' ]
}
begin() {
  fore=0 halted=' ' halting=
  # Nobody's command is the ancestor of all: a shell that says so misunderstands the question.
  if marked 1; then mark=-; fi
  if look "$root"; then
    if [ "$born" = 0 ]; then born=$start; fi
    # Another process has the number: then no group or session of that number is left, either.
    if [ "$born" = "$start" ]; then fore=$front; else root=none; fi
  elif [ "$born" = 0 ]; then return 1; fi
}
strike() {
  # Stopped first, or a shell whose child has died runs its next command before its own turn comes; the
  # group at once, because a process that forks outruns any list. What stands still keeps its number, too.
  # Not in the foreground of a shell: that would take its job for suspended.
  if [ "$mode" = tree ]; then
    # Where half of all processes are taken, everything stands still for a moment (see `freeze`): what only
    # starts others and ends is never seen otherwise.
    halting=1 turns=0 again=1 frozen=
    send STOP "-$root"
    while [ -n "$again" ] && [ "$turns" -lt 20 ]; do
      if [ -z "$frozen" ] && crowded; then freeze; fi
      scan; turns=$((turns + 1))
    done
    halting=
  else
    if [ "$mode" = foreground ] && [ "$fore" -gt 0 ] && [ "$fore" != "$root" ]; then send "$1" "-$fore"; fi
    scan
  fi
  for q in $found; do send "$1" "$q"; done
  if [ "$1" != KILL ]; then for q in $found; do send CONT "$q"; done; fi
  if [ -n "$frozen" ]; then thaw; fi
}
limited() {
  for g in /sys/fs/cgroup /sys/fs/cgroup/pids; do
    if read -r most <"$g/pids.max" && read -r now <"$g/pids.current"; then
      [ "$most" != max ]; return $?
    fi
  done
  return 1
}
crowded() { limited && [ $((now * 2)) -ge "$most" ]; }
machine() {
  # No container's limit: then the user's own, and all that runs as the upper bound of what is taken.
  {
    read -r x; read -r x; read -r x; read -r x; read -r x; read -r x; read -r x
    read -r x x most x
  } <"/proc/$$/limits" && read -r x x x now x </proc/loadavg || return 1
  now=${now#*/}
  case $most$now in *[!0-9]*) return 1;; esac
}
# Only in a container, which we entered from outside (a parent of 0, pid_namespaces(7)): elsewhere, all that
# the user runs would stand still, and he who has us run with it.
freeze() { if [ "$PPID" = 0 ]; then frozen=1; send STOP -1; fi; }
# Terminals' shells go on last, or they took their jobs for suspended.
thaw() {
  for q in $others; do send CONT "$q"; done
  for q in $leaders; do send CONT "$q"; done
  frozen=
}
count() {
  said=
  if crowded; then
    freeze; scan; if [ -n "$frozen" ]; then thaw; fi
  elif ! limited; then
    most=0
    if machine && [ $((now * 4)) -ge "$most" ]; then scan; else most=0; fi
  fi
  limited; born=$most
}
answer() {
  begin || { printf '%s %s gone .\n' "$token" "$id"; return 0; }
  # While one of those that were told is there, the question is answered; none is: look for others.
  case $signal in
    crowd) count;;
    room) said=; if crowded; then born=1; else born=0; fi;;
    0) lasting || scan;;
    *) strike "$signal";;
  esac
  printf '%s %s %s%s .\n' "$token" "$id" "$born" "$said"
}
drop() {
  kept_watch=
  for e in $watched; do case $e in "$1:"*) ;; *) kept_watch="$kept_watch $e";; esac; done
  watched=$kept_watch
}
take() {
  root=${1%%:*}; t=${1#*:}; born=${t%%:*}; t=${t#*:}; first=${t%%:*} mark=${t#*:} mode=tree known=
}
deserted() {
  targets=
  for e in $watched; do
    take "$e"
    if look "$root" && [ "$start" = "$born" ]; then targets="$targets $e"; begin; strike "$first"; fi
  done
  [ -n "$targets" ] || exit 0
  # However the pause fares: a shell that cannot start a program may end here.
  trap finish EXIT
  sleep 1
  exit 0
}
finish() {
  trap - EXIT
  for e in $targets; do
    take "$e"; turn=0 found='?'
    while [ "$found" != ' ' ] && [ "$turn" -lt 20 ]; do begin; strike KILL; turn=$((turn + 1)); done
  done
}
watched= kept= frozen= mark=$probe
if ulimit -S -m "$((mark / 1024))" && carries "$$"; then kept=1; fi
set -f
printf '%s ready %s\n' "$token" "$$"
while read -r verb id root mode mark born signal known; do
  known=" $known "
  case $verb in
    ask) answer;;
    watch) if look "$id"; then watched="$watched $id:$start:$root:$mode"; fi;;
    forget) drop "$id";;
    bye) exit 0;;
  esac
done
deserted
"""
# bash reads files in blocks, which halves the time of a pass; -p: without start files.
_CHOOSE = 'if command -v bash >/dev/null 2>&1; then exec bash -p -c "$1" bash; fi; eval "$1"'


Part = Literal["tree", "foreground", "background"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One pass over the processes of a place.

    root        the tree's root, as seen in the place
    part        "tree": the root and all below it; "foreground": what runs in the foreground of the
                terminal whose shell is the root; "background": what bears the mark, wherever it is;
                both spare the root
    mark        see `new_mark`; "" where the tree has none
    born        when the root began, in the place's clock ticks; 0: not known, ask the root itself;
                1: the root is gone, its tree may not be
    signal      a signal's name; "0": only look; "crowd": only look, and only if half of the processes that
                the container may have are taken, or the user's limit elsewhere may be near; the answer has
                that limit as `born`, 0 where it is not known or far; "room": only tell, as `born`, whether
                half of a container's processes are taken
    known       members that earlier passes saw, as "PID:BORN"
    """

    root: int
    part: Part = "tree"
    mark: str = ""
    born: int = 0
    signal: str = "0"
    known: frozenset[str] = frozenset()

    def line(self, number: int) -> bytes:
        """The line that asks; its answer bears the number."""
        words = ["ask", str(number), str(self.root), self.part, self.mark or "-", str(self.born), self.signal]
        return (" ".join([*words, *sorted(self.known)]) + "\n").encode()


@dataclass(frozen=True, slots=True)
class Seen:
    """What one pass found: the members that are alive, and when the root began. None: no such root."""

    born: int
    members: dict[str, Survivor]


def new_mark() -> str:
    """A mark for one tree: a number of bytes, as `ulimit` and /proc show it."""
    return str((_LOW_KIB + secrets.randbelow(_SPAN_KIB)) * 1024)


def mark_line(mark: str) -> str:
    """Shell text that gives the mark to the shell that reads it and to all its descendants; "" for none."""
    return f"ulimit -S -m {kib_of(mark)} 2>/dev/null; " if mark else ""


def kib_of(mark: str) -> int:
    """A mark as `ulimit -m` takes it."""
    return int(mark) // 1024


def sweep_argv(token: str) -> list[str]:
    """The program. Each of its answers is one line that begins with the token."""
    return ["sh", "-c", _CHOOSE, "sh", f"token={token} name={MARKER} probe={_LOW_KIB * 1024}\n{_SWEEP}"]


def watch_line(root: int, first: str, mark: str) -> bytes:
    """Tell the program to end this tree, beginning with this signal, if its input ends without `BYE`."""
    return f"watch {root} {first} {mark or '-'}\n".encode()


def forget_line(root: int) -> bytes:
    """Take `watch_line` back."""
    return f"forget {root}\n".encode()


BYE = b"bye\n"


def read_answer(line: bytes, number: int) -> Seen | None:
    """One answer, without its token. Raises ValueError if it is none to that number."""
    words = line.decode("utf-8", "replace").split()
    if len(words) < 3 or words[0] != str(number) or words[-1] != ".":
        raise ValueError(f"no answer to {number}: {line[:200]!r}")
    if words[1] == "gone":
        return None
    members = {}
    for word in words[2:-1]:
        key, _, name = word.partition("=")
        members[key] = Survivor(pid=int(key.partition(":")[0]), name=name or "?")
    return Seen(int(words[1]), members)
