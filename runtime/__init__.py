"""The agent runtime: a model, tools, turns until done; pause and resume at any moment."""

from runtime.agent import Agent, RunContext
from runtime.budget import MAX_TURNS_UNLIMITED
from runtime.control import RunControl
from runtime.errors import (
    AgentError,
    ContextOverflowError,
    ErrorCode,
    JournalError,
    JournalInUse,
    MaxTurnsError,
    ModelBehaviorError,
    ModelError,
    ModelRefusalError,
    RunCancelled,
    ToolLoopError,
    UserError,
    code_of,
)
from runtime.events import (
    ApprovalRequested,
    ItemCreated,
    ModelStreamed,
    PendingApproval,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnStarted,
)
from runtime.items import Display, Item, ItemKind, Source, ToolCall, user_message
from runtime.journal import FileJournal, Journal, JournalContents, MemoryJournal, read_journal
from runtime.live import RunEvent
from runtime.loop import RunError
from runtime.models.anthropic import AnthropicModel
from runtime.models.decorator import ModelNotice
from runtime.models.fallback import Fallback
from runtime.models.model import Model, ModelRequest, ModelResponse, ModelSettings, OutputSchema, ToolSpec
from runtime.models.openai import OpenAIModel
from runtime.models.recording import Recorded
from runtime.models.registry import resolve_model
from runtime.models.retry import Retry
from runtime.models.routing import Routed
from runtime.models.scripted import Scripted, ScriptedCall, ScriptedFailure, ScriptedModel
from runtime.models.stream_only import StreamOnly
from runtime.options import RunOptions
from runtime.records import state_from_records
from runtime.run import RunStream, resume_run, resume_run_sync, run, run_sync
from runtime.state import RunCompleted, RunResult, RunState, run_state_version_supported
from runtime.tools import BadArguments, Tool, ToolContext, ToolFailed, ToolResult, Verdict, pydantic_parse
from runtime.usage import Usage

__all__ = [
    "MAX_TURNS_UNLIMITED",
    "Agent",
    "AgentError",
    "AnthropicModel",
    "ApprovalRequested",
    "BadArguments",
    "ContextOverflowError",
    "Display",
    "ErrorCode",
    "Fallback",
    "FileJournal",
    "Item",
    "ItemCreated",
    "ItemKind",
    "Journal",
    "JournalContents",
    "JournalError",
    "JournalInUse",
    "MaxTurnsError",
    "MemoryJournal",
    "Model",
    "ModelBehaviorError",
    "ModelError",
    "ModelNotice",
    "ModelRefusalError",
    "ModelRequest",
    "ModelResponse",
    "ModelSettings",
    "ModelStreamed",
    "OpenAIModel",
    "OutputSchema",
    "PendingApproval",
    "Recorded",
    "Retry",
    "Routed",
    "RunCancelled",
    "RunCompleted",
    "RunContext",
    "RunControl",
    "RunError",
    "RunEvent",
    "RunOptions",
    "RunResult",
    "RunState",
    "RunStream",
    "Scripted",
    "ScriptedCall",
    "ScriptedFailure",
    "ScriptedModel",
    "Source",
    "StreamOnly",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolFailed",
    "ToolFinished",
    "ToolLoopError",
    "ToolProgress",
    "ToolResult",
    "ToolSpec",
    "ToolStarted",
    "TurnStarted",
    "Usage",
    "UserError",
    "Verdict",
    "code_of",
    "pydantic_parse",
    "read_journal",
    "resolve_model",
    "resume_run",
    "resume_run_sync",
    "run",
    "run_state_version_supported",
    "run_sync",
    "state_from_records",
    "user_message",
]
