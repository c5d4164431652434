"""Models by name."""

from __future__ import annotations

from runtime.errors import UserError
from runtime.models.anthropic import AnthropicModel
from runtime.models.model import Model
from runtime.models.openai import OpenAIModel
from runtime.models.scripted import ScriptedModel

FORMS = "openai:NAME, anthropic:NAME or script:FILE"


def resolve_model(spec: str, *, base_url: str | None = None, api_key: str | None = None) -> Model:
    """The model that a text names: "openai:NAME", "anthropic:NAME" or "script:FILE".

    base_url  a server that speaks the provider's wire, instead of the provider's own
    api_key   None: the vendor's client looks where it always looks

    Raises UserError for any other text, a script that cannot be read, and a client that is not installed.
    """
    kind, colon, name = spec.partition(":")
    if not colon or not name:
        raise UserError(f"{spec!r} names no model; use {FORMS}")
    if kind == "openai":
        return OpenAIModel(name, base_url=base_url, api_key=api_key)
    if kind == "anthropic":
        return AnthropicModel(name, base_url=base_url, api_key=api_key)
    if kind == "script":
        if base_url is not None:
            raise UserError("a script needs no server: leave out the base URL")
        return ScriptedModel.from_file(name)
    raise UserError(f"{spec!r} names no known provider; use {FORMS}")
