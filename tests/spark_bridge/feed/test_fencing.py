"""A writer that is stopped (SIGSTOP) while others take its partitions over."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from consumer_sdk.spark_bridge.feed.files import PosixFiles
from consumer_sdk.spark_bridge.feed.reader_marks import ReaderMark
from consumer_sdk.spark_bridge.feed.writer import FeedWriter, Retention
from tests.spark_bridge.feeding import close, feeder, go, manifests, messages, offsets


def stop_in_a_step(process: subprocess.Popen[str]) -> None:
    """Stops a feeder in its sixth step, or behind it: no quick one gets further meanwhile."""
    steps = go(process, 6)
    for _ in range(5):
        next(steps)
    os.kill(process.pid, signal.SIGSTOP)


@pytest.mark.campaign
def test_a_stopped_process_adds_nothing_twice_when_it_goes_on(tmp_path: Path) -> None:
    """Trap 23, two pumps: its records were fed by another one meanwhile; each is there once."""
    sleeper = feeder(tmp_path, 0, 999, 20)
    stop_in_a_step(sleeper)
    before = manifests(tmp_path)
    other = feeder(tmp_path, 0, 799, 200)
    assert len(list(go(other))) == 4
    assert close(other) == 0
    assert set(range(800)) <= set(offsets(tmp_path))
    os.kill(sleeper.pid, signal.SIGCONT)
    list(go(sleeper))
    assert close(sleeper) == 0
    assert offsets(tmp_path) == list(range(1000))
    after = manifests(tmp_path)
    assert after[: len(before)] == before
    assert [found.number for found in after] == list(range(len(after)))


def test_a_stopped_process_goes_on_above_what_was_deleted_meanwhile(tmp_path: Path) -> None:
    """The names of deleted manifests are free again: what it adds there would never be read."""
    sleeper = feeder(tmp_path, 0, 999, 20)
    stop_in_a_step(sleeper)
    floor = delete_all(tmp_path, 800)
    os.kill(sleeper.pid, signal.SIGCONT)
    list(go(sleeper))
    assert close(sleeper) == 0
    assert manifests(tmp_path)[0].number == floor
    assert offsets(tmp_path) == list(range(800, 1000))


def delete_all(directory: Path, count: int) -> int:
    """Feeds everything below ``count`` and deletes it all; returns the first number to come."""
    writer = FeedWriter(PosixFiles(directory), retention=Retention(segments=0.0))
    writer.open()
    for first in range(0, count, 100):
        writer.commit([messages(first, first + 99)])
    end = manifests(directory)[-1].number + 1
    ReaderMark(PosixFiles(directory), "query").move(end)
    writer.collect_garbage()
    assert manifests(directory) == []
    writer.close()
    return end


def test_a_manifest_says_who_wrote_it(tmp_path: Path) -> None:
    """Writer, when it was opened by the log's own count, and which of its attempts it was."""
    files = PosixFiles(tmp_path)
    first, second = FeedWriter(files), FeedWriter(files)
    first.open()
    first.commit([messages(0, 9)])
    second.open()
    second.commit([messages(10, 19)])
    first.commit([messages(20, 29)])
    one, two, three = [found.writer for found in manifests(tmp_path)]
    assert one.name == three.name != two.name
    assert (one.epoch, two.epoch, three.epoch) == (0, 1, 0)
    assert one.serial < three.serial
    for writer in (first, second):
        writer.close()
