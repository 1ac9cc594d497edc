"""Checkpoints of queries on Spark's own Kafka source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Partition
from consumer_sdk.spark_bridge import OffsetFormatError, import_checkpoint
from consumer_sdk.spark_bridge.pull.planning.offsets import INITIAL, Offsets

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
A0, A1 = Partition("a", "0"), Partition("a", "1")


def kafkas(
    folder: Path, offsets: Mapping[int, str], commits: int, first: str | None = None
) -> Path:
    """Write a checkpoint as Spark does, with the checksums of its local files."""
    for name in ("offsets", "commits", "state/0/0", "sources/0"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"x"}')
    for number, line in offsets.items():
        (folder / "offsets" / str(number)).write_text(f"v1\n{METADATA}\n{line}")
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
    (folder / "commits" / str(commits)).write_text("v1\n{}")
    (folder / "commits" / f".{commits}.crc").write_bytes(b"crc")
    if first is not None:
        (folder / "sources" / "0" / "0").write_bytes(b"\x00v1\n" + first.encode())
    return folder


def read(checkpoint: Path, number: int, source: int = 0) -> Offsets:
    """Return a source's offset as its reader gets it."""
    text = (checkpoint / "offsets" / str(number)).read_text()
    assert text.startswith(f"v1\n{METADATA}\n")
    return Offsets.from_json(json.loads(text.split("\n")[2 + source]), int)


def test_a_query_goes_on_where_it_was(tmp_path: Path) -> None:
    """The numbers, commits and state stay; a partition that was new is read from its begin."""
    logs = {6: '{"a":{"0":41}}', 7: '{"a":{"0":50,"1":3}}'}
    old = kafkas(tmp_path / "old", logs, 6)
    import_checkpoint(old, tmp_path / "new" / "orders")
    new = tmp_path / "new" / "orders"
    ranges = read(new, 6).ranges_to(read(new, 7))
    assert [tuple(each) for each in ranges] == [(A0, 41, 50), (A1, 0, 3)]
    files = {str(path.relative_to(new)) for path in new.rglob("*") if path.is_file()}
    assert files == {"metadata", "offsets/6", "offsets/7", "commits/6", "commits/.6.crc"}
    assert (old / "offsets" / "6").read_text().endswith('{"a":{"0":41}}')
    assert [path.name for path in new.parent.iterdir()] == ["orders"]


def test_a_first_batch_that_was_not_finished_is_run_again(tmp_path: Path) -> None:
    """From where Spark's source has noted that it began."""
    old = kafkas(tmp_path / "old", {0: '{"a":{"0":9,"1":5}}'}, 99, '{"a":{"0":4,"1":5}}')
    import_checkpoint(str(old), str(tmp_path / "new"))
    begin = Offsets.from_json(INITIAL, int)
    ranges = begin.ranges_to(read(tmp_path / "new", 0))
    assert [tuple(each) for each in ranges] == [(A0, 4, 9), (A1, 5, 5)]


def test_other_sources_of_a_query_stay_as_they_are(tmp_path: Path) -> None:
    """A line that says nothing, and one of another form."""
    old = kafkas(tmp_path / "old", {3: '{"logOffset":8}\n-\n{"a":{"0":1}}'}, 3)
    import_checkpoint(old, tmp_path / "new")
    lines = (tmp_path / "new" / "offsets" / "3").read_text().split("\n")
    assert lines[2:4] == ['{"logOffset":8}', "-"]
    assert read(tmp_path / "new", 3, source=2).positions == {A0: 1}


@pytest.mark.parametrize(
    "logs, complaint",
    [({1: '{"logOffset":8}'}, "no source of its query"), ({}, "no source of its query")],
)
def test_what_is_no_query_on_kafka_is_refused(
    tmp_path: Path, logs: dict[int, str], complaint: str
) -> None:
    """And nothing is left of the new checkpoint."""
    old = kafkas(tmp_path / "old", logs, 1)
    with pytest.raises(OffsetFormatError, match=complaint):
        import_checkpoint(old, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_wrong_directories_and_versions_are_refused(tmp_path: Path) -> None:
    """With what to do."""
    old = kafkas(tmp_path / "old", {1: '{"a":{"0":1}}'}, 1)
    with pytest.raises(ConfigurationError, match="is no checkpoint"):
        import_checkpoint(tmp_path, tmp_path / "new")
    with pytest.raises(ConfigurationError, match="exists"):
        import_checkpoint(old, old)
    (old / "offsets" / "1").write_text("v2\n{}\n{}")
    with pytest.raises(OffsetFormatError, match="offsets/1 has version 'v2'"):
        import_checkpoint(old, tmp_path / "new")
