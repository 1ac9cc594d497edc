"""``checkpoints``: look at, move and delete what stores keep."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, cast
from urllib.parse import quote, unquote, urlsplit

from consumer_sdk.abc import CheckpointStore
from consumer_sdk.cli.terminal import Bar, Rows, Watched, say_count
from consumer_sdk.errors import CheckpointFormatError, ConfigurationError
from consumer_sdk.leases.stores import ended_partitions
from consumer_sdk.records import Partition
from consumer_sdk.stores.exchange.exchange import (
    export_checkpoints,
    import_checkpoints,
    is_start_of,
    stored_entries,
)
from consumer_sdk.stores.exchange.lines import CheckpointFile, Entry
from consumer_sdk.stores.urls import store_from_url

__all__ = [
    "delete",
    "export",
    "import_file",
    "import_kcl",
    "import_kinesis_spout",
    "import_storm",
    "is_made",
    "opened_store",
    "partition_of",
    "show",
    "unpin",
]


async def export(arguments: Namespace) -> None:
    """Writes a group's lines to stdout."""
    count = -2  # the first line and the last one
    async with opened_store(arguments.store, must_exist=True) as store:
        with Bar("exporting", arguments, is_apart=True) as bar:
            if bar.is_wanted:
                bar.begin("exporting", await _line_count(store, arguments.group, arguments.stream))
            async for line in export_checkpoints(store, arguments.group, stream=arguments.stream):
                sys.stdout.write(line)
                count += 1
                bar.advance()
    say_count("exported", count, is_json=arguments.json, to=sys.stderr)


async def _line_count(store: CheckpointStore, group: str, stream: str | None) -> int:
    """How many lines an export has now."""
    pins = [name for name in await store.pins(group) if is_start_of(stream, name)]
    partitions = [each for each in await store.list(group) if _is_of(stream, each)]
    return len(pins) + len(partitions) + 2


def import_file(arguments: Namespace) -> None:
    """Reads lines from a file or stdin, outside of the event loop, which would defer Ctrl-C."""
    name = "stdin" if arguments.file == "-" else arguments.file
    with _copy_of(arguments.file) as copy:
        asyncio.run(_import(arguments, CheckpointFile(copy, name)))


@contextmanager
def _copy_of(file: str) -> Iterator[BinaryIO]:
    """It is read twice, must not change in between, and may be a pipe."""
    with TemporaryFile() as copy:
        if file == "-":
            # `read` waits for a pipe again and again inside one call. A Ctrl-C in between would be
            # seen when the next wait ends: never, if the writer is silent. Our loop sees it.
            for chunk in iter(cast("BufferedReader", sys.stdin.buffer).read1, b""):
                copy.write(chunk)
        else:
            with Path(file).open("rb") as original:
                shutil.copyfileobj(original, copy)
        copy.seek(0)
        yield copy


async def import_storm(arguments: Namespace) -> None:
    """Takes a KafkaSpout's offsets over."""
    from consumer_sdk.stores.exchange.legacy import read_storm_kafka

    found = await read_storm_kafka(
        arguments.hosts,
        arguments.zk_root,
        arguments.spout_id,
        topic=arguments.topic,
        group=arguments.group,
    )
    _say_skipped(found.skipped)
    await _import(arguments, found.entries)


async def import_kinesis_spout(arguments: Namespace) -> None:
    """Takes a KinesisSpout's sequence numbers over."""
    from consumer_sdk.stores.exchange.legacy import read_kinesis_spout

    found = await read_kinesis_spout(
        arguments.hosts,
        arguments.prefix,
        arguments.topology,
        arguments.stream,
        group=arguments.group,
    )
    _say_skipped(found.skipped)
    await _import(arguments, found.entries)


def import_kcl(arguments: Namespace) -> None:
    """Takes the leases of the Kinesis Client Library over, from a file or stdin."""
    from consumer_sdk.stores.exchange.kcl import read_kcl_leases

    name = "stdin" if arguments.file == "-" else arguments.file
    with ExitStack() as files:
        found = read_kcl_leases(
            files.enter_context(_copy_of(arguments.file)),
            arguments.stream,
            group=arguments.group,
            shards=arguments.shards and files.enter_context(Path(arguments.shards).open("rb")),
            unread=arguments.unread,
            name=name,
        )
    _say_skipped(found.skipped)
    for note in found.notes:
        sys.stderr.write(f"{note}\n")
    asyncio.run(_import(arguments, found.entries))


def _say_skipped(skipped: Mapping[str, str]) -> None:
    for path, reason in skipped.items():
        sys.stderr.write(f"nothing to import from {path}: {reason}\n")


async def _import(arguments: Namespace, entries: Iterable[Entry]) -> None:
    async with opened_store(arguments.store) as store:
        with Bar("comparing", arguments) as bar:
            done = await import_checkpoints(
                store,
                Watched(entries, bar, ("comparing", "writing")),
                force=arguments.force,
                dry_run=arguments.dry_run,
            )
    verb = "would write" if arguments.dry_run else "wrote"
    if arguments.json:
        _say_json(done=verb, written=done.written, kept=done.kept)
    else:
        sys.stdout.write(f"{verb} {done.written}, kept {done.kept} that were there\n")


def _say_json(**row: object) -> None:
    sys.stdout.write(json.dumps(row) + "\n")


async def show(arguments: Namespace) -> None:
    """One line for each pinned start and checkpoint."""
    async with opened_store(arguments.store, must_exist=True) as store:
        with Rows(is_json=arguments.json) as rows:
            async for entry in stored_entries(store, arguments.group, None):
                kind = "pin" if entry.id is None else "checkpoint"
                row = {"stream": entry.stream, "partition": entry.id, kind: entry.text}
                rows.say(row, _line(entry))


def _line(entry: Entry) -> str:
    if entry.id is None:
        return f"{_quoted(entry.stream)}\tpinned {entry.text}"
    return f"{entry.partition.path}\t{_summary(entry.text)}"


def _summary(text: str) -> str:
    try:
        body = json.loads(text)
        ended = ", ended" if body["ended"] else ""
        return (
            f"{body['broker']}: settled up to {body['watermark']}, reads on at {body['resume']}, "
            f"{len(body['ranges'])} ranges above, {len(body['attempts'])} failed records{ended}"
        )
    except (LookupError, TypeError, ValueError, RecursionError):
        return f"no checkpoint that can be read: {text[:60]!r}"


async def delete(arguments: Namespace) -> None:
    """Deletes checkpoints, and takes back what has ended without one.

    Their fences stay, and so do pinned starts, which are named.
    """
    async with opened_store(arguments.store, must_exist=True) as store:
        if arguments.partition:
            named = partitions = list(map(partition_of, arguments.partition))
            ended = await ended_partitions(store, arguments.group, {p.stream for p in named})
        else:
            ended = await ended_partitions(store, arguments.group)
            named = [p for p in await store.list(arguments.group) if _is_of(arguments.stream, p)]
            partitions = [*named, *(p for p in ended if _is_of(arguments.stream, p))]
        await store.delete(arguments.group, partitions)
        count = len(ended.intersection(partitions))
        if arguments.json:
            _say_json(deleted=len(named), reopened=count)
        else:
            reopened = f"reopened {count} that had ended\n" if count else ""
            sys.stdout.write(f"deleted {len(named)}\n{reopened}")
        if not arguments.partition:
            await _say_pins(store, arguments.group, arguments.stream)


def _is_of(stream: str | None, partition: Partition) -> bool:
    return stream is None or partition.stream == stream


async def _say_pins(store: CheckpointStore, group: str, stream: str | None) -> None:
    """A group without checkpoints starts from them, not from where ``start`` is now."""
    try:
        names = sorted(name for name in await store.pins(group) if is_start_of(stream, name))
    except CheckpointFormatError as error:
        sys.stderr.write(f"still pinned: {error}\n")
        return
    for name in names:
        sys.stderr.write(f"still pinned, `unpin` it to start anew: {_quoted(name)}\n")


async def unpin(arguments: Namespace) -> None:
    """Deletes a pinned start, also one that cannot be read."""
    async with opened_store(arguments.store, must_exist=True) as store:
        was_pinned = await store.unpin(arguments.group, _unquoted(arguments.stream))
    say_count("unpinned", int(was_pinned), is_json=arguments.json)


def _quoted(stream: str) -> str:
    return quote(stream, safe="")


def _unquoted(stream: str) -> str:
    try:
        return unquote(stream, errors="strict")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{stream!r} is not the name of a start in a list") from error


def partition_of(text: str) -> Partition:
    """A partition as `list` writes it.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        return Partition.parse(text)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


@asynccontextmanager
async def opened_store(url: str, *, must_exist: bool = False) -> AsyncIterator[CheckpointStore]:
    """The store of a URL, closed in the end.

    Raises:
        ConsumerSdkError: it cannot be opened.
    """
    store = store_from_url(url, must_exist=must_exist)
    try:
        await store.open()
        yield store
    finally:
        await store.aclose()


def is_made(url: str | None) -> bool:
    """Whether there is something to open; a SQLite file that is missing is made by the run.

    Raises:
        ConfigurationError: it could not be.
    """
    parts = urlsplit(url or "")
    file = Path(unquote(parts.path))
    if parts.scheme != "sqlite" or file.exists():
        return bool(url)
    if not os.access(file.parent, os.W_OK):
        raise ConfigurationError(
            f"{file} cannot be made: see that the directory {file.parent} exists and is writable"
        )
    return False
