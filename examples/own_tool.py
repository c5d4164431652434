"""A tool of your own: a pydantic model for its arguments, a function, and words for the model."""

from pydantic import BaseModel

from coderig import Agent, Scripted, ScriptedCall, ScriptedModel, Tool, ToolContext, pydantic_parse, run_sync


class Add(BaseModel):
    """The arguments."""

    left: int
    right: int


def add(context: ToolContext, arguments: Add) -> str:
    """May block: it runs in a thread of its own."""
    context.emit("adding")
    return str(arguments.left + arguments.right)


tool = Tool(
    name="add",
    description="Add two numbers.",
    parameters=Add.model_json_schema(),
    parse=pydantic_parse(Add),
    run=add,
)
calls = (ScriptedCall(name="add", arguments={"left": 2, "right": 3}),)
agent = Agent(name="clerk", tools=[tool], model=ScriptedModel([Scripted(calls=calls), "It is 5."]))
print(run_sync(agent, "What is 2 + 3?").final_output)
