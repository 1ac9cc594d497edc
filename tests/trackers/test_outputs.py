"""Which outputs go into which transaction, and what comes back after one that was aborted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from consumer_sdk.checkpoints.forms import Fitted
from consumer_sdk.records import Checkpoint
from consumer_sdk.records.outputs import Output
from consumer_sdk.trackers.outputs import Choice, OutputBook
from tests.trackers.steps import AT_LENGTH, SETTINGS


def output(text: str) -> Output:
    """An output that can be told from others."""
    return Output.make("out", text.encode())


def texts(choice: Choice | None) -> list[str]:
    """What a transaction writes."""
    assert choice is not None
    return [(each.value or b"").decode() for each in choice.outputs]


def checkpoint_of(settled: Collection[int], end: int) -> Checkpoint:
    """Of records 0 to ``end``, exclusive, that were delivered."""
    watermark = next((n for n in range(end) if n not in settled), end) - 1
    ranges: list[tuple[int, int]] = []
    for each in sorted(n for n in settled if n > watermark):
        if ranges and ranges[-1][1] == each - 1:
            ranges[-1] = ranges[-1][0], each
        else:
            ranges.append((each, each))
    return Checkpoint(watermark if watermark >= 0 else None, watermark + 1, tuple(ranges))


class Room:
    """What a commit can carry: so many ranges, the lowest ones; and attempts, if there is room beside them."""

    def __init__(self, ranges: int) -> None:
        self.ranges = ranges

    def fit(self, checkpoint: Checkpoint) -> Fitted:
        kept = checkpoint.ranges[: self.ranges]
        if len(kept) == len(checkpoint.ranges):
            return Fitted(kept, None, 0)
        end = kept[-1][1] if kept else checkpoint.watermark
        return Fitted(kept, -1 if end is None else end, len(checkpoint.attempts))


ALL = Room(1000)


def book_of(*records: int, base: Checkpoint | None = None) -> OutputBook:
    """Each record has sent its number."""
    book = OutputBook(base or Checkpoint(resume=0))
    for n in records:
        assert book.send(n, n, 1, output(str(n)))
    return book


def test_settled_records_alone_are_written_in_the_order_of_their_settles() -> None:
    """What is unfinished stays; what failed is dropped, and what its next delivery sends counts."""
    book = book_of(0, 1, 2, 3)
    book.settled(2)
    book.drop(0)
    book.settled(1)
    assert texts(book.choose(checkpoint_of({1, 2}, 4), ALL.fit)) == ["2", "1"]
    assert book.send(0, 0, 2, output("again"))
    book.settled(0)
    choice = book.choose(checkpoint_of({0, 1, 2}, 4), ALL.fit)
    assert texts(choice) == ["2", "1", "again"]
    assert choice
    book.committed(choice)
    assert texts(book.choose(checkpoint_of({0, 1, 2}, 4), ALL.fit)) == []


def test_all_outputs_of_a_delivery_are_written_in_the_order_of_its_sends() -> None:
    """Those of an older delivery are not kept."""
    book = book_of(0)
    assert book.send(0, 0, 1, output("more"))
    assert texts_when_settled(book, 0) == ["0", "more"]
    assert book.send(1, 1, 2, output("second try"))
    assert not book.send(1, 1, 1, output("first try"))
    assert texts_when_settled(book, 1) == ["0", "more", "second try"]


def texts_when_settled(book: OutputBook, record: int) -> list[str]:
    """What a transaction writes when a record is settled too."""
    book.settled(record)
    return texts(book.choose(checkpoint_of(set(range(record + 1)), record + 1), ALL.fit))


def test_aborted_transaction_changes_nothing_and_the_next_one_has_it_all() -> None:
    """Nothing is told of an abort."""
    book = book_of(0, 1)
    book.settled(0)
    assert texts(book.choose(checkpoint_of({0}, 2), ALL.fit)) == ["0"]
    book.settled(1)
    assert texts(book.choose(checkpoint_of({0, 1}, 2), ALL.fit)) == ["0", "1"]


def test_outputs_above_what_fits_wait_until_it_does() -> None:
    """A record that the commit cannot tell of keeps its outputs: it would come again after a crash."""
    book = book_of(1, 3, 5)
    for n in (5, 3, 1):
        book.settled(n)
    choice = book.choose(checkpoint_of({1, 3, 5}, 6), Room(2).fit)
    assert texts(choice) == ["3", "1"]
    assert choice
    assert choice.checkpoint.ranges == ((1, 1), (3, 3))
    assert choice.fitted.covered == 3
    book.committed(choice)
    assert texts(book.choose(checkpoint_of({0, 1, 2, 3, 5}, 6), Room(2).fit)) == ["5"]


def test_range_that_was_committed_is_never_left_out_for_lower_ones() -> None:
    """Its records would come again, and their outputs would be written twice."""
    book = book_of(1, 3, 5, 7)
    book.settled(7)
    first = book.choose(checkpoint_of({7}, 8), Room(2).fit)
    assert texts(first) == ["7"]
    assert first
    book.committed(first)
    for n in (1, 3, 5):
        book.settled(n)
    plain = checkpoint_of({1, 3, 5, 7}, 8)
    second = book.choose(replace(plain, attempts={0: (1, 9.0)}), Room(2).fit)
    assert second
    assert second.checkpoint.ranges == ((1, 1), (7, 7))
    assert texts(second) == ["1"]
    assert (second.fitted.covered, second.fitted.forgotten) == (1, 1)
    book.committed(second)
    assert book.choose(checkpoint_of({1, 3, 5, 7}, 8), Room(1).fit) is None  # it has shrunk
    assert texts(book.choose(checkpoint_of(set(range(8)), 8), Room(0).fit)) == ["3", "5"]


def test_older_checkpoint_than_the_committed_one_is_no_transaction() -> None:
    """A flush that was cancelled, and comes late."""
    book = book_of(0, 1)
    book.settled(0)
    book.settled(1)
    choice = book.choose(checkpoint_of({0, 1}, 2), ALL.fit)
    assert choice
    book.committed(choice)
    assert book.choose(checkpoint_of({0}, 2), ALL.fit) is None


def test_book_that_is_closed_is_in_no_transaction() -> None:
    """Its outputs are dropped: a position without them would lose them.

    1. A flush waits for the transaction before it. 2. The revoke's time is up, and the holding is closed; the
    grant is not yet. 3. The transaction begins.
    """
    book = book_of(0)
    book.settled(0)
    book.close()
    assert book.choose(checkpoint_of({0}, 1), ALL.fit) is None


def test_commit_that_has_no_room_for_anything_new_covers_nothing() -> None:
    """None would say that it covers everything: what is waited for would count as durable."""
    book = book_of(3, 7)
    book.settled(7)
    first = book.choose(checkpoint_of({7}, 8), ALL.fit)
    assert first
    book.committed(first)
    book.settled(3)
    second = book.choose(checkpoint_of({3, 7}, 8), Room(1).fit)
    assert second
    assert second.checkpoint.ranges == ((7, 7),)
    assert second.fitted.covered == 0
    assert texts(second) == []


def test_given_up_record_sends_its_letter_and_nothing_else() -> None:
    """Its handler may go on: a record can be given up for the hole that it leaves."""
    book = book_of(0)
    book.give_up(0)
    assert not book.send(0, 0, 1, output("late"))
    book.dead_lettered(0, 0, output("letter"))
    assert texts(book.choose(checkpoint_of({0}, 1), ALL.fit)) == ["letter"]


def test_what_an_older_delivery_sends_late_is_not_kept() -> None:
    """The newest delivery's outputs are those that count."""
    book = book_of(0)
    assert book.send(0, 0, 2, output("second"))
    assert not book.send(0, 0, 1, output("late"))
    book.settled(0)
    assert texts(book.choose(checkpoint_of({0}, 1), ALL.fit)) == ["second"]


def test_memory_is_counted_until_the_transaction_has_committed() -> None:
    """Of open, settled, dropped and closed ones."""
    book = book_of(0, 1, 2)
    one = output("0").held
    assert book.size == 3 * one
    book.drop(2)
    book.settled(0)
    choice = book.choose(checkpoint_of({0}, 3), ALL.fit)
    assert choice
    assert book.size == 2 * one
    book.committed(choice)
    assert book.size == one
    book.close()
    assert book.size == 0


class Transactional(RuleBasedStateMachine):
    """A partition whose consumer sends, settles, commits, aborts and dies, and a broker that keeps what was committed.

    What a delivery sends names the record and the delivery. The ledger is what ``read_committed`` shows.
    """

    def __init__(self) -> None:
        super().__init__()
        self.room = Room(2)
        self.ledger: list[str] = []
        self.committed = Checkpoint(resume=0)
        self.due: dict[str, int] = {}  # outputs of settled records → the record
        self.order: list[str] = []
        self.deliveries = 0
        self.start()

    def start(self) -> None:
        """A consumer takes over where the group stands."""
        self.book = OutputBook(self.committed)
        self.settled = {n for n in range(20) if self.committed.is_settled(n)}
        self.open: dict[int, int] = {}
        self.attempts: dict[int, int] = {}
        self.next = 0
        self.sent: dict[int, list[str]] = {}

    def checkpoint(self) -> Checkpoint:
        end = max([self.next - 1, *self.settled], default=-1) + 1
        return checkpoint_of(self.settled, end)

    @precondition(lambda self: self.next < 20)
    @rule(count=st.integers(1, 6))
    def deliver(self, count: int) -> None:
        for n in range(self.next, min(self.next + count, 20)):
            self.next = n + 1
            if n not in self.settled:
                self.begin(n, 1)

    def begin(self, n: int, attempt: int) -> None:
        self.open[n], self.sent[n] = attempt, []

    def one_of(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.open)))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        n = self.one_of(data)
        self.deliveries += 1
        text = f"{n}:{self.deliveries}"
        self.sent[n].append(text)
        assert self.book.send(n, n, self.open[n], output(text))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        n = self.one_of(data)
        del self.open[n]
        self.settled.add(n)
        self.book.settled(n)
        for text in self.sent[n]:
            self.due[text] = n
            self.order.append(text)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        n = self.one_of(data)
        self.book.drop(n)
        self.begin(n, self.open[n] + 1)

    @rule(ranges=st.integers(0, 4))
    def resize(self, ranges: int) -> None:
        self.room.ranges = ranges

    @rule(ends=st.sampled_from(["commits", "aborts", "commits and dies", "dies"]))
    def transact(self, ends: str) -> None:
        choice = self.book.choose(self.checkpoint(), self.room.fit)
        if choice is not None and "commits" in ends:
            assert self.room.fit(choice.checkpoint).covered is None
            assert choice.checkpoint.covers(self.committed)
            self.committed = choice.checkpoint
            self.ledger += texts(choice)
            if ends == "commits":
                self.book.committed(choice)
        if "dies" in ends:
            self.due = {text: n for text, n in self.due.items() if text in self.ledger}
            self.order = [text for text in self.order if text in self.due]
            self.start()

    @invariant()
    def nothing_is_written_twice_or_half(self) -> None:
        assert len(self.ledger) == len(set(self.ledger))
        covered = {text for text, n in self.due.items() if self.committed.is_settled(n)}
        assert set(self.ledger) == covered

    @invariant()
    def memory_is_what_is_kept(self) -> None:
        kept = [text for text in self.due if text not in self.ledger]
        kept += [text for n in self.open for text in self.sent[n]]
        assert self.book.size == sum(output(text).held for text in kept)

    def teardown(self) -> None:
        """With room for all, and nothing open, everything is written once."""
        for n in sorted(self.open):
            self.settle_one(n)
        choice = self.book.choose(self.checkpoint(), ALL.fit)
        assert choice is not None
        written = texts(choice)
        assert written == [text for text in self.order if text in set(written)]
        assert sorted([*self.ledger, *written]) == sorted(self.due)

    def settle_one(self, n: int) -> None:
        del self.open[n]
        self.settled.add(n)
        self.book.settled(n)
        self.due |= dict.fromkeys(self.sent[n], n)
        self.order += self.sent[n]


Transactional.TestCase.settings = settings(SETTINGS, max_examples=15, stateful_step_count=25)
TestAnyHistoryWritesEachOutputOnce = Transactional.TestCase


@pytest.mark.campaign
def test_any_long_history_writes_each_output_once() -> None:
    """The same, at length."""
    run_state_machine_as_test(Transactional, settings=AT_LENGTH)


def test_cumulative_ack_settles_what_was_sent_up_to_it_and_nothing_above() -> None:
    """One that waits for its retry is not settled by it."""
    book = book_of(0, 1, 2, 3)
    book.settled_up_to(2, lambda index: index != 1)
    assert texts(book.choose(checkpoint_of({0, 2}, 4), ALL.fit)) == ["0", "2"]


def test_dead_letter_that_was_written_elsewhere_is_no_output() -> None:
    """What the handler has sent does not count either."""
    book = book_of(0)
    book.give_up(0)
    book.dead_lettered(0, 0, None)
    assert texts(book.choose(checkpoint_of({0}, 1), ALL.fit)) == []
    assert book.size == 0


def test_book_that_is_closed_while_its_transaction_commits_stays_empty() -> None:
    """The partition is lost between the two."""
    book = book_of(0)
    book.settled(0)
    choice = book.choose(checkpoint_of({0}, 1), ALL.fit)
    assert choice is not None
    book.close()
    book.committed(choice)
    assert book.size == 0
