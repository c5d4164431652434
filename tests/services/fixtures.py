"""Fixtures of the real services. A conftest imports the names it wants."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services.docker_service import DockerService, docker_service


@pytest.fixture(scope="session")
def docker_daemon() -> Iterator[DockerService]:
    """A real Docker daemon with both test images; where there can be none, the test fails and says why."""
    with docker_service() as service:
        yield service
