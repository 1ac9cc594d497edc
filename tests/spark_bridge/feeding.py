"""What the tests feed, what a feed directory then holds, and a process that feeds.

``python -m tests.spark_bridge.feeding DIRECTORY FIRST LAST STEP`` says "ready", and feeds the records
FIRST..LAST in steps. Before each it waits for a line, or for the end of its input; it prints a line for
each step that is durable.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from consumer_sdk.records import Assignment, Message, Partition
from consumer_sdk.spark_bridge import SparkFeed
from consumer_sdk.spark_bridge.feed.files import Files, PosixFiles
from consumer_sdk.spark_bridge.feed.manifest_log import SEGMENTS, ManifestLog
from consumer_sdk.spark_bridge.feed.manifests import Manifest
from consumer_sdk.spark_bridge.feed.segments import SegmentFile, read_segments

ROOT = Path(__file__).parents[2]


def messages(
    first: int, last: int, *, partition: str = "0", stream: str = "orders"
) -> list[Message]:
    """The records ``first..last``, inclusive, of one partition."""
    assignment = Assignment(Partition(stream, partition), 1)
    return [
        Message.make(assignment, at, b"value %d" % at, key=b"key %d" % at, timestamp=1000 + at)
        for at in range(first, last + 1)
    ]


def files_of(place: Path | Files) -> Files:
    """The files of a feed in a local directory, or anywhere."""
    return PosixFiles(place) if isinstance(place, Path) else place


def manifests(place: Path | Files) -> list[Manifest]:
    """Every committed manifest whose segment is kept."""
    log = ManifestLog(files_of(place))
    return list(log.news(log.floor()))


def rows(place: Path | Files) -> list[dict[str, Any]]:
    """Every row that a reader of the directory sees."""
    segments = [SegmentFile.of(manifest) for manifest in manifests(place)]
    batches = read_segments(files_of(place), segments)
    return [row for batch in batches for row in batch.to_pylist()]


def offsets(place: Path | Files) -> list[int]:
    """The sorted offsets of every row; a record that is there twice is here twice."""
    return sorted(row["offset"] for row in rows(place))


def litter(directory: Path) -> set[str]:
    """Files that no manifest accounts for."""
    found = manifests(directory)
    committed = {manifest.segment for manifest in found}
    committed |= {f"{manifest.number:010d}.json" for manifest in found}
    return {path.name for path in directory.rglob("*") if path.is_file()} - committed


def segment_names(place: Path | Files) -> set[str]:
    """The names of the segment files that are there."""
    return set(files_of(place).names(SEGMENTS))


def feeder(directory: Path, first: int, last: int, step: int) -> subprocess.Popen[str]:
    """A process that feeds; it is ready, and waits for `go`."""
    command = [sys.executable, "-m", __name__, str(directory), str(first), str(last), str(step)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen[str], steps: int | None = None) -> Iterator[str]:
    """Lets a feeder take so many steps, or all that are left; yields its lines, one for each."""
    assert process.stdin is not None
    assert process.stdout is not None
    if steps is None:
        process.stdin.close()
    else:
        process.stdin.write("go\n" * steps)
        process.stdin.flush()
    return iter(process.stdout)


def close(process: subprocess.Popen[str]) -> int:
    """Waits for a feeder's end and closes its pipes."""
    with process:
        return process.wait()


async def _feed(directory: str, first: int, last: int, step: int) -> None:
    async with SparkFeed(directory, max_wait=0.0, max_rows=max(1, step // 2)) as feed:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for at in range(first, last + 1, step):
            sys.stdin.readline()
            await feed.write(messages(at, min(at + step - 1, last)))
            sys.stdout.write(f"{at}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_feed(sys.argv[1], *map(int, sys.argv[2:])))
