"""What becomes of records that the broker stores and nobody can read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from consumer_sdk import ConfigurationError, Consumer, Message, Ordering, UnreadableRecordError
from consumer_sdk.abc import DeadLetters
from consumer_sdk.records import Run
from consumer_sdk.records.runs import FIRST_UNREADABLE, LAST_UNREADABLE
from consumer_sdk.testing import MemoryAdapter
from consumer_sdk.testing.memory.options import ConsumerKind
from tests.runtime.bench import Bench, Letters, bench

KINDS: list[ConsumerKind] = ["group", "failover", "shared"]


def damaged(b: Bench) -> None:
    """Three records, of which the middle one cannot be read."""
    b.append("a", "b", "c")
    b.broker.damage("s", 0, [1])


class NoLetters(MemoryAdapter):
    """Has no dead letters of its own."""

    def dead_letters(self) -> DeadLetters | None:
        """None."""
        return None


def consumer(b: Bench, kind: ConsumerKind, **options: Any) -> Consumer:
    """A consumer of that kind."""
    options.setdefault("dead_letters", b.letters)
    adapter = NoLetters(b.broker, "s", group="g", subscription=kind)
    return Consumer(adapter, clock=b.simulation.clock, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"unreadable": "dead_letter", "dead_letters": None}])
def test_unreadable_record_stops_the_consumer_at_every_restart(
    kind: ConsumerKind, options: dict[str, Any]
) -> None:
    """By default, and with nowhere to keep it: no later record is handled, no position passes."""

    async def test(b: Bench) -> None:
        damaged(b)
        for _ in range(3):
            with pytest.raises(
                UnreadableRecordError, match=r"s/0: the record at 1.*cannot be read"
            ):
                await b.run(consumer(b, kind, **options), ordering=Ordering.NONE)
        assert b.values[0] == "a"
        assert "c" not in b.values
        assert not b.letters.kept
        if kind == "group":
            assert b.values == ["a"]
            assert b.committed() == {"0": 1}

    bench(test)


@pytest.mark.parametrize("kind", KINDS)
def test_unreadable_record_is_dead_lettered_and_the_rest_goes_on(kind: ConsumerKind) -> None:
    """Its bytes, where they lie and why; no handler sees it, and the position passes it."""

    async def test(b: Bench) -> None:
        damaged(b)
        await b.run(consumer(b, kind, unreadable="dead_letter"), ordering=Ordering.NONE)
        assert sorted(b.values) == ["a", "c"]
        (letter,) = b.letters.kept
        assert letter.value == b"b"
        assert letter.position == ("1" if kind == "group" else "1:0")
        assert dict(letter.headers) == dict.fromkeys(
            (FIRST_UNREADABLE, LAST_UNREADABLE), letter.position.encode()
        )
        assert letter.error_type == "consumer_sdk.errors.UnreadableRecordError"
        assert "cannot be read" in letter.error
        if kind == "group":
            assert b.committed() == {"0": 3}
        else:
            assert b.broker.backlog("g", "s") == 0

    bench(test)


def test_position_passes_an_unreadable_record_only_after_its_dead_letter() -> None:
    """While the destination is down the position stays before it; the next owner finds it there."""

    async def test(b: Bench) -> None:
        damaged(b)
        down = Letters(failures=10**9)
        first = consumer(b, "group", unreadable="dead_letter", dead_letters=down)
        await b.run(first)
        assert b.values == ["a", "c"]
        assert b.committed() == {"0": 1}
        await b.run(consumer(b, "group", unreadable="dead_letter"))
        assert b.values == ["a", "c"]
        assert [letter.value for letter in b.letters.kept] == [b"b"]
        assert b.committed() == {"0": 3}

    bench(test)


def test_settled_unreadable_record_above_a_hole_is_not_dead_lettered_again() -> None:
    """The checkpoint knows it: after a restart it is passed, and what follows comes."""

    async def test(b: Bench) -> None:
        damaged(b)

        async def stuck(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"a":
                raise OSError("down")

        again = consumer(b, "group", unreadable="dead_letter")
        await b.run(again, stuck, seconds=0.5, ordering=Ordering.NONE)
        assert b.committed() == {"0": 0}
        b.append("d")
        await b.run(consumer(b, "group", unreadable="dead_letter"), ordering=Ordering.NONE)
        assert b.values[-2:] in (["a", "d"], ["d", "a"])
        assert len(b.letters.kept) == 1
        assert b.committed() == {"0": 4}

    bench(test)


def test_record_that_became_unreadable_while_it_waited_for_a_retry_is_dead_lettered() -> None:
    """Its bits flip on the disk between two owners: nothing waits for its retry."""

    async def test(b: Bench) -> None:
        b.append("k=a", "k=b", "k=c")

        async def stuck(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"b":
                raise OSError("down")

        await b.run(consumer(b, "group"), stuck, seconds=0.1)
        assert b.values == ["a", "b"]
        b.broker.damage("s", 0, [1])
        await b.run(consumer(b, "group", unreadable="dead_letter"))
        assert b.values == ["a", "b", "c"]
        assert [letter.value for letter in b.letters.kept] == [b"b"]
        assert b.committed() == {"0": 3}

    bench(test)


def test_policy_that_does_not_exist_is_refused() -> None:
    """It says which there are."""

    async def test(b: Bench) -> None:
        with pytest.raises(
            ConfigurationError, match="unreadable='skip': give 'fail' or 'dead_letter'"
        ):
            consumer(b, "group", unreadable="skip")

    bench(test)


class Rotten(MemoryAdapter):
    """Its records from 3 on have become one batch that cannot be read."""

    async def fetch(self, **limits: Any) -> list[Run]:
        """What was readable, and the batch."""
        return [part for run in await super().fetch(**limits) for part in self._parts(run)]

    @staticmethod
    def _parts(run: Run) -> Iterator[Run]:
        good = [message for message in run.messages if message.position < 3]
        bad = [message for message in run.messages if message.position >= 3]
        if good:
            yield Run(run.assignment, good, good[-1].position + 1)
        if bad:
            first, last = bad[0].position, bad[-1].position
            fault = UnreadableRecordError(f"{first} to {last} cannot be read")
            raw = Message.make(run.assignment, first, b"raw")
            yield Run.unreadable(
                raw, last + 1, fault, first=str(first), last=str(last), last_position=last
            )


@pytest.mark.parametrize("handled", [(3, 4, 5), (2, 3), (0, 1, 2, 3, 4), (0, 1, 3, 4), (7,), (9,)])
def test_batch_that_becomes_unreadable_when_settled_in_part_is_dead_lettered(
    handled: Sequence[int],
) -> None:
    """Its bytes are kept before a position passes what nobody has handled."""

    async def test(b: Bench) -> None:
        b.append(*"0123456789")

        async def some(message: Message) -> None:
            if message.position not in handled:
                await asyncio.sleep(1e6)

        healthy = b.consumer(drain_timeout=1.0)
        await b.run(healthy, some, seconds=5, ordering=Ordering.NONE, concurrency=10)
        rotten = Rotten(b.broker, "s", group="g")
        again = Consumer(
            rotten, clock=b.simulation.clock, dead_letters=b.letters, unreadable="dead_letter"
        )
        await b.run(again, ordering=Ordering.NONE)
        assert sorted(b.values) == [str(n) for n in range(3) if n not in handled]
        (letter,) = b.letters.kept
        assert dict(letter.headers)[LAST_UNREADABLE] == b"9"
        assert b.committed() == {"0": 10}

    bench(test)


@pytest.mark.parametrize(
    "options, advice",
    [
        ({}, "unreadable='dead_letter'"),
        ({"unreadable": "dead_letter", "dead_letters": None}, "dead_letters=…"),
    ],
)
def test_consumer_that_stops_says_how_to_go_on(options: dict[str, Any], advice: str) -> None:
    """What is given already is not advised."""

    async def test(b: Bench) -> None:
        damaged(b)
        with pytest.raises(UnreadableRecordError, match=f"give the consumer {advice} to keep"):
            await b.run(consumer(b, "group", **options))

    bench(test)


def test_dead_letter_of_what_cannot_be_read_advises_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The consumer has gone on: its log and the letter's error say what was wrong."""

    async def test(b: Bench) -> None:
        damaged(b)
        await b.run(consumer(b, "group", unreadable="dead_letter"))
        (letter,) = b.letters.kept
        assert letter.error == "UnreadableRecordError: s/0: the record at 1 cannot be read"

    bench(test)
    assert "cannot be read; its bytes go to the dead letters" in caplog.text
    assert "give the consumer" not in caplog.text
