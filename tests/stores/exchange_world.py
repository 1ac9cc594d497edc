"""Checkpoints to move, and the stores between which they go."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from hypothesis import strategies as st

from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.checkpoints.positions import LAST_SUB_SEQUENCE, encode_sequence
from consumer_sdk.records import Assignment, Checkpoint, OutcomeKind, Partition, Position
from consumer_sdk.stores import CheckpointFile, Entry, export_checkpoints
from consumer_sdk.trackers import encode_checkpoint
from tests.trackers.codec import sign

GROUP = "billing"
AT_41, AT_99 = Checkpoint(41, 42), Checkpoint(99, 100)
WITH_RANGES = Checkpoint(41, 42, ((50, 59),), {42: (2, 1.5)}, identity="abc")
FIRST, SECOND = Partition("orders", "0"), Partition("orders", "1")
SEQUENCE = 49590338271490256608559692538361571095921575989136588898
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def memory_text(position: Position) -> str:
    """Of a group a number, of a subscription an entry and an index."""
    return str(position) if isinstance(position, int) else f"{position[0]}:{position[1]}"


MAKERS: dict[str, tuple[Callable[[int], Position], Callable[[Position], str]]] = {
    "kafka": (int, str),
    "kinesis": (lambda n: (SEQUENCE + n // 3, n % 3 or LAST_SUB_SEQUENCE), encode_sequence),
    "memory": (lambda n: divmod(n, 10), memory_text),
}
"""Broker → a position of a number, and its text."""


@st.composite
def checkpoints(draw: st.DrawFn, make: Callable[[int], Position] = int) -> Checkpoint:
    """Any that a log tracker might make."""
    numbers = draw(st.lists(st.integers(0, 10**15), unique=True, max_size=12))
    positions = sorted(map(make, numbers))
    has_watermark = draw(st.booleans())
    watermark = positions.pop(0) if positions and has_watermark else None
    return Checkpoint(
        watermark=watermark,
        resume=positions[0] if positions else watermark,
        ranges=tuple(zip(positions[::2], positions[1::2], strict=False)),
        attempts={p: (draw(st.integers(0, 9)), draw(st.floats(0, 2e9))) for p in positions[1::3]},
        ended=draw(st.booleans()),
        identity=draw(st.none() | NAMES),
        application=draw(st.none() | NAMES.filter(bool)),
    )


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    """Checkpoints of any broker, of any partition, with and without pinned starts."""
    partitions = draw(st.lists(st.tuples(NAMES, NAMES), unique=True, max_size=6))
    found = [draw(entry_of(Partition(*names))) for names in partitions]
    pinned = draw(st.lists(NAMES, unique=True, max_size=2))
    return [Entry("", GROUP, stream, None, draw(NAMES)) for stream in pinned] + found


@st.composite
def entry_of(draw: st.DrawFn, partition: Partition) -> Entry:
    """A checkpoint of one partition."""
    broker = draw(st.sampled_from(sorted(MAKERS)))
    checkpoint = draw(checkpoints(MAKERS[broker][0]))
    return entry(checkpoint, partition, broker=broker)


def entry(
    checkpoint: Checkpoint,
    partition: Partition = FIRST,
    *,
    broker: str = "kafka",
    group: str = GROUP,
) -> Entry:
    """A checkpoint on its way."""
    text, _ = encode_checkpoint(
        checkpoint, broker=broker, partition=partition, encode_position=MAKERS[broker][1]
    )
    return Entry("here", group, *partition, text)


@asynccontextmanager
async def opened(store: CheckpointStore) -> AsyncIterator[CheckpointStore]:
    """Opens and closes it."""
    await store.open()
    try:
        yield store
    finally:
        await store.aclose()


async def own(
    store: CheckpointStore, *found: Entry, fence: int | None = None
) -> Sequence[Assignment]:
    """A consumer claims the partitions and saves the checkpoints."""
    claims = {Assignment(e.partition, n, fence): e for n, e in enumerate(found)}
    for group in {e.group for e in found}:
        mine = {a: e for a, e in claims.items() if e.group == group}
        await store.claim(group, list(mine))
        outcomes = await store.save(group, [StoreItem(a, e.text) for a, e in mine.items()])
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.DURABLE}
    return list(claims)


async def exported(store: CheckpointStore, group: str = GROUP, stream: str | None = None) -> bytes:
    """What an export writes."""
    lines = [line async for line in export_checkpoints(store, group, stream=stream)]
    return "".join(lines).encode()


def file_of(data: bytes) -> CheckpointFile:
    """A file with these lines."""
    return CheckpointFile(io.BytesIO(data))


async def stored(
    store: CheckpointStore, partitions: Iterable[Partition], group: str = GROUP
) -> list[str | None]:
    """The texts."""
    wanted = list(partitions)
    texts = await store.peek(group, wanted)
    return [texts[partition] for partition in wanted]


def resigned(text: str, **fields: object) -> str:
    """A checkpoint with other fields, and a checksum that is right all the same."""
    body = json.loads(text) | fields
    del body["crc32"]
    return sign(body)


def replace_text(found: Entry, text: str) -> Entry:
    """The entry with another text."""
    return found._replace(text=text)
