"""Sends records to the dead letters; each is settled only when its dead letter is durable."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass

from consumer_sdk.abc import Adapter, DeadLetters
from consumer_sdk.errors import HandlerError
from consumer_sdk.records import DeadLetter, Message, OutcomeKind
from consumer_sdk.runtime.holding import Holding
from consumer_sdk.runtime.options import Options
from consumer_sdk.trackers import Reject, Retry

__all__ = ["Burial"]

log = logging.getLogger(__name__)

MOST = 500
FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 10.0


@dataclass(slots=True)
class _Entry:
    holding: Holding
    index: int
    message: Message
    error: BaseException | str
    letter: DeadLetter


class Burial:
    """The queue in front of a `DeadLetters` destination.

    Without a destination the consumer stops at the first record that needs one: dropping it
    would lose it, and going on would retry it for ever.
    """

    def __init__(self, adapter: Adapter, options: Options, destination: DeadLetters | None) -> None:
        self._adapter = adapter
        self._options = options
        self._destination = destination
        self._queue: deque[_Entry] = deque()
        self._arrived = asyncio.Event()

    def add(
        self, holding: Holding, index: int, message: Message, error: BaseException | str
    ) -> None:
        """Takes a record that is to be dead-lettered."""
        letter = self._letter(message, error)
        self._queue.append(_Entry(holding, index, message, error, letter))
        self._arrived.set()

    def _letter(self, message: Message, error: BaseException | str) -> DeadLetter:
        is_text = isinstance(error, str | Reject | Retry)
        return DeadLetter(
            partition=message.partition,
            position=self._adapter.encode_position(message.position),
            key=message.key,
            value=message.value,
            headers=message.headers,
            timestamp=message.timestamp,
            error=_text(error, is_alone=is_text),
            error_type="rejected"
            if is_text
            else f"{type(error).__module__}.{type(error).__qualname__}",
            attempts=message.attempt,
            group=self._adapter.group or "",
            failed_at=self._options.clock.wall(),
        )

    async def run(self) -> None:
        """Sends for ever.

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
        outcomes = await self._destination.send([e.letter for e in entries])
        failed = [o for o in outcomes if o.kind is not OutcomeKind.DURABLE]
        sent = set()
        for entry, outcome in zip(entries, outcomes, strict=True):
            if outcome.kind is OutcomeKind.DURABLE:
                sent.add(id(entry))
                entry.holding.dead_lettered(entry.index, entry.message, entry.error)
        self._queue = deque(e for e in self._queue if id(e) not in sent)
        if failed:
            log.warning("%d dead letters could not be written: %r", len(failed), failed[0].error)
        return not failed


def _text(error: BaseException | str, *, is_alone: bool) -> str:
    """User code may raise whatever it likes: also what cannot be printed, or is no UTF-8.

    A dead letter that could not be made, or written, would hold its partition up for ever.
    """
    try:
        text = str(error) if is_alone else f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - the error's own __str__
        text = f"{type(error).__name__}: its text could not be made"
    return text.encode("utf-8", "backslashreplace").decode()
