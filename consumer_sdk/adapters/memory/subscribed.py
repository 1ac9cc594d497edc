"""A partition held through a subscription: the broker sends, and sends again what is not acked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from consumer_sdk.adapters.memory.cursor import Connection, Cursor, Sent
from consumer_sdk.adapters.memory.holding import Holding, resolve
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import (
    AckFlush,
    AtPosition,
    Message,
    Outcome,
    OutcomeKind,
    Run,
    Start,
    StartPoint,
)

__all__ = ["RECONNECT", "SubscribedHolding"]

RECONNECT = 0.1
"""Seconds until a connection that was cut is there again."""


class NamedMessage(Message):
    """A message with the handle that acks it at the broker."""

    __slots__ = ("native",)


@dataclass(slots=True, eq=False, kw_only=True)
class SubscribedHolding(Holding):
    """Reads what the broker sends to its connection; positions are ``(entry, index)``."""

    cursor: Cursor
    prefetch: int
    connection: Connection | None = None
    has_begun: bool = False
    _timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    # -- the connection -----------------------------------------------------------------

    def begin(self, start: Start) -> None:
        number = self._number(start)
        if number is not None:
            self.cursor.seek(number)
        self.has_begun = start is not StartPoint.ENDED
        self._connect()

    def _number(self, start: Start) -> int | None:
        if isinstance(start, AtPosition):
            return int(sum(start.position))
        return None if start is StartPoint.BROKER else resolve(self.log, start)

    def _connect(self) -> None:
        if self.has_begun:
            self.connection = Connection(self.news, self.prefetch)
            self.cursor.connect(self.connection)

    def cut(self) -> None:
        """The connection breaks: all that is not acked goes out again. It is soon back."""
        if self.connection is not None:
            self._disconnect()
            self._timer = asyncio.get_running_loop().call_later(RECONNECT, self._connect)

    def _disconnect(self) -> None:
        if self.connection is not None:
            self.cursor.disconnect(self.connection)
            self.connection = None

    def end(self) -> None:
        self.is_gated = True
        self.has_begun = False
        if self._timer is not None:
            self._timer.cancel()
        self._disconnect()

    # -- records ------------------------------------------------------------------------

    def read(self, max_records: int, max_bytes: int) -> Run | None:
        if self.connection is None:
            return None
        count = max_records
        if self.log.unreadable:
            count = self.log.readable(each.position for each in self.connection.waiting)
        sent = self.cursor.take(self.connection, min(count or 1, max_records), max_bytes)
        if not sent:
            return None
        if count == 0:
            return self.unreadable(self._message(sent[0]), None)
        size = sum(each.record.size for each in sent)
        return Run(self.assignment, [self._message(each) for each in sent], size=size)

    def _message(self, sent: Sent) -> Message:
        message = NamedMessage()
        message.assignment = self.assignment
        message.position = self.log.place(sent.position)
        message.key, message.value, message.headers, message.timestamp = sent.record
        message.native = sent.handle
        return message

    def lag(self) -> int | None:
        return None if self.connection is None else self.cursor.unsent(self.connection)

    # -- acks ---------------------------------------------------------------------------

    def commit(self, flush: AckFlush, *, is_lost: bool) -> Outcome:
        """Acks each settled record; a subscription that nobody has read yet takes a position.

        Args:
            is_lost: the acks are lost with the connection, and nobody is told.
        """
        if self.cursor.is_new and flush.checkpoint.resume is not None:
            self.cursor.seek(int(sum(flush.checkpoint.resume)))
        elif flush.settled and self.connection is None:
            where = self.assignment.partition
            return Outcome.retry(TransientAdapterError(f"{where} is disconnected at the moment"))
        elif is_lost:
            self.cut()
        else:
            self.cursor.ack([handle for _, handle in flush.settled])
        return Outcome(OutcomeKind.SENT)
