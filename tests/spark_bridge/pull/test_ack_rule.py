"""Claims about when Spark has logged what it asks to go on from.

A model of the engine makes the calls, and knows what ``commits/N`` holds at each of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.spark_bridge.pull.ack_rule import FIRST_BATCH_SECONDS, AckRule
from tests.spark_bridge.unhurried import unhurried

START = 10


class Engine:
    """Spark's calls in one run, in its order; offsets are counted up.

    Args:
        rule: is told of the calls.
        is_async: ``asyncProgressTrackingEnabled``: batches are logged in the background, some of
            them only, and ``commit`` comes for those, late.
        log_delay: seconds that a write to the log takes there.
    """

    def __init__(
        self,
        rule: AckRule,
        *,
        is_async: bool,
        seed: int,
        start: int = START,
        log_delay: float = 0.1,
    ) -> None:
        self.rule = rule
        self.is_async = is_async
        self.random = random.Random(seed)
        self.log_delay = log_delay
        self.now = 0.0
        self.at = self.logged = start
        self.batches = 0
        self.acked = -1
        self._writing: list[tuple[float, int]] = []
        self._to_commit: list[int] = []

    def pass_time(self, seconds: float) -> None:
        """Wait; what is written in the background arrives."""
        self.now += seconds
        while self._writing and self._writing[0][0] <= self.now:
            _, end = self._writing.pop(0)
            # Of the one before: Spark calls commit for it once its successor is logged.
            if self.logged > START:
                self._to_commit.append(self.logged)
            self.logged = max(self.logged, end)

    def idle(self, seconds: float) -> None:
        """Ask for news that is not there."""
        for _ in range(int(seconds / 0.25)):
            self.pass_time(0.25)
            self._ask()

    def batch(self) -> None:
        """Run one, of new records, as far as ``commits/N``."""
        self._ask()
        start, end = self.at, self.at + 1
        for logged in self._commits(start):
            if self.rule.committed(str(logged)):
                self._ack(logged)
        for _ in range(self.random.randint(1, 2)):  # self-unions plan the same batch twice
            self.rule.planned(str(start), str(end))
        self.pass_time(self.random.random())
        self.at = end
        self.batches += 1
        self._log(end)

    def _commits(self, start: int) -> Iterator[int]:
        if not self.is_async:
            yield from [start] if self.batches or start > START else []
        elif self._to_commit:
            yield self._to_commit.pop(0)

    def _log(self, end: int) -> None:
        if not self.is_async:
            self.logged = end
        elif self.batches == 1 or self.random.random() < 0.5:
            self._writing.append((self.now + self.log_delay, end))

    def _ask(self) -> None:
        if self.rule.asked(str(self.at), self.now):
            self._ack(self.at)

    def _ack(self, position: int) -> None:
        assert position <= self.logged, "acked ahead of Spark's log"
        self.acked = max(self.acked, position)


@unhurried
@given(
    seed=st.integers(0, 2**32),
    is_async=st.booleans(),
    steps=st.lists(st.one_of(st.just(0.0), st.floats(0.25, 5.0)), max_size=30),
)
def test_no_ack_is_ahead_of_the_log(seed: int, steps: list[float], *, is_async: bool) -> None:
    """Trap 4: in either engine, however batches and idle times follow one another."""
    engine = Engine(AckRule("auto"), is_async=is_async, seed=seed)
    for seconds in steps:
        if seconds:
            engine.idle(seconds)
        else:
            engine.batch()


@pytest.mark.parametrize("batches", [1, 2, 3, 10])
def test_an_idle_stream_is_acked_to_its_end(batches: int) -> None:
    """Trap 3: ``commit`` alone would leave the last batch out for ever."""
    engine = Engine(AckRule("auto"), is_async=False, seed=0)
    for _ in range(batches):
        engine.batch()
    engine.idle(FIRST_BATCH_SECONDS + 0.5)
    assert engine.acked == engine.at


@pytest.mark.parametrize("batches", [0, 1])
def test_asynchronous_progress_is_acked_where_it_is_known(batches: int) -> None:
    """What a run begins with is logged, and its first batch soon is."""
    engine = Engine(AckRule("auto"), is_async=True, seed=0)
    for _ in range(batches):
        engine.batch()
    engine.idle(FIRST_BATCH_SECONDS + 0.5)
    assert engine.acked == engine.at


def test_asynchronous_progress_is_recognised_for_good() -> None:
    """One batch that was planned before its start was committed says it."""
    rule = AckRule("auto")
    engine = Engine(rule, is_async=True, seed=0)
    for _ in range(50):
        engine.batch()
    assert rule.is_logged_first is False


def test_a_commit_that_happens_to_come_early_proves_nothing_after_all() -> None:
    """The background may be fast once: the first late one takes the proof back."""
    rule = AckRule("auto")
    rule.planned("0", "1")
    rule.committed("1")
    rule.planned("1", "2")
    assert rule.asked("2", 0.0)
    rule.planned("2", "3")
    assert not rule.asked("3", 0.0)
    rule.committed("3")
    rule.planned("3", "4")
    assert not rule.asked("4", 1000.0)


def test_a_run_until_now_is_acked_at_once() -> None:
    """AvailableNow ends without a last ``commit``: the last question is the only chance."""
    rule = AckRule("auto")
    rule.available_now()
    rule.planned("0", "1")
    assert rule.asked("1", 0.0)


def test_the_other_modes_do_as_they_say() -> None:
    """``commit`` trusts nothing else, ``none`` nothing at all."""
    for mode in ("commit", "none"):
        rule = AckRule("commit" if mode == "commit" else "none")
        rule.available_now()
        assert not rule.asked("1", 0.0)
        assert rule.committed("1") is (mode == "commit")
