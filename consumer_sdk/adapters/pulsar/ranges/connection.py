"""An open connection of range reads: the native client, its threads, and whatever asks through it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor

from consumer_sdk.adapters.opening import unless_refused
from consumer_sdk.adapters.pulsar.client.access import find_refusal
from consumer_sdk.adapters.pulsar.client.admin import Admin
from consumer_sdk.adapters.pulsar.client.calls import close
from consumer_sdk.adapters.pulsar.client.topics import topic_of
from consumer_sdk.adapters.pulsar.discovery import Discovery
from consumer_sdk.adapters.pulsar.ranges.cursors import Cursors
from consumer_sdk.adapters.pulsar.ranges.locating import Locator, look_cost
from consumer_sdk.adapters.pulsar.ranges.native_readers import KeptReaders, NativeReader, Queues
from consumer_sdk.adapters.pulsar.ranges.options import RangeOptions
from consumer_sdk.adapters.pulsar.ranges.reading import RangeReading
from consumer_sdk.adapters.pulsar.ranges.topic_stats import Entries, Sizes, is_doubtful, is_lost
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    PositionOutOfRangeError,
    TransientAdapterError,
)
from consumer_sdk.range_reads import Columns, PartitionRange
from consumer_sdk.records import Partition, StartPoint

__all__ = ["Connected"]

log = logging.getLogger(__name__)

THREADS = 32
"""Ranges that are read at the same time; each blocks a thread while it waits for the client."""

MOST_PATIENT = 5
"""Topics are looked up every ``seen_within`` seconds for each of them, but for so many of them at most."""


class Connected:
    """The connection of one `PulsarRanges`, from open to close.

    Attributes:
        cursors, locator, sizes: answer the questions to `PulsarRanges`.
    """

    def __init__(self, options: RangeOptions) -> None:
        pulsar = options.pulsar
        self._options = options
        self._patience = pulsar.connection.operation_timeout
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="pulsar ranges")
        self._admin = (
            None if pulsar.admin_url is None else Admin(pulsar.admin_url, **pulsar.admin_options)
        )
        self._client = pulsar.connection.make_client()
        self._discovery = Discovery(self._client, self._admin, pulsar)
        self.cursors = Cursors(self._client, self._admin, pulsar)
        self.locator = Locator(options, self._admin, self._reader_of)
        self.sizes = Sizes(self._admin)
        self._queues = Queues(self.sizes, pulsar.receiver_queue)
        self._kept = KeptReaders()
        self._seen: Sequence[Partition] = ()
        self._seen_at = -math.inf

    def _reader_of(self, topic: str) -> NativeReader:
        return NativeReader(self._client, topic, self._threads, patience=self._patience)

    async def open(self) -> None:
        """Looks the topics up, and makes the subscription on each partition.

        Raises:
            AdapterError: the broker cannot be reached, or refused: then the message names the token,
                the certificate or the host name.
        """
        await unless_refused(self._begin(), self._find_refusal)

    async def _begin(self) -> None:
        partitions = await self._look(AdapterError)
        await self.cursors.keep(partitions, are_new=False)

    async def _find_refusal(self) -> str | None:
        return await find_refusal(self._options.pulsar.connection)

    async def partitions(self) -> Sequence[Partition]:
        """All partitions, sorted, as they were some seconds ago at most. Each has the subscription.

        Raises:
            AdapterError: the broker cannot be reached, or refused.
        """
        now = asyncio.get_running_loop().time()
        # Each topic costs a request: many topics are looked up less often.
        topics = min(len({each.stream for each in self._seen}) or 1, MOST_PATIENT)
        if now - self._seen_at >= self._options.seen_within * topics:
            # A token that has expired may be replaced while the query goes on.
            found = await self._look(TransientAdapterError)
            await self.cursors.keep(found, are_new=True)
            self._seen, self._seen_at = found, now
        return self._seen

    def tools(self) -> Admin:
        """The REST API, for what only it tells.

        Raises:
            ConfigurationError: its address was not given.
        """
        if self._admin is None:
            raise ConfigurationError(
                "what a subscription has acked, and who uses it, is told by the REST API alone: "
                "give admin_url=http://host:8080 in the URL"
            )
        return self._admin

    @property
    def admin_calls(self) -> int:
        """Requests to the REST API so far."""
        return 0 if self._admin is None else self._admin.calls

    @property
    def look_cost(self) -> int:
        """About how many requests a look at the ends of all partitions takes."""
        return max(look_cost(self._seen, has_admin=self._admin is not None), 1)

    async def _look(self, refused: type[AdapterError]) -> Sequence[Partition]:
        """The partitions now. Raises ``refused`` if the broker refuses this client."""
        service = self._options.pulsar.connection.service_url
        try:
            async with asyncio.timeout(self._patience):
                found = await self._discovery.look()
        except (TimeoutError, TransientAdapterError) as error:
            if (why := await self._find_refusal()) is not None:
                raise refused(why) from error
            if isinstance(error, TransientAdapterError):
                raise
            raise TransientAdapterError(
                f"{service}: no answer: check the address, TLS and credentials"
            ) from error
        return sorted(set(found), key=lambda each: (each.stream, int(each.id)))

    async def read(
        self, wanted: PartitionRange, *, with_headers: bool, max_bytes: int
    ) -> AsyncGenerator[Columns, None]:
        """A range's records.

        Raises:
            PositionOutOfRangeError: some of them are known to be deleted.
            AdapterError: the broker does not answer, or refuses.
        """
        partition, start, stop = wanted
        topic = topic_of(partition)
        reading = RangeReading(
            start,
            stop,
            new_reader=lambda: self._reader_of(topic),
            configuration=self._options.for_reader,
            queue=await self._queues.of(partition),
            kept=self._kept,
            entries=Entries(topic, self._admin),
            stall=self._options.stall_timeout,
        )
        parts = reading.parts(with_headers=with_headers, max_bytes=max_bytes)
        try:
            async for columns in parts:
                if columns.positions[0] == reading.first:
                    await self._check(wanted, reading.first)
                yield columns
            if not reading.has_records:
                await self._check(wanted, reading.first)
        finally:
            await parts.aclose()

    async def _check(self, wanted: PartitionRange, first: object) -> None:
        """Looks whether records were lost, if the first record does not lie in the ledger of the start.

        A loss that is only possible is a warning: retention deletes ledgers that were read to their end, too.
        """
        partition, start, stop = wanted
        if not start < stop or (isinstance(first, tuple) and first[0] == start[0]):
            return
        begin = await self.locator.find(partition, StartPoint.EARLIEST)
        if begin is None or is_lost(start, stop, begin):
            raise PositionOutOfRangeError(
                f"{partition}: records from {start} to {stop} were deleted; the first that the "
                f"broker keeps is at {begin}: start there, or keep them by a subscription or a retention"
            )
        if is_doubtful(start, begin):
            log.warning(
                "%s: the ledger of %s was deleted; whether it had records behind that, nobody can "
                "tell. What is read begins at %s",
                *(partition, start, begin),
            )

    async def aclose(self) -> None:
        """Closes the readers, the client and the REST API, within bounds."""
        await self._kept.aclose()
        self._threads.shutdown(wait=False)
        await close(self._client, "the client", level=logging.INFO)
        if self._admin is not None:
            self._admin.close()
