"""Takes what the client has fetched in the background, and waits when there is nothing.

The client's ``getmany`` is not used: it waits without a bound while the group rebalances (a
revoke that waits for a fetch would never end), throws away what it holds of paused partitions,
raises one partition's error for all, and builds objects that nobody needs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiokafka.consumer.fetcher import FetchError

from consumer_sdk.adapters.kafka.faults import translate
from consumer_sdk.adapters.kafka.grants import Grant, Grants
from consumer_sdk.adapters.kafka.unpacking import Unpacker, choose_unpacker
from consumer_sdk.records import Run

__all__ = ["Buffer"]

log = logging.getLogger(__name__)


class Buffer:
    """The client's prefetched records, seen through the grants.

    Args:
        consumer: the client.
        unpacker: makes the messages; the fastest that this client allows by default.
    """

    def __init__(
        self, consumer: Any, grants: Grants, unpacker: type[Unpacker] | None = None
    ) -> None:
        self._consumer = consumer
        self._grants = grants
        self._unpacker: Any = unpacker or choose_unpacker()
        self._waiter: asyncio.Future[None] | None = None

    @property
    def _fetcher(self) -> Any:
        return self._consumer._fetcher

    def take(self, max_records: int, max_bytes: int) -> list[Run]:
        """The runs that are here now: several partitions', up to the limits."""
        runs: list[Run] = []
        buffered = self._fetcher._records
        for tp in list(buffered):
            grant = self._grants.at(tp)
            if grant is None or not grant.is_fetched:
                continue
            run = self._take_from(grant, buffered[tp], max_records, max_bytes)
            if run is None:
                continue
            runs.append(run)
            max_records -= len(run.messages)
            max_bytes -= run.size
            if max_records <= 0 or max_bytes <= 0:
                break
        return runs

    def _take_from(self, grant: Grant, found: Any, max_records: int, max_bytes: int) -> Run | None:
        if type(found) is FetchError:
            self._forget(grant)
            return self._fault(grant, found._error)
        if not self._is_current(grant, found):
            self._forget(grant)
            return None
        unpacker = self._unpacker_of(found)
        try:
            messages, size = unpacker.take(grant.assignment, max_records, max_bytes)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this partition's alone
            self._forget(grant)
            return self._fault(grant, error)
        position = unpacker.next_fetch_offset
        grant.cursor.consumed_to(position)
        if unpacker.is_empty:
            self._forget(grant)
        if not messages and position == grant.reported:
            return None
        grant.reported = position
        return Run(grant.assignment, messages, next_position=position, size=size)

    def _unpacker_of(self, found: Any) -> Unpacker:
        records = found._partition_records
        if isinstance(records, Unpacker):
            return records
        unpacker: Unpacker = self._unpacker(records)
        found._partition_records = unpacker
        return unpacker

    @staticmethod
    def _is_current(grant: Grant, found: Any) -> bool:
        """It was fetched under this grant, and nobody has sought since."""
        position: int = found._partition_records.next_fetch_offset
        is_ours = found._assignment is grant.client_assignment
        return is_ours and grant.cursor.position == position

    def _forget(self, grant: Grant) -> None:
        """Lets the client fetch the partition again."""
        self._fetcher._records.pop(grant.tp, None)
        self._fetcher._notify(self._fetcher._wait_consume_future)

    @staticmethod
    def _fault(grant: Grant, error: Exception) -> Run:
        grant.has_fault = True
        grant.cursor.pause()
        fault = translate(error, f"fetching {grant.tp.topic}[{grant.tp.partition}]")
        return Run(grant.assignment, fault=fault)

    def last_answer(self) -> int | None:
        """Changes whenever the broker answers a fetch; None when nothing is to be fetched."""
        marks = [grant.cursor.timestamp or 0 for grant in self._grants if grant.is_fetched]
        return max(marks, default=None)

    async def wait(self, timeout: float) -> None:
        """Waits until something may be there, or `wake` is called.

        Cancellation: loses nothing; nothing has been taken.
        """
        waiter = self._waiter = self._fetcher._create_fetch_waiter()
        try:
            await asyncio.wait([waiter], timeout=timeout)
        finally:
            if waiter.done() and not waiter.cancelled():
                waiter.exception()  # the coordinator keeps it too, and is asked by the caller
            waiter.cancel()

    def wake(self) -> None:
        """Ends a wait."""
        if self._waiter is not None:
            self._fetcher._notify(self._waiter)
