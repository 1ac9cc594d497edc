"""``doctor URL [STORE_URL]``: checks each thing that a consumer needs, and writes a line for it."""

from __future__ import annotations

import platform
import resource
import time
from argparse import Namespace
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import urlsplit

from consumer_sdk import __version__
from consumer_sdk.adapters.urls import open_for_tools, share_group_of
from consumer_sdk.cli.doctor.findings import (
    Finding,
    exit_status,
    of_clock,
    of_files,
    of_retention,
)
from consumer_sdk.cli.doctor.servers import Server, look_at, servers_of
from consumer_sdk.cli.groups.checkpoints import is_made, opened_store
from consumer_sdk.cli.groups.groups import Group
from consumer_sdk.cli.groups.lags import group_lags
from consumer_sdk.cli.terminal import Rows
from consumer_sdk.errors import CheckpointFormatError, ConfigurationError, ConsumerSdkError
from consumer_sdk.leases.stores import stored_leases
from consumer_sdk.range_reads import PartitionRange, RangeReader
from consumer_sdk.records import Partition
from consumer_sdk.records.leases import LeaseView
from consumer_sdk.stores.urls import store_from_url

__all__ = ["doctor"]

PACKAGES = {
    "kafka": ("aiokafka", "cramjam"),
    "pulsar": ("pulsar-client",),
    "pulsar+ssl": ("pulsar-client",),
    "kinesis": ("aiobotocore",),
    "zookeeper": ("kazoo",),
}
TODO = {
    "broker": "see the credentials, and that this machine reaches the servers that the broker names "
    "(of Kafka: advertised.listeners)",
    "reading": "see that the client may describe and read the streams",
    "group": "see that the client may describe and read the group",
}
"""What to do, by what fails; a `ConfigurationError` says it better."""

WIDTHS = 4, 20
"""Of what is shown line by line: ``FAIL``, and most names of servers with what is looked at."""

OWN_GROUP = "consumer-sdk-doctor"
"""Under which the store is written to."""


async def doctor(arguments: Namespace) -> int:
    """Writes each finding as it comes; returns the exit status.

    Raises:
        ConfigurationError: a URL is malformed, or has an unknown option.
    """
    opened = open_for_tools(arguments.url)
    urls = [arguments.url]
    if arguments.store is not None:
        store_from_url(arguments.store)
        urls.append(arguments.store)
    servers = [each for url in urls for each in servers_of(url)]
    findings = []
    rows = Rows(is_json=arguments.json, widths=WIDTHS)
    async with aclosing(_examined(arguments, servers, *opened)) as found:
        async for each in found:
            findings.append(each)
            rows.say(asdict(each), _line(each))
            rows.flush()
    return exit_status(findings)


def _line(finding: Finding) -> str:
    todo = f"\t{finding.todo}" if finding.todo else ""
    return f"{finding.level}\t{finding.what}\t{finding.found}{todo}"


async def _examined(
    arguments: Namespace, servers: Sequence[Server], reader: RangeReader, group: str | None
) -> AsyncGenerator[Finding, None]:
    yield _versions([arguments.url, *([arguments.store] if arguments.store else [])])
    yield of_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    for server in servers:
        async for finding in look_at(server):
            yield finding
    is_up = group is not None
    try:
        async for finding in _broker(reader, group, share_group_of(arguments.url)):
            is_up = is_up and finding.level != "FAIL"
            yield finding
        if arguments.store is not None:
            async for finding in _store(arguments.store, group):
                is_up = is_up and finding.level == "ok"
                yield finding
        if is_up:
            yield await _standing(arguments, reader, str(group))
    finally:
        await reader.aclose()


def _versions(urls: Sequence[str]) -> Finding:
    names = [name for url in urls for name in PACKAGES.get(urlsplit(url).scheme, ())]
    return Finding(
        "ok",
        "versions",
        ", ".join(
            [
                f"Python {platform.python_version()}",
                f"consumer-sdk {__version__}",
                *(f"{name} {_version(name)}" for name in names),
            ]
        ),
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


# -- the broker -----------------------------------------------------------------------------------


async def _broker(
    reader: RangeReader, group: str | None, shared: str | None
) -> AsyncIterator[Finding]:
    """Checks the broker; ends at the first check that fails, since the others need it."""
    what = "broker"
    try:
        await reader.open()
        yield Finding("ok", what, f"{reader.broker} takes this client and its credentials")
        what = "streams"
        partitions = await reader.partitions()
        yield _streams(partitions)
        what = "reading"
        newest = await _newest(reader, partitions)
        yield Finding("ok", what, "is allowed" if newest else "nothing is stored yet")
        if newest:
            yield of_clock(newest, time.time())
        what = "group"
        if shared is not None:
            yield Finding("ok", what, f"share group {shared}: the broker keeps what it has settled")
            return
        if group is None:
            yield Finding("warn", what, "none is named", "give ?group=name to keep a position")
            return
        await reader.check_group(group)
        members = await reader.members(group, partitions)
        named = f": {', '.join(members[:5])}" if members else ""
        yield Finding("ok", what, f"{group} may be joined, and has {len(members)} members{named}")
    except ConsumerSdkError as error:
        has_own = isinstance(error, ConfigurationError)  # a topic that is missing, say
        todo = "" if has_own else TODO.get(what, "")
        yield Finding("FAIL", what, " ".join(str(error).split()), todo)


def _streams(partitions: Sequence[Partition]) -> Finding:
    names = sorted({each.stream for each in partitions})
    if not names:
        return Finding("FAIL", "streams", "there is none", "see that the URL's names are right")
    return Finding("ok", "streams", f"{', '.join(names)}: {len(partitions)} partitions")


async def _newest(reader: RangeReader, partitions: Sequence[Partition]) -> float | None:
    """The time of the last record of the first partition that has some, in seconds."""
    bounds = await Group(reader, "", None).bounds(partitions)
    for each in partitions:
        if not bounds[each].first < bounds[each].end:
            continue
        whole = PartitionRange(each, bounds[each].first, bounds[each].end)
        skipped = (await reader.records([whole]))[each] - 1
        at = await reader.cut(whole, skipped) if skipped > 0 else whole.start
        time = await _time_at(reader, PartitionRange(each, at, whole.stop))
        if time is not None:
            return time
    return None


async def _time_at(reader: RangeReader, wanted: PartitionRange) -> float | None:
    parts: Any = reader.read_range(wanted, max_bytes=1)
    async with aclosing(parts):
        async for columns in parts:
            if len(columns) and columns.timestamps[0] is not None:
                return float(columns.timestamps[0]) / 1000
    return None


# -- the store, and where the group stands --------------------------------------------------------


async def _store(url: str, group: str | None) -> AsyncIterator[Finding]:
    what = "store"
    try:
        if not is_made(url):
            yield Finding("warn", what, "there is no such file yet", "the first consumer makes it")
            return
        async with opened_store(url) as store:
            await store.pin(OWN_GROUP, "probe", "earliest")
            await store.unpin(OWN_GROUP, "probe")
            yield Finding("ok", what, "is there, and can be written")
            what = "leases"
            if group is not None and await store.leased_streams(group):
                yield _leases(await stored_leases(store, group, None))
    except ConsumerSdkError as error:
        yield Finding("FAIL", what, " ".join(str(error).split()))


def _leases(found: Mapping[str, LeaseView | CheckpointFormatError]) -> Finding:
    damaged = [str(view) for view in found.values() if isinstance(view, Exception)]
    if damaged:
        return Finding("FAIL", "leases", "; ".join(damaged), "see `consumer-sdk leases remove`")
    views = [view for view in found.values() if isinstance(view, LeaseView)]
    held = sum(lease.owner is not None for view in views for lease in view.leases.values())
    return Finding("ok", "leases", f"{held} are held")


async def _standing(arguments: Namespace, reader: RangeReader, name: str) -> Finding:
    """How far the group is behind, beside what is stored."""
    try:
        if arguments.store is None:
            return await _retention(Group(reader, name, None))
        async with opened_store(arguments.store) as store:
            return await _retention(Group(reader, name, store))
    except ConsumerSdkError as error:
        return Finding("FAIL", "retention", " ".join(str(error).split()))


async def _retention(group: Group) -> Finding:
    rows = [row for row in await group_lags(group, None) if row.start is not None and row.records]
    if not rows:
        return Finding("ok", "retention", "the group is behind nowhere, or stands nowhere yet")
    worst = max(rows, key=lambda row: row.seconds)
    partition = Partition(worst.stream, worst.partition)
    bounds = (await group.bounds([partition]))[partition]
    if group.reader.decode_position(worst.start or "") < bounds.first:
        return Finding(
            "FAIL",
            "retention",
            f"{partition}: the group stands at {worst.start}, and what comes before "
            f"{group.reader.encode_position(bounds.first)} was deleted",
            "that is lost to it; out_of_range= of the consumer says where it goes on",
        )
    oldest = await _time_at(group.reader, PartitionRange(partition, bounds.first, bounds.end))
    kept = 0.0 if oldest is None else time.time() - oldest
    return of_retention(str(partition), worst.seconds, kept)
