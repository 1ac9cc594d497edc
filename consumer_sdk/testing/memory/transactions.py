"""Transactions in this process's memory, for tests of handlers that send, and simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from consumer_sdk.abc import Adapter, Transactions
from consumer_sdk.errors import AdapterError, ConfigurationError
from consumer_sdk.records import AckFlush, Outcome
from consumer_sdk.records.outputs import Output
from consumer_sdk.testing.memory.adapter import MemoryAdapter

__all__ = ["MemoryTransactions"]


class MemoryTransactions(Transactions):
    """Appends what handlers send to streams of the `MemoryBroker`, with the positions of their records.

    What became of a transaction is always known here: the adapter's faults at ``"commit"`` lose answers, and the next
    flush finds what was written. A stream that does not exist ends the consumer.
    """

    def __init__(self) -> None:
        self._adapter: MemoryAdapter | None = None

    def check(self, adapter: Adapter) -> None:
        """Refuses what does not read a `MemoryBroker`, and a second consumer.

        Raises:
            ConfigurationError: it is one.
        """
        if not isinstance(adapter, MemoryAdapter) or self._adapter is not None:
            raise ConfigurationError(
                f"MemoryTransactions() commits for one MemoryAdapter, not {adapter!r}: make one for each consumer"
            )

    def check_output(self, output: Output) -> None:
        """Takes any."""

    async def open(self, adapter: Adapter) -> None:
        """Belongs to this adapter from now on."""
        self.check(adapter)
        assert isinstance(adapter, MemoryAdapter)
        self._adapter = adapter

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Each flush is a transaction."""
        assert self._adapter is not None
        try:
            return await self._adapter.transact(flushes, self._write)
        except AdapterError as error:
            return [Outcome.retry(error) for _ in flushes]

    def _write(self, output: Output) -> None:
        assert self._adapter is not None
        fields: dict[str, Any] = {"key": output.key, "headers": output.headers}
        self._adapter.memory.append(
            output.stream, output.value, partition=output.partition, **fields
        )

    async def aclose(self) -> None:
        """Does nothing."""
