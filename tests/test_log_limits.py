"""What is logged at once, and what is counted."""

import logging
from collections.abc import Iterator

import pytest

from consumer_sdk.log_limits import REPEATS, LimitedLoggers, LoggerFilter, LogLimit


def test_first_of_a_kind_is_admitted_and_the_rest_counted() -> None:
    """The one that is admitted after the interval is told how many were left out."""
    limit = LogLimit(interval=10.0)
    assert [limit.admit("a", now) for now in (0.0, 1.0, 9.9)] == [0, None, None]
    assert limit.admit("b", 5.0) == 0
    assert limit.admit("a", 10.0) == 2
    assert limit.admit("a", 20.0) == 0


def test_burst_admits_so_many_in_an_interval() -> None:
    """A few of a kind are worth a line each."""
    limit = LogLimit(interval=10.0)
    assert [limit.admit("a", 0.0, burst=2) for _ in range(4)] == [0, 0, None, None]
    assert [limit.admit("a", 10.0, burst=2) for _ in range(3)] == [2, 0, None]


def test_count_of_what_was_left_out_is_due_once() -> None:
    """What went on is told when the interval is over, also if nothing more comes."""
    limit = LogLimit(interval=10.0)
    limit.admit("a", 0.0)
    limit.admit("a", 1.0, count=3)
    limit.admit("a", 2.0)
    assert limit.overdue(9.9) == []
    assert limit.overdue(10.0) == [("a", 4)]
    assert limit.overdue(10.1) == []
    assert limit.admit("a", 11.0) is None  # the count was a line of it
    assert limit.overdue(20.0) == [("a", 1)]


def test_kind_that_was_quiet_for_an_interval_is_new_again() -> None:
    """So the limit keeps nothing of what is over."""
    limit = LogLimit(interval=10.0)
    limit.admit("a", 0.0)
    assert limit.overdue(10.0) == []
    assert limit.admit("a", 10.5) == 0


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What a client and its modules log, at INFO."""
    parent, handler = logging.getLogger("a_client"), _Lines()
    parent.addHandler(handler)
    parent.setLevel(logging.INFO)
    yield handler.lines
    parent.removeHandler(handler)
    parent.setLevel(logging.NOTSET)


def repeat(name: str = "a_client.connection") -> None:
    """One line of a client's, from one place."""
    logging.getLogger(name).error("node %d is away", 7)


def test_filter_lets_each_place_log_once_in_an_interval(lines: list[str]) -> None:
    """The next line of the place says how many were left out."""
    now = 0.0
    limited = LoggerFilter(clock=lambda: now)
    logger = logging.getLogger("a_client.connection")
    logger.addFilter(limited)
    try:
        for _ in range(5):
            repeat()
        logger.error("another place")
        now = 10.0
        repeat()
    finally:
        logger.removeFilter(limited)
    assert lines == [
        "node 7 is away",
        "another place",
        "node 7 is away [4 lines like this one were left out]",
    ]


def test_loggers_are_limited_until_the_last_holder_lets_go(lines: list[str]) -> None:
    """Children too; letting go twice is once; and nothing is left behind."""
    logging.getLogger("a_client.connection")
    loggers = LimitedLoggers("a_client")
    first, second = LogLimit(), LogLimit()  # any two objects
    loggers.hold(first)
    loggers.hold(second)
    loggers.release(first)
    loggers.release(first)
    repeat()
    repeat()
    repeat("a_client")
    assert len(lines) == 1
    loggers.release(second)
    repeat()
    repeat()
    assert len(lines) == 3
    assert not logging.getLogger("a_client").filters
    assert not logging.getLogger("a_client.connection").filters


def test_logger_at_debug_is_not_limited(lines: list[str]) -> None:
    """Who asked for everything gets it."""
    logging.getLogger("a_client.connection").setLevel(logging.DEBUG)
    loggers, holder = LimitedLoggers("a_client"), LogLimit()
    loggers.hold(holder)
    try:
        repeat()
        repeat()
    finally:
        loggers.release(holder)
        logging.getLogger("a_client.connection").setLevel(logging.NOTSET)
    assert len(lines) == 2


def test_lines_that_do_not_repeat_themselves_may_be_left_alone(lines: list[str]) -> None:
    """A line for each lost record is not thinned because it has the place in common."""
    loggers, holder = LimitedLoggers("a_client", repeats_alone=True), LogLimit()
    loggers.hold(holder)
    try:
        for _ in range(3):
            repeat()
            logging.getLogger("a_client").error("away", extra=REPEATS)
    finally:
        loggers.release(holder)
    assert sorted(lines) == ["away", *["node 7 is away"] * 3]
