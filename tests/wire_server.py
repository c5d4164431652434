"""The offline server, for tests. It is part of the product: `coderig serve-script` serves it to people."""

from runtime.models.server import Call, Reply, Request, WireServer

__all__ = ["Call", "Reply", "Request", "WireServer"]
