"""Whatever transactions write, and the cleaner takes: what is read is committed, and all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer_sdk.adapters.kafka.decoding.unpacking import Batches, Unpacker
from tests.adapters.kafka.decoding.test_unpacking import drain, flat
from tests.adapters.kafka.decoding.transactional_log import Answer, TransactionalLog
from tests.adapters.kafka.ranges.test_batches import columns


class Read(Protocol):
    """Reads an answer from a position: offset and value of each record, and the position behind them."""

    def __call__(
        self, answer: Answer, position: int, end: int, *, continues: bool
    ) -> tuple[list[tuple[int, bytes]], int]:
        """`continues`: a batch has ended at the position."""


def by_messages(
    answer: Answer, position: int, end: int, *, continues: bool
) -> tuple[list[tuple[int, bytes]], int]:
    """As a consumer reads."""
    batches = Batches(answer.data, position, answer.aborted, is_committed=True)
    found = Unpacker(batches, end, continues=continues)
    messages = flat(drain(found, 3))
    return [(m.position, m.value or b"") for m in messages], found.next_fetch_offset


def by_columns(
    answer: Answer, position: int, end: int, *, continues: bool
) -> tuple[list[tuple[int, bytes]], int]:
    """As a range is read."""
    parts = columns(answer.data, position, end, answer.aborted, 100)
    rows = [row for part in parts for row in zip(part.positions, part.values, strict=True)]
    return [(offset, value or b"") for offset, value in rows], answer.end


KEYS = st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from([1, 2]), KEYS),
    st.tuples(st.just("plain"), st.sampled_from([-1, 2]), KEYS),
    st.tuples(st.just("finish"), st.sampled_from([1, 2]), st.booleans()),
    st.tuples(st.just("finish"), st.sampled_from([1, 2]), st.booleans()),
    st.tuples(st.just("roll"), st.just(0), st.just(0)),
    st.tuples(st.just("clean"), st.integers(1, 999), st.sampled_from(["", "data", "markers"])),
)


def take(
    log: TransactionalLog,
    step: tuple[str, Any, Any],
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """One thing that happens to a log.

    Args:
        meanwhile: called while the log cleaner replaces segments.
    """
    match step:
        case "write", producer, keys:
            log.write(producer, keys, is_transactional=True)
        case "plain", producer, keys:
            log.write(producer, keys, is_transactional=False)
        case "finish", producer, is_aborted:
            log.finish(producer, is_aborted=is_aborted)
        case "roll", _, _:
            log.roll()
        case "clean", most, kept:
            log.clean(
                most,
                keeps_data=kept == "data",
                keeps_markers=kept == "markers",
                meanwhile=meanwhile,
            )


@pytest.mark.parametrize("read", [by_messages, by_columns])
@settings(max_examples=80, deadline=None)  # other programs may hold the machine up
@given(
    st.lists(STEPS, min_size=15, max_size=40),
    st.lists(STEPS, max_size=10),
    st.randoms(use_true_random=True),
)
def test_what_is_committed_is_read_and_nothing_else(
    read: Read,
    before: Sequence[tuple[str, Any, Any]],
    meanwhile: Sequence[tuple[str, Any, Any]],
    random: Random,
) -> None:
    """Answers begin and end anywhere, and the log is written and compacted between them, and while they are made."""
    log = TransactionalLog()

    def look() -> None:
        at = random.randint(0, log.end)
        if (answer := log.read(at, random.randint(1, 600))) is not None:
            rows, reached = read(answer, at, log.end, continues=False)
            log.check_committed(at, reached, [offset for offset, _value in rows])

    for step in before:
        take(log, step, look)
    start = position = random.randint(0, log.end // 2)
    found: list[tuple[int, bytes]] = []
    steps = list(meanwhile)
    while True:
        answer = log.read(position, random.randint(1, 600))
        if answer is None and not steps:
            break
        if answer is not None:
            rows, reached = read(answer, position, log.end, continues=position != start)
            assert reached == answer.end > position
            found, position = found + rows, reached
        if steps:
            take(log, steps.pop(), look)
    log.check(start, max(start, log.stable), [offset for offset, _value in found])
    assert all(value == b"%d" % offset for offset, value in found)
