"""The feed's file work: races, refusals and failing disks."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Message
from consumer_sdk.spark_bridge.errors import FeedFormatError, TransientFeedError
from consumer_sdk.spark_bridge.feed.files import PosixFiles
from consumer_sdk.spark_bridge.feed.segments import place_text
from consumer_sdk.spark_bridge.feed.writer import FeedWriter
from tests.spark_bridge.feeding import litter, manifests, messages, offsets, rows, segment_names

Make = Callable[[], FeedWriter]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Opens writers of one directory, closed at the end."""
    writers: list[FeedWriter] = []

    def opened() -> FeedWriter:
        writer = FeedWriter(PosixFiles(tmp_path))
        writers.append(writer)
        writer.open()
        return writer

    yield opened
    for writer in writers:
        writer.close()


def test_of_two_writers_the_slower_drops_what_the_faster_stored(make: Make, tmp_path: Path) -> None:
    """Overlapping records are there once, and the superseded segment is deleted."""
    fast, slow = make(), make()
    fast.commit([messages(0, 9)])
    slow.commit([messages(5, 14)])
    assert offsets(tmp_path) == list(range(15))
    assert manifests(tmp_path)[1].ranges == {"orders/0": [(10, 14)]}
    assert len(segment_names(tmp_path)) == 2
    assert slow.dropped == 5


def test_a_lost_race_without_overlap_keeps_its_segment(make: Make, tmp_path: Path) -> None:
    """Nothing is written twice when only the number was lost."""
    fast, slow = make(), make()
    fast.commit([messages(0, 9)])
    slow.commit([messages(20, 29)])
    assert [found.rows for found in manifests(tmp_path)] == [10, 10]
    assert (slow.written, slow.dropped) == (10, 0)


def test_a_lost_race_with_nothing_left_stores_nothing(make: Make, tmp_path: Path) -> None:
    """Records that another writer has stored are durable: the call succeeds."""
    fast, slow = make(), make()
    fast.commit([messages(0, 9)])
    assert slow.commit([messages(3, 6)]) == [None]
    assert offsets(tmp_path) == list(range(10))
    assert len(segment_names(tmp_path)) == 1


def test_a_record_fed_again_is_dropped_after_a_restart(make: Make, tmp_path: Path) -> None:
    """A new writer knows what the directory holds, for offsets and for text positions."""
    shard = messages(0, 4, partition="shard-1", stream="clicks")
    for message in shard:
        message.position = (message.position, 0)
    make().commit([messages(0, 9), shard])
    make().commit([messages(8, 11), shard])
    assert offsets_of(tmp_path, "0") == [str(at) for at in range(12)]
    assert offsets_of(tmp_path, "shard-1") == [f"{at}:0" for at in range(5)]


def offsets_of(directory: Path, partition: str) -> list[str]:
    """The text positions of one partition, in feed order."""
    return [row["position"] for row in rows(directory) if row["partitionId"] == partition]


def test_out_of_order_positions_are_several_ranges(make: Make, tmp_path: Path) -> None:
    """Handlers finish out of order: the manifest names exactly what is there."""
    make().commit([messages(5, 6), messages(0, 1), messages(3, 3)])
    assert manifests(tmp_path)[0].ranges == {"orders/0": [(0, 1), (3, 3), (5, 6)]}


def test_the_same_record_twice_in_a_group_is_stored_once(make: Make, tmp_path: Path) -> None:
    """A redelivery beside its first delivery is one row."""
    assert make().commit([messages(0, 4), messages(2, 6)]) == [None, None]
    assert offsets(tmp_path) == list(range(7))


def test_one_bad_record_fails_its_own_entry_only(make: Make, tmp_path: Path) -> None:
    """A record that does not fit is named, and its neighbours in the group are stored."""
    bad = messages(3, 3)
    bad[0].timestamp = 2**62
    faults = make().commit([messages(0, 2), bad, messages(4, 5)])
    assert [fault is None for fault in faults] == [True, False, True]
    assert "orders/0@3" in str(faults[1])
    assert offsets(tmp_path) == [0, 1, 2, 4, 5]
    assert not litter(tmp_path) - {path.name for path in (tmp_path / "writers").iterdir()}


class FailingDisk:
    """Refuses call number ``nth`` of the functions that write."""

    def __init__(self, patch: pytest.MonkeyPatch, nth: int, *, after: bool) -> None:
        self.left = nth
        self.after = after
        for name in ("write", "fsync", "link"):
            patch.setattr(os, name, self.wrap(getattr(os, name)))

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` that may fail before, or after, it has done its work."""

        def call(*args: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self.after:
                raise OSError(errno.ENOSPC, "no space")
            result = function(*args)
            if self.left == 0:
                raise OSError(errno.EIO, "lost the answer")
            return result

        return call


@pytest.mark.parametrize("after", [False, True], ids=["refused", "done but reported as failed"])
@pytest.mark.parametrize("nth", range(1, 8))
def test_a_write_that_fails_anywhere_can_be_tried_again(
    make: Make, tmp_path: Path, nth: int, *, after: bool
) -> None:
    """Trap 23, disk full: a typed transient error, no half segment, and each record once."""
    writer = make()
    writer.commit([messages(0, 9)])
    with pytest.MonkeyPatch.context() as patch:
        disk = FailingDisk(patch, nth, after=after)
        with pytest.raises(TransientFeedError) as caught:
            writer.commit([messages(5, 14)])
        assert disk.left == 0
    assert isinstance(caught.value.__cause__, OSError)
    assert not litter(tmp_path) - {path.name for path in (tmp_path / "writers").iterdir()}
    writer.commit([messages(5, 14)])
    assert offsets(tmp_path) == list(range(15))


def test_records_found_but_not_yet_synced_are_not_acknowledged(make: Make, tmp_path: Path) -> None:
    """Another writer's records count once their manifest is durable, also after a failed sync."""
    fast, slow = make(), make()
    fast.commit([messages(0, 9)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", refuse_directories(os.fsync, tmp_path / "manifests"))
        for _ in range(2):
            with pytest.raises(TransientFeedError):
                slow.commit([messages(0, 9)])
    slow.commit([messages(0, 9)])
    assert offsets(tmp_path) == list(range(10))


def refuse_directories(function: Callable[[int], None], folder: Path) -> Callable[[int], None]:
    """An fsync that fails for one folder."""

    def call(handle: int) -> None:
        if os.path.samestat(os.fstat(handle), folder.stat()):
            raise OSError(errno.EIO, "no sync")
        function(handle)

    return call


def test_a_damaged_manifest_stops_the_writer_at_start(make: Make, tmp_path: Path) -> None:
    """A writer that cannot know what is stored refuses to add to it, and holds nothing."""
    make().commit([messages(0, 9)])
    path = next((tmp_path / "manifests").iterdir())
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FeedFormatError, match=path.name):
        make()


def test_positions_without_a_text_form_ask_for_one() -> None:
    """An adapter's own position type needs its encoder."""
    assert place_text((49_61, 0)) == "4961:0"
    with pytest.raises(ConfigurationError, match=r"encode_position=adapter\.encode_position"):
        place_text(object())


def test_a_position_beyond_64_bits_is_kept_as_text(make: Make, tmp_path: Path) -> None:
    """A Kinesis sequence number as an integer does not fit Spark's long: its text does."""
    message: Message = messages(0, 0)[0]
    message.position = 2**100
    make().commit([[message]])
    assert [(row["offset"], row["position"]) for row in rows(tmp_path)] == [(None, str(2**100))]
