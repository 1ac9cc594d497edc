"""Lines of an export: what is written is read back, and anything else is refused by its line."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.errors import (
    CheckpointFormatError,
    CheckpointMismatchError,
    ConfigurationError,
    StoreError,
)
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.stores import CheckpointFile, Entry, MemoryStore, import_checkpoints
from consumer_sdk.stores.exchange import lines as lines_module
from consumer_sdk.stores.exchange.lines import Lines, line_of
from tests.stores.exchange_world import FIRST, GROUP, SECOND, entries, entry, file_of

LINE = line_of(entry(Checkpoint(41, 42)))
OTHER = line_of(entry(Checkpoint(7, 8), SECOND))
PIN = line_of(Entry("", GROUP, "orders", None, "time:1.5"))


def lines(*middle: str) -> bytes:
    """A file with these lines between the first and the last."""
    found, data = Lines(), [line.encode() for line in (Lines.first, *middle)]
    for line in data:
        found.add(line)
    return b"".join((*data, found.last.encode()))


def with_last(old: str, new: str) -> bytes:
    """A file whose last line says something else."""
    *before, last = lines(LINE, OTHER).decode().splitlines(keepends=True)
    assert old in last
    return "".join((*before, last.replace(old, new))).encode()


def changed(line: str = LINE, **fields: Any) -> str:
    """A line with other fields; ``...`` removes one."""
    body = json.loads(line) | fields
    return json.dumps({name: value for name, value in body.items() if value is not ...}) + "\n"


def of_checkpoint(**fields: Any) -> str:
    """A line with other fields in its checkpoint, whose checksum is then wrong."""
    return changed(checkpoint=changed(json.loads(LINE)["checkpoint"], **fields).strip())


@given(entries())
def test_entries_read_back(found: list[Entry]) -> None:
    """As often as they are read; each says on which line it was."""
    file = file_of(lines(*map(line_of, found)))

    for _ in range(2):
        read = list(file)
        assert [e[1:] for e in read] == [e[1:] for e in found]
        assert [e.where for e in read] == [f"the file, line {n + 2}" for n in range(len(found))]


def test_lines_are_for_people_and_for_jq() -> None:
    """One JSON object a line, the checkpoint's own JSON as a string."""
    body = json.loads(LINE)

    assert list(body) == ["group", "stream", "partition", "checkpoint"]
    assert json.loads(body["checkpoint"])["watermark"] == "41"
    assert json.loads(PIN) == {"group": GROUP, "stream": "orders", "pin": "time:1.5"}


def test_sum_is_what_sha256sum_says_of_the_lines_before() -> None:
    """An operator may look: ``head -n -1 billing.jsonl | sha256sum``."""
    *before, last = lines(PIN, LINE).splitlines(keepends=True)

    digest = hashlib.sha256(b"".join(before)).hexdigest()
    assert json.loads(last) == {"lines": 2, "sha256": digest}


HOSTILE: dict[str, tuple[bytes, int, type[StoreError]]] = {
    "empty": (b"", 1, CheckpointFormatError),
    "another file": (b"PK\x03\x04\x00\n", 1, CheckpointFormatError),
    "no first line": (LINE.encode(), 1, CheckpointFormatError),
    "a newer version": (
        lines().replace(b'"version":1', b'"version":2'),
        1,
        CheckpointFormatError,
    ),
    "a version that is true": (
        lines().replace(b'"version":1', b'"version":true'),
        1,
        CheckpointFormatError,
    ),
    "a byte order mark": (b"\xef\xbb\xbf" + lines(), 1, CheckpointFormatError),
    "cut between lines": (lines(LINE, OTHER).partition(b'{"lines"')[0], 4, CheckpointFormatError),
    "cut in a line": (lines(LINE)[:200], 2, CheckpointFormatError),
    "cut in the last line": (lines(LINE)[:-1], 3, CheckpointFormatError),
    "a line missing": (
        lines(LINE, OTHER).replace(OTHER.encode(), b""),
        3,
        CheckpointFormatError,
    ),
    "a line changed": (
        lines(LINE, PIN).replace(b"time:1.5", b"time:2.5"),
        4,
        CheckpointFormatError,
    ),
    "lines in another order": (
        lines(LINE, OTHER).replace(f"{LINE}{OTHER}".encode(), f"{OTHER}{LINE}".encode()),
        4,
        CheckpointFormatError,
    ),
    "another count": (with_last('"lines":2', '"lines":3'), 4, CheckpointFormatError),
    "a count that is text": (with_last('"lines":2', '"lines":"2"'), 4, CheckpointFormatError),
    "a count that is no whole number": (
        with_last('"lines":2', '"lines":2.0'),
        4,
        CheckpointFormatError,
    ),
    "no sum": (with_last('"sha256"', '"sha1"'), 4, CheckpointFormatError),
    "a sum that is null": (
        with_last('"sha256":"', '"sha256":null,"x":"'),
        4,
        CheckpointFormatError,
    ),
    "two exports in one": (lines(LINE) + lines(OTHER), 4, CheckpointFormatError),
    "an empty line": (lines(LINE, "\n"), 3, CheckpointFormatError),
    "not UTF-8": (lines("@").replace(b"@", b'{"group":"\xff"}\n'), 2, CheckpointFormatError),
    "not an object": (lines("[]\n"), 2, CheckpointFormatError),
    "nested deeply": (lines("[" * 100_000 + "\n"), 2, CheckpointFormatError),
    "a name twice": (
        lines(LINE.replace('"stream"', '"group":"a","stream"')),
        2,
        CheckpointFormatError,
    ),
    "another field": (lines(changed(fence=7)), 2, CheckpointFormatError),
    "a field missing": (lines(changed(stream=...)), 2, CheckpointFormatError),
    "a number for a name": (lines(changed(partition=0)), 2, CheckpointFormatError),
    "null for a name": (lines(changed(partition=None)), 2, CheckpointFormatError),
    "half a character": (lines(changed(group="\ud800")), 2, CheckpointFormatError),
    "an object for a text": (
        lines(changed(checkpoint=json.loads(json.loads(LINE)["checkpoint"]))),
        2,
        CheckpointFormatError,
    ),
    "no checkpoint": (lines(changed(checkpoint="text")), 2, CheckpointFormatError),
    "a list": (lines(changed(checkpoint="[]")), 2, CheckpointFormatError),
    "a list as broker": (lines(of_checkpoint(broker=[])), 2, CheckpointFormatError),
    "an unknown broker": (lines(of_checkpoint(broker="carrots")), 2, CheckpointFormatError),
    "a wrong checksum": (lines(of_checkpoint(watermark="40")), 2, CheckpointFormatError),
    "a newer checkpoint": (lines(of_checkpoint(version=9)), 2, CheckpointFormatError),
    "another partition": (lines(changed(partition="1")), 2, CheckpointMismatchError),
    "another stream": (lines(changed(stream="payments")), 2, CheckpointMismatchError),
    "one partition twice": (lines(LINE, LINE), 3, CheckpointFormatError),
    "one pin twice": (lines(PIN, PIN), 3, CheckpointFormatError),
    "too large for the store": (lines(changed(PIN, pin="x" * 1_000_001)), 2, StoreError),
    "longer than any line": (lines(changed(PIN, pin="x" * 8_000_001)), 2, CheckpointFormatError),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_hostile_file_is_refused_by_its_line(what: str) -> None:
    """A typed error names the line; of good lines around it nothing is written."""
    data, number, kind = HOSTILE[what]
    store = MemoryStore()

    with pytest.raises(kind, match=rf"line {number}\b"):
        await import_checkpoints(store, file_of(data))
    assert await store.list(GROUP) == []
    assert await store.pins(GROUP) == {}


@pytest.mark.parametrize(
    "what, words",
    [
        ("empty", "line 1: it ends too early"),
        ("cut in a line", "line 2: it ends too early"),
        ("another file", "line 1: not a line of an export"),
        ("no first line", "line 1: not the first line of an export"),
        ("a newer version", "line 1: version 2, and this consumer_sdk knows version 1"),
        ("longer than any line", "line 2: longer than 8000000 bytes"),
    ],
)
def test_error_says_what_is_wrong_with_the_line(what: str, words: str) -> None:
    """So that a file that was cut off is not taken for one of another program."""
    with pytest.raises(CheckpointFormatError, match=words):
        list(file_of(HOSTILE[what][0]))


def test_line_may_have_as_many_bytes_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its line feed; a file that ends within that many was cut off."""
    size = len(LINE) - 1
    monkeypatch.setattr(lines_module, "MAX_LINE", size)
    assert len(list(file_of(lines(LINE)))) == 1
    with pytest.raises(CheckpointFormatError, match=f"line 3: longer than {size} bytes"):
        list(file_of(lines(LINE, LINE.replace(GROUP, f"{GROUP}2"))))
    with pytest.raises(CheckpointFormatError, match="line 2: it ends too early"):
        list(file_of(lines(LINE)[: len(Lines.first) + size]))


@pytest.mark.parametrize("what", ["a field missing", "a wrong checksum", "another partition"])
async def test_good_lines_before_a_bad_one_are_not_written(what: str) -> None:
    """Everything is read before anything is written, more than a batch of lines as well."""
    good = [line_of(entry(Checkpoint(n, n + 1), Partition("x", str(n)))) for n in range(1200)]
    bad = HOSTILE[what][0].decode().splitlines(keepends=True)[1]
    store = MemoryStore()

    with pytest.raises(StoreError, match=r"line 1203\b"):
        await import_checkpoints(store, file_of(lines(PIN, *good, bad)))
    assert await store.list(GROUP) == []
    assert await store.pins(GROUP) == {}


async def test_fuzzed_files_are_typed_errors_and_write_nothing() -> None:
    """3 000 files with some bytes changed, cut or repeated, from one seed."""
    chaos, good = random.Random(5), lines(PIN, LINE, OTHER)
    for data in (damaged(good, chaos) for _ in range(3000)):
        if data == good:
            continue
        store = MemoryStore()
        with pytest.raises(StoreError, match="line"):
            await import_checkpoints(store, file_of(data))
        assert not await store.list(GROUP)
        assert not await store.pins(GROUP)


def damaged(data: bytes, chaos: random.Random) -> bytes:
    """Some bytes are others, are gone, or are there twice."""
    found = bytearray(data)
    for _ in range(chaos.randint(1, 3)):
        at = chaos.randrange(len(found))
        end = at + chaos.choice((1, 1, 1, 5, 50))
        found[at:end] = chaos.choice(
            (chaos.randbytes(1), chaos.choice((b'"', b"}", b"\n", b"0")), b"", found[at:end] * 2)
        )
    return bytes(found)


@given(st.binary(max_size=200))
def test_any_bytes_after_the_first_line_are_refused(data: bytes) -> None:
    """Bytes from elsewhere are a typed error."""
    with pytest.raises(CheckpointFormatError, match="line"):
        list(CheckpointFile(io.BytesIO(Lines.first.encode() + data)))


def test_any_changed_byte_is_refused() -> None:
    """Also in the name of a group and in a pinned start, which have no checksum of their own."""
    good = lines(PIN, LINE)
    for at in range(len(good)):
        for flipped in (1, 0x20, 0x80):
            data = bytearray(good)
            data[at] ^= flipped
            with pytest.raises(CheckpointFormatError, match="line"):
                list(file_of(bytes(data)))


async def test_line_of_another_writer_is_read() -> None:
    """Spaces and another order of the fields mean nothing; the checkpoint's text is what it was."""
    body = json.loads(LINE)
    spaced = json.dumps(dict(reversed(body.items())), indent=None) + "\n"
    store = MemoryStore()

    await import_checkpoints(store, file_of(lines(spaced)))
    assert await store.peek(GROUP, [FIRST]) == {FIRST: body["checkpoint"]}


def test_entries_that_can_be_read_once_are_refused() -> None:
    """They would be checked, and then not be there to be written."""
    with pytest.raises(ConfigurationError, match=re.escape("give a list")):
        asyncio.run(import_checkpoints(MemoryStore(), iter([])))
