"""Both codecs with the arguments that do not matter filled in, and checkpoints for them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from consumer_sdk.records import Checkpoint, Partition, Position
from consumer_sdk.records.ranges import join
from consumer_sdk.trackers import (
    decode_checkpoint,
    decode_checkpoint_bytes,
    encode_checkpoint,
    encode_checkpoint_bytes,
)

PARTITION = Partition("orders", "0")
TIMES = st.floats(-1e12, 1e12)
SEQUENCE = 49590338271490256608559692538361571095921575989136588898
"""A sequence number of Kinesis: 186 bits."""
SOME = (
    Checkpoint(5, 6, ((8, 9), (11, 12), (14, 14)), {6: (2, 1.5), 10: (1, 2e9)}, identity="abc"),
    Checkpoint(None, 10**12, ((10**12 + 300, 10**12 + 40_000),), identity="abc"),
    Checkpoint(
        (SEQUENCE, 0),
        (SEQUENCE + 7, 3),
        (((SEQUENCE + 7, 5), (SEQUENCE + 9, 0)),),
        {(SEQUENCE + 7, 4): (3, 1.7e9)},
    ),
    Checkpoint((7, 1, 2**31 - 1), (7, 2, 0), (((7, 2, 1), (9, 0, 4)),), ended=True),
    Checkpoint(5, 6, identity="abc", application="v2"),
    Checkpoint(5, 6, attempts={7: (1, 5e9)}, written=1.5),
    Checkpoint(5, 6, attempts={7: (1, 5e9)}, application="v2", written=-1.5),
    Checkpoint(5, 6, tuple((2 * i, 2 * i) for i in range(4, 60)), {7: (1, 2e9)}),
    Checkpoint(),
)
"""Of whole numbers, of Kinesis and of Pulsar; with and without each field."""


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    """Any checkpoint that a log tracker might make."""
    numbers = draw(st.lists(st.integers(0, 10**30), unique=True, max_size=30).map(sorted))
    makers: list[Callable[[int], Position]] = [
        int,
        lambda number: (number,),
        lambda number: divmod(number, 10),
        lambda number: (number // 100, number % 100 // 10, -number % 10),
    ]
    positions = sorted(map(draw(st.sampled_from(makers)), numbers))
    has_watermark = draw(st.booleans())
    watermark = positions.pop(0) if positions and has_watermark else None
    return Checkpoint(
        watermark=watermark,
        resume=positions[0] if positions else watermark,
        ranges=tuple(zip(positions[::2], positions[1::2], strict=False)),
        attempts={p: (draw(st.integers(0, 10**6)), draw(TIMES)) for p in positions[1::3]},
        ended=draw(st.booleans()),
        identity=draw(st.none() | st.text()),
        application=draw(st.none() | st.text()),
        written=draw(st.none() | TIMES),
    )


def assert_sound(checkpoint: Checkpoint) -> None:
    """A tracker can be restored from it: whatever was read, it is a checkpoint."""
    settled = (checkpoint.watermark, checkpoint.ranges)
    assert join(*settled) == settled
    assert checkpoint.start is not None or not checkpoint.ranges
    for failures, due in checkpoint.attempts.values():
        assert 0 <= failures < 2**31
        assert abs(due) < float("inf")
    assert checkpoint.written is None or abs(checkpoint.written) < float("inf")


def rounded(checkpoint: Checkpoint) -> Checkpoint:
    """Without what is below a millisecond."""
    tried = checkpoint.attempts.items()
    attempts = {p: (count, _rounded(due)) for p, (count, due) in tried}
    written = None if checkpoint.written is None else _rounded(checkpoint.written)
    return replace(checkpoint, attempts=attempts, written=written)


def _rounded(time: float) -> float:
    return round(time * 1000) / 1000


def text_of(position: Position) -> str:
    """A position's text: a tuple's has a dot."""
    if isinstance(position, tuple):
        return ".".join(map(str, position)) + "." * (len(position) == 1)
    return str(position)


def position_of(text: str) -> Position:
    """Reads `text_of` back."""
    return tuple(map(int, text.rstrip(".").split("."))) if "." in text else int(text)


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


def encode_bytes(
    checkpoint: Checkpoint, max_size: int = 1_000_000
) -> tuple[bytes, Position | None]:
    """`encode_checkpoint_bytes` for Kafka's orders/0."""
    return encode_checkpoint_bytes(
        checkpoint, broker="kafka", partition=PARTITION, max_size=max_size
    )


def decode_bytes(data: bytes, identity: str | None = None) -> Checkpoint:
    """`decode_checkpoint_bytes` for Kafka's orders/0."""
    return decode_checkpoint_bytes(data, broker="kafka", partition=PARTITION, identity=identity)


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


def sign_bytes(signed: bytes) -> bytes:
    """The bytes of anything, with its checksum."""
    return signed + zlib.crc32(signed).to_bytes(4)
