"""What a structured answer has to look like, and how its text becomes a value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from runtime.context import Output
from runtime.errors import ModelBehaviorError, UserError
from runtime.models.model import OutputSchema
from runtime.schema import JSON, JsonError, load_object

_WRAPPED = "value"
_QUOTED_ERRORS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputType(Generic[Output]):
    """A schema that the model is held to, and what reads an answer.

    read  text to value; raises ValueError whose words say what does not fit
    """

    schema: OutputSchema
    read: Callable[[str], Output]

    def parse(self, text: str) -> Output:
        """The value of an answer. Raises ModelBehaviorError if the text does not fit the schema."""
        try:
            return self.read(text)
        except ValueError as error:
            raise ModelBehaviorError(
                f"the answer does not fit {self.schema.name}: {_words(error)}"
            ) from error


def output_of(kind: Any) -> OutputType[Any]:
    """The output type of a pydantic model, a dataclass, or any other type that pydantic can read.

    What is no JSON object (a list, a number) travels inside one. Raises UserError for other types.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        schema = adapter.json_schema()
    except PydanticUserError as error:
        raise UserError(f"{kind!r} cannot be an output type: {error.message}") from error
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", getattr(kind, "__name__", "") or "output").strip("_")[:64]
    if schema.get("type") == "object" or ("$ref" in schema and "properties" not in schema):
        return OutputType(schema=_schema(name, schema), read=adapter.validate_json)
    definitions = schema.pop("$defs", None)
    outer: dict[str, Any] = {
        "type": "object",
        "properties": {_WRAPPED: schema},
        "required": [_WRAPPED],
        "additionalProperties": False,
    }
    if definitions:
        outer["$defs"] = definitions

    def read(text: str) -> Any:
        return adapter.validate_json(json.dumps(load_object(text).get(_WRAPPED)))

    return OutputType(schema=_schema(name, outer), read=read)


def output_of_schema(
    name: str, schema: Mapping[str, JSON], *, strict: bool = True
) -> OutputType[dict[str, JSON]]:
    """The output type of a JSON schema; the answer is a dictionary that follows it."""

    def read(text: str) -> dict[str, JSON]:
        value = load_object(text)
        wrong = misfits(value, schema)
        if wrong:
            raise ValueError("; ".join(wrong[:_QUOTED_ERRORS]))
        return value

    return OutputType(schema=OutputSchema(name=name, schema=schema, strict=strict), read=read)


def misfits(value: JSON, schema: Mapping[str, JSON]) -> list[str]:
    """Where a value does not follow a schema, each with a JSON pointer; empty if it does.

    A schema that is none itself is not looked at.
    """
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        return []
    found = Draft202012Validator(schema).iter_errors(value)
    return [
        f"{'/' + '/'.join(str(part) for part in error.absolute_path)}: {error.message}" for error in found
    ]


def _schema(name: str, schema: dict[str, Any]) -> OutputSchema:
    return OutputSchema(name=name, schema=_closed(schema))


def _closed(schema: Any) -> Any:
    # Objects that allow no other members can be asked for in the services' strict mode.
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(part) for key, part in schema.items()}
    if closed.get("type") == "object" and isinstance(closed.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


def _words(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        lines = error.errors(include_url=False, include_input=False)[:_QUOTED_ERRORS]
        return "; ".join(f"/{'/'.join(str(part) for part in line['loc'])}: {line['msg']}" for line in lines)
    return str(error) if not isinstance(error, JsonError) else f"it is {error}"
