"""``leases``: shows who reads which partition, and lets operators change that."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import quote

from consumer_sdk.cli.groups.checkpoints import opened_store, partition_of
from consumer_sdk.cli.terminal import Rows, say_count
from consumer_sdk.cli.times import shown_time
from consumer_sdk.errors import CheckpointFormatError, ConfigurationError, ConsumerSdkError
from consumer_sdk.leases.stores import evict, stored_leases
from consumer_sdk.records import Partition
from consumer_sdk.records.leases import Lease, LeaseView
from consumer_sdk.stores.exchange.exchange import ImportRefusedError
from consumer_sdk.stores.reopening import reopen_ended

__all__ = ["release", "remove", "reopen", "show"]


async def show(arguments: Namespace) -> None:
    """Writes a line for each lease."""
    streams = None if arguments.stream is None else {arguments.stream}
    async with opened_store(arguments.store, must_exist=True) as store:
        found = await stored_leases(store, arguments.group, streams)
    with Rows(is_json=arguments.json) as rows:
        for row in _rows(found):
            rows.say(row, _line(row))
    if damaged := [str(error) for error in found.values() if isinstance(error, Exception)]:
        raise CheckpointFormatError("; ".join(damaged))


def _rows(found: Mapping[str, LeaseView | CheckpointFormatError]) -> Iterator[dict[str, Any]]:
    for name, view in found.items():
        if isinstance(view, LeaseView):
            for partition, lease in sorted(view.leases.items()):
                yield {"stream": name, "partition": partition, **_row(lease, view)}


def _row(lease: Lease, view: LeaseView) -> dict[str, Any]:
    """`is_member`: the owner is registered; one that was killed may be so for a while."""
    return {**asdict(lease), "is_member": lease.owner in view.members}


def _line(row: Mapping[str, Any]) -> str:
    where = "/".join(_quoted(row[name]) for name in ("stream", "partition"))
    return "\t".join(
        (where, _state(row), f"since {shown_time(row['since'])}", f"fence {row['fence']}")
    )


def _quoted(name: str) -> str:
    """As ``--partition`` takes it; what was damaged may hold half of a surrogate pair."""
    return quote(name, safe="", errors="backslashreplace")


def _state(row: Mapping[str, Any]) -> str:
    if row["ended"]:
        return "ended"
    if row["owner"] is None:
        return "nobody's"
    gone = "" if row["is_member"] else ", who is gone"
    wanted = f", wanted by {row['wanted_by']}" if row["wanted_by"] else ""
    return f"held by {row['owner']}{gone}{wanted}"


async def release(arguments: Namespace) -> None:
    """Takes partitions from their holders; without ``--yes`` says which.

    All are looked at before any is taken.

    Raises:
        ConfigurationError: there is no such lease, or nobody holds it.
        CheckpointFormatError: the leases cannot be read.
        ImportRefusedError: a holder may live, and that is not forced.
        ConsumerSdkError: one has changed hands meanwhile.
    """
    partitions = list(dict.fromkeys(map(partition_of, arguments.partition)))
    async with opened_store(arguments.store, must_exist=True) as store:
        streams = {each.stream for each in partitions}
        found = await stored_leases(store, arguments.group, streams)
        rows = {each: _held(each, found.get(each.stream)) for each in partitions}
        gone: set[Partition] = set()
        if arguments.yes:
            _check_dead(rows.values(), force=arguments.force)
            seen = {each: row["fence"] for each, row in rows.items()}
            gone = await evict(store, arguments.group, seen)
            if len(gone) < len(seen):
                found = await stored_leases(store, arguments.group, streams)
                gone |= {each for each in seen if _is_free(found.get(each.stream), each, seen)}
    with Rows(is_json=arguments.json) as shown:
        for each, row in rows.items():
            is_released = each in gone
            line = _released_line(row, arguments, is_released=is_released)
            shown.say({**row, "released": is_released}, line)
    if not arguments.yes:
        sys.stdout.write("" if arguments.json else "nothing was released; --yes does it\n")
    elif kept := [f"{each}" for each in rows if each not in gone]:
        raise ConsumerSdkError(
            f"{', '.join(kept)}: changed hands meanwhile, and stays; see `leases list`"
        )


def _held(
    partition: Partition, view: LeaseView | CheckpointFormatError | None
) -> Mapping[str, Any]:
    """The row in `list` of a lease that somebody holds."""
    if isinstance(view, CheckpointFormatError):
        raise view
    lease = None if view is None else view.leases.get(partition.id)
    if view is None or lease is None:
        raise ConfigurationError(
            f"--partition {partition}: there is no such lease; `leases list` writes those there are"
        )
    if lease.owner is None:
        state = "has ended: `leases reopen` takes that back" if lease.ended else "is nobody's"
        raise ConfigurationError(f"--partition {partition} {state}; nobody holds it")
    return {"stream": partition.stream, "partition": partition.id, **_row(lease, view)}


def _is_free(
    view: LeaseView | CheckpointFormatError | None,
    partition: Partition,
    seen: Mapping[Partition, int],
) -> bool:
    """Whether nobody holds the lease under the fence that was seen: its holder has released it itself."""
    lease = view.leases.get(partition.id) if isinstance(view, LeaseView) else None
    return lease is not None and lease == replace(
        lease, owner=None, ended=False, fence=seen[partition]
    )


def _check_dead(rows: Iterable[Mapping[str, Any]], *, force: bool) -> None:
    alive = sorted({row["owner"] for row in rows if row["is_member"]})
    if alive and not force:
        raise ImportRefusedError(
            f"nothing was released, the holder seems to live: stop it, which hands over without a "
            f"repeat, or give --force: {', '.join(alive):.200}"
        )


def _released_line(row: Mapping[str, Any], arguments: Namespace, *, is_released: bool) -> str:
    verb = "would be released" if not arguments.yes else "released" if is_released else "stays"
    needed = row["is_member"] and not arguments.force and not arguments.yes
    return f"{_line(row)}\t{verb}{' with --force' if needed else ''}"


async def reopen(arguments: Namespace) -> None:
    """Has partitions read again that were marked as ended; what is settled stays settled."""
    partitions = list(map(partition_of, arguments.partition))
    async with opened_store(arguments.store, must_exist=True) as store:
        reopened = await reopen_ended(store, arguments.group, partitions)
    say_count("reopened", len(reopened), is_json=arguments.json)


async def remove(arguments: Namespace) -> None:
    """Removes the leases of a stream, also those that cannot be read."""
    async with opened_store(arguments.store, must_exist=True) as store:
        leases = None
        if arguments.stream in await store.leased_streams(arguments.group):
            leases = store.leases(arguments.group, arguments.stream)
        was_there = leases is not None and await leases.clear()
    say_count("removed", int(was_there), is_json=arguments.json)
