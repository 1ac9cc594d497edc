"""A real Kafka, as the conformance suite and the tests here use it."""

# The client has no types, so that its classes cannot be subclassed for the type checker.
# mypy: disable-error-code="misc"

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.protocol.api import Request as WireRequest
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.group import LeaveGroupRequest
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import OffsetAndMetadata

from consumer_sdk.abc import Adapter
from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.adapters.kafka.consumer.membership import Membership
from consumer_sdk.adapters.kafka.groups.classic_member import ClassicMember
from consumer_sdk.adapters.kafka.groups.messages import ConsumerHeartbeat, Request
from consumer_sdk.adapters.kafka.groups.structs import from_wire, to_wire
from consumer_sdk.records import Position
from consumer_sdk.testing.conformance.adapters import AdapterHarness, Record
from consumer_sdk.testing.conformance.adapters.harness import Ability
from tests.adapters.kafka.consumer_groups import end_members

__all__ = ["KafkaHarness"]

GROUP = 32  # a type of resource
SET = 0
_TEXT = CompactString("utf-8")


class GroupConfigsResponse(Response):
    """What became of it."""

    API_KEY = 44
    API_VERSION = 1
    SCHEMA: ClassVar[Schema] = Schema(
        ("throttle_time_ms", Int32),
        (
            "resources",
            CompactArray(
                ("error_code", Int16),
                ("error_message", _TEXT),
                ("type", Int8),
                ("name", _TEXT),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class GroupConfigsRequest(RequestStruct):
    """IncrementalAlterConfigs."""

    FLEXIBLE_VERSION = True
    API_KEY = 44
    API_VERSION = 1
    RESPONSE_TYPE = GroupConfigsResponse
    SCHEMA: ClassVar[Schema] = Schema(
        (
            "resources",
            CompactArray(
                ("type", Int8),
                ("name", _TEXT),
                (
                    "configs",
                    CompactArray(
                        ("name", _TEXT),
                        ("operation", Int8),
                        ("value", _TEXT),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("validate_only", Boolean),
        ("tags", TaggedFields),
    )


class GroupConfigs(WireRequest[GroupConfigsRequest]):
    """Sets configs of one group."""

    API_KEY = 44

    def __init__(self, group: str, config: dict[str, str]) -> None:
        self._group, self._config = group, config

    def build(self, request_struct_class: type[Any]) -> Any:
        """The request as it is sent."""
        configs: list[Any] = [(name, SET, value, {}) for name, value in self._config.items()]
        return request_struct_class([(GROUP, self._group, configs, {})], False, {})


TOPIC_ALREADY_EXISTS = 36
UNKNOWN_MEMBER_ID = 25


class KafkaHarness(AdapterHarness):
    """Topics and groups of one test."""

    abilities: ClassVar[frozenset[Ability]] = frozenset(
        {"crash", "gap", "grow", "recreate", "reset", "truncate", "unreadable"}
    )
    patience = 300.0
    quiet = 0.1
    replicas = 1
    """Copies of each partition."""

    def __init__(self, servers: str, protocol: str = "classic") -> None:
        self.servers = servers
        self.protocol = protocol
        self.uid = uuid.uuid4().hex[:8]
        self._made = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)
        await self.admin.start()
        self._stack.push_async_callback(self.admin.close)
        self.producer = await self.start_producer()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start_producer(self, **options: Any) -> AIOKafkaProducer:
        """A producer that is stopped with the harness."""
        producer = AIOKafkaProducer(bootstrap_servers=self.servers, **options)
        await producer.start()
        self._stack.push_async_callback(producer.stop)
        return producer

    async def create_stream(self, partitions: int = 1, **config: str) -> str:
        self._made += 1
        name = f"t{self._made}-{self.uid}"
        await self.create_topic(name, partitions, **config)
        return name

    async def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Makes a topic, once an older one of the name is deleted, and waits until it is seen."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, partitions, self.replicas, topic_configs=settings)
        async with asyncio.timeout(self.patience):
            while code := (await self.admin.create_topics([topic])).topic_errors[0][1]:
                assert code == TOPIC_ALREADY_EXISTS, f"{name} was not created: error {code}"
                await asyncio.sleep(0.05)
            while not await self._is_led(name, partitions):  # a busy broker is slow to see it
                await asyncio.sleep(0.02)

    async def _is_led(self, topic: str, partitions: int) -> bool:
        (found,) = await self.admin.describe_topics([topic])
        leaders = [each["leader"] for each in found["partitions"]]
        return len(leaders) == partitions and min(leaders) >= 0

    def make_adapter(
        self, stream: str, group: str | None, *, topics: Sequence[str] = (), **options: Any
    ) -> KafkaAdapter:
        # A member is lost and cut off late: a machine that stands still for seconds does neither.
        steady: dict[str, Any] = {
            "session_timeout": 30.0,
            "rebalance_timeout": 60.0,
            "heartbeat_interval": 0.1,
        }
        if options.get("protocol", self.protocol) == "consumer":  # its sessions are the broker's
            steady = {"rebalance_timeout": 60.0}
        if group is not None:
            steady["protocol"] = self.protocol
        defaults = {"metadata_max_age_ms": 300, "fetch_max_wait_ms": 100, "retry_backoff_ms": 50}
        return KafkaAdapter(
            *(topics or ([] if "pattern" in options else [stream])),
            bootstrap_servers=self.servers,
            group=None if group is None else f"{group}-{self.uid}",
            **(steady | defaults | options),
        )

    async def append(
        self,
        stream: str,
        records: Sequence[Record],
        partition: int = 0,
        producer: AIOKafkaProducer | None = None,
    ) -> list[Position]:
        producer = producer or self.producer
        futures = [await self._send(producer, stream, record, partition) for record in records]
        return [(await future).offset for future in futures]

    async def _send(
        self, producer: AIOKafkaProducer, stream: str, record: Record, partition: int
    ) -> Any:
        if record.key is None and record.value is None:  # the client's send() refuses it
            await producer.flush()
            batch = producer.create_batch()
            batch.append(
                key=None, value=None, timestamp=record.timestamp, headers=list(record.headers)
            )
            return await producer.send_batch(batch, stream, partition=partition)
        return await producer.send(
            stream,
            record.value,
            key=record.key,
            partition=partition,
            headers=list(record.headers),
            timestamp_ms=record.timestamp,
        )

    async def append_unreadable(self, stream: str) -> None:
        """A header's name that is not UTF-8: the broker takes it, and the client cannot read it."""
        await self.append_damaged(stream, 1, {0})

    async def append_damaged(self, stream: str, count: int, bad: Collection[int]) -> None:
        """A batch of so many records, of which some cannot be read."""
        await self.producer.flush()
        batch = self.producer.create_batch()
        for number in range(count):
            headers: list[tuple[str, bytes]] = [("name", b"x")] if number in bad else []
            batch.append(key=None, value=b"v%d" % number, timestamp=None, headers=headers)
        raw = bytes(batch._builder.build()).replace(b"name", b"\xff\xfe\xfd\xfc")
        batch._buffer = bytearray(raw[:17] + struct.pack(">I", calc_crc32c(raw[21:])) + raw[21:])
        batch._closed = True
        await (await self.producer.send_batch(batch, stream, partition=0))

    @asynccontextmanager
    async def transaction(self) -> Any:
        """A producer in a transaction; it is aborted when the block raises."""
        producer = await self.start_producer(transactional_id=uuid.uuid4().hex)
        async with producer.transaction():
            yield producer

    async def skip(self, stream: str, partition: int = 0) -> None:
        """An aborted transaction: its records and its marker take positions."""
        producer = await self.start_producer(transactional_id=uuid.uuid4().hex)
        await producer.begin_transaction()
        places = await self.append(stream, [Record(b"aborted")] * 3, partition, producer)
        await producer.abort_transaction()
        await self._until_stable(TopicPartition(stream, partition), places[-1] + 2)

    async def _until_stable(self, tp: TopicPartition, end: int) -> None:
        """The broker writes a transaction's marker after it has answered."""
        reader = AIOKafkaConsumer(bootstrap_servers=self.servers, isolation_level="read_committed")
        async with reader, asyncio.timeout(self.patience):
            while (await reader.end_offsets([tp]))[tp] < end:
                await asyncio.sleep(0.01)

    async def truncate(self, stream: str, before: Position, partition: int = 0) -> None:
        tp = TopicPartition(stream, partition)
        await self.admin.delete_records({tp: RecordsToDelete(before)})

    async def grow(self, stream: str, total: int) -> None:
        await self.admin.create_partitions({stream: NewPartitions(total)})
        async with asyncio.timeout(self.patience):
            while len(await self.producer.partitions_for(stream)) < total:
                await self.producer.client.force_metadata_update()

    async def delete(self, stream: str) -> None:
        """Deletes a topic."""
        await self.admin.delete_topics([stream])

    async def until_absent(self, stream: str) -> None:
        """Waits until a deleted topic has left the broker's view."""
        async with asyncio.timeout(self.patience):
            while stream in await self.admin.list_topics():
                await asyncio.sleep(0.02)

    async def reset(self, stream: str, group: str, position: Position, partition: int = 0) -> None:
        """Kafka's own tools commit like this: as no member, with empty metadata."""
        tp = TopicPartition(stream, partition)
        tool = AIOKafkaConsumer(
            bootstrap_servers=self.servers,
            group_id=f"{group}-{self.uid}",
            enable_auto_commit=False,
        )
        async with tool:
            tool.assign([tp])
            await tool.commit({tp: OffsetAndMetadata(position, "")})

    async def recreate(self, stream: str) -> None:
        await self.delete(stream)
        await self.until_absent(stream)  # a broker behind its controller goes on with the old one
        await self.create_topic(stream)

    async def crash(self, adapter: Adapter) -> None:
        """Its tasks end and its connections break, without a word to the broker."""
        assert isinstance(adapter, KafkaAdapter)
        session = adapter._session
        membership = session._membership
        assert membership is not None
        await self._crash_member(membership)
        for connection in session._cluster._connections._made.values():
            connection.close()

    async def _crash_member(self, membership: Membership) -> None:
        runner = membership._runner
        assert runner is not None
        assert runner._task is not None
        runner._task.cancel()
        await asyncio.wait({runner._task})
        runner._task = None  # so that its later close does not leave the group
        group, member_id = membership._options.group or "", runner._member.member_id
        if isinstance(runner._member, ClassicMember):
            await self.end_sessions(group)
            return
        left = await self.ask_group(group, ConsumerHeartbeat(group, member_id, -1))
        assert left.error == 0, left

    async def ask_group(self, group: str, request: Request) -> Any:
        """What a group's coordinator answers."""
        coordinator = await self.admin.find_coordinator(group)
        return from_wire(await self.admin._send_request(to_wire(request), coordinator))

    async def configure_group(self, group: str, config: dict[str, str]) -> None:
        """Sets what a group has of its own, in the place of the broker's."""
        answer = await self.admin._send_request(GroupConfigs(group, config))
        assert [found[0] for found in answer.resources] == [0], answer

    async def end_sessions(self, group: str, *members: str) -> None:
        """Has a group forget dead members, all by default, as it does when their sessions end.

        So sessions may be longer than a machine stands still, and nobody waits for their end.
        """
        (answer,) = await self.admin.describe_consumer_groups([group])
        coordinator = await self.admin.find_coordinator(group)
        for member in members or [member for member, *_ in answer.groups[0][5]]:
            left = await self.admin._send_request(LeaveGroupRequest(group, member), coordinator)
            assert left.error_code in {0, UNKNOWN_MEMBER_ID}, f"{group}: {left.error_code}"
        if not members:
            await end_members(self.admin, group)
