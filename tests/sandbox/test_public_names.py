"""The public face of sandbox is exactly what its __all__ says."""

from __future__ import annotations

import sandbox


def test_the_public_names_are_listed_and_sorted() -> None:
    assert sandbox.__all__ == sorted(sandbox.__all__)
    assert sorted(name for name in dir(sandbox) if name[0].isupper()) == sorted(sandbox.__all__)
