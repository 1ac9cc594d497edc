"""Dead letters in memory, and their faults."""

from __future__ import annotations

from consumer_sdk.dead_letters import MemoryDeadLetters
from consumer_sdk.errors import StoreError
from consumer_sdk.records import OutcomeKind
from consumer_sdk.testing.faults import Faults, Side
from tests.dead_letters.test_local import LETTER


async def test_sent_letters_are_in_the_list() -> None:
    """In the order in which they came; closing changes nothing."""
    letters = MemoryDeadLetters()
    await letters.open()
    outcomes = await letters.send([LETTER])
    await letters.aclose()
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DURABLE]
    assert letters.letters == [LETTER]


async def test_fault_is_retry_for_all_and_never_raised() -> None:
    """Before its effect nothing is kept; after it, a letter that is sent again is there twice."""
    faults = Faults()
    letters = MemoryDeadLetters(faults=faults)
    sides: list[tuple[Side, int]] = [("before", 0), ("after", 1)]
    for side, kept in sides:
        faults.fail_next("dead_letter", side)
        (outcome,) = await letters.send([LETTER])
        assert outcome.kind is OutcomeKind.RETRY
        assert isinstance(outcome.error, StoreError)
        assert len(letters.letters) == kept
