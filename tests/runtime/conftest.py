"""Fixtures of the runtime's tests."""

from __future__ import annotations

import pytest
from wire_kit import WIRES


@pytest.fixture(params=WIRES)
def provider(request: pytest.FixtureRequest) -> str:
    """Each provider in turn."""
    return str(request.param)
