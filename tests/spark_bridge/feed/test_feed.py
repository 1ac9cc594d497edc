"""The destination of a running consumer."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk.errors import ConfigurationError, ConsumerClosedError, MissingExtraError
from consumer_sdk.spark_bridge import FeedError, FeedFormatError, FeedRecordError, SparkFeed
from consumer_sdk.spark_bridge.feed import feed as feed_module
from consumer_sdk.spark_bridge.feed.files import PosixFiles
from consumer_sdk.spark_bridge.feed.reader_marks import ReaderMark
from tests.spark_bridge.feeding import (
    ROOT,
    close,
    feeder,
    go,
    litter,
    manifests,
    messages,
    offsets,
    segment_names,
)


async def test_hundreds_of_handlers_share_a_commit(tmp_path: Path) -> None:
    """What 500 handlers put at the same time is one segment, durable when they return."""
    async with SparkFeed(tmp_path, max_wait=60.0) as feed:
        await asyncio.gather(*[feed.put(message) for message in messages(0, 499)])
        assert [found.rows for found in manifests(tmp_path)] == [500]
        assert (feed.stats().written, feed.stats().pending) == (500, 0)
    assert offsets(tmp_path) == list(range(500))


async def test_a_lone_record_waits_no_longer_than_it_must(tmp_path: Path) -> None:
    """``max_wait`` closes a small group; 0 commits at once."""
    async with SparkFeed(tmp_path, max_wait=0.0) as feed:
        await feed.put(messages(0, 0)[0])
        assert offsets(tmp_path) == [0]


async def test_a_group_is_closed_by_rows_and_by_bytes(tmp_path: Path) -> None:
    """Segments stay within their limits, also when one call brings more."""
    async with SparkFeed(tmp_path / "rows", max_rows=100) as feed:
        await feed.write(messages(0, 249))
    assert [found.rows for found in manifests(tmp_path / "rows")] == [100, 100, 50]
    async with SparkFeed(tmp_path / "bytes", max_bytes=100) as feed:
        await feed.write(messages(10, 29))
    assert {found.rows for found in manifests(tmp_path / "bytes")} == {8, 4}


async def test_leaving_the_block_stores_what_is_pending(tmp_path: Path) -> None:
    """Closing commits at once rather than wait, answers the callers, and leaves no litter."""
    async with SparkFeed(tmp_path, max_wait=60.0) as feed:
        put = asyncio.create_task(feed.put(messages(0, 0)[0]))
        await asyncio.sleep(0)
    await put
    assert offsets(tmp_path) == [0]
    assert not litter(tmp_path)
    assert not [t for t in threading.enumerate() if t.name.startswith("consumer-sdk-feed")]
    await feed.aclose()


async def test_a_cancelled_put_is_stored_once_when_put_again(tmp_path: Path) -> None:
    """Cancelled at any moment, a record put again is there once, and its neighbours too."""
    async with SparkFeed(tmp_path, max_wait=0.0) as feed:
        for at in range(40):
            tasks = [asyncio.create_task(feed.put(m)) for m in messages(2 * at, 2 * at + 1)]
            for _ in range(at % 8):
                await asyncio.sleep(0)
            tasks[0].cancel()
            await asyncio.wait(tasks)
            await tasks[1]
            if tasks[0].cancelled():
                await feed.put(messages(2 * at, 2 * at)[0])
    assert offsets(tmp_path) == list(range(80))


async def _fault(_: SparkFeed) -> bool:
    raise RuntimeError("a fault")


async def test_a_feed_that_has_ended_by_itself_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither `put` nor the end of the block hides the cause behind "not open"."""
    with pytest.raises(FeedError, match="ended by itself: RuntimeError"):
        async with SparkFeed(tmp_path, max_wait=0.0) as feed:
            monkeypatch.setattr(SparkFeed, "_has_room", _fault)
            with pytest.raises(ConsumerClosedError):
                await feed.put(messages(0, 0)[0])
            await asyncio.wait([feed._pump])  # type: ignore[type-var]  # it is open
            with pytest.raises(FeedError, match="ended by itself") as caught:
                await feed.put(messages(1, 1)[0])
            assert isinstance(caught.value.__cause__, RuntimeError)


async def test_a_put_cancelled_before_its_group_closes_is_not_stored(tmp_path: Path) -> None:
    """A caller that gave up early leaves nothing, and a group of nothing is no segment."""
    async with SparkFeed(tmp_path, max_wait=60.0) as feed:
        put = asyncio.create_task(feed.put(messages(0, 0)[0]))
        await asyncio.sleep(0)
        put.cancel()
    assert manifests(tmp_path) == []


async def test_records_fed_again_are_counted_and_dropped(tmp_path: Path) -> None:
    """A redelivery after a restart is recognised."""
    async with SparkFeed(tmp_path) as feed:
        await feed.write(messages(0, 99))
    async with SparkFeed(tmp_path) as feed:
        await feed.write(messages(50, 149))
        assert (feed.stats().written, feed.stats().dropped) == (50, 50)
    assert offsets(tmp_path) == list(range(150))


async def test_a_bad_record_fails_its_own_put(tmp_path: Path) -> None:
    """One handler gets the error, the others in its group their success."""
    group = messages(0, 99)
    group[7].timestamp = 2**62
    async with SparkFeed(tmp_path) as feed:
        puts = [feed.put(message) for message in group]
        answers = await asyncio.gather(*puts, return_exceptions=True)
    assert [at for at, answer in enumerate(answers) if isinstance(answer, FeedRecordError)] == [7]
    assert offsets(tmp_path) == [at for at in range(100) if at != 7]


async def test_a_directory_that_is_away_lets_records_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It could be written when it was opened: a mount that is gone for a while fails no record."""
    monkeypatch.setattr(feed_module, "_FIRST_PAUSE", 0.01)
    async with SparkFeed(tmp_path / "feed", max_wait=0.0) as feed:
        (tmp_path / "feed" / "segments").rename(tmp_path / "away")
        waiting = asyncio.create_task(feed.put(messages(0, 0)[0]))
        async with asyncio.timeout(300):
            while "records wait" not in caplog.text:
                await asyncio.sleep(0)
        (tmp_path / "away").rename(tmp_path / "feed" / "segments")
        await waiting
    assert offsets(tmp_path / "feed") == [0]


async def test_a_position_without_a_text_form_fails_its_own_put(tmp_path: Path) -> None:
    """Whatever ``encode_position`` raises for one record, its neighbours are stored."""
    group = messages(0, 2)
    for message in group:
        message.position = (1, message.position)
    table = {(1, 0): "a", (1, 2): "c"}
    async with SparkFeed(tmp_path, encode_position=lambda at: table[at]) as feed:
        answers = await asyncio.gather(*map(feed.put, group), return_exceptions=True)
    assert [type(answer) for answer in answers] == [type(None), FeedRecordError, type(None)]
    assert "KeyError((1, 1))" in str(answers[1])


async def test_each_caller_gets_an_error_of_its_own(tmp_path: Path) -> None:
    """Many callers raise at the same time: none shares its traceback with another."""

    def refuse(position: Any) -> str:
        raise ConfigurationError("no encoder")

    group = messages(0, 1)
    for message in group:
        message.position = (1, message.position)
    async with SparkFeed(tmp_path, encode_position=refuse) as feed:
        first, second = await asyncio.gather(*map(feed.put, group), return_exceptions=True)
    assert isinstance(first, FeedRecordError)
    assert "no encoder" in str(first)
    assert first is not second


def test_two_processes_feed_one_directory_each_record_once(tmp_path: Path) -> None:
    """Trap 23, two pumps: overlapping records of two racing writers are there once."""
    processes = [feeder(tmp_path, 0, 1999, 50), feeder(tmp_path, 1000, 2999, 50)]
    lines = [go(process) for process in processes]
    assert [len(list(steps)) for steps in lines] == [40, 40]
    assert [close(process) for process in processes] == [0, 0]
    assert offsets(tmp_path) == list(range(3000))
    assert not litter(tmp_path)


@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.campaign)])
def test_a_writer_killed_again_and_again_stores_each_record_once(
    tmp_path: Path, kills: int
) -> None:
    """Trap 23, crash and restart: kill -9 at random moments; nothing is lost or repeated."""
    dice = random.Random(7)
    stored: list[int] = []
    for _ in range(kills):
        process = feeder(tmp_path, max(0, len(stored) - 50), 1999, 10)
        durable = list(itertools.islice(go(process), dice.randint(1, 20)))
        process.kill()
        close(process)
        stored = offsets(tmp_path)
        assert stored == list(range(len(stored)))
        assert len(stored) >= int(durable[-1]) + 10
    process = feeder(tmp_path, 0, 1999, 500)
    assert len(list(go(process))) == 4
    assert close(process) == 0
    assert offsets(tmp_path) == list(range(2000))
    assert not litter(tmp_path)


FULL_DISK = """
import asyncio, json, logging, resource, sys
from pathlib import Path
from consumer_sdk.spark_bridge import SparkFeed, TransientFeedError
from tests.spark_bridge.feeding import messages, offsets, segment_names

class Warned(logging.Handler):
    def __init__(self, event):
        super().__init__()
        self.event = event
    def emit(self, record):
        self.text = record.getMessage()
        self.event.set()

async def main(path):
    found = {}
    async with SparkFeed(path) as feed:
        await feed.write(messages(0, 9))
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        refused = asyncio.Event()
        warned = Warned(refused)
        logging.getLogger("consumer_sdk").addHandler(warned)
        writing = asyncio.create_task(feed.write(messages(10, 1999)))
        await refused.wait()
        found |= {"error": warned.text, "waits": not writing.done()}
        found["segments"] = len(segment_names(path))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        await writing
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        writing = asyncio.create_task(feed.write(messages(2000, 3999)))
        refused.clear()
        await refused.wait()
    try:
        await writing
    except TransientFeedError:
        found["raises"] = True
    found["exact"] = offsets(path) == list(range(2000))
    print(json.dumps(found))

asyncio.run(main(Path(sys.argv[1])))
"""


def run_child(program: str, *args: str) -> dict[str, Any]:
    """The JSON that a program in a process of its own printed."""
    command = [sys.executable, "-c", textwrap.dedent(program), *args]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_on_a_full_disk_records_wait_and_no_half_segment_is_left(tmp_path: Path) -> None:
    """Trap 23, disk full: refused by the kernel half-way, stored later; closing ends the wait."""
    found = run_child(FULL_DISK, str(tmp_path))
    assert "File too large" in found["error"]
    assert found["waits"]
    assert found["raises"]
    assert found["segments"] == 1
    assert found["exact"]


UNWRITABLE = """
import asyncio, json, os, sys
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge import SparkFeed

async def main(path):
    feed = SparkFeed(path)
    try:
        await feed.__aenter__()
    except ConfigurationError as error:
        print(json.dumps({"error": str(error)}))

feed = SparkFeed(sys.argv[1])  # imports everything before the rights are gone
os.chmod(sys.argv[1], 0o555)
if os.getuid() == 0:
    os.chown(sys.argv[1], 65534, 65534)
    os.setuid(65534)
asyncio.run(main(sys.argv[1]))
"""


def test_a_directory_without_write_permission_is_a_configuration_error() -> None:
    """Found at the start, with what to do."""
    # pytest's own temporary folder is closed to other users, one of which the child becomes.
    path = Path("/tmp") / f"feed-{os.getpid()}-{random.getrandbits(32)}"  # noqa: S108 - as said
    path.mkdir()
    try:
        assert "write permission" in run_child(UNWRITABLE, str(path))["error"]
    finally:
        path.rmdir()


async def test_a_file_in_the_directorys_place_is_a_configuration_error(tmp_path: Path) -> None:
    """The path names something else, or lies below something else."""
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "below"):
        with pytest.raises(ConfigurationError, match="must be a directory"):
            async with SparkFeed(path):
                pass


async def test_a_damaged_directory_is_refused_at_the_start(tmp_path: Path) -> None:
    """A feed that cannot tell what it holds does not open, and leaves no lock behind."""
    async with SparkFeed(tmp_path) as feed:
        await feed.write(messages(0, 9))
    (tmp_path / "manifests" / "0000000000.json").write_text("{}")
    with pytest.raises(FeedFormatError, match="0000000000"):
        async with SparkFeed(tmp_path):
            pass
    assert len(segment_names(tmp_path)) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"max_rows": 0},
        {"max_rows": True},
        {"max_bytes": 0},
        {"max_wait": -1.0},
        {"max_wait": float("nan")},
        {"max_wait": "1s"},
    ],
)
def test_a_bad_option_is_named(tmp_path: Path, options: dict[str, Any]) -> None:
    """Options are checked when the feed is built."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        SparkFeed(tmp_path, **options)


@pytest.mark.parametrize("path", ["", None, b"/tmp", 7])
def test_what_is_not_a_path_is_refused(path: Any) -> None:
    """The current directory is never meant by accident."""
    with pytest.raises(ConfigurationError, match="not the path of a directory"):
        SparkFeed(path)


@pytest.mark.parametrize("url", ["feed:///data/orders", "feed+s3://bucket/orders"])
def test_a_url_is_not_taken_for_a_folder(url: str) -> None:
    """It is for Spark's side; a folder named ``feed:`` helps nobody."""
    with pytest.raises(ConfigurationError, match="give the directory alone"):
        SparkFeed(url)


@pytest.mark.parametrize("group_access", [False, True])
async def test_records_are_for_this_user_or_the_folders_group(
    tmp_path: Path, *, group_access: bool
) -> None:
    """Whatever the umask is, also in a folder of an older release, which was for everybody."""
    (tmp_path / "feed" / "segments").mkdir(parents=True)
    (tmp_path / "feed" / "segments").chmod(0o2755)
    before = os.umask(0o022)
    try:
        async with SparkFeed(tmp_path / "feed", group_access=group_access) as feed:
            await feed.put(messages(0, 0)[0])
            ReaderMark(PosixFiles(tmp_path / "feed"), "query").move(0)
            found = [path for path in (tmp_path / "feed").rglob("*") if path.name != "segments"]
            modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in found}
            all_modes = {stat.S_IMODE(path.stat().st_mode) for path in found}
            segments = stat.S_IMODE((tmp_path / "feed" / "segments").stat().st_mode)
    finally:
        os.umask(before)
    folder, file = (0o770, 0o660) if group_access else (0o700, 0o600)
    assert (modes, all_modes) == ({True: folder, False: file}, {folder, file})
    assert segments == 0o2000 | folder


def test_group_of_another_file_system_is_not_ours_to_set(tmp_path: Path) -> None:
    """An object store has rules of its own."""
    with pytest.raises(ConfigurationError, match="group_access"):
        SparkFeed(tmp_path, filesystem=object(), group_access=True)


def test_a_missing_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow the feed says what to install before any record is fetched."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"consumer-sdk\[spark\]"):
        SparkFeed(tmp_path)


async def test_a_closed_feed_refuses_records(tmp_path: Path) -> None:
    """Before opening, after closing, and when opened again: a clear error."""
    feed = SparkFeed(tmp_path)
    with pytest.raises(ConsumerClosedError, match="async with"):
        await feed.put(messages(0, 0)[0])
    async with feed:
        pass
    with pytest.raises(ConsumerClosedError, match="async with"):
        await feed.put(messages(0, 0)[0])
    with pytest.raises(ConsumerClosedError, match="make another"):
        await feed.__aenter__()


async def test_another_event_loop_is_refused(tmp_path: Path) -> None:
    """A feed belongs to the loop that opened it."""
    async with SparkFeed(tmp_path) as feed:
        put = feed.put(messages(0, 0)[0])
        with pytest.raises(ConsumerClosedError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, put)


async def test_a_feed_left_open_warns(tmp_path: Path) -> None:
    """A leak is a ResourceWarning."""
    feed = SparkFeed(tmp_path)
    await feed.__aenter__()
    with pytest.warns(ResourceWarning, match="was not closed"):
        feed.__del__()
    await feed.aclose()
