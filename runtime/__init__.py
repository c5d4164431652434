"""The agent runtime: a model, tools, turns until done; pause and resume at any moment."""

from runtime.agent import Agent
from runtime.budget import MAX_TURNS_UNLIMITED, Budget, Price
from runtime.context import RunContext
from runtime.control import RunControl
from runtime.errors import (
    AgentError,
    BudgetError,
    ContextOverflowError,
    ErrorCode,
    GuardrailTripped,
    JournalError,
    JournalInUse,
    MaxTurnsError,
    ModelBehaviorError,
    ModelError,
    ModelRefusalError,
    RepeatedCallError,
    RunCancelled,
    ToolLoopError,
    UserError,
    classify,
    code_of,
    find_cause,
)
from runtime.events import (
    ApprovalRequested,
    Diagnostic,
    GuardrailRecord,
    HandoffRequested,
    InjectedInputCreated,
    ItemCreated,
    ItemsSaved,
    ModelStreamed,
    PendingApproval,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnStarted,
)
from runtime.fanout import Fanout, Gap, Published
from runtime.guards import Guards
from runtime.handoffs import Handoff, HandoffHistory, agents_of
from runtime.items import Display, Item, ItemKind, Role, Source, ToolCall, user_message
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
from runtime.options import (
    Compactor,
    ConversationOptions,
    ErrorHandlers,
    ExecOptions,
    Failure,
    ItemStore,
    ModelInput,
    ModelOptions,
    ObserveOptions,
    RunOptions,
    TurnResult,
)
from runtime.output_type import OutputType, output_of, output_of_schema
from runtime.records import state_from_records
from runtime.run import RunStream, resume_run, resume_run_sync, run, run_sync
from runtime.snapshot import TurnSnapshot
from runtime.state import NestedPaused, Queued, RunCompleted, RunResult, RunState, run_state_version_supported
from runtime.tools import BadArguments, Tool, ToolContext, ToolFailed, ToolResult, Verdict, pydantic_parse
from runtime.usage import Usage

__all__ = [
    "MAX_TURNS_UNLIMITED",
    "Agent",
    "AgentError",
    "AnthropicModel",
    "ApprovalRequested",
    "BadArguments",
    "Budget",
    "BudgetError",
    "Compactor",
    "ContextOverflowError",
    "ConversationOptions",
    "Diagnostic",
    "Display",
    "ErrorCode",
    "ErrorHandlers",
    "ExecOptions",
    "Failure",
    "Fallback",
    "Fanout",
    "FileJournal",
    "Gap",
    "GuardrailRecord",
    "GuardrailTripped",
    "Guards",
    "Handoff",
    "HandoffHistory",
    "HandoffRequested",
    "InjectedInputCreated",
    "Item",
    "ItemCreated",
    "ItemKind",
    "ItemStore",
    "ItemsSaved",
    "Journal",
    "JournalContents",
    "JournalError",
    "JournalInUse",
    "MaxTurnsError",
    "MemoryJournal",
    "Model",
    "ModelBehaviorError",
    "ModelError",
    "ModelInput",
    "ModelNotice",
    "ModelOptions",
    "ModelRefusalError",
    "ModelRequest",
    "ModelResponse",
    "ModelSettings",
    "ModelStreamed",
    "NestedPaused",
    "ObserveOptions",
    "OpenAIModel",
    "OutputSchema",
    "OutputType",
    "PendingApproval",
    "Price",
    "Published",
    "Queued",
    "Recorded",
    "RepeatedCallError",
    "Retry",
    "Role",
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
    "TurnResult",
    "TurnSnapshot",
    "TurnStarted",
    "Usage",
    "UserError",
    "Verdict",
    "agents_of",
    "classify",
    "code_of",
    "find_cause",
    "output_of",
    "output_of_schema",
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
