"""What storm-kafka and kinesis-storm-spout keep in znodes, and what it says here. No I/O.

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
from typing import Any

from consumer_sdk.checkpoints.positions import LAST_SUB_SEQUENCE, decode_sequence
from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError
from consumer_sdk.records import Checkpoint
from consumer_sdk.records.strict_json import load_object

__all__ = ["SHARD_LIST", "partition_of", "read_offset", "read_sequence", "read_shard_list"]

SHARD_LIST = "shardList"

PARTITION = re.compile(r"(?:partition_)?(0|[1-9][0-9]{0,9})")
SHARD = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
"""The pattern of a shard's id in the Kinesis API."""


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
