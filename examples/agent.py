"""An agent with the coding tools. `resolve_model("openai:NAME")` makes a real model."""

import tempfile

from coderig import Agent, LocalSandbox, Policy, Scripted, ScriptedCall, ScriptedModel, code_tools, run_sync

POLICY = Policy.from_toml("""
[[rule]]
decision = "allow"
pattern = "echo *"
""")

MODEL = ScriptedModel(
    [
        Scripted(calls=(ScriptedCall(name="exec_command", arguments={"cmd": "echo hello"}),)),
        "It printed hello.",
    ]
)

with tempfile.TemporaryDirectory() as directory, LocalSandbox(directory) as box:
    agent = Agent(name="helper", instructions="Be brief.", tools=code_tools(box, POLICY), model=MODEL)
    result = run_sync(agent, "Say hello with the shell.")
    print(result.final_output)
    print(result.turns, "model calls")
