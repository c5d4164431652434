"""A run pauses before a call that needs a person's answer; its state is text, and can wait anywhere."""

import tempfile

from coderig import (
    Agent,
    LocalSandbox,
    RunState,
    Scripted,
    ScriptedCall,
    ScriptedModel,
    code_tools,
    resume_run_sync,
    run_sync,
)

MODEL = ScriptedModel(
    [Scripted(calls=(ScriptedCall(name="exec_command", arguments={"cmd": "touch made"}, id="c1"),)), "Done."]
)

with tempfile.TemporaryDirectory() as directory, LocalSandbox(directory) as box:
    agent = Agent(name="helper", tools=code_tools(box, ask_by_default=True), model=MODEL)
    paused = run_sync(agent, "Make a file.")
    for call in paused.interruptions:
        print("may it run?", call.preview)

    kept = paused.state.to_json()
    state = RunState.from_json(kept)
    state.approve("c1")
    print(resume_run_sync(agent, state).final_output, [entry.name for entry in box.list_dir()])
