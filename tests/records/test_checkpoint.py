"""Checkpoints beside each other and beside what a broker stores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.errors import CheckpointMismatchError
from consumer_sdk.records import Checkpoint, Comparison, Lost, Position

PLACES = range(0, 40, 2)
EVERYWHERE = range(-1, 41)
"""With the places between: positions that the ranges below never name."""


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    """Any that a tracker might make, and some with a resume that makes little sense."""
    ends = sorted(draw(st.sets(st.sampled_from(PLACES), max_size=9)))
    has_watermark = draw(st.booleans())
    watermark = ends.pop(0) if ends and has_watermark else None
    ranges = tuple(zip(ends[::2], ends[1::2], strict=False))
    resume = draw(st.none() | st.sampled_from(EVERYWHERE))
    tried = draw(st.dictionaries(st.sampled_from(EVERYWHERE), st.integers(1, 9), max_size=3))
    attempts = {position: (count, count * 7.5 % 4) for position, count in tried.items()}
    application = draw(st.sampled_from((None, "a", "b")))
    ended = draw(st.integers(0, 9)) == 0
    return Checkpoint(watermark, resume, ranges, attempts, ended, application=application)


def settled(checkpoint: Checkpoint) -> set[int]:
    """All places that it settles."""
    return {place for place in EVERYWHERE if checkpoint.is_settled(place)}


def both(checkpoint: Checkpoint) -> tuple[object, ...]:
    """All that merging may not depend on the order of."""
    return (
        *settled(checkpoint),
        checkpoint.start,
        dict(checkpoint.attempts),
        checkpoint.ended,
        checkpoint.application,
    )


# -- settled ----------------------------------------------------------------------------------


def test_prefix_and_ranges_are_settled_and_nothing_else() -> None:
    """Ends are inclusive; tuples are positions as well."""
    checkpoint = Checkpoint(5, 6, ((8, 9), (12, 12)))

    assert settled(checkpoint) == {*range(-1, 6), 8, 9, 12}
    assert Checkpoint((7, 3)).is_settled((7, 3))
    assert not Checkpoint((7, 3), ranges=(((7, 5), (8, 1)),)).is_settled((7, 4))
    assert Checkpoint((7, 3), ranges=(((7, 5), (8, 1)),)).is_settled((7, 9))
    assert settled(Checkpoint(None, 5)) == set()


def test_ended_checkpoint_has_everything_settled() -> None:
    """There is nothing more to read, so nothing is delivered again."""
    assert settled(Checkpoint(5, ended=True)) == set(EVERYWHERE)


# -- comparing --------------------------------------------------------------------------------


@given(checkpoints(), checkpoints())
def test_cover_is_a_superset_of_what_is_settled(a: Checkpoint, b: Checkpoint) -> None:
    """An end is more than any place."""
    ended = {41} if b.ended else set()
    assert a.covers(b) == ((settled(b) | ended) <= (settled(a) | ({41} if a.ended else set())))


@pytest.mark.parametrize(
    "other, comparison",
    [
        (Checkpoint(5, 7, ((9, 12),), {7: (1, 0.0)}), "equal"),
        (Checkpoint(5, 6, ((9, 11),)), "ahead"),
        (Checkpoint(), "ahead"),
        (Checkpoint(5, 6, ((8, 12),)), "behind"),
        (Checkpoint(12), "behind"),
        (Checkpoint(5, ended=True), "behind"),
        (Checkpoint(6), "diverged"),
        (Checkpoint(None, 9, ((9, 13),)), "diverged"),
    ],
)
def test_comparison_says_who_has_settled_more(other: Checkpoint, comparison: str) -> None:
    """Where to read on, and attempts, are no progress."""
    checkpoint = Checkpoint(5, 6, ((9, 12),))
    turned = {"ahead": "behind", "behind": "ahead"}

    assert checkpoint.compare(other).value == comparison
    assert other.compare(checkpoint).value == turned.get(comparison, comparison)


@given(checkpoints(), checkpoints())
def test_comparison_agrees_with_the_covers(a: Checkpoint, b: Checkpoint) -> None:
    """Both ways equal, one way ahead or behind, neither diverged."""
    expected = {
        (True, True): Comparison.EQUAL,
        (True, False): Comparison.AHEAD,
        (False, True): Comparison.BEHIND,
        (False, False): Comparison.DIVERGED,
    }
    assert a.compare(b) is expected[a.covers(b), b.covers(a)]


# -- merging ----------------------------------------------------------------------------------


@given(checkpoints(), checkpoints())
def test_merge_settles_what_either_settled(a: Checkpoint, b: Checkpoint) -> None:
    """Nothing more, and it covers both."""
    merged = a.merge(b)

    assert settled(merged) == settled(a) | settled(b)
    assert merged.covers(a)
    assert merged.covers(b)


@given(checkpoints(), checkpoints(), checkpoints())
def test_merge_does_not_depend_on_order_or_repetition(
    a: Checkpoint, b: Checkpoint, c: Checkpoint
) -> None:
    """Commutative, associative, idempotent; a checkpoint of nothing changes nothing."""
    merged = a.merge(b)

    assert merged == b.merge(a)
    assert merged.merge(c) == a.merge(b.merge(c))
    assert merged.merge(merged) == merged == merged.merge(a) == merged.merge(Checkpoint())


@given(checkpoints(), checkpoints())
def test_merge_skips_no_record_that_was_unsettled(a: Checkpoint, b: Checkpoint) -> None:
    """Whatever lies at or above one of the starts is read again, or is settled."""
    merged = a.merge(b)
    for one in (a, b):
        if one.start is not None:
            wanted = {place for place in EVERYWHERE if place >= one.start}
            assert merged.start is not None
            assert {place for place in wanted if place < merged.start} <= settled(merged)


@given(checkpoints(), checkpoints())
def test_merge_keeps_the_higher_count_of_what_is_unsettled(a: Checkpoint, b: Checkpoint) -> None:
    """Of two equal counts the one that is due later; none of settled records."""
    merged = a.merge(b)
    tried = {*a.attempts, *b.attempts} - settled(merged)

    assert set(merged.attempts) == tried
    for place in tried:
        known = [one.attempts[place] for one in (a, b) if place in one.attempts]
        assert merged.attempts[place] == max(known)


@pytest.mark.parametrize(
    "a, b, merged",
    [
        (Checkpoint(5, 8), Checkpoint(3, 8), Checkpoint(5, 8)),
        (Checkpoint(5, 8), Checkpoint(3, 4), Checkpoint(5, 5)),
        (Checkpoint(None, 100), Checkpoint(50, 51), Checkpoint(50, 51)),
        (Checkpoint(None, 10), Checkpoint(None, 14), Checkpoint(None, 10)),
        (Checkpoint(5, 6), Checkpoint(3, 4, ((5, 9),)), Checkpoint(9, 9)),
        (Checkpoint(5, 5), Checkpoint(7, ended=True), Checkpoint(7, 7, ended=True)),
        (Checkpoint(5), Checkpoint(), Checkpoint(5, 5)),
    ],
)
def test_merge_resumes_at_the_lower_start_above_the_watermark(
    a: Checkpoint, b: Checkpoint, merged: Checkpoint
) -> None:
    """Reading a settled record once more costs little; skipping one costs the record."""
    assert a.merge(b) == merged


def test_identities_that_are_known_must_be_the_same() -> None:
    """Positions of a stream made again name other records; what is unknown fits anything."""
    old, new, unknown = (Checkpoint(5, 6, identity=name) for name in ("old", "new", None))

    assert old.merge(unknown).identity == unknown.merge(old).identity == "old"
    assert old.compare(unknown) is Comparison.EQUAL
    for clash in (old.merge, old.covers, old.compare):
        with pytest.raises(CheckpointMismatchError, match=r"'old' and 'new'.*delete the older"):
            clash(new)


# -- clipping ---------------------------------------------------------------------------------


WHOLE = Checkpoint(5, 6, ((8, 9), (12, 15), (20, 21)), {6: (1, 0.0), 11: (2, 5.0), 25: (3, 1.0)})


def test_checkpoint_within_the_log_is_left_as_it_is() -> None:
    """Also where a bound is unknown, and at both edges."""
    for bounds in ((None, None), (0, None), (None, 99), (6, 26)):
        assert WHOLE.clip(*bounds) == (WHOLE, Lost())
    assert Checkpoint(5, 6).clip(6, 6) == (Checkpoint(5, 6), Lost())
    assert Checkpoint().clip(3, 9) == (Checkpoint(), Lost())


def test_log_that_starts_higher_leaves_what_it_still_stores() -> None:
    """What is gone is told, with what of it had been settled: 6, 7, 10, 11 are lost."""
    clipped, lost = WHOLE.clip(14, 99)

    assert clipped == Checkpoint(5, 14, ((12, 15), (20, 21)), {25: (3, 1.0)})
    assert lost == Lost(below=(6, 14), settled=((8, 9), (12, 15)))
    assert lost.count == 4


def test_settled_start_is_not_counted_as_lost() -> None:
    """With nothing more to read the start is the last settled position itself."""
    assert Checkpoint(5, 5).clip(9)[1].count == 3
    assert Checkpoint(5).clip(9)[1].count == 3
    assert Checkpoint(7, 5).clip(7)[1].count == 0
    assert Checkpoint(None, 5).clip(9)[1].count == 4


def test_positions_that_cannot_be_counted_are_not() -> None:
    """The stretch is told all the same."""
    clipped, lost = Checkpoint((1, 0), (1, 1)).clip((4, 0))

    assert clipped == Checkpoint((1, 0), (4, 0))
    assert (lost.below, lost.count) == (((1, 1), (4, 0)), None)


def test_log_that_ends_lower_takes_back_what_lay_beyond() -> None:
    """Other records will be written there: no range and no attempt may meet them."""
    clipped, lost = WHOLE.clip(0, 14)

    assert clipped == Checkpoint(5, 6, ((8, 9),), {6: (1, 0.0), 11: (2, 5.0)})
    assert lost == Lost(above=(14, 25))
    assert lost.count == 0


def test_log_that_ends_at_or_below_the_watermark_leaves_only_its_end() -> None:
    """A watermark there would suppress new records; all below had been settled."""
    for end in (3, 5):
        whole = Checkpoint(5, 6, ((8, 9),), identity="x", application="a")
        clipped, lost = whole.clip(0, end)

        assert clipped == Checkpoint(resume=end, identity="x", application="a")
        assert lost == Lost(above=(end, 9))


@pytest.mark.parametrize(
    "checkpoint, first, resume",
    [(Checkpoint(5, 20), 0, 5), (Checkpoint(5, 20), 7, 7), (Checkpoint(None, 20), 0, 10)],
)
def test_resume_beyond_the_log_goes_back(
    checkpoint: Checkpoint, first: Position, resume: Position
) -> None:
    """To the watermark, if that is stored: what was written since may begin right above it."""
    clipped, lost = checkpoint.clip(first, 10)

    assert (clipped.watermark, clipped.resume) == (checkpoint.watermark, resume)
    assert lost == Lost(above=(10, 20))


def test_ended_checkpoint_is_not_clipped() -> None:
    """A closed shard's records may all have expired: there is nothing to read, nothing is lost."""
    ended = Checkpoint(5, 5, ended=True)

    assert ended.clip(9, 9) == (ended, Lost())


@given(checkpoints(), st.sampled_from(EVERYWHERE), st.integers(0, 20))
def test_clipped_checkpoint_settles_no_new_record(
    checkpoint: Checkpoint, first: int, size: int
) -> None:
    """Nothing from the end on is settled, nothing below is settled that was not."""
    end = first + size
    clipped, lost = checkpoint.clip(first, end)

    if checkpoint.ended:
        return
    assert settled(clipped) <= settled(checkpoint)
    assert not {place for place in settled(clipped) if place >= end}
    assert all(first <= place < end for place in clipped.attempts)
    if checkpoint.start is not None:
        gone = set(range(checkpoint.start, first)) - settled(checkpoint)
        assert lost.count == len(gone)
    assert clipped.clip(first, end)[0] == clipped
