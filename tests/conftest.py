"""The places on which the contract suite runs, and what is known to differ between them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import COLD, KNOWN, PLACES, Place, needs, open_place
from services.fixtures import docker_daemon as docker_daemon
from services.ssh_service import SshService, start_sshd


@pytest.fixture(scope="session")
def ssh_service() -> Iterator[SshService]:
    """A real sshd on loopback, for all tests."""
    with start_sshd() as service:
        yield service


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `place` runs on every place; one that is marked cold_too, also with nothing
    started ahead there."""
    if "place" in metafunc.fixturenames:
        cold_too = metafunc.definition.get_closest_marker("cold_too") is not None
        names = [*PLACES, *(name + COLD for name in PLACES if cold_too)]
        metafunc.parametrize(
            "place",
            [pytest.param(name, marks=needs(name)) for name in names],
            indirect=True,
            scope="session",
        )


@pytest.fixture(scope="session")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One place, opened once; every test works in a directory of its own there (`place.fresh()`)."""
    with open_place(request.param, request, tmp_path_factory.mktemp("place")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def known_difference(request: pytest.FixtureRequest) -> None:
    """A difference between places is data with a reason (places.KNOWN), never an `if` in a test."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and "place" in callspec.params:
        reason = KNOWN.get((callspec.params["place"], request.node.originalname))
        if reason is not None:
            pytest.skip(reason)


@pytest.fixture(autouse=True)
def no_stray_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own keys and settings never reach a test."""
    for name in list(os.environ):
        if name.endswith("_API_KEY") or name.startswith("CODERIG_") and name != "CODERIG_TEST_CACHE":
            monkeypatch.delenv(name)


@pytest.fixture
def root() -> Path:
    """The top of the repository."""
    return Path(__file__).parent.parent
