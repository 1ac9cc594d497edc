"""Sends records to the dead letters; each is settled only when its dead letter is durable."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from consumer_sdk.abc import Adapter, DeadLetters, MakesLetters
from consumer_sdk.errors import HandlerError, TransientAdapterError, TransientStoreError
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import DeadLetter, Message, Outcome, OutcomeKind
from consumer_sdk.records.outputs import Output
from consumer_sdk.runtime.observing.consumer_log import cause_of, error_text
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.partitions.held_partition import HeldPartition
from consumer_sdk.trackers import Reject, Retry

__all__ = ["DeadLetterSender"]

log = logging.getLogger(__name__)

MOST = 500
FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 10.0


@dataclass(slots=True)
class _Entry:
    holding: HeldPartition
    index: int
    message: Message
    error: BaseException | str
    letter: DeadLetter


class DeadLetterSender:
    """The queue in front of a `DeadLetters` destination.

    Without a destination the consumer stops at the first record that needs one: dropping it
    would lose it, and going on would retry it for ever.

    Attributes:
        within: makes outputs of letters, which the transactions of their records write.
    """

    def __init__(self, adapter: Adapter, options: Options, destination: DeadLetters | None) -> None:
        self._adapter = adapter
        self._options = options
        self._destination = destination
        self._queue: deque[_Entry] = deque()
        self._arrived = asyncio.Event()
        self.within: MakesLetters | None = None

    def add(
        self, holding: HeldPartition, index: int, message: Message, error: BaseException | str
    ) -> None:
        """Takes a record that is to be dead-lettered."""
        letter = self._letter(message, error)
        self._queue.append(_Entry(holding, index, message, error, letter))
        self._arrived.set()

    def _letter(self, message: Message, error: BaseException | str) -> DeadLetter:
        return DeadLetter(
            partition=message.partition,
            position=self._adapter.encode_position(message.position),
            key=message.key,
            value=message.value,
            headers=message.headers,
            timestamp=message.timestamp,
            error=error_text(error),
            error_type=_error_type(cause_of(error) or error),
            attempts=message.attempt,
            group=self._adapter.group or "",
            failed_at=self._options.clock.wall(),
            ordering_key=message.ordering_key,
            details=message.details,
        )

    def find(self, holding: HeldPartition, index: int) -> Message | None:
        """The message of a record that waits for its dead letter."""
        waiting = (e for e in self._queue if e.holding is holding and e.index == index)
        return next((entry.message for entry in waiting), None)

    async def run(self) -> None:
        """Sends what waits, until it is cancelled.

        Raises:
            HandlerError: there is nowhere to send to.
        """
        backoff = FIRST_BACKOFF
        while True:
            self._arrived.clear()
            if not self._queue:
                await self._arrived.wait()
            if await self._send():
                backoff = FIRST_BACKOFF
            else:
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, LONGEST_BACKOFF)

    async def _send(self) -> bool:
        """Sends what waits; False when something has to be sent again."""
        entries = [e for e in self._queue if not e.holding.is_closed][:MOST]
        self._queue = deque(e for e in self._queue if not e.holding.is_closed)
        if not entries:
            return True
        if self._destination is None:
            raise HandlerError(
                f"{entries[0].letter.partition} at {entries[0].letter.position} cannot be "
                f"processed ({entries[0].letter.error}), and there are no dead letters to keep "
                f"it in: give the consumer dead_letters=…"
            )
        letters = [entry.letter for entry in entries]
        made: Sequence[Output | Exception | None]
        if self.within is not None:
            made = await self.within(letters)
        else:
            made = [_trouble(outcome) for outcome in await _sent(self._destination, letters)]
        return self._settle(entries, made)

    def _settle(self, entries: Sequence[_Entry], made: Sequence[Output | Exception | None]) -> bool:
        """What became of each: None for durable, or an output that the record's transaction writes."""
        failed: list[Exception] = []
        sent = set()
        for entry, each in zip(entries, made, strict=True):
            if isinstance(each, Exception):
                failed.append(each)
                continue
            sent.add(id(entry))
            entry.holding.dead_lettered(entry.index, entry.message, entry.error, each)
        self._queue = deque(e for e in self._queue if id(e) not in sent)
        if failed:
            why = failed[0]
            log.warning("%d dead letters could not be written: %r", len(failed), why, extra=REPEATS)
        return not failed


def _trouble(outcome: Outcome) -> Exception | None:
    if outcome.kind is OutcomeKind.DURABLE:
        return None
    return outcome.error or TransientAdapterError(f"the destination says {outcome.kind.value}")


async def _sent(destination: DeadLetters, letters: Sequence[DeadLetter]) -> list[Outcome]:
    """Its outcomes; an outage that it raises, rather than returns, is one as well."""
    try:
        return await destination.send(letters)
    except (OSError, TransientAdapterError, TransientStoreError) as error:
        return [Outcome.retry(error)] * len(letters)


def _error_type(error: BaseException | str) -> str:
    if isinstance(error, str | Reject | Retry):
        return "rejected"
    return f"{type(error).__module__}.{type(error).__qualname__}"
