"""The pictures of docs/concepts.md, for scripts/pictures.py.

The numbers of the first one are those of a real tracker, which has settled the records that the picture shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from drawing import Place, arrow, bracket, cell, label, rect, svg

from consumer_sdk import Message, Partition, WatermarkTracker
from consumer_sdk.records import Assignment, Checkpoint, Run

WIDTH, MARGIN = 720, 16
SIZE = 12
"""Of the text, in pixels."""
CELL, ROW = 44, 30
OFFSETS = range(40, 52)
SETTLED = (40, 41, 42, 43, 45, 46, 48, 49)
LEFT = 142
"""Where cells begin, behind the name of their row."""


def concepts() -> dict[str, str]:
    """Returns each picture by its name."""
    return {
        "watermark": watermark(),
        "lanes": lanes(),
        "ranges": ranges(),
        "leases": leases(),
        "feed": feed(),
    }


def _picture(high: float, parts: Iterator[str], title: str) -> str:
    return svg(WIDTH, high, parts, size=SIZE, title=title)


# -- watermark, holes, settled ranges ---------------------------------------------------------


def watermark() -> str:
    """Returns a partition before and after a restart, with its checkpoint between the two."""
    return _picture(254, _watermark(checkpoint()), "Watermark, holes and settled ranges")


def checkpoint() -> Checkpoint:
    """Returns what a tracker says once these records are settled."""
    assignment = Assignment(Partition("orders", "0"), epoch=1)
    tracker = WatermarkTracker(assignment)
    run = Run(assignment, [Message.make(assignment, offset, b"") for offset in OFFSETS])
    tracker.track(run, 0.0).bind(run.messages)
    for offset in SETTLED:
        tracker.ack(run.messages[offset - OFFSETS[0]].index)
    return tracker.checkpoint(0.0, 0.0)


def _watermark(found: Checkpoint) -> Iterator[str]:
    yield label(MARGIN, 46, "in flight", "name")
    for offset in OFFSETS:
        yield cell(_at(offset, 26), str(offset), "settled" if offset in SETTLED else "open")
    yield bracket(_left(OFFSETS[0]), _left(_mark(found) + 1) - 4, 68)
    yield label(_left(OFFSETS[0]), 84, f"watermark {found.watermark}")
    for hole in _holes(found):
        yield label(_left(hole) + CELL / 2, 18, "hole", "middle")
    for first, last in found.ranges:
        yield bracket(_left(first), _left(last + 1) - 4, 68)
        yield label((_left(first) + _left(last + 1) - 4) / 2, 84, "range", "middle")
    yield label(_left(50), 84, "still open", "faint")
    yield arrow(_left(46), 92, _left(46), 112)
    yield rect((LEFT, 114, 12 * CELL - 4, 34))
    yield label(MARGIN, 136, "checkpoint", "name")
    spans = ", ".join(f"{first} to {last}" for first, last in found.ranges)
    yield label(LEFT + 12, 136, f"watermark {found.watermark}, settled ranges {spans}, attempts")
    yield arrow(_left(46), 150, _left(46), 170)
    yield label(MARGIN, 194, "after a restart", "name")
    for offset in OFFSETS:
        again = offset not in SETTLED
        yield cell(_at(offset, 174), str(offset), "open" if again else "outside")
    yield label(LEFT, 222, f"Only {_listed()} are delivered again.")
    yield from _legend(
        242, (("settled", "settled"), ("open", "not settled"), ("outside", "skipped"))
    )


def _mark(found: Checkpoint) -> int:
    """Its watermark: a number, as all positions of Kafka are."""
    return cast("int", found.watermark)


def _holes(found: Checkpoint) -> Iterator[int]:
    """The unsettled records below a settled one."""
    before = _mark(found)
    for first, last in found.ranges:
        yield from range(before + 1, first)
        before = last


def _listed() -> str:
    *some, last = (str(offset) for offset in OFFSETS if offset not in SETTLED)
    return f"{', '.join(some)} and {last}"


def _left(offset: int) -> float:
    return LEFT + (offset - OFFSETS[0]) * CELL


def _at(offset: int, top: float) -> Place:
    return (_left(offset), top, CELL - 4, ROW)


def _legend(line: float, entries: tuple[tuple[str, str], ...]) -> Iterator[str]:
    left: float = LEFT
    for kind, text in entries:
        yield rect((left, line - 10, 18, 12), kind)
        yield label(left + 24, line, text, "faint")
        left += 44 + 8 * len(text)


# -- lanes ------------------------------------------------------------------------------------


def lanes() -> str:
    """Returns a partition's records in the lanes of their keys."""
    return _picture(214, _lanes(), "Lanes: the records of a key run one after another")


def _lanes() -> Iterator[str]:
    yield label(MARGIN, 20, "fetched from the partition", "faint")
    records = ("ann 1", "bob 1", "ann 2", "cat 1", "bob 2", "ann 3")
    for number, text in enumerate(records):
        yield cell((MARGIN + number * 64, 28, 58, ROW), text)
    yield arrow(MARGIN + 180, 62, MARGIN + 180, 84)
    rows = (
        ("ann", (("ann 1", "open"), ("ann 2", "outside"), ("ann 3", "outside"))),
        ("bob", (("bob 1", "settled"), ("bob 2", "outside"))),
        ("cat", (("cat 1", "settled"),)),
    )
    says = (
        "has failed and waits for its retry: ann's later records wait too",
        "runs in a handler; bob 2 follows when it is settled",
        "runs in a handler",
    )
    for row, ((key, cells), text) in enumerate(zip(rows, says, strict=True)):
        top = 88 + row * 36
        yield label(MARGIN, top + 20, key, "name")
        for number, (record, kind) in enumerate(cells):
            yield cell((66 + number * 64, top, 58, ROW), record, kind)
        yield label(264, top + 19, f"{cells[0][0]} {text}")
    entries = (("settled", "in a handler"), ("open", "waits for a retry"), ("outside", "queued"))
    yield from _legend(206, entries)


# -- ranges -----------------------------------------------------------------------------------


def ranges() -> str:
    """Returns two partitions, cut into the ranges of micro-batches."""
    return _picture(190, _ranges(), "Ranges: what each micro-batch of Spark reads")


def _ranges() -> Iterator[str]:
    batches = ((150, 150, "settled"), (300, 190, "open"), (490, 90, "outside"))
    for left, wide, text in ((150, 150, "micro-batch 7"), (300, 190, "micro-batch 8")):
        yield label(left + wide / 2, 20, text, "middle name")
    yield label(535, 20, "not planned yet", "middle faint")
    for row, (name, texts) in enumerate(
        (
            ("orders/0", ("offsets 100 to 199", "offsets 200 to 420", "421 …")),
            ("orders/1", ("offsets 80 to 149", "offsets 150 to 377", "378 …")),
        )
    ):
        top = 30 + row * 40
        yield label(MARGIN, top + 20, name, "name")
        for (left, wide, kind), text in zip(batches, texts, strict=True):
            yield cell((left + 2, top, wide - 4, ROW), text, kind)
    yield arrow(300, 140, 300, 106)
    yield label(150, 156, "the group's offset: the end of what Spark has committed")
    entries = (("settled", "committed by Spark"), ("open", "running, may run again as it is"))
    yield from _legend(180, entries)


# -- leases -----------------------------------------------------------------------------------


def leases() -> str:
    """Returns the leases of four shards, and what becomes of a late write."""
    return _picture(244, _leases(), "Leases: who reads which shard")


def _leases() -> Iterator[str]:
    yield label(MARGIN, 20, "store", "name")
    for number, (shard, member, fence) in enumerate(
        (("shard-0", "A", 4), ("shard-1", "A", 2), ("shard-2", "B", 7), ("shard-3", "B", 3))
    ):
        left = 92 + number * 156
        yield rect((left, 8, 144, 48))
        yield label(left + 10, 28, shard, "name")
        yield label(left + 10, 46, f"held by {member}, fence {fence}")
        yield arrow(left + 72, 92, left + 72, 60)
    yield label(92, 80, "renewed", "faint")
    yield cell((92, 94, 300, ROW), "member A reads shard-0 and shard-1")
    yield cell((404, 94, 300, ROW), "member B reads shard-2 and shard-3")
    yield label(MARGIN, 158, "B has joined", "name")
    yield label(150, 158, "A finishes the records of shard-2, flushes, and releases the lease.")
    yield label(150, 176, "B takes it: the fence goes from 6 to 7. B starts at A's checkpoint.")
    yield label(MARGIN, 208, "A was paused", "name")
    yield label(150, 208, "Its lease runs out, and B takes shard-2 with fence 7.")
    yield label(150, 226, "A goes on and writes with fence 6: the store refuses, as FENCED.")


# -- the feed ---------------------------------------------------------------------------------


def feed() -> str:
    """Returns consumers that write, a directory, and Spark, which reads."""
    return _picture(228, _feed(), "The feed: consumers write files, and Spark reads them")


def _feed() -> Iterator[str]:
    for number, name in enumerate(("Kafka", "Kinesis", "Pulsar")):
        top = 34 + number * 44
        yield cell((MARGIN, top, 72, ROW), name, "outside")
        yield arrow(92, top + 15, 110, top + 15)
        yield cell((112, top, 84, ROW), "consumer")
        yield arrow(200, top + 15, 248, 94)
    yield label(154, 20, "await feed.put(message)", "middle faint")
    yield rect((252, 8, 276, 172), "outside")
    yield label(264, 28, "a directory", "name")
    yield label(264, 52, "segments: Arrow files of records")
    for number, kind in enumerate(("settled", "settled", "settled", "open")):
        left = 264 + number * 62
        yield cell((left, 60, 54, ROW), "…arrow", kind)
        yield cell((left, 122, 54, ROW), str(number + 1), kind)
        yield arrow(left + 27, 120, left + 27, 92)
    yield label(264, 112, "log:", "faint")
    yield label(264, 170, "manifests, numbered without a gap")
    yield arrow(532, 137, 568, 137)
    yield rect((570, 60, 134, 120))
    yield label(582, 80, "Spark", "name")
    yield label(582, 104, "micro-batch 7:")
    yield label(582, 122, "manifests 1 to 3")
    yield label(582, 146, "micro-batch 8:")
    yield label(582, 164, "from manifest 4")
    yield label(252, 198, "put returns when the record's manifest is durable.")
    entries = (("settled", "read by Spark"), ("open", "next"))
    yield from _legend(218, entries)
