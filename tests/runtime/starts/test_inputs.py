"""What is known when an assignment starts: whether `start` has a say at all."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_sdk.records import Assignment, AtPosition, Checkpoint, Committed, Partition
from consumer_sdk.runtime.starts.inputs import Decision, StartInputs
from tests.runtime.consumer_options import options_of

HELD = Assignment(Partition("s", "0"), 1)
NEW = Assignment(Partition("s", "0"), 1, discovered=True)
AT_5 = Checkpoint(4, 5, application="a")
ENDED = Checkpoint(ended=True)
A: dict[str, Any] = {"application_id": "a", "restart": "from_start"}
B: dict[str, Any] = {"application_id": "b", "restart": "from_start"}

NEEDS: dict[str, tuple[StartInputs, dict[str, Any], bool]] = {
    "nothing is known": (StartInputs(assignment=HELD), {}, True),
    "a partition that is newer than the group": (StartInputs(assignment=NEW), {}, False),
    "the store knows": (StartInputs(assignment=HELD, stored=AT_5), {}, False),
    "the broker knows": (StartInputs(assignment=HELD, committed=Committed(AT_5)), {}, False),
    "the store has attempts alone": (
        StartInputs(assignment=HELD, stored=Checkpoint(attempts={3: (1, 0.0)})),
        {},
        True,
    ),
    "it was read to its end": (StartInputs(assignment=HELD, stored=ENDED), {}, False),
    "the broker's cursor": (
        StartInputs(assignment=HELD, committed=Committed(Checkpoint()), redelivers=True),
        {},
        False,
    ),
    "no cursor yet": (StartInputs(assignment=HELD, redelivers=True), {}, True),
    "a cursor, and a store that knows no place": (
        StartInputs(
            assignment=HELD,
            stored=Checkpoint(),
            committed=Committed(Checkpoint()),
            redelivers=True,
        ),
        {},
        True,
    ),
    "nothing is known, and applications are": (StartInputs(assignment=HELD), A, True),
    "another program has moved the group of another application": (
        StartInputs(
            assignment=HELD,
            stored=AT_5,
            committed=Committed(Checkpoint(resume=50), is_foreign=True),
        ),
        B,
        False,
    ),
    "the same application": (StartInputs(assignment=HELD, stored=AT_5), A, False),
    "a new application": (StartInputs(assignment=HELD, stored=AT_5), B, True),
    "a new application, and the broker's cursor": (
        StartInputs(assignment=HELD, committed=Committed(AT_5), redelivers=True),
        B,
        True,
    ),
}


@pytest.mark.parametrize("case", NEEDS)
def test_start_is_resolved_where_nobody_knows_better(case: str) -> None:
    """Only then: what it stands for is pinned for the whole group."""
    inputs, options, needs = NEEDS[case]
    assert inputs.needs_start(options_of(**options)) is needs


@pytest.mark.parametrize("redelivers", [False, True])
def test_store_alone_was_not_reset(*, redelivers: bool) -> None:
    """There is nobody who could have set another position."""
    inputs = StartInputs(assignment=HELD, stored=AT_5, redelivers=redelivers)
    assert not inputs.is_foreign
    assert not inputs.is_unmarked
    assert inputs.reset is None


def test_position_of_another_program_is_a_reset_also_of_a_store_without_a_place() -> None:
    """It has attempts alone, and the other one has had the last word."""
    theirs = Checkpoint(resume=50)
    inputs = StartInputs(
        assignment=HELD,
        stored=Checkpoint(attempts={3: (1, 0.0)}),
        committed=Committed(theirs, is_foreign=True),
    )
    assert inputs.reset == theirs


def test_reset_that_was_honoured_is_none_any_more() -> None:
    """Store and broker agree on it: it is held against the log next, and once."""
    theirs = Committed(Checkpoint(resume=50), is_foreign=True)
    inputs = StartInputs(assignment=HELD, stored=AT_5, committed=theirs, earliest=10)
    after = inputs.after(Decision(AtPosition(50), theirs.checkpoint))
    assert (after.known, after.reset, after.is_foreign) == (theirs.checkpoint, None, False)
    assert after.earliest == 10
