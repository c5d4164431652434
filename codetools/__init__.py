"""The tools that a model calls in a sandbox, and the command policy that is asked before a person is."""

from __future__ import annotations

import threading

from codetools.apply_patch import apply_patch
from codetools.exec_command import exec_command
from codetools.files import list_files, read_file, write_file
from codetools.policy import Policy
from codetools.read_output import read_output
from codetools.rules import PathRule, PolicyError, Rule
from codetools.shell_tools import shell_tools
from runtime.tools import AnyTool
from sandbox import Sandbox, SpillStore

__all__ = ["PathRule", "Policy", "PolicyError", "Rule", "code_tools"]


def code_tools(
    sandbox: Sandbox,
    policy: Policy | None = None,
    shells: bool = True,
    ask_by_default: bool = False,
    spill: SpillStore | None = None,
) -> list[AnyTool]:
    """The tools over one sandbox: exec_command, read_file, write_file, list_files, apply_patch.

    policy          asked about each command, each path and what is typed; None: it says nothing
    shells          offer named shells (`session_id`), which live as long as the sandbox, and write_stdin,
                    poll and interrupt for the commands that are left running in them
    ask_by_default  a person decides about every command and every write that the policy does not allow;
                    a policy with a default of its own keeps it
    spill           keeps the outputs that are too long to be shown, and read_output reads them; the
                    caller closes it; None: they lose their middle, and there is no read_output
    """
    rules = policy or Policy()
    if ask_by_default:
        rules = rules.with_default("ask")
    lock = threading.Lock()
    return [
        exec_command(sandbox, rules, shells, spill),
        *(shell_tools(sandbox, rules, spill) if shells else []),
        *([read_output(spill)] if spill is not None else []),
        read_file(sandbox, rules),
        write_file(sandbox, rules, lock),
        list_files(sandbox, rules),
        apply_patch(sandbox, rules, lock),
    ]
