"""What a consumer logs of its life, and how often."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from consumer_sdk import Hooks, Message, Reject, Retry, RetryPolicy
from consumer_sdk.records import Assignment, Partition
from consumer_sdk.runtime.observing.consumer_log import ConsumerLog
from tests.runtime.bench import Bench, bench

ONCE = RetryPolicy(max_attempts=1)


def records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What we said; the threads of a client that an earlier test closed may still speak."""
    return [record for record in caplog.records if record.name.startswith("consumer_sdk")]


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What was said at WARNING or above."""
    return [record for record in records(caplog) if record.levelno >= logging.WARNING]


def texts(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    """What was said at this level."""
    return [record.getMessage() for record in records(caplog) if record.levelno == level]


def connect() -> None:
    """A service that is away."""
    raise ConnectionError("refused")


async def fail(_message: Message) -> None:
    """A handler that cannot do it."""
    raise ValueError("no such customer")


def test_life_of_a_consumer_is_logged_with_counts(caplog: pytest.LogCaptureFixture) -> None:
    """Opened, assigned, revoked, closed: each at INFO, and nothing above it when all is well."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")
        await b.run(b.consumer(), seconds=1)

    with caplog.at_level(logging.INFO):
        bench(test, partitions=2)
    assert texts(caplog, logging.INFO) == [
        "opened: memory, group 'g', no store; 0 held",
        "assigned 2 partitions (s/0, s/1); 2 held",
        "revoked 2 partitions (s/0, s/1); 0 held",
        "closed: memory, group 'g'; 3 fetched, 3 settled, 0 failed deliveries, 0 dead-lettered",
    ]
    assert warnings(caplog) == []


def test_handler_that_always_fails_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    """The first failure has its traceback; the rest, and the dead letters, are counted."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(20)))
        await b.run(b.consumer(retry=ONCE), fail, seconds=30)
        assert len(b.letters.kept) == 20

    with caplog.at_level(logging.INFO):
        bench(test)
    first, *rest = warnings(caplog)
    assert first.getMessage() == "s/0 at 0: delivery 1 failed: ValueError: no such customer"
    assert first.exc_info is not None
    assert all(record.exc_info is None for record in rest)
    said = [record.getMessage() for record in rest]
    letter = "s/0 at {} was dead-lettered at delivery 1: ValueError: no such customer"
    assert said[:10] == [letter.format(n) for n in range(10)]
    assert said[10:] == [
        "19 more deliveries failed with ValueError",
        "10 more records were dead-lettered",
    ]


def test_failures_that_go_on_are_counted_every_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However many there are, each type has its first one, six counts in a minute, and the rest."""

    async def fail_by_turns(message: Message) -> None:
        await asyncio.sleep(0.1)
        raise (ValueError if message.value == b"1" else KeyError)("x")

    async def test(b: Bench) -> None:
        b.append(*map(str, range(2)))
        retry = RetryPolicy(max_attempts=None, initial=0.1, maximum=0.1, jitter=0.0)
        await b.run(b.consumer(retry=retry), fail_by_turns, seconds=61)

    bench(test)
    assert len(texts(caplog)) == 2 * (1 + 6 + 1)
    assert sum(record.exc_info is not None for record in warnings(caplog)) == 2


def test_rest_of_a_count_is_logged_when_the_consumer_closes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing that was left out is forgotten."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(5)))
        await b.run(b.consumer(retry=ONCE), fail, seconds=1)

    bench(test)
    assert texts(caplog)[-1] == "4 more deliveries failed with ValueError"


def test_rejected_record_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """The handler has decided: that is a dead letter, and no failure."""

    async def reject(_message: Message) -> None:
        raise Reject("not ours")

    async def test(b: Bench) -> None:
        b.append("1")
        await b.run(b.consumer(), reject, seconds=1)

    bench(test)
    assert texts(caplog) == ["s/0 at 0 was dead-lettered at delivery 1: not ours"]


def test_retry_with_a_cause_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    """A service that is down for hours has a line, its traceback once, and counts."""

    async def retry(_message: Message) -> None:
        try:
            connect()
        except ConnectionError as error:
            raise Retry(delay=1) from error

    async def test(b: Bench) -> None:
        b.append("1")
        await b.run(b.consumer(retry=RetryPolicy(max_attempts=None)), retry, seconds=25)

    bench(test)
    first, *rest = warnings(caplog)
    assert first.getMessage() == "s/0 at 0: delivery 1 failed: retry: ConnectionError: refused"
    assert first.exc_info is not None
    assert first.exc_info[0] is ConnectionError
    assert len(rest) == 3
    assert all("more deliveries failed with ConnectionError" in r.getMessage() for r in rest)


def test_retry_without_a_cause_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It was asked for; ``from None`` says that the error is none either."""

    async def retry(message: Message) -> None:
        if message.value == b"1":
            raise Retry(delay=1)
        try:
            connect()
        except ConnectionError:
            raise Retry(delay=1) from None

    async def test(b: Bench) -> None:
        b.append("1", "2")
        await b.run(b.consumer(retry=RetryPolicy(max_attempts=None)), retry, seconds=5)

    bench(test)
    assert warnings(caplog) == []


@pytest.mark.parametrize("answer", [Retry, Reject])
def test_dead_letter_tells_the_cause(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What went wrong is the error in whose ``except`` the handler chose, by ``from`` or not."""

    async def choose(message: Message) -> None:
        try:
            connect()
        except ConnectionError as error:
            if message.value == b"1":
                raise answer from error
            if message.value == b"2":
                raise answer("implied")  # noqa: B904 - what a handler may do
            raise answer("never") from None

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")
        await b.run(b.consumer(retry=ONCE), choose, seconds=1)
        found = [(letter.error, letter.error_type) for letter in b.letters.kept]
        assert found == [
            (f"{answer()}: ConnectionError: refused", "builtins.ConnectionError"),
            ("implied: ConnectionError: refused", "builtins.ConnectionError"),
            ("never", "rejected"),
        ]

    bench(test)
    assert sum(record.exc_info is not None for record in warnings(caplog)) == 1


def test_reject_without_a_reason_says_rejected(caplog: pytest.LogCaptureFixture) -> None:
    """An empty text tells nothing."""

    async def reject(message: Message) -> None:
        raise Reject() if message.value == b"1" else Reject("")

    async def test(b: Bench) -> None:
        b.append("1", "2")
        await b.run(b.consumer(), reject, seconds=1)
        assert [letter.error for letter in b.letters.kept] == ["rejected"] * 2

    bench(test)
    assert all(text.endswith("at delivery 1: rejected") for text in texts(caplog))


def test_count_of_one_is_singular(caplog: pytest.LogCaptureFixture) -> None:
    """One delivery, one record, one partition."""
    consumer_log = ConsumerLog()
    with caplog.at_level(logging.INFO):
        for held in range(12):
            consumer_log.revoked([Partition("s", str(held))], held, 0.0)
        consumer_log.report(10.0)
        consumer_log.revoked([Partition("s", "0")], 0, 11.0)
        consumer_log.report(20.0)
    assert texts(caplog, logging.INFO)[10:] == [
        "revoked 2 more partitions",
        "revoked 1 more partition",
    ]


def test_nack_and_ack_timeout_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Who pulls hears of failed deliveries too."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        async with b.consumer(ack_timeout=5.0) as consumer:
            (await anext(consumer)).nack(reason="busy")
            await anext(consumer)
            await asyncio.sleep(30)

    bench(test)
    assert texts(caplog)[0] == "s/0 at 0: delivery 1 failed: busy"
    assert any("took longer than ack_timeout" in text for text in texts(caplog))


def test_error_that_cannot_be_printed_is_logged_nevertheless(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """User code may raise whatever it likes."""

    class Odd(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise RuntimeError("no")

    async def raise_odd(_message: Message) -> None:
        raise Odd

    async def test(b: Bench) -> None:
        b.append("1")
        await b.run(b.consumer(retry=ONCE), raise_odd, seconds=1)

    bench(test)
    assert texts(caplog)[0].endswith("failed: Odd: its text could not be made")
    assert all(record.exc_info is None for record in warnings(caplog))


def test_many_partitions_are_counted_and_some_named(caplog: pytest.LogCaptureFixture) -> None:
    """One line, in one call or in a thousand."""
    many = [Partition("s", str(n)) for n in range(1000)]
    with caplog.at_level(logging.INFO):
        ConsumerLog().assigned(many, 1000, 0.0)
        one_by_one = ConsumerLog()
        for held, partition in enumerate(many, 1):
            one_by_one.assigned([partition], held, 0.0)
        one_by_one.report(10.0)
    found = texts(caplog, logging.INFO)
    assert found[0].startswith("assigned 1000 partitions (s/0, s/1, ")
    assert found[0].endswith("s/9 and 990 more); 1000 held")
    assert len(found) == 1 + 10 + 1
    assert found[-1] == "assigned 990 more partitions"


@pytest.mark.parametrize(
    "kind, line, more",
    [
        ("revoked", "revoked 1 partition (s/0); 2 held", "revoked 3 more partitions"),
        (
            "lost",
            "lost 1 partition (s/0); 2 held; what was not durable is delivered again",
            "lost 3 more partitions",
        ),
        (
            "ended",
            "ended 1 partition (s/0); 2 held; all of its records are settled",
            "3 more partitions have ended",
        ),
    ],
)
def test_partition_that_goes_is_a_line_an_event_and_a_hook(
    kind: str, line: str, more: str, caplog: pytest.LogCaptureFixture
) -> None:
    """However it went; of very many each is an event and a hook, and some are lines."""
    gone: list[Sequence[Partition]] = []

    class Counting(Hooks):
        def partitions_revoked(self, partitions: Sequence[Partition]) -> None:
            gone.append(partitions)

    consumer_log = ConsumerLog(hooks=Counting())
    tell = getattr(consumer_log, kind)
    with caplog.at_level(logging.INFO):
        tell([], 3, 0.0)
        assert (gone, consumer_log.events.all(), texts(caplog, logging.INFO)) == ([], (), [])
        for _ in range(13):
            tell([Partition("s", "0")], 2, 0.0)
        consumer_log.report(10.0)
    assert texts(caplog, logging.INFO) == [line] * 10 + [more]
    assert gone == [[Partition("s", "0")]] * 13
    assert consumer_log.events.counts[kind] == 13


def test_record_that_comes_late_is_a_line_and_more_of_them_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The count has in it what each of the others stood for."""
    consumer_log = ConsumerLog()
    message = Message.make(Assignment(Partition("s", "0"), 1), 7, b"")
    for count in (1, 2, 3):
        consumer_log.late(message, count, 0.0)
    consumer_log.report(10.0)
    first, *rest = texts(caplog)
    assert first.startswith("s/0 at 7 comes late (1 in this run)")
    assert rest == ["5 more records came late"]


def test_count_that_the_next_one_ends_has_that_one_in_it(caplog: pytest.LogCaptureFixture) -> None:
    """No line of its own: the count is the line of this interval."""
    consumer_log = ConsumerLog()
    with caplog.at_level(logging.INFO):
        for now in (0.0,) * 12 + (10.0,):
            consumer_log.lost([Partition("s", "0")], 1, now)
        consumer_log.report(20.0)
    assert texts(caplog, logging.INFO)[10:] == ["lost 3 more partitions"]
