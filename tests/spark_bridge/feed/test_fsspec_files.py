"""Feeds on file systems of fsspec, and on a local one: the same promises."""

from __future__ import annotations

import pickle
import sys
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.fs
import pytest
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.dirfs import DirFileSystem

from consumer_sdk.errors import ConfigurationError, MissingExtraError
from consumer_sdk.spark_bridge import SparkFeed
from consumer_sdk.spark_bridge.feed import feed as feed_module
from consumer_sdk.spark_bridge.feed.files import Files, PosixFiles
from consumer_sdk.spark_bridge.feed.fsspec_files import files_on
from consumer_sdk.spark_bridge.feed.manifest_log import FOLDERS, MANIFESTS, SEGMENTS
from consumer_sdk.spark_bridge.feed.reader import FeedBatchReader
from consumer_sdk.spark_bridge.feed.reader_marks import ReaderMark, read_marks
from consumer_sdk.spark_bridge.feed.url import FeedUrl
from consumer_sdk.spark_bridge.feed.writer import FeedWriter, Retention
from tests.spark_bridge.feeding import manifests, messages, offsets, segment_names


class ObjectStore(type(fsspec.filesystem("memory"))):  # type: ignore[misc]  # its class by name
    """As S3: a folder is there only while something is in it."""

    cachable = False

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - fsspec's
        """Makes nothing."""


class ListingStore(ObjectStore):
    """As s3fs: what a folder's listing does not have is not there, until it is dropped."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.listings: dict[str, list[dict[str, Any]]] = {}

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:  # noqa: FBT001, FBT002 - fsspec's
        key = path.strip("/")
        if key not in self.listings:
            self.listings[key] = super().ls(path, detail=True, **options)
        found = self.listings[key]
        return found if detail else [each["name"] for each in found]

    def cat_file(self, path: str, **options: Any) -> Any:
        folder = path.strip("/").rpartition("/")[0]
        names = [each["name"].strip("/") for each in self.listings.get(folder, [])]
        if folder in self.listings and path.strip("/") not in names:
            raise FileNotFoundError(path)
        return super().cat_file(path, **options)

    def invalidate_cache(self, path: str | None = None) -> None:
        if path is None:
            self.listings.clear()
        while path:
            self.listings.pop(path.strip("/"), None)
            path = path.rstrip("/").rpartition("/")[0]


@pytest.fixture(params=["posix", "memory", "object store", "fsspec local"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """A directory that is not there yet."""
    if request.param == "object store":
        return files_on(ObjectStore(), f"/feed-{uuid.uuid4().hex}")
    if request.param == "memory":
        return files_on(fsspec.filesystem("memory"), f"/feed-{uuid.uuid4().hex}")
    if request.param == "posix":
        return PosixFiles(tmp_path / "feed")
    return files_on(fsspec.filesystem("file"), str(tmp_path / "feed"))


def test_a_file_is_made_once(files: Files) -> None:
    """Of two that want a name, the first one gets it, whole."""
    files.prepare(FOLDERS)
    files.claim("manifests/a", b"first", "manifests/x.tmp")
    with pytest.raises(FileExistsError):
        files.claim("manifests/a", b"second", "manifests/y.tmp")
    assert files.read("manifests/a") == b"first"
    assert files.names(MANIFESTS) == ["a"]
    files.replace("manifests/a", b"third", "manifests/x.tmp")
    assert files.read("manifests/a") == files.buffer("manifests/a").to_pybytes() == b"third"
    files.delete("manifests/a")
    files.delete("manifests/a")
    with pytest.raises(FileNotFoundError):
        files.read("manifests/a")


def test_a_folder_that_is_not_there_is_empty(files: Files) -> None:
    """A reader may come before the first writer, and an executor gets a copy."""
    assert not files.is_there()
    assert files.names(MANIFESTS) == []
    files.prepare(FOLDERS)
    copy = pickle.loads(pickle.dumps(files))  # noqa: S301 - made here
    assert copy.is_there()
    assert copy.directory == files.directory
    assert copy.names(MANIFESTS) == []


def test_what_others_make_after_a_listing_is_seen() -> None:
    """A writer that believes an old listing would try to make the next manifest for ever."""
    root = f"/feed-{uuid.uuid4().hex}"
    mine, others = files_on(ListingStore(), root), files_on(ObjectStore(), root)
    assert not mine.is_there()
    others.prepare(FOLDERS)
    assert mine.is_there()
    others.claim("manifests/a", b"first", "manifests/x.tmp")
    assert mine.names(MANIFESTS) == ["a"]
    others.claim("manifests/b", b"second", "manifests/x.tmp")
    with pytest.raises(FileExistsError):
        mine.claim("manifests/b", b"mine", "manifests/y.tmp")
    assert mine.read("manifests/b") == b"second"
    assert mine.names(MANIFESTS) == ["a", "b"]


def test_two_writers_keep_each_record_once(files: Files) -> None:
    """Overlapping records, a restart, and readers' marks work alike everywhere."""
    fast, slow = (FeedWriter(files, retention=Retention(segments=0.0)) for _ in range(2))
    fast.open()
    slow.open()
    fast.commit([messages(0, 9)])
    slow.commit([messages(5, 14)])
    assert offsets(files) == list(range(15))
    assert read_marks(files) == {}
    ReaderMark(files, "query").move(1)
    fast.collect_garbage()
    assert [found.number for found in manifests(files)] == [1]
    assert len(segment_names(files)) == 1
    slow.commit([messages(0, 19)])
    assert offsets(files) == list(range(10, 20))
    for writer in (fast, slow):
        writer.close()


async def test_a_feed_on_a_file_system_is_read_by_its_url() -> None:
    """The consumer's side takes the file system, Spark's side its name in the URL."""
    name = f"feed-{uuid.uuid4().hex}"
    async with SparkFeed(f"/{name}", filesystem=fsspec.filesystem("memory")) as feed:
        await feed.write(messages(0, 99))
    url = FeedUrl.parse(f"feed+memory://{name}?tasks=2")
    url.check_exists()
    reader = FeedBatchReader(url, 2)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert sum(batch.num_rows for batch in batches) == 100


def test_fsspecs_local_files_are_treated_as_local(tmp_path: Path) -> None:
    """With links, locks and syncs: fsspec's own way would show others half a file."""
    for fs in (fsspec.filesystem("file"), pyarrow.fs.LocalFileSystem()):
        assert isinstance(files_on(fs, str(tmp_path)), PosixFiles)
    assert files_on(fsspec.filesystem("file"), f"file://{tmp_path}").local == tmp_path


class TakesAnything(type(fsspec.filesystem("memory"))):  # type: ignore[misc]  # its class by name
    """A file system that ignores what it does not know."""

    cachable = False

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Always replaces."""
        super().pipe_file(path, value)


class StoreError(Exception):
    """As botocore's: no OSError."""


class Away(type(fsspec.filesystem("memory"))):  # type: ignore[misc]  # its class by name
    """A store that can be cut off."""

    cachable = False
    refusals = 0

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Refuses, as often as it was told to."""
        if self.refusals:
            self.refusals -= 1
            raise StoreError("cannot connect to the endpoint")
        super().pipe_file(path, value, mode=mode)

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:  # noqa: FBT001, FBT002 - fsspec's
        """Likewise."""
        if self.refusals:
            raise StoreError("cannot connect to the endpoint")
        return super().ls(path, detail=detail)


async def test_a_store_that_is_away_lets_records_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A store's own error is an outage too: no attempt fails, and it is written in the end."""
    monkeypatch.setattr(feed_module, "_FIRST_PAUSE", 0.0)
    fs, name = Away(), f"/feed-{uuid.uuid4().hex}"
    async with SparkFeed(name, filesystem=fs, max_wait=0.0) as feed:
        fs.refusals = 2
        await feed.put(messages(0, 0)[0])
    assert offsets(files_on(fs, name)) == [0]
    assert caplog.text.count("records wait") == 2


def test_a_stores_own_error_is_an_os_error() -> None:
    """So that whoever looks for readers and summaries waits and logs, as with a disk."""
    fs = Away()
    files = files_on(fs, f"/feed-{uuid.uuid4().hex}")
    files.prepare(FOLDERS)
    fs.refusals = 1
    with pytest.raises(OSError, match="cannot connect") as caught:
        files.names(SEGMENTS)
    assert isinstance(caught.value.__cause__, StoreError)


@pytest.mark.parametrize(
    "fs, why",
    [
        (ArrowFSWrapper(pyarrow.fs.LocalFileSystem()), "looks first and writes then"),
        (pyarrow.fs.SubTreeFileSystem("/tmp", pyarrow.fs.LocalFileSystem()), "always replace"),  # noqa: S108 - never used
        (DirFileSystem("/tmp", fsspec.filesystem("file")), "looks first"),  # noqa: S108 - likewise
        (7, "one of fsspec's"),
    ],
)
def test_a_file_system_that_cannot_create_exclusively_is_refused(fs: Any, why: str) -> None:
    """Found when the feed is built, with the reason."""
    with pytest.raises(ConfigurationError, match=why):
        files_on(fs, "/tmp/feed")  # noqa: S108 - nothing is made


def test_a_file_system_that_only_says_so_is_found_out() -> None:
    """What makes the same file twice is refused when the feed is opened, and nothing is left."""
    files = files_on(TakesAnything(), f"/feed-{uuid.uuid4().hex}")
    with pytest.raises(ConfigurationError, match="made the same file twice"):
        files.prepare(FOLDERS)
    assert files.names(SEGMENTS) == []


def test_an_unknown_file_system_is_named() -> None:
    """A URL's scheme that fsspec does not know, or whose package is missing."""
    with pytest.raises(ConfigurationError, match=r"feed\+nonsense"):
        FeedUrl.parse("feed+nonsense://bucket/orders").files()
    with pytest.raises(ConfigurationError, match="not the path of a directory"):
        files_on(fsspec.filesystem("memory"), "/")


def test_a_missing_fsspec_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, local feeds work, and others say what to install."""
    monkeypatch.setitem(sys.modules, "fsspec", None)
    FeedUrl.parse("feed:///data/orders").files()
    with pytest.raises(MissingExtraError, match=r"consumer-sdk\[spark-fs\]"):
        FeedUrl.parse("feed+s3://bucket/orders").files()
