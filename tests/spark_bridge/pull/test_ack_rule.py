"""Claims about when Spark has logged what it asks to go on from.

A model of the engine makes the calls, and knows what ``commits/N`` holds at each of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.spark_bridge.pull.ack_rule import FIRST_BATCH_SECONDS, PROOFS, AckRule
from tests.spark_bridge.unhurried import unhurried

START = 10


class Engine:
    """Spark's calls in one run of a query of two sources, in its order; offsets are counted up.

    Args:
        rule: is told of the calls.
        is_async: ``asyncProgressTrackingEnabled``: batches are logged in the background, some of
            them only, and ``commit`` comes for those, late.
        overtakes: how often it comes early there, by chance.
        log_delay: seconds that a write to the log takes there.
    """

    def __init__(
        self,
        rule: AckRule,
        *,
        is_async: bool,
        seed: int,
        overtakes: int = 0,
        start: int = START,
        log_delay: float = 0.1,
    ) -> None:
        self.rule = rule
        self.is_async = is_async
        self.random = random.Random(seed)
        self.overtakes = overtakes
        self.log_delay = log_delay
        self.now = 0.0
        self.at = self.logged = start
        self.batches = 0
        self.acked = -1
        self.empty = -1
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
            if self.at != self.empty and self.rule.wants_batch(str(self.at), self.now):
                self.batch()
                self.empty = self.at

    @property
    def open(self) -> int:
        """Return how many batches with records are not acked."""
        return max(0, self.at - (self.at == self.empty) - self.acked)

    def batch(self) -> None:
        """Run one, of new records, as far as ``commits/N``."""
        self._ask()
        self._commit()
        self._run()

    def other_batch(self) -> None:
        """Run one that has records of the other source only."""
        self._ask()
        self._commit()
        self.pass_time(self.random.random())
        self._log(self.at)

    def repeat(self, *, is_ours: bool) -> None:
        """Run what the last run has left undone: Spark asks nothing before that."""
        if is_ours:
            self._run()
        else:
            self._log(self.at)

    def _run(self) -> None:
        start, end = self.at, self.at + 1
        for _ in range(self.random.randint(1, 2)):  # self-unions plan the same batch twice
            self.rule.planned(str(start), str(end))
        self.pass_time(self.random.random())
        self.at = end
        self._log(end)

    def _commit(self) -> None:
        for logged in self._commits(self.at):
            if self.rule.committed(str(logged)):
                self._ack(logged)

    def _commits(self, start: int) -> Iterator[int]:
        if not self.is_async:
            yield from [start] if self.batches or start > START else []
            return
        is_early = self.logged == start or start in self._to_commit
        if is_early and self.overtakes:
            self.overtakes -= 1
            yield start
        elif self._to_commit and self._to_commit[0] != start:
            yield self._to_commit.pop(0)

    def _log(self, end: int) -> None:
        self.batches += 1
        if not self.is_async:
            self.logged = end
        elif self.batches == 1 or self.random.random() < 0.5:
            self._writing.append((self.now + self.log_delay, end))

    def _ask(self) -> None:
        if self.rule.asked(str(self.at), self.now):
            self._ack(self.at)

    def _ack(self, position: int) -> None:
        assert position <= self.logged, "acked ahead of Spark's log"
        assert position >= self.acked, "a late commit takes the group back"
        self.acked = position


def rule(*, is_new: bool = True) -> AckRule:
    """Return the rule for the run of a query that begins, or goes on from its checkpoint."""
    return AckRule("auto", initial=str(START if is_new else 0))


STEPS = st.lists(
    st.one_of(st.just("ours"), st.just("other"), st.floats(0.25, 5.0)),
    max_size=30,
)


@unhurried
@given(
    seed=st.integers(0, 2**32),
    is_async=st.booleans(),
    overtakes=st.integers(0, PROOFS - 1),
    steps=STEPS,
    begins=st.sampled_from(["new", "on", "ours", "other"]),
)
def test_no_ack_is_ahead_of_the_log(
    seed: int, steps: list[str | float], begins: str, overtakes: int, *, is_async: bool
) -> None:
    """Trap 4: in either engine, however a run begins, and batches and idle times follow."""
    made = rule(is_new=begins == "new")
    engine = Engine(made, is_async=is_async, seed=seed, overtakes=overtakes)
    if begins == "new":
        engine.batch()  # the very first batch of a query is of all its sources
    elif begins != "on":
        engine.repeat(is_ours=begins == "ours")
    for step in steps:
        if isinstance(step, float):
            engine.idle(step)
        else:
            engine.batch() if step == "ours" else engine.other_batch()


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("batches", range(1, PROOFS + 3))
def test_an_idle_stream_is_acked_to_its_end(batches: int, *, is_new: bool) -> None:
    """Trap 3: ``commit`` alone would leave the last batch out for ever."""
    engine = Engine(rule(is_new=is_new), is_async=False, seed=0)
    for _ in range(batches):
        engine.batch()
    engine.idle(FIRST_BATCH_SECONDS + 0.5)
    assert not engine.open
    at = engine.at
    engine.idle(10)
    assert engine.at == at  # one empty batch at most


def test_an_idle_stream_that_batches_trickle_into_is_acked_to_its_end() -> None:
    """Idle times, and batches of another source, take nothing from the proof."""
    engine = Engine(rule(is_new=False), is_async=False, seed=0)
    for _ in range(PROOFS + 1):
        engine.idle(1)
        engine.batch()
        engine.other_batch()
    engine.idle(0.25)
    assert not engine.open


def test_a_batch_that_the_last_run_left_undone_is_acked_when_it_is_done() -> None:
    """It is the first of this run, which either engine logs."""
    for is_async in (False, True):
        engine = Engine(rule(is_new=False), is_async=is_async, seed=0)
        engine.repeat(is_ours=True)
        engine.idle(FIRST_BATCH_SECONDS + 0.5)
        assert engine.acked == engine.at


@pytest.mark.parametrize("batches", [0, 1])
def test_asynchronous_progress_is_acked_where_it_is_known(batches: int) -> None:
    """What a run begins with is logged, and its first batch soon is."""
    engine = Engine(rule(), is_async=True, seed=0)
    for _ in range(batches):
        engine.batch()
    engine.idle(FIRST_BATCH_SECONDS + 0.5)
    assert engine.acked == engine.at


def test_a_first_batch_after_those_of_another_source_is_not_acked_by_its_age() -> None:
    """With asynchronous progress it need not be logged: only the first batch of all is."""
    made = rule(is_new=False)
    made.asked("1", 0.0)
    made.planned("1", "2")
    assert not made.asked("2", 1.0)
    assert not made.asked("2", 1000.0)


def test_asynchronous_progress_is_recognised_for_good() -> None:
    """One batch that was planned before its start was committed says it."""
    made = rule()
    engine = Engine(made, is_async=True, seed=0)
    for _ in range(50):
        engine.batch()
    assert made.is_logged_first is False


def test_commits_that_happen_to_come_early_prove_nothing() -> None:
    """The background may be fast, and the next batch not logged: a few do not tell."""
    made = rule()
    made.planned("0", "1")
    for n in range(1, PROOFS):
        assert not made.asked(str(n), 0.0)
        made.committed(str(n))
        made.planned(str(n), str(n + 1))
    assert not made.asked(str(PROOFS), 0.0)


def test_one_commit_that_comes_late_refutes_any_proof() -> None:
    """It is taken back for good; one from before the last question is late too."""
    made = rule()
    made.planned("0", "1")
    for n in range(1, PROOFS + 1):
        made.asked(str(n), 0.0)
        made.committed(str(n))
        made.planned(str(n), str(n + 1))
    last = str(PROOFS + 1)
    assert made.asked(last, 0.0)
    made.committed(last)
    made.asked(last, 0.0)
    made.planned(last, "z")
    assert made.is_logged_first is False
    assert not made.asked("z", 1000.0)


def test_a_commit_that_is_late_does_not_go_back() -> None:
    """With asynchronous progress: what was asked from is further already."""
    made = rule(is_new=False)
    assert made.asked("1", 0.0)
    made.planned("1", "2")
    made.planned("2", "3")
    assert made.committed("3")
    assert not made.committed("2")
    assert not made.committed("1")


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
