"""Which texts are kept out of what is shown and recorded."""

from __future__ import annotations

import pytest

from coderig.masking import Mask, MaskingJournal
from runtime import MemoryJournal


@pytest.mark.spec("CLI-22")
def test_values_of_secret_names_are_masked_wherever_they_stand() -> None:
    mask = Mask({"A_API_KEY": "first-secret", "B_TOKEN": "first-secret-longer", "PATH": "/usr/bin:/bin"})
    assert mask.text("x first-secret-longer y first-secret") == "x [masked] y [masked]"
    assert mask.value({"a": ["first-secret", 1, None], "first-secret": True}) == {
        "a": ["[masked]", 1, None],
        "[masked]": True,
    }
    assert mask.text("/usr/bin:/bin") == "/usr/bin:/bin"


@pytest.mark.spec("CLI-22")
def test_short_values_and_paths_are_left_alone() -> None:
    mask = Mask({"KEY": "yes", "SSH_KEY": "/home/me/.ssh/id_ed25519", "EMPTY_TOKEN": ""})
    assert mask.text("yes, /home/me/.ssh/id_ed25519") == "yes, /home/me/.ssh/id_ed25519"


@pytest.mark.spec("CLI-22")
def test_a_journal_gets_records_without_secrets_and_others_as_they_are() -> None:
    inner = MemoryJournal()
    journal = MaskingJournal(inner, Mask({"X_SECRET": 'geheim"niss'}))
    journal.append({"record": "output", "text": 'the geheim"niss'})
    journal.append({"record": "output", "number": 1.5})
    assert inner.records == [
        {"record": "output", "text": "the [masked]"},
        {"record": "output", "number": 1.5},
    ]
