"""The example of an adapter of one's own keeps the contract, and works in a consumer."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from consumer_sdk.abc import Adapter
from consumer_sdk.records import Position
from consumer_sdk.testing.conformance.adapters import (
    AdapterHarness,
    Record,
    StandaloneLogSuite,
)
from consumer_sdk.testing.conformance.adapters.harness import Ability
from examples.files_adapter import FilesAdapter, end
from tests.examples.running import example, lines


class FilesHarness(AdapterHarness):
    """Directories of empty files, to which lines are appended."""

    abilities: ClassVar[frozenset[Ability]] = frozenset({"grow"})
    shares_partitions = False
    faithful = (Record(b"a text", timestamp=1_600_000_000_001), Record(b"", timestamp=1))

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made = 0

    async def create_stream(self, partitions: int = 1) -> str:
        self._made += 1
        stream = self._root / f"stream-{self._made}"
        stream.mkdir()
        await self.grow(str(stream), partitions)
        return str(stream)

    def make_adapter(self, stream: str, group: str, **options: Any) -> Adapter:
        return FilesAdapter(Path(stream), group=group, **options)

    async def append(
        self, stream: str, records: Sequence[Record], partition: int = 0
    ) -> list[Position]:
        path = Path(stream) / f"{partition}.log"
        places = []
        for record in records:
            stamp = record.timestamp or int(time.time() * 1000)
            places.append(end(path))
            with path.open("ab") as file:
                file.write(b"%d %s\n" % (stamp, record.value))
        return places

    async def grow(self, stream: str, total: int) -> None:
        for number in range(total):
            (Path(stream) / f"{number}.log").touch()


class TestFilesAdapter(StandaloneLogSuite):
    """One consumer reads all files."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> AdapterHarness:
        """A directory for directories."""
        return FilesHarness(tmp_path)


async def test_consumer_of_files_goes_on_where_it_was(tmp_path: Path) -> None:
    """The store has the position of each file; a restart handles what is new."""
    path = tmp_path / "web.log"
    path.write_text("one\n1600000000000 two\n")
    arguments = ("files_adapter.py", str(tmp_path), "--store", str(tmp_path / "files.db"))
    async with example(*arguments) as process:
        assert await lines(process, 2) == ["web one", "web two"]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    with path.open("a") as file:
        file.write("three\n")
    async with example(*arguments) as process:
        assert await lines(process, 1) == ["web three"]
