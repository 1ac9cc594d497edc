"""The numbered manifests of a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer_sdk.spark_bridge.errors import FeedFormatError
from consumer_sdk.spark_bridge.feed.files import PosixFiles
from consumer_sdk.spark_bridge.feed.manifest_log import FOLDERS, MANIFESTS, ManifestLog
from consumer_sdk.spark_bridge.feed.manifests import Manifest


@pytest.fixture
def log(tmp_path: Path) -> ManifestLog:
    """An empty log."""
    files = PosixFiles(tmp_path)
    files.prepare(FOLDERS)
    return ManifestLog(files)


def manifest(number: int, segment: str) -> Manifest:
    """A manifest without positions."""
    return Manifest(number=number, segment=segment, rows=1, size=1, crc32=1)


def test_of_two_claims_the_first_stands(log: ManifestLog) -> None:
    """A number is given once, and the loser leaves nothing behind."""
    log.claim(manifest(0, "first"), "a.tmp")
    log.claim(manifest(0, "second"), "b.tmp")
    assert [found.segment for found in log.news(0)] == ["first"]
    assert log.files.names(MANIFESTS) == ["0000000000.json"]


def test_news_go_on_where_the_last_ones_ended(log: ManifestLog) -> None:
    """Only manifests from the given number on are read."""
    for number in range(3):
        log.claim(manifest(number, f"s{number}"), "a.tmp")
    assert [found.segment for found in log.news(1)] == ["s1", "s2"]
    assert list(log.news(3)) == []


def test_what_was_read_is_made_durable_once(
    log: ManifestLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody relies on a manifest that a power cut could take back; idle looks cost no sync."""
    synced: list[Path] = []
    monkeypatch.setattr("consumer_sdk.spark_bridge.feed.files.sync_directory", synced.append)
    log.claim(manifest(0, "s"), "a.tmp")
    assert not synced
    list(log.news(0))
    list(log.news(1))
    assert [path.name for path in synced] == [MANIFESTS]


def test_a_missing_number_is_found_by_the_listing(log: ManifestLog) -> None:
    """A lost manifest is an error, never the silent end of the feed."""
    for number in range(3):
        log.claim(manifest(number, "s"), "a.tmp")
    log.files.delete(log.name(1))
    with pytest.raises(FeedFormatError, match=r"0000000001\.json is missing"):
        log.check_complete()


def test_a_number_that_must_be_there_is_asked_for(log: ManifestLog) -> None:
    """A checkpoint beyond the directory's end says what may have happened."""
    with pytest.raises(FeedFormatError, match="belong to another one"):
        log.read(4)


def test_a_directory_without_manifests_is_empty(tmp_path: Path) -> None:
    """A reader may come before the first writer."""
    log = ManifestLog(PosixFiles(tmp_path))
    log.check_complete()
    assert list(log.news(0)) == []
