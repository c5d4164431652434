"""A way to call the tools over a sandbox as the runtime does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.tools import AnyTool, BadArguments, ToolContext, ToolFailed, ToolResult
from sandbox import Sandbox


@dataclass
class Bench:
    """Tools over a sandbox. `call` gives the text a model would get, whatever way out the tool took."""

    box: Sandbox
    tools: dict[str, AnyTool]
    seen: list[str] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def result(self, name: str, **arguments: object) -> ToolResult:
        """Parse and run. Raises what the tool raises."""
        tool = self.tools[name]
        context = ToolContext(call_id="call", tool_name=name, cancelled=self.cancelled, emit=self.seen.append)
        result = tool.run(context, tool.parse(json.dumps(arguments)))
        assert isinstance(result, ToolResult)
        return result

    def call(self, name: str, **arguments: object) -> str:
        """The text of the result, or of the failure."""
        try:
            return self.result(name, **arguments).text
        except (BadArguments, ToolFailed) as error:
            return f"{type(error).__name__}: {error}"


MakeBench = Callable[..., Bench]
