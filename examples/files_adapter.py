"""An adapter of your own: a directory is a stream, and each ``*.log`` file in it is a partition.

python examples/files_adapter.py DIRECTORY --store files.db

A record is a line, and its position is the offset of its first byte. A line may begin with its time in
milliseconds and a blank. All of `Consumer` works on it: retries, dead letters, order, checkpoints.
``tests/examples/test_files_adapter.py`` runs the conformance suite. Begin your own adapter with that.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import ClassVar

from consumer_sdk import (
    AtPosition,
    AtTime,
    ConfigurationError,
    Consumer,
    Message,
    Partition,
    PositionOutOfRangeError,
)
from consumer_sdk.abc import Adapter, AssignmentOwner, LeaseSource
from consumer_sdk.errors import (
    CheckpointFormatError,
    TransientAdapterError,
    TransientStoreError,
)
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Capabilities,
    Committed,
    Outcome,
    OutcomeKind,
    Position,
    Run,
    Start,
    StartPoint,
)
from consumer_sdk.stores import LocalStore

POLL = 0.02
"""Seconds between looks for new lines."""
DISCOVERY = 0.5
"""Seconds between looks for new files; also before a grant that failed is tried again."""
CLOSE_PATIENCE = 5.0
"""Seconds that the runtime has for what is in flight, when the adapter is closed."""
LONGEST_POSITION = 19


class File:
    """An assigned file, and the position up to which it was fetched."""

    def __init__(self, path: Path, position: int) -> None:
        self.path = path
        self.position = position
        self.is_paused = False

    def take(self, assignment: Assignment, max_records: int, max_bytes: int) -> Run:
        """The next lines, or a fault if the file ends before the position."""
        if self.position > self.path.stat().st_size:
            self.is_paused = True
            text = f"{self.path} has no position {self.position}: it was cut"
            return Run(assignment, fault=PositionOutOfRangeError(text))
        run = Run(assignment, next_position=self.position, ascends=True)
        for position, line in lines(self.path, self.position):
            if len(run.messages) >= max_records or run.size >= max_bytes:
                break
            time, value = split(line)
            run.messages.append(Message.make(assignment, position, value, timestamp=time))
            run.size += len(line)
            run.next_position = self.position = position + len(line)
        return run


class FilesAdapter(Adapter):
    """Reads all files of a directory. A store keeps the positions, under the group's name."""

    broker: ClassVar[str] = "files"
    capabilities = Capabilities(commits=False, lag_unit=None)

    def __init__(self, directory: Path, *, group: str = "files") -> None:
        self.group = group
        self._directory = directory
        self._held: dict[Assignment, File] = {}
        self._paused: set[Assignment] = set()
        self._epochs = count(1)
        self._error: Exception | None = None
        self._granting: asyncio.Task[None] | None = None

    # -- assignments --------------------------------------------------------------------------

    async def open(self, owner: AssignmentOwner, leases: LeaseSource | None = None) -> None:  # noqa: ARG002 - one consumer has all files
        """Checks the directory, and begins to assign its files to the owner."""
        if not self._directory.is_dir():
            raise ConfigurationError(f"{self._directory} is no directory: make it, or name another")
        self._owner = owner
        self._granting = asyncio.create_task(self._grant_all())

    async def run(self) -> None:
        """Waits for the task that assigns files; raises its error, if it ends with one."""
        if self._granting is not None:
            await asyncio.wait({self._granting})
            if not self._granting.cancelled():
                self._granting.result()

    async def _grant_all(self) -> None:
        first = set(self._names())
        while True:
            held = {assignment.partition.id for assignment in self._held}
            missing = [name for name in self._names() if name not in held]
            try:
                await self._grant(
                    [
                        Assignment(
                            self._partition(n), next(self._epochs), discovered=n not in first
                        )
                        for n in missing
                    ]
                )
            except (TransientAdapterError, TransientStoreError):
                pass  # tried again
            except Exception as error:  # noqa: BLE001 - tried again, but the next fetch tells of it
                self._error = error
            await asyncio.sleep(DISCOVERY)

    async def _grant(self, assignments: Sequence[Assignment]) -> None:
        """Asks the owner for the starts. A file that the owner leaves out is not read, and offered again."""
        starts = await self._owner.assigned(assignments) if assignments else {}
        for assignment, start in starts.items():
            path = self._path(assignment.partition)
            position = place(path, start)
            file = File(path, end(path) if position is None else position)
            file.is_paused = assignment in self._paused
            self._held[assignment] = file
        self._paused.clear()

    def drop(self, assignment: Assignment) -> None:
        """Stops reading a partition, which is assigned again later, under a new epoch."""
        self._held.pop(assignment, None)

    async def aclose(self) -> None:
        """Lets the owner finish its records, and then revokes all partitions."""
        if self._granting is None:
            return
        self._granting.cancel()
        await asyncio.wait({self._granting})
        held, self._held = list(self._held), {}
        if held:
            deadline = asyncio.get_running_loop().time() + CLOSE_PATIENCE
            await self._owner.revoked(held, deadline=deadline)

    # -- records ------------------------------------------------------------------------------

    async def fetch(self, *, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        """Returns new lines. It takes them without another await, so a cancel loses none."""
        loop = asyncio.get_running_loop()
        until = loop.time() + max_wait
        while True:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            runs = list(self._take(max_records, max_bytes))
            left = until - loop.time()
            if runs or left <= 0:
                return runs
            await asyncio.sleep(min(POLL, left))

    def _take(self, max_records: int, max_bytes: int) -> Iterator[Run]:
        for assignment, file in self._held.items():
            if max_records > 0 and max_bytes > 0 and not file.is_paused:
                run = file.take(assignment, max_records, max_bytes)
                max_records -= len(run.messages)
                max_bytes -= run.size
                if run.messages or run.fault:
                    yield run

    def pause(self, assignment: Assignment) -> None:
        """Pauses a partition, which keeps its position. The owner may call this while it chooses a start."""
        if assignment in self._held:
            self._held[assignment].is_paused = True
        else:
            self._paused.add(assignment)

    def resume(self, assignment: Assignment) -> None:
        """Resumes a partition, also after a fault."""
        if assignment in self._held:
            self._held[assignment].is_paused = False

    # -- positions ----------------------------------------------------------------------------

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Does nothing: the store keeps the group's positions, files do not."""
        return [Outcome(OutcomeKind.SENT) for _ in flushes]

    async def committed(
        self, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, Committed | None]:
        """Returns no positions: the store keeps them."""
        return dict.fromkeys(assignments)

    async def positions(
        self, assignments: Sequence[Assignment], at: Start
    ) -> Mapping[Assignment, Position | None]:
        """The positions of a start as of now."""
        return {each: place(self._path(each.partition), at) for each in assignments}

    async def partitions(self, stream: str) -> Sequence[Partition]:
        """The files, if the stream is this directory."""
        is_ours = stream == str(self._directory)
        return [self._partition(name) for name in self._names()] if is_ours else []

    async def lag(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, int | None]:
        """Returns None: lines are not counted."""
        return dict.fromkeys(assignments)

    def identity(self, assignment: Assignment) -> str | None:
        """The file's inode number: another file at the same path has another checkpoint."""
        return str(self._path(assignment.partition).stat().st_ino)

    def encode_position(self, position: Position) -> str:
        """Writes decimal digits."""
        return str(position)

    def decode_position(self, text: str) -> Position:
        """Reads decimal digits, and refuses any other text."""
        if text.isascii() and text.isdigit() and len(text) <= LONGEST_POSITION:
            return int(text)
        raise CheckpointFormatError(f"{text[:80]!r} is no position in a file")

    def _names(self) -> list[str]:
        return sorted(path.stem for path in self._directory.glob("*.log"))

    def _partition(self, name: str) -> Partition:
        return Partition(str(self._directory), name)

    def _path(self, partition: Partition) -> Path:
        return self._directory / f"{partition.id}.log"


def lines(path: Path, position: int = 0) -> Iterator[tuple[int, bytes]]:
    """The whole lines from ``position`` on, without a last line that is still being written."""
    with path.open("rb") as file:
        file.seek(position)
        for line in file:
            if line.endswith(b"\n"):
                yield position, line
                position += len(line)


def split(line: bytes) -> tuple[int | None, bytes]:
    """A line's time and its value; without a time at its start, the whole line is the value."""
    time, blank, value = line.rstrip(b"\n").partition(b" ")
    return (int(time), value) if blank and time.isdigit() else (None, time + blank + value)


def end(path: Path) -> int:
    """The position where the next line begins."""
    return path.read_bytes().rfind(b"\n") + 1


def place(path: Path, at: Start) -> int | None:
    """The position of a start; None if no line is that new."""
    if isinstance(at, AtPosition):
        position: int = at.position
        return position
    if isinstance(at, AtTime):
        times = ((position, split(line)[0] or 0) for position, line in lines(path))
        return next((position for position, time in times if time >= at.time * 1000), None)
    return end(path) if at is StartPoint.LATEST else 0


async def main() -> None:
    """Reads the command line and consumes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--store", default="files.db", help="the SQLite file of the checkpoints")
    options = parser.parse_args()

    async def show(message: Message) -> None:
        print(f"{message.partition.id} {(message.value or b'').decode()}", flush=True)

    await Consumer(FilesAdapter(options.directory), store=LocalStore(options.store)).run(show)


if __name__ == "__main__":
    asyncio.run(main())
