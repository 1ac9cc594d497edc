"""Checkpoints that storm-kafka and kinesis-storm-spout left in a ZooKeeper; only read there.

storm-kafka (0.9 to 1.2), ``{zkRoot}/{id}/partition_{n}``, below one more level named after the
topic where a spout reads several::

    {"topology":{"id":"…","name":"…"},"offset":42,"partition":0,"broker":{…},"topic":"orders"}

All before the offset is done. Its PartitionManager compared neither topic nor partition with what
it wanted, so that two spouts of one id used each other's offsets; here a mismatch is an error.

kinesis-storm-spout, ``/{prefix}/{topology}/{stream}/{shard}/state``::

    {"checkpoint":"49590338271490256608559692538361571095921575989136588898"}

The sequence number is the last one of which all before is done, and the Kinesis record as a whole.
The znode ``shardList`` beside the shards is deleted when the topology stops, so it is no list of
what is there.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from consumer_sdk.errors import (
    CheckpointFormatError,
    CheckpointMismatchError,
    ConfigurationError,
    MissingExtraError,
    StoreError,
)

try:
    import kazoo as _kazoo  # noqa: F401 - before any module that needs it
except ImportError as _error:
    raise MissingExtraError("kazoo", "zookeeper") from _error

from consumer_sdk.checkpoints.positions import LAST_SUB_SEQUENCE, decode_sequence, encode_sequence
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.stores.exchange.lines import Entry, Found
from consumer_sdk.stores.zookeeper.bridge import Bridge
from consumer_sdk.stores.zookeeper.options import client_maker
from consumer_sdk.stores.zookeeper.tree import Tree
from consumer_sdk.strict_json import load_object
from consumer_sdk.trackers import encode_checkpoint

__all__ = [
    "SHARD_LIST",
    "partition_of",
    "read_kinesis_spout",
    "read_offset",
    "read_sequence",
    "read_shard_list",
    "read_storm_kafka",
]

SHARD_LIST = "shardList"

PARTITION = re.compile(r"(?:partition_)?(0|[1-9][0-9]{0,9})")
SHARD = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
"""The pattern of a shard's id in the Kinesis API."""

SESSION_TIMEOUT = 10.0
FORBIDDEN = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
"""Characters that ZooKeeper takes in no path. A spout's may have any other, as a space."""


async def read_storm_kafka(
    hosts: str, zk_root: str, spout_id: str, *, topic: str, group: str, **client_options: Any
) -> Found:
    """The offsets of a Kafka spout, as checkpoints of broker ``kafka``.

    Args:
        hosts: ``"zk1:2181,zk2:2181"``.
        zk_root: ``SpoutConfig.zkRoot``.
        spout_id: ``SpoutConfig.id``.
        topic: which the spout has read.
        group: that will go on.
        client_options: see `consumer_sdk.stores.ZooKeeperStore`.

    Raises:
        CheckpointFormatError: a znode is not what the spout writes; names it.
        CheckpointMismatchError: one belongs to another topic or partition.
        StoreError: there is nothing, or it cannot be read.
        ConfigurationError: a path or an option that cannot work.
    """
    base = _path(zk_root, spout_id)
    inner = _path(zk_root, spout_id, topic)
    async with _reading(hosts, client_options) as tree:
        outer_names, inner_names = await tree.children([base, inner])
        paths = [f"{base}/{n}" for n in outer_names] + [f"{inner}/{n}" for n in inner_names]
        wanted = {path: n for path in sorted(paths) if (n := _partition(path)) is not None}
        if inner_names:
            wanted.pop(inner, None)  # the level of a topic that is named by a number
        znodes = await _read(tree, wanted)
    if not wanted:
        raise _nothing_found(hosts, base, "zkRoot and id of its SpoutConfig")
    checkpoints = {
        path: read_offset(data, path, topic=topic, partition=wanted[path])
        for path, data in znodes.items()
    }
    entries = [
        _entry(path, group, "kafka", Partition(topic, str(wanted[path])), checkpoint)
        for path, checkpoint in checkpoints.items()
    ]
    others = sorted({*paths} - {*wanted, inner})
    return Found(entries, dict.fromkeys(others, "it is named after no partition of the topic"))


async def read_kinesis_spout(
    hosts: str, prefix: str, topology: str, stream: str, *, group: str, **client_options: Any
) -> Found:
    """The sequence numbers of a Kinesis spout, as checkpoints of broker ``kinesis``.

    Args:
        hosts: ``"zk1:2181,zk2:2181"``.
        prefix: its ``zookeeperPrefix``, by default ``kinesis_storm_spout``.
        topology: its ``topologyName``.
        stream: which it has read.
        group: that will go on.
        client_options: see `consumer_sdk.stores.ZooKeeperStore`.

    Returns:
        skipped are shards of which nothing was done: they start where ``start=`` says, and the
        spout by default at the latest record.

    Raises:
        CheckpointFormatError: a znode is not what the spout writes; names it.
        StoreError: there is nothing, or it cannot be read.
        ConfigurationError: a path or an option that cannot work.
    """
    base = _path(prefix, topology, stream)
    async with _reading(hosts, client_options) as tree:
        (names,) = await tree.children([base])
        listed = await _read(tree, [f"{base}/{SHARD_LIST}"])
        shards = {*names} - {SHARD_LIST}
        shards.update(*(read_shard_list(data, path) for path, data in listed.items()))
        states = {f"{base}/{shard}/state": shard for shard in sorted(shards)}
        znodes = await _read(tree, states)
    if not shards:
        raise _nothing_found(hosts, base, "zookeeperPrefix, topologyName and streamName")
    entries = [
        _entry(path, group, "kinesis", Partition(stream, states[path]), checkpoint)
        for path, data in znodes.items()
        if (checkpoint := read_sequence(data, path)) is not None
    ]
    others = sorted(states.keys() - {entry.where for entry in entries})
    return Found(entries, dict.fromkeys(others, "the spout has no checkpoint of this shard"))


@asynccontextmanager
async def _reading(hosts: str, options: Mapping[str, Any]) -> AsyncIterator[Tree]:
    bridge = Bridge(client_maker(hosts, SESSION_TIMEOUT, options), SESSION_TIMEOUT)
    try:
        yield Tree(bridge)
    finally:
        await bridge.aclose()


async def _read(tree: Tree, paths: Iterable[str]) -> dict[str, bytes]:
    """The data of those that are there."""
    wanted = list(paths)
    znodes = zip(wanted, await tree.read(wanted), strict=True)
    return {path: znode.data for path, znode in znodes if znode is not None}


def _path(*names: str) -> str:
    """A path of names that may have slashes of their own.

    Raises:
        ConfigurationError: ZooKeeper takes no such path.
    """
    path = "/" + "/".join(stripped for n in names if (stripped := n.strip("/")))
    if {"", ".", ".."} & set(path.split("/")[1:]) or FORBIDDEN.search(path):
        raise ConfigurationError(
            f"root={path!r}: give the absolute path of a znode, as the spout's configuration has it"
        )
    return path


def _partition(path: str) -> int | None:
    return partition_of(path.rpartition("/")[2])


def _entry(
    path: str, group: str, broker: str, partition: Partition, checkpoint: Checkpoint
) -> Entry:
    text, _ = encode_checkpoint(
        checkpoint,
        broker=broker,
        partition=partition,
        encode_position=encode_sequence if broker == "kinesis" else str,
    )
    return Entry(path, group, *partition, text)


def _nothing_found(hosts: str, base: str, what: str) -> StoreError:
    return StoreError(f"{hosts} has no checkpoints below {base}: give the spout's own {what}")


# -- what a znode's name and data say; no I/O


def partition_of(name: str) -> int | None:
    """The partition that storm-kafka's znode is named after; None for another znode."""
    found = PARTITION.fullmatch(name)
    return int(found[1]) if found else None


def read_offset(data: bytes, path: str, *, topic: str, partition: int) -> Checkpoint:
    """The data of storm-kafka's znode as a checkpoint.

    Raises:
        CheckpointFormatError: it is no such data.
        CheckpointMismatchError: it belongs to another topic or partition.
    """
    body = _object(data, path)
    for name, wanted in (("topic", topic), ("partition", partition)):
        stored = body.get(name)
        if type(stored) is not type(wanted):
            raise _foreign(path, f"its {name} is {stored!r:.80}")
        if stored != wanted:
            raise CheckpointMismatchError(
                f"{path} belongs to {name} {stored!r:.300}, not {wanted!r}: another spout has "
                f"written it under the same id; its offset is not imported"
            )
    offset = body.get("offset")
    if type(offset) is not int or not 0 <= offset < 2**63:
        raise _foreign(path, f"its offset is {offset!r:.80}")
    return Checkpoint(watermark=offset - 1 if offset else None, resume=offset)


def read_sequence(data: bytes, path: str) -> Checkpoint | None:
    """The data of a shard's state as a checkpoint; None where nothing was done yet.

    Raises:
        CheckpointFormatError: it is no such data.
    """
    text = _object(data, path).get("checkpoint")
    if not isinstance(text, str):
        raise _foreign(path, f"its checkpoint is {text!r:.80}")
    if not text:
        return None
    try:
        position = decode_sequence(f"{text}:{LAST_SUB_SEQUENCE}")
    except CheckpointFormatError as error:
        raise _foreign(path, f"its checkpoint is {text!r:.200}, no sequence number") from error
    return Checkpoint(watermark=position, resume=position)


def read_shard_list(data: bytes, path: str) -> list[str]:
    """The ids in a list of shards.

    Raises:
        CheckpointFormatError: it is no such list.
    """
    shards = _object(data, path).get(SHARD_LIST)
    if not isinstance(shards, list):
        raise _foreign(path, f"its {SHARD_LIST} is {shards!r:.80}")
    for shard in shards:
        if not isinstance(shard, str) or not SHARD.fullmatch(shard):
            raise _foreign(path, f"{shard!r:.80} is no shard's id")
    return shards


def _object(data: bytes, path: str) -> dict[str, Any]:
    try:
        return load_object(data)
    except ValueError as error:
        raise _foreign(path, str(error)) from error


def _foreign(path: str, what: str) -> CheckpointFormatError:
    return CheckpointFormatError(
        f"{path} is not what the spout writes ({what}): nothing was imported. See that the path is "
        f"right; a znode that is damaged has to be removed first, and its partition then starts "
        f"where start= says"
    )
