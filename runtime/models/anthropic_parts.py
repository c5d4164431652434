"""Content of items as blocks of the Messages wire: text, images, documents, results of calls. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.errors import UserError
from runtime.items import Item
from runtime.models import wire
from runtime.schema import JSON

Block = dict[str, JSON]

SILENCE = "(nothing)"
"""What stands for a turn of the user's that is blank, or that the wire asks for and nobody took."""


def message(item: Mapping[str, JSON]) -> tuple[str, list[Block]]:
    """The role and the blocks of a message."""
    role = {"developer": "system"}.get(str(item.get("role")), str(item.get("role")))
    content = item.get("content")
    blocks: list[Block] = []
    if isinstance(content, str):
        blocks = _text(content)
    elif isinstance(content, Sequence):
        blocks = [block for part in content for block in _part(part)]
    # A user's turn that says nothing is a turn all the same: without it the model would go on with its own.
    return role, blocks or (silence() if role == "user" else [])


def silence() -> list[Block]:
    """A turn in which nothing is said."""
    return [{"type": "text", "text": SILENCE}]


def tool_result(item: Item, call_id: str) -> Block:
    """The output of a call."""
    output = item.wire.get("output")
    content: JSON = output if isinstance(output, str) else ""
    if isinstance(output, Sequence) and not isinstance(output, str):
        content = [block for part in output for block in _part(part)]
    block: Block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    if item.is_error:
        # An error without words is refused.
        block.update(content=content or "(no reason was given)", is_error=True)
    return block


def _text(words: str) -> list[Block]:
    # Blank text is refused, and says nothing.
    return [{"type": "text", "text": words}] if words.strip() else []


def _part(part: JSON) -> list[Block]:
    kind = wire.text(part, "type")
    if kind in ("input_text", "output_text", "text"):
        return _text(wire.text(part, "text"))
    if kind == "refusal":
        return _text(wire.text(part, "refusal"))
    if kind == "input_image":
        return [{"type": "image", "source": _image(part)}]
    if kind == "input_file":
        return [_document(part)]
    raise UserError(f"the Messages API has no place for content of the type {kind!r}")


def _image(part: JSON) -> Block:
    url = wire.text(part, "image_url")
    if url.startswith("data:"):
        media, data = _data_url(url)
        return {"type": "base64", "media_type": media, "data": data}
    if url:
        return {"type": "url", "url": url}
    raise UserError("the Messages API has no place for an image given as a file id of another service")


def _document(part: JSON) -> Block:
    url, data = wire.text(part, "file_url"), wire.text(part, "file_data")
    source: Block
    if data.startswith("data:"):
        media, data = _data_url(data)
        source = {"type": "base64", "media_type": media, "data": data}
    elif data:
        source = {"type": "base64", "media_type": "application/pdf", "data": data}
    elif url:
        source = {"type": "url", "url": url}
    else:
        raise UserError("the Messages API has no place for a file given as a file id of another service")
    block: Block = {"type": "document", "source": source}
    if wire.text(part, "filename"):
        block["title"] = wire.text(part, "filename")
    return block


def _data_url(url: str) -> tuple[str, str]:
    media, _, data = url.removeprefix("data:").partition(";base64,")
    return media, data
