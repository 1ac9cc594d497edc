"""Sends the rows of one Spark task to a dead-letter destination. It needs no Spark."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, urlencode

from consumer_sdk.abc import DeadLetters
from consumer_sdk.dead_letters.urls import dead_letters_from_url
from consumer_sdk.errors import TransientAdapterError, TransientStoreError
from consumer_sdk.records import DeadLetter, Outcome, OutcomeKind
from consumer_sdk.spark_bridge.dead_letters.rows import letters_of
from consumer_sdk.spark_bridge.errors import DeadLetterError
from consumer_sdk.spark_bridge.option_values import secret
from consumer_sdk.spark_bridge.pull.connections import LoopThread

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Delivery", "deliver"]

_MOST = 500
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 5.0

_SLOWEST = 120.0
"""Seconds that one call may take beyond the tries: a client waits for a minute itself."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Delivery:
    """The destination, the group and the patience of a task's letters. It may be pickled.

    Attributes:
        url: the destination; see `consumer_sdk.dead_letters.urls`.
        group: the group that the letters name.
        patience: seconds for which what may pass is tried again, before the task fails.
    """

    url: str
    group: str
    patience: float

    def __repr__(self) -> str:
        return f"Delivery({self.place!r}, group={self.group!r})"

    @property
    def place(self) -> str:
        """The destination without its options, which may hold a secret."""
        return self.url.partition("?")[0]

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Writes all rows; returns how many. Without rows it does not connect.

        Raises:
            DeadLetterError: not all letters were written. Those that were will be there twice after
                the next try.
            ConsumerSdkError: the destination cannot work.
        """
        letters = chain.from_iterable(letters_of(each, self.group, time.time()) for each in batches)
        parts = _parts(letters, _MOST)
        first = next(parts, None)
        return 0 if first is None else self._write(chain([first], parts))

    def _write(self, parts: Iterable[list[DeadLetter]]) -> int:
        written = 0
        with _loop() as loop, self._opened(loop) as destination:
            for part in parts:
                sending = deliver(destination, part, self.patience, self.place)
                loop.call(sending, timeout=self.patience + _SLOWEST)
                written += len(part)
        return written

    @contextmanager
    def _opened(self, loop: LoopThread) -> Iterator[DeadLetters]:
        destination = dead_letters_from_url(_with_secrets(self.url))
        try:
            loop.call(destination.open(), timeout=_SLOWEST)
            yield destination
        finally:
            loop.call(destination.aclose(), timeout=_SLOWEST)


async def deliver(
    destination: DeadLetters, letters: Sequence[DeadLetter], patience: float, place: str
) -> None:
    """Sends letters until all are durable. A letter that is refused for good is not tried again.

    Args:
        destination: an open one.
        letters: what to send.
        patience: seconds for which what may pass is tried again.
        place: how errors name the destination.

    Raises:
        DeadLetterError: some are not durable.
    """
    deadline = asyncio.get_running_loop().time() + patience
    backoff = _FIRST_BACKOFF
    waiting = list(letters)
    while True:
        outcomes = await destination.send(waiting)
        failed = [each for each in outcomes if each.kind is not OutcomeKind.DURABLE]
        if not failed:
            return
        last = asyncio.get_running_loop().time() + backoff > deadline
        if last or not all(map(_may_pass, failed)):
            raise _failure(failed, len(letters), place)
        await asyncio.sleep(backoff)
        backoff = min(2 * backoff, _LONGEST_BACKOFF)
        pairs = zip(waiting, outcomes, strict=True)
        waiting = [letter for letter, each in pairs if each.kind is not OutcomeKind.DURABLE]


def _may_pass(outcome: Outcome) -> bool:
    return isinstance(outcome.error, TransientAdapterError | TransientStoreError)


def _failure(failed: Sequence[Outcome], count: int, place: str) -> DeadLetterError:
    worst = next((each for each in failed if not _may_pass(each)), failed[0])
    error = DeadLetterError(
        f"{len(failed)} of {count} dead letters were not written to {place}: {worst.error}; none is "
        "lost: see to the destination, and Spark writes the batch again"
    )
    error.__cause__ = worst.error
    return error


def _with_secrets(url: str) -> str:
    """The URL with what its options name by ``env:`` or ``file:``: a plan holds the names alone."""
    head, mark, query = url.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    return head + mark + urlencode([(name, secret(name, text)) for name, text in pairs])


@contextmanager
def _loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    try:
        yield loop
    finally:
        loop.stop()


def _parts(items: Iterable[_T], most: int) -> Iterator[list[_T]]:
    source = iter(items)
    while part := list(islice(source, most)):
        yield part
