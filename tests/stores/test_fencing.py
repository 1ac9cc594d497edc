"""Who may write a checkpoint: the rules by themselves."""

from __future__ import annotations

import pytest

from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import CheckpointFormatError, FencedError
from consumer_sdk.records import Assignment, Outcome, OutcomeKind, Partition
from consumer_sdk.stores.fencing import (
    NOBODY,
    Claims,
    Stamp,
    Write,
    judge,
    overwritten,
    refused,
    take,
)

FIRST = Assignment(Partition("orders", "0"), 1)
MOST = 100


@pytest.mark.parametrize(
    "stored, fence, left",
    [
        (None, None, Stamp("me", None, 0)),
        (None, 7, Stamp("me", 7, 0)),
        (Stamp("other", None, 9), 7, Stamp("me", 7, 0)),
        (Stamp("other", 7, 9), 8, Stamp("me", 8, 0)),
        (Stamp("other", 7, 9), 7, Stamp("me", 7, 0)),
        (Stamp("other", 7, 9), None, Stamp("me", 7, 0)),
        (Stamp("other", 7, 9), 6, None),
    ],
)
def test_claim_leaves_its_stamp_unless_a_newer_fence_is_stored(
    stored: Stamp | None, fence: int | None, left: Stamp | None
) -> None:
    """The fence never falls, and each claim counts its saves anew."""
    assert take(stored, fence, "me") == left


@pytest.mark.parametrize(
    "stored, kind",
    [
        (Stamp("me", 7, 2), None),
        (Stamp("me", 7, 3), OutcomeKind.DURABLE),
        (Stamp("me", 7, 4), OutcomeKind.DURABLE),
        (Stamp("other", 7, 2), OutcomeKind.FENCED),
        (Stamp(NOBODY, 7, 2), OutcomeKind.FENCED),
        (None, OutcomeKind.FENCED),
    ],
)
def test_save_is_written_under_its_claim_and_over_an_older_one_only(
    stored: Stamp | None, kind: OutcomeKind | None
) -> None:
    """One that is stored already, or that a later one has passed, is durable."""
    outcome = judge(stored, Stamp("me", 7, 3))
    assert (None if outcome is None else outcome.kind) is kind


@pytest.mark.parametrize(
    "stored, words",
    [
        (Stamp("host/1", 7, 2), "owner: host/1, fence: 7"),
        (Stamp(NOBODY, 7, 2), "owner: nobody: it was deleted, fence: 7"),
        (None, "owner: nobody: it was deleted, fence: None"),
    ],
)
def test_refusal_names_the_owner(stored: Stamp | None, words: str) -> None:
    """An operator who sees two owners knows which processes to look at."""
    outcome = refused(stored)
    assert outcome.kind is OutcomeKind.FENCED
    assert isinstance(outcome.error, FencedError)
    assert words in str(outcome.error)


def test_claim_that_was_written_over_is_fenced() -> None:
    """By another program: what it wrote stays, and is named."""
    outcome = overwritten(CheckpointFormatError("/p holds 7"))
    assert outcome.kind is OutcomeKind.FENCED
    assert str(outcome.error) == "another program has taken over: /p holds 7"


@pytest.fixture
def claims() -> Claims:
    """Of one group, with one claim."""
    made = Claims()
    made.remember("billing", FIRST, Stamp("me", 7, 0))
    return made


def saved(claims: Claims, group: str = "billing", text: str = "text") -> Write | Outcome:
    """What becomes of one save."""
    (found,) = claims.plan(group, [StoreItem(FIRST, text)], MOST)
    return found


def kind(found: Write | Outcome) -> OutcomeKind | None:
    """None for what is to be written."""
    return found.kind if isinstance(found, Outcome) else None


def test_each_save_of_a_claim_has_a_serial_of_its_own(claims: Claims) -> None:
    """One that arrives late is known by it."""
    for serial in (1, 2, 3):
        assert saved(claims) == Write(FIRST, "text", Stamp("me", 7, serial))


def test_save_in_another_group_is_not_covered_by_the_claim(claims: Claims) -> None:
    """A store may serve several groups; each has checkpoints of its own."""
    assert kind(saved(claims, "shipping")) is OutcomeKind.FENCED
    assert kind(saved(claims, "")) is OutcomeKind.FENCED
    assert kind(saved(claims)) is None


@pytest.mark.parametrize("group", ["billing", ""])
def test_save_without_a_claim_is_fenced(group: str) -> None:
    """It was never made, or is forgotten."""
    claims = Claims()
    assert kind(saved(claims, group)) is OutcomeKind.FENCED
    claims.remember(group, FIRST, Stamp("me", 7, 0))
    claims.forget([FIRST, Assignment(FIRST.partition, 2)])
    assert kind(saved(claims, group)) is OutcomeKind.FENCED


@pytest.mark.parametrize("text, is_taken", [("x" * MOST, True), ("x" * (MOST + 1), False)])
@pytest.mark.parametrize("letter", ["x", "é"])
def test_checkpoint_larger_than_the_store_takes_waits(
    claims: Claims,
    text: str,
    letter: str,
    is_taken: bool,  # noqa: FBT001 - a parameter
) -> None:
    """In bytes, not in characters; it may be smaller by the next flush, whose serial is the next."""
    text = text.replace("x" * len(letter.encode()), letter)
    found = saved(claims, text=text)
    assert kind(found) is (None if is_taken else OutcomeKind.RETRY)
    if isinstance(found, Outcome):
        assert "has 101 bytes, the store takes 100" in str(found.error)
        assert saved(claims) == Write(FIRST, "text", Stamp("me", 7, 1))
