"""The JSON codec with the arguments that do not matter filled in, and forged checkpoints."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

from consumer_sdk.records import Checkpoint, Partition, Position
from consumer_sdk.trackers import decode_checkpoint, encode_checkpoint

PARTITION = Partition("orders", "0")


def text_of(value: Any) -> str:
    """A position's text; of a checkpoint, that of its first position, or nothing."""
    if isinstance(value, Checkpoint):
        some = [value.watermark, value.resume, *value.attempts]
        return next((text_of(position) for position in some if position is not None), "")
    return ".".join(map(str, value)) if isinstance(value, tuple) else str(value)


def pair_of(text: str) -> tuple[int, ...]:
    """Reads a tuple's text."""
    return tuple(map(int, text.split(".")))


def encode(checkpoint: Checkpoint, max_size: int = 1_000_000) -> tuple[str, Position | None]:
    """`encode_checkpoint` for Kafka's orders/0."""
    return encode_checkpoint(
        checkpoint,
        broker="kafka",
        partition=PARTITION,
        encode_position=text_of,
        max_size=max_size,
    )


def decode(
    text: str, identity: str | None = None, read: Callable[[str], Position] = int
) -> Checkpoint:
    """`decode_checkpoint` for Kafka's orders/0."""
    return decode_checkpoint(
        text, broker="kafka", partition=PARTITION, identity=identity, decode_position=read
    )


def forge(**changes: Any) -> str:
    """A checkpoint with other values in some fields, and a checksum that is right all the same."""
    text, _ = encode(Checkpoint(5, 6, ((8, 9), (11, 12)), {6: (2, 1.5)}, identity="abc"))
    body = json.loads(text) | changes
    del body["crc32"]
    return sign({name: value for name, value in body.items() if value is not ...})


def sign(body: dict[str, Any]) -> str:
    """The text of a body, with its checksum."""
    signed = json.dumps(body, separators=(",", ":"), sort_keys=True)
    return json.dumps(body | {"crc32": zlib.crc32(signed.encode())})
