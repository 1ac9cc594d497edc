"""The adapter on a real Pulsar, for the conformance suite and for tests of its own."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pulsar
import pytest

from consumer_sdk.abc import Adapter
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.adapters.pulsar.client.ids import place_of
from consumer_sdk.adapters.pulsar.client.topics import topic_of
from consumer_sdk.records import Partition, Position
from consumer_sdk.testing.conformance.adapters import AdapterHarness, Record
from consumer_sdk.testing.conformance.adapters.harness import Ability
from consumer_sdk.testing.servers import PulsarEndpoint

__all__ = ["PulsarHarness"]

_numbers = itertools.count()
_run = secrets.token_hex(3)


class Keys:
    """A pair of keys for encryption; the private one can be damaged."""

    def __init__(self) -> None:
        openssl = shutil.which("openssl")
        if openssl is None:
            pytest.skip("needs openssl to make keys")
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        public, self._private = folder / "public.pem", folder / "private.pem"
        for command in (
            f"genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out {self._private}",
            f"pkey -in {self._private} -pubout -out {public}",
        ):
            subprocess.run([openssl, *command.split()], check=True, capture_output=True)
        self._whole = self._private.read_bytes()
        self.reader = pulsar.CryptoKeyReader(str(public), str(self._private))

    def damage(self) -> None:
        """Nothing can be decrypted."""
        self._private.write_bytes(b"damaged")

    def repair(self) -> None:
        """It is again what it was."""
        self._private.write_bytes(self._whole)


class PulsarHarness(AdapterHarness):
    """Topics of a server that others use too.

    Args:
        options: of every adapter.
    """

    abilities: ClassVar[frozenset[Ability]] = frozenset({"backlog", "disconnect", "entry", "late"})
    patience = 300.0
    quiet = 0.5
    shares_partitions = False
    faithful = (
        Record(b"", b"k", (), 1_600_000_000_002),
        Record(b"\x00\xff", None, (("a", b"1"), ("b", b"")), 1_600_000_000_003),
        Record(b"v", b"\xc3\xa9", ()),
    )

    def __init__(self, server: PulsarEndpoint, **options: Any) -> None:
        self.server = server
        self.options = options
        self._partitions: dict[str, int] = {}
        self._keys: dict[str, Keys] = {}

    async def create_stream(self, partitions: int = 1) -> str:
        name = f"persistent://public/default/conformance-{_run}-{next(_numbers)}"
        await self.server.create_topic(name, partitions=partitions)
        self._partitions[name] = partitions
        return name

    def make_adapter(self, stream: str, group: str, **options: Any) -> Adapter:
        return PulsarAdapter(
            stream,
            service_url=self.server.service_url,
            admin_url=self.server.admin_url,
            subscription=group,
            **self.options | self._reader(stream) | options,
        )

    def _reader(self, stream: str) -> dict[str, Any]:
        return {"crypto_key_reader": self._keys[stream].reader} if stream in self._keys else {}

    async def append_late(self, stream: str, records: Sequence[Record]) -> None:
        """Encrypted, with a key that the consumers do not have: the client drops them."""
        self._keys[stream] = keys = await asyncio.to_thread(Keys)
        topic = self.partition(stream, 0)
        await asyncio.to_thread(self._send, topic, records, is_batch=False, keys=keys)
        keys.damage()

    async def release(self, stream: str) -> None:
        self._keys[stream].repair()

    def partition(self, stream: str, number: int) -> str:
        """The topic of a partition."""
        return topic_of(Partition(stream, str(number)))

    async def append(
        self, stream: str, records: Sequence[Record], partition: int = 0
    ) -> list[Position]:
        topic = self.partition(stream, partition)
        return await asyncio.to_thread(self._send, topic, records, is_batch=False)

    async def append_entry(self, stream: str, records: Sequence[Record]) -> None:
        await asyncio.to_thread(self._send, self.partition(stream, 0), records, is_batch=True)

    async def append_apart(self, stream: str, records: Sequence[Record]) -> float:
        half = len(records) // 2
        await self.append(stream, records[:half])
        await asyncio.sleep(0.05)  # the broker's clock has to move
        between = time.time()
        await asyncio.sleep(0.05)
        await self.append(stream, records[half:])
        return between

    def _send(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        is_batch: bool,
        keys: Keys | None = None,
    ) -> list[Position]:
        places: list[Position] = []
        client = pulsar.Client(
            self.server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        try:
            producer = client.create_producer(
                topic,
                batching_enabled=is_batch,
                batching_max_messages=1000,
                batching_max_publish_delay_ms=600_000,  # the flush sends it, whole
                encryption_key=None if keys is None else "mine",
                crypto_key_reader=None if keys is None else keys.reader,
            )
            for record in records:
                producer.send_async(
                    record.value,
                    lambda _, place: places.append(place_of(place)),
                    properties={name: (value or b"").decode() for name, value in record.headers},
                    partition_key=None if record.key is None else record.key.decode(),
                    event_timestamp=record.timestamp,
                )
            producer.flush()
        finally:
            client.close()
        return sorted(places)

    async def disconnect(self, adapter: Adapter) -> None:
        assert isinstance(adapter, PulsarAdapter)
        for topic in adapter._options.topics:
            await self.server.unload(topic)

    async def backlog(self, stream: str, group: str) -> int:
        return await self.server.backlog(stream, group)
