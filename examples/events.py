"""Watch a run while it goes on: events come in order, and the last one has the result."""

import asyncio

from coderig import Agent, LocalSandbox, Scripted, ScriptedCall, ScriptedModel, code_tools, run

CALLS = (ScriptedCall(name="exec_command", arguments={"cmd": "echo one; echo two"}),)


async def main() -> None:
    with LocalSandbox() as box:
        model = ScriptedModel([Scripted(calls=CALLS), "Done."])
        stream, control = run(Agent(name="helper", tools=code_tools(box), model=model), "Count.")
        async with stream:
            async for event in stream:
                print(type(event).__name__)
        print("still to be said:", len(control.pending()))


asyncio.run(main())
