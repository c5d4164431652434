"""Models by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Protocol

from runtime.errors import UserError
from runtime.models.anthropic import AnthropicModel
from runtime.models.model import Model
from runtime.models.openai import OpenAIModel
from runtime.models.scripted import ScriptedModel

FORMS = "openai:NAME, anthropic:NAME or script:FILE"

ENTRY_POINTS = "coderig.models"
"""The group of entry points in which an installed package may name further prefixes, each a ModelFactory."""


class ModelFactory(Protocol):
    """Makes the models of one prefix."""

    def __call__(self, name: str, *, base_url: str | None, api_key: str | None) -> Model:
        """The model that stands after the prefix. Raises UserError for what it cannot make.

        base_url  a server that speaks the provider's wire, instead of the provider's own
        api_key   None: where the provider's client always looks
        """
        ...


def _script(name: str, *, base_url: str | None, api_key: str | None) -> Model:
    if base_url is not None:
        raise UserError("a script needs no server: leave out the base URL")
    return ScriptedModel.from_file(name)


def _openai(name: str, *, base_url: str | None, api_key: str | None) -> Model:
    return OpenAIModel(name, base_url=base_url, api_key=api_key)


def _anthropic(name: str, *, base_url: str | None, api_key: str | None) -> Model:
    return AnthropicModel(name, base_url=base_url, api_key=api_key)


_BUILT_IN: Mapping[str, ModelFactory] = {"openai": _openai, "anthropic": _anthropic, "script": _script}


def resolve_model(spec: str, *, base_url: str | None = None, api_key: str | None = None) -> Model:
    """The model that a text names: "openai:NAME", "anthropic:NAME", "script:FILE", or of a plug-in's prefix.

    base_url  a server that speaks the provider's wire, instead of the provider's own
    api_key   None: the vendor's client looks where it always looks

    Raises UserError for any other text, a script that cannot be read, and a client that is not installed.
    """
    prefix, colon, name = spec.partition(":")
    if not colon or not name or not prefix:
        raise UserError(f"{spec!r} names no model; use {FORMS}")
    factory = _BUILT_IN.get(prefix) or _installed(prefix)
    if factory is None:
        raise UserError(f"{spec!r} names no known provider; use {FORMS}")
    return factory(name, base_url=base_url, api_key=api_key)


def _installed(prefix: str) -> ModelFactory | None:
    for found in entry_points(group=ENTRY_POINTS, name=prefix):
        try:
            factory: ModelFactory = found.load()
        except (ImportError, AttributeError) as error:
            raise UserError(f"the models {prefix!r} of {found.value} cannot be loaded: {error}") from error
        return factory
    return None
