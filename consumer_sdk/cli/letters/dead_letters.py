"""``dead-letters``: look at records that were given up, send them again, and throw them away."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from consumer_sdk.abc import DeadLetters
from consumer_sdk.cli.letters.listing import ENDLESS, Deal, Found, Letters, opened_letters
from consumer_sdk.cli.terminal import Bar, Rows, clean
from consumer_sdk.cli.times import parse_time, shown_time
from consumer_sdk.dead_letters.letter_rows import encode_value
from consumer_sdk.dead_letters.reading import broker_of
from consumer_sdk.dead_letters.resending import resending_to
from consumer_sdk.errors import ConfigurationError, ConsumerSdkError
from consumer_sdk.records import DeadLetter

__all__ = ["Choice", "Pace", "purge", "replay", "show", "show_all"]


MOST_AT_ONCE = 100


async def show_all(arguments: Namespace) -> None:
    """One line for each letter that is chosen."""
    with Rows(is_json=arguments.json) as rows:
        async for found in _chosen(arguments):
            rows.say(_row(found), _line(found))


async def show(arguments: Namespace) -> None:
    """All of each letter that is chosen."""
    count = 0
    async for found in _chosen(arguments, frozenset(arguments.place) or None):
        count += 1
        row = _row(found) | _contents(found)
        text = json.dumps(row) if arguments.json else json.dumps(row, indent=2, ensure_ascii=False)
        sys.stdout.write("\n".join(clean(line, sys.stdout) for line in text.split("\n")) + "\n")
    if not count:
        raise ConfigurationError("there is no such letter; `dead-letters list` writes their places")


async def replay(arguments: Namespace) -> None:
    """Sends the chosen letters' records again; without ``--yes`` says how many to which stream."""
    if arguments.to is None and arguments.url.startswith("sqlite:"):
        raise ConfigurationError(
            "a file does not say where its letters' streams are: give --to URL"
        )
    destination = resending_to(arguments.to or arguments.url, is_source=arguments.to is None)
    replaying = _Replaying(destination, Pace(arguments.rate), arguments)
    if not arguments.yes:
        _say_counts("would send", await _counts(arguments, replaying.check), arguments)
        return
    try:
        await destination.open()
        await _deal(arguments, "sending", replaying.send, replaying.pace.at_once)
    finally:
        await destination.aclose()
        _say_counts("sent", replaying.sent, arguments)
    replaying.raise_failure()


async def purge(arguments: Namespace) -> None:
    """Throws the chosen letters away; without ``--yes`` says how many."""
    if not arguments.yes:
        _say_counts("would purge", await _counts(arguments, lambda _: None), arguments)
        return
    gone: Counter[str] = Counter()

    async def throw_away(letters: Sequence[DeadLetter]) -> Sequence[bool]:
        gone.update(letter.partition.stream for letter in letters)
        return [True] * len(letters)

    await _deal(arguments, "purging", throw_away, 1000)
    _say_counts("purged", gone, arguments)


class _Replaying:
    """Sends letters, at a pace, and counts them by the stream that they came from."""

    def __init__(self, destination: DeadLetters, pace: Pace, arguments: Namespace) -> None:
        self.pace = pace
        self.sent: Counter[str] = Counter()
        self._destination = destination
        self._broker = None if arguments.to else arguments.url.partition(":")[0].partition("+")[0]
        self._failure: ConsumerSdkError | None = None

    async def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """Which of them are stored; raises what was wrong with the last ones."""
        self.raise_failure()
        for letter in letters:
            self.check(letter)
        await asyncio.sleep(self.pace.wait(len(letters), time.monotonic()))
        outcomes = await self._destination.send(letters)
        self.sent.update(
            letter.partition.stream
            for letter, outcome in zip(letters, outcomes, strict=True)
            if outcome.is_done
        )
        errors = [outcome.error for outcome in outcomes if not outcome.is_done]
        if errors:
            self._failure = ConsumerSdkError(
                f"{len(errors)} of {len(letters)} letters were not stored, and stay: {errors[0]}"
            )
        return [outcome.is_done for outcome in outcomes]

    def check(self, letter: DeadLetter) -> None:
        """Ends the command where a letter's own stream is of another broker."""
        if self._broker not in (None, broker_of(letter)):
            raise ConfigurationError(
                f"{letter.partition} is a stream of {broker_of(letter)}: give --to URL, or leave such "
                f"letters out with --stream"
            )

    def raise_failure(self) -> None:
        """Ends the command with what went wrong, if something did."""
        if self._failure is not None:
            raise self._failure


# -- which -----------------------------------------------------------------------------------------


def _choice(arguments: Namespace, places: frozenset[str] | None = None) -> Choice:
    since = arguments.since
    return Choice(
        error_type=arguments.error_type,
        stream=arguments.stream,
        since=None if since is None else parse_time(since, time.time()),
        places=places,
    )


async def _chosen(
    arguments: Namespace, places: frozenset[str] | None = None
) -> AsyncIterator[Found]:
    choice, left = _choice(arguments, places), _limit(arguments)
    async with opened_letters(arguments.url, arguments.group, arguments.store) as letters:
        every: Any = letters.all()
        async with aclosing(every):
            async for found in every:
                if left <= 0:
                    return
                if _is_chosen(choice, found):
                    left -= 1
                    yield found


def _is_chosen(choice: Choice, found: Found) -> bool:
    """Of records that are no letters nothing is known, so that only their places choose them."""
    if found.letter is None:
        return Choice(places=choice.places) == choice and (
            choice.places is None or found.place in choice.places
        )
    return choice.matches(found.place, found.letter)


def _limit(arguments: Namespace) -> int:
    return ENDLESS if arguments.limit is None else int(arguments.limit)


async def _counts(arguments: Namespace, check: Callable[[DeadLetter], None]) -> Counter[str]:
    counts: Counter[str] = Counter()
    with Bar("counting", arguments) as bar:
        async for found in _chosen(arguments):
            bar.advance()
            if found.letter is not None:
                check(found.letter)
                counts[found.letter.partition.stream] += 1
    return counts


async def _deal(arguments: Namespace, what: str, deal: Deal, at_once: int) -> None:
    choice, limit = _choice(arguments), _limit(arguments)

    def wanted(found: Found) -> bool:
        return found.letter is not None and choice.matches(found.place, found.letter)

    with Bar("counting", arguments) as bar:

        async def told(letters: Sequence[DeadLetter]) -> Sequence[bool]:
            done = await deal(letters)
            bar.advance(len(letters))
            return done

        opened: Letters
        async with opened_letters(arguments.url, arguments.group, arguments.store) as opened:
            await opened.deal(
                wanted,
                told,
                at_once=at_once,
                limit=limit,
                counted=lambda count: bar.begin(what, min(count, limit)),
            )


# -- what is shown ---------------------------------------------------------------------------------


def _row(found: Found) -> dict[str, Any]:
    letter = found.letter
    if letter is None:
        return {"place": found.place, "flaw": found.flaw}
    return {
        "place": found.place,
        "stream": letter.partition.stream,
        "partition": letter.partition.id,
        "position": letter.position,
        "group": letter.group,
        "error_type": letter.error_type,
        "error": letter.error,
        "attempts": letter.attempts,
        "failed_at": letter.failed_at,
        "key": encode_value(letter.key),
        "size": len(letter.value or b""),
    }


def _contents(found: Found) -> dict[str, Any]:
    letter = found.letter
    if letter is None:
        return {}
    return {
        "timestamp": letter.timestamp,
        "headers": [[name, encode_value(value)] for name, value in letter.headers],
        "value": encode_value(letter.value),
    }


def _line(found: Found) -> str:
    letter = found.letter
    if letter is None:
        return f"{found.place}\tno dead letter: {found.flaw}"
    fields = (
        found.place,
        f"{letter.partition}@{letter.position}",
        shown_time(letter.failed_at),
        f"{letter.attempts} attempts",
        letter.error_type,
        " ".join(letter.error.split())[:200],
    )
    return "\t".join(fields).encode(errors="backslashreplace").decode()


def _say_counts(verb: str, counts: Counter[str], arguments: Namespace) -> None:
    if arguments.json:
        streams = dict(sorted(counts.items()))
        sys.stdout.write(
            json.dumps({"done": verb, "count": counts.total(), "streams": streams}) + "\n"
        )
        return
    for stream, count in sorted(counts.items()):
        sys.stdout.write(f"{verb} {count} of {clean(stream, sys.stdout)}\n")
    note = "" if arguments.yes else "; --yes does it"
    sys.stdout.write(f"{verb} {counts.total()}{note}\n")


# -- which letters, and how fast ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters an operator has chosen: those that meet each condition that was given.

    Attributes:
        error_type: the error's whole name, or its last part: ``JSONDecodeError``.
        stream: from which the record came.
        since: seconds since the epoch; the record was given up then or later.
        places: where the letters are; None for everywhere.
    """

    error_type: str | None = None
    stream: str | None = None
    since: float | None = None
    places: frozenset[str] | None = None

    def matches(self, place: str, letter: DeadLetter) -> bool:
        """Whether a letter is chosen."""
        name = letter.error_type
        return (
            self.error_type in (None, name, name.rpartition(".")[2])
            and self.stream in (None, letter.partition.stream)
            and (self.since is None or letter.failed_at >= self.since)
            and (self.places is None or place in self.places)
        )


@dataclass(slots=True)
class Pace:
    """How many letters are sent a second, at most.

    Attributes:
        rate: letters a second; None for no limit.
        free_at: when the next one may go, on the clock of whoever asks.
    """

    rate: float | None
    free_at: float = 0.0

    @property
    def at_once(self) -> int:
        """Letters that may go in one step: a tenth of a second's, and one at least."""
        return MOST_AT_ONCE if self.rate is None else min(max(int(self.rate / 10), 1), MOST_AT_ONCE)

    def wait(self, count: int, now: float) -> float:
        """Seconds to wait before so many go."""
        if self.rate is None:
            return 0.0
        begin = max(self.free_at, now)
        self.free_at = begin + count / self.rate
        return begin - now
