"""Whether an answer without calls ends the run, with what, and the one way in which every run ends."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import to_json, to_jsonable_python

from runtime.errors import AgentError, ModelBehaviorError, ModelError, ModelRefusalError
from runtime.events import ItemCreated
from runtime.items import Item, ItemKind, Role, Source, assistant_message
from runtime.live import LiveRun
from runtime.options import ErrorHandler, Failure
from runtime.output_type import OutputType
from runtime.records import joined_record
from runtime.saving import flush
from runtime.state import ResponseRecord, RunResult


def check_status(response: ResponseRecord) -> None:
    """Raise unless the answer arrived whole, or was cut off by the token limit: a run can live with that."""
    if response.status == "completed" or response.truncated:
        return
    if response.status == "incomplete":
        raise ModelBehaviorError(
            f"the model's answer is incomplete: {response.incomplete_reason or 'no reason given'}"
        )
    raise ModelError(f"the model's answer has the status {response.status!r}")


class NoText(ModelBehaviorError):
    """An answer that has to be structured holds no text at all: the model is asked again."""


def final_output(items: Sequence[Item], output: OutputType[Any] | None) -> Any:
    """The answer that the items of a response without calls hold; blank text is one.

    Raises ModelRefusalError if the model declined, whatever else it said, ModelBehaviorError if the text is
    not what `output` asks for, and NoText if there is none.
    """
    messages = [item for item in items if item.kind == ItemKind.MESSAGE]
    for message in messages:
        if message.refusal is not None:
            raise ModelRefusalError(message.refusal or "the model declined without a reason")
    text = "".join(message.text for message in messages)
    if output is None:
        return text
    if not text.strip():
        raise NoText("the answer has to be structured and holds no text")
    return output.parse(text)


async def finish(
    run: LiveRun, output: Any, *, stopped_early: bool = False, truncated: bool = False, replaced: bool = False
) -> RunResult[Any]:
    """End the run with an answer, wherever it came from: the agent's hook, the guardrails, the last save."""
    hook = run.agent.on_end
    if hook is not None:
        done = hook(run.context, output)
        if inspect.isawaitable(done):
            await done
    judged = await run.guards.after(run, output)
    if replaced or judged is not output:
        run.state.replaced_output = to_jsonable_python(judged, fallback=str)
    await flush(run, closing=True)
    run.inbox.commit()
    return RunResult(
        state=run.state,
        final_output=judged,
        stopped_early=stopped_early or run.inbox.stop_requested,
        truncated=truncated,
    )


async def recover(run: LiveRun, handler: ErrorHandler | None, error: AgentError) -> RunResult[Any] | None:
    """The end of a run whose caller has an answer instead of the error; None: it has none."""
    if handler is None:
        return None
    state = run.state
    given = handler(
        Failure(
            error=error,
            agent=run.agent.name,
            input=state.items[state.first_input : state.first_new],
            items=state.items[state.first_new :],
            responses=tuple(state.responses),
            context=run.context,
        )
    )
    output = await given if inspect.isawaitable(given) else given
    if output is None:
        return None
    text = output if isinstance(output, str) else to_json(output, fallback=str).decode()
    item = replace(assistant_message(text, Source.ERROR_HANDLER), role=Role.FINAL_RESPONSE)
    run.record(joined_record, [item])
    state.settled = True
    run.join([item])
    await run.channel.put(ItemCreated(item))
    return await finish(run, output, replaced=True)
