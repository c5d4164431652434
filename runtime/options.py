"""What a caller may set for one run."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.journal import Journal
from runtime.models.model import Model, ModelSettings


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run; the default is a whole one, if the agent names a model.

    model                        instead of the agent's
    settings                     instead of the agent's
    max_turns                    model calls; 0: the default of 10; -1: no limit; a resumed state's own wins
    max_consecutive_error_turns  turns in a row in which every call fails before ToolLoopError; 0: the default
                                 of 3; negative: no limit
    max_tool_concurrency         calls at once; 0: no limit
    context                      the caller's own value, handed to `Agent.instructions`
    environment_id               names the place where tools act; an approval holds for this place alone
    journal                      gets a record of each step before the run goes on
    """

    model: Model | None = None
    settings: ModelSettings | None = None
    max_turns: int = 0
    max_consecutive_error_turns: int = 0
    max_tool_concurrency: int = 0
    context: object = None
    environment_id: str = ""
    journal: Journal | None = None
