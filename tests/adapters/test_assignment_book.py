"""The machine of a grant: each event in each state, and the races between them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from consumer_sdk.adapters.assignment_book import AssignmentBook, BaseGrant, GrantState, next_epoch
from consumer_sdk.records import Assignment, Partition, StartPoint

OFFERED, STARTING, OPEN, DRAINING, CLOSED = GrantState

Book = AssignmentBook[BaseGrant]


def grant(number: int = 0) -> BaseGrant:
    """A new epoch of a partition."""
    return BaseGrant(Assignment(Partition("s", str(number)), next_epoch()))


def in_state(book: Book, state: GrantState, number: int = 0) -> BaseGrant:
    """A grant that has come as far as that."""
    made = grant(number)
    book.offer(made)
    if state in (STARTING, OPEN):
        accept(book, made)
    if state is OPEN:
        book.open(made)
    if state is DRAINING:
        book.drain([made])
    if state is CLOSED:
        book.close([made])
    assert made.state is state
    return made


def accept(book: Book, *asked: BaseGrant) -> object:
    """The owner has them all read from the beginning."""
    return book.answer(asked, {each.assignment: StartPoint.EARLIEST for each in asked})


def decline(book: Book, *asked: BaseGrant) -> object:
    """The owner leaves them all out."""
    return book.answer(asked, {})


EVENTS: dict[str, Callable[[Book, BaseGrant], object]] = {
    "accepted": accept,
    "declined": decline,
    "opened": lambda book, each: book.open(each),
    "drained": lambda book, each: book.drain([each]),
    "closed": lambda book, each: book.close([each]),
    "replaced": lambda book, _: book.offer(grant()),
}


@pytest.mark.parametrize(
    "event, after",
    [
        # in the state:  OFFERED   STARTING  OPEN      DRAINING  CLOSED
        ("accepted", [STARTING, STARTING, OPEN, DRAINING, CLOSED]),
        ("declined", [CLOSED, STARTING, OPEN, DRAINING, CLOSED]),
        ("opened", [OFFERED, OPEN, OPEN, DRAINING, CLOSED]),
        ("drained", [DRAINING, DRAINING, DRAINING, DRAINING, CLOSED]),
        ("closed", [CLOSED, CLOSED, CLOSED, CLOSED, CLOSED]),
        ("replaced", [CLOSED, CLOSED, CLOSED, CLOSED, CLOSED]),
    ],
)
def test_each_event_leads_each_state_to_the_next(event: str, after: list[GrantState]) -> None:
    """What comes late changes nothing; nothing leads back."""
    for state, expected in zip(GrantState, after, strict=True):
        book = Book()
        each = in_state(book, state)
        EVENTS[event](book, each)
        assert each.state is expected, f"{event} in {state}"


@pytest.mark.parametrize("state", [OFFERED, STARTING, OPEN, DRAINING])
def test_grant_is_found_until_it_is_over(state: GrantState) -> None:
    """So commits of one that drains are still valid."""
    book = Book()
    each = in_state(book, state)
    assert book.of(each.assignment) is each
    assert book.at(each.assignment.partition) is each
    assert list(book) == book.of_all([each.assignment]) == [each]
    book.close([each])
    assert book.of(each.assignment) is None
    assert book.at(each.assignment.partition) is None
    assert len(book) == 0


def test_newer_grant_of_a_partition_ends_the_older() -> None:
    """A late call for the old epoch finds nothing, and hurts the new one not."""
    book = Book()
    old = in_state(book, OPEN)
    new = in_state(book, OPEN)
    assert old.is_closed
    assert book.of(old.assignment) is None
    assert book.close([old]) == []
    assert book.at(new.assignment.partition) is new


@pytest.mark.parametrize("state", GrantState)
def test_only_what_is_open_is_fetched(state: GrantState) -> None:
    """Unless the owner has paused it."""
    each = in_state(Book(), state)
    assert each.is_fetched is (state is OPEN)
    each.is_paused = True
    assert not each.is_fetched


def test_partition_that_has_ended_is_held_and_not_fetched() -> None:
    """Until its end is told, or somebody else gets it."""
    book = Book()
    each = in_state(book, OFFERED)
    book.answer([each], {each.assignment: StartPoint.ENDED})
    assert book.open(each)
    assert each.is_held
    assert not each.is_fetched


def test_answer_is_sorted_by_what_became_of_each_meanwhile() -> None:
    """Started, declined; lost while the owner was thinking; drained, and so left to the revoke."""
    book = Book()
    taken, left_out, lost, drained = asked = [in_state(book, OFFERED, n) for n in range(4)]
    book.close([lost])
    book.drain([drained])
    starts = {each.assignment: StartPoint.LATEST for each in asked if each is not left_out}
    answer = book.answer(asked, starts)
    assert answer == ([taken], [left_out], [lost])
    assert taken.start is StartPoint.LATEST
    assert list(book) == [taken, drained]


def test_start_that_is_found_too_late_opens_nothing() -> None:
    """Lost, or drained, while it was sought."""
    book = Book()
    assert [book.open(in_state(book, state)) for state in GrantState] == [
        False,
        True,
        False,
        False,
        False,
    ]


def test_drain_and_close_tell_what_they_have_changed() -> None:
    """Whoever comes second finds nothing left to do."""
    book = Book()
    first, second = in_state(book, OPEN, 0), in_state(book, DRAINING, 1)
    assert book.drain([first, second]) == [first]
    assert book.within(DRAINING) == [first, second]
    assert book.close([first]) == [first]
    assert book.close([first, second]) == [second]


def test_grant_that_is_named_twice_is_closed_once() -> None:
    """A commit may tell twice that a partition has ended."""
    book = Book()
    twice = in_state(book, OPEN)
    assert book.close([twice, twice]) == [twice]
    assert len(book) == 0


def test_book_of_an_adapter_that_closes_refuses_offers() -> None:
    """What it holds stays for the last revoke; what arrives late is over at once."""
    book = Book()
    held = in_state(book, OPEN)
    book.end_offers()
    late = grant(1)
    assert not book.offer(late)
    assert late.is_closed
    assert list(book) == [held]
    assert held.state is OPEN


def test_offer_says_whether_it_was_taken() -> None:
    """Whoever offers a lease that is not taken gives it back."""
    book = Book()
    assert book.offer(grant()) is True
    book.end_offers()
    assert book.offer(grant()) is False


def test_grant_that_is_over_and_was_declined_is_in_no_part_of_the_answer() -> None:
    """The owner knows that it does not hold it."""
    book = Book()
    over = in_state(book, CLOSED)
    assert book.answer([over], {}) == ([], [], [])


def test_grants_are_found_by_their_states() -> None:
    """Several states may be meant."""
    book = Book()
    states = [OFFERED, STARTING, OPEN, DRAINING]
    made = [in_state(book, state, number) for number, state in enumerate(states)]
    assert list(book.within(OPEN)) == [made[2]]
    assert list(book.within(STARTING, DRAINING)) == [made[1], made[3]]
    assert not list(book.within(CLOSED))


def test_later_epoch_is_higher() -> None:
    """Whatever adapter it is of."""
    assert next_epoch() < next_epoch()
