"""Partitions that move between the writers of one feed, some of whom do not know it."""

from __future__ import annotations

import random
import uuid
from collections import defaultdict

import fsspec
import pytest

from consumer_sdk.records import Assignment, Message, Partition
from consumer_sdk.spark_bridge.feed.files import Files
from consumer_sdk.spark_bridge.feed.fsspec_files import files_on
from consumer_sdk.spark_bridge.feed.writer import FeedWriter
from tests.spark_bridge.feeding import rows

PARTITIONS = ("0", "1", "words")


class Member:
    """A consumer that puts each partition's records in order, from where it was granted it."""

    def __init__(self, files: Files) -> None:
        self.writer = FeedWriter(files)
        self.writer.open()
        self.at: dict[str, int] = {}

    def put(self, counts: dict[str, int]) -> None:
        """The next records of its partitions, also of those that others have by now."""
        batch: list[Message] = []
        for partition, count in counts.items():
            if partition in self.at:
                first = self.at[partition]
                batch += records(partition, first, count)
                self.at[partition] = first + count
        self.writer.commit([batch])


def records(partition: str, first: int, count: int) -> list[Message]:
    """So many records, with positions that are numbers or words."""
    assignment = Assignment(Partition("s", partition), 1)
    return [
        Message.make(assignment, f"w{at}" if partition == "words" else at, b"%d" % at)
        for at in range(first, first + count)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_each_partition_is_once_and_in_order_whoever_writes_it(seed: int) -> None:
    """A new owner starts at or below what is stored; the one before may go on for as long as it likes."""
    chance = random.Random(seed)
    files = files_on(fsspec.filesystem("memory"), f"/feed-{uuid.uuid4().hex}")
    members = [Member(files) for _ in range(3)]
    for _ in range(60):
        member = chance.choice(members)
        if chance.random() < 0.1:  # killed, and another process in its place
            members[members.index(member)] = member = Member(files)
        if chance.random() < 0.3:
            partition = chance.choice(PARTITIONS)
            stored = len(of(files)[partition])
            member.at[partition] = max(0, stored - chance.randrange(10))
        member.put({each: chance.randrange(1, 8) for each in PARTITIONS})
    found = of(files)
    assert {partition: list(range(len(found[partition]))) for partition in PARTITIONS} == found
    assert sum(map(len, found.values())) > 100


def of(files: Files) -> defaultdict[str, list[int]]:
    """The values of each partition, in the order of the feed."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for row in rows(files):
        found[row["partitionId"]].append(int(row["value"]))
    return found
