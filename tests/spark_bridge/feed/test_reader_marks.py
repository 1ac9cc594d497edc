"""What queries say about how far they are."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.errors import FeedError, FeedFormatError
from consumer_sdk.spark_bridge.feed.files import PosixFiles
from consumer_sdk.spark_bridge.feed.manifest_log import FOLDERS
from consumer_sdk.spark_bridge.feed.reader_marks import ReaderMark, check_name, read_marks


@pytest.fixture
def files(tmp_path: Path) -> PosixFiles:
    """An empty feed directory."""
    files = PosixFiles(tmp_path)
    files.prepare(FOLDERS)
    return files


def test_each_reader_says_its_number(files: PosixFiles) -> None:
    """Without readers nothing is known; each one says its number."""
    assert read_marks(files) == {}
    ReaderMark(files, "a").move(7)
    ReaderMark(files, "b").move(5)
    assert read_marks(files) == {"a": 7, "b": 5}


def test_a_restarted_query_takes_its_name_over(files: PosixFiles) -> None:
    """A reader's number may fall, when an older checkpoint was restored; the dead one is silent."""
    ReaderMark(files, "a").move(7)
    ReaderMark(files, "a").move(3)
    assert read_marks(files) == {"a": 3}


def test_of_two_queries_with_one_name_the_older_is_told(files: PosixFiles) -> None:
    """Two live queries under one name would delete each other's segments."""
    older, newer = ReaderMark(files, "a"), ReaderMark(files, "a")
    older.move(1)
    newer.move(1)
    with pytest.raises(FeedError, match="taken over the reader name 'a'"):
        older.move(2)
    newer.move(2)


def test_a_number_that_is_known_is_not_written_again(files: PosixFiles, tmp_path: Path) -> None:
    """An idle query, asked 90 times a second, costs no write."""
    mark = ReaderMark(files, "a")
    mark.move(1)
    path = tmp_path / "readers" / "a.json"
    before = path.stat().st_ino
    mark.move(1)
    assert path.stat().st_ino == before


def test_a_disk_that_refuses_does_not_fail_the_query(
    files: PosixFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Trap 5: what could not be written is written with the next number."""
    mark = ReaderMark(files, "a")
    mark.move(1)
    (tmp_path / "readers").rename(tmp_path / "away")
    with caplog.at_level(logging.WARNING):
        mark.move(2)
    assert "could not write" in caplog.text
    (tmp_path / "away").rename(tmp_path / "readers")
    assert read_marks(files) == {"a": 1}
    mark.move(2)
    assert read_marks(files) == {"a": 2}


@pytest.mark.parametrize("data", [b"", b"{}", b'{"next":1}'])
def test_a_damaged_reader_file_is_named(files: PosixFiles, tmp_path: Path, data: bytes) -> None:
    """Nobody guesses how far a query is."""
    (tmp_path / "readers" / "a.json").write_bytes(data)
    with pytest.raises(FeedFormatError, match=r"a\.json"):
        read_marks(files)


@pytest.mark.parametrize("name", ["", ".", "../up", "a/b", "-x", "a b", "x" * 65])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    """Names become files."""
    with pytest.raises(ConfigurationError, match="up to 64 letters"):
        check_name(name)
