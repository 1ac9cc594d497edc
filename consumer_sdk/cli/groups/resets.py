"""``checkpoints reset`` and ``show``: where a group stands, and where it is to start."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from consumer_sdk.cli.groups.groups import Group, of_partitions, opened_group
from consumer_sdk.cli.groups.moves import (
    Bounds,
    Move,
    Span,
    between,
    open_below,
    parse_target,
    settled_from,
    standing,
)
from consumer_sdk.cli.terminal import Rows
from consumer_sdk.errors import AdapterError, CheckpointFormatError, ConfigurationError
from consumer_sdk.leases.stores import stored_leases
from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Checkpoint, LeaseView, Partition, Position
from consumer_sdk.stores.exchange.exchange import ImportRefusedError, import_checkpoints
from consumer_sdk.stores.exchange.lines import Entry
from consumer_sdk.trackers import encode_checkpoint

__all__ = ["reset", "show"]


async def show(arguments: Namespace) -> None:
    """Writes a line for each partition: where a consumer would start."""
    async with opened_group(arguments.url, arguments.store) as group:
        partitions = of_partitions(await group.reader.partitions(), arguments.partition)
        known = await group.checkpoints(partitions)
        with Rows(is_json=arguments.json) as rows:
            for partition in partitions:
                row = _row(group, partition, known[partition])
                rows.say(row, _line(row))


async def reset(arguments: Namespace) -> None:
    """Shows what a reset would do; with ``--yes`` does it."""
    if arguments.to is None and arguments.shift is None:
        raise ConfigurationError("where to? give --to, --shift or both")
    async with opened_group(arguments.url, arguments.store) as group:
        if group.reader.broker == "kinesis" and group.store is None:
            raise ConfigurationError("Kinesis keeps no positions: give --store, the consumers' own")
        partitions = of_partitions(await group.reader.partitions(), arguments.partition)
        known = await group.checkpoints(partitions)
        moves = await _moves(group, known, arguments)
        if arguments.yes:
            await _check_empty(group, partitions, force=arguments.force)
            await _write(group, known, moves)
        with Rows(is_json=arguments.json) as rows:
            for move in moves:
                row = _move_row(group, move, is_written=arguments.yes)
                rows.say(row, _move_line(move, row))
        if not (arguments.yes or arguments.json):
            sys.stdout.write("nothing was written; --yes does it\n")


# -- what it means ---------------------------------------------------------------------------------


async def _moves(
    group: Group, known: Mapping[Partition, Checkpoint | None], arguments: Namespace
) -> list[Move]:
    reader = group.reader
    bounds_of = await group.bounds(known.keys())
    wanted: Mapping[Partition, Position | None] = {}
    if arguments.to is not None:
        target = parse_target(arguments.to, reader.decode_position, time.time())
        wanted = await reader.positions(known.keys(), target)
    moves = []
    for partition, checkpoint in known.items():
        bounds = bounds_of[partition]
        current = standing(checkpoint, bounds)
        to = wanted.get(partition) if arguments.to is not None else current
        if to is None:  # no record is that new; without a position, the group's start is not known
            to = bounds.end if arguments.to is not None else bounds.first
        to = between(to, bounds)
        if arguments.shift:
            to = await _shifted(group, partition, to, arguments.shift, bounds)
        repeats = await _count(group, partition, settled_from(checkpoint, to, bounds))
        skips = await _count(group, partition, open_below(checkpoint, to, bounds))
        moves.append(Move(partition, current, to, repeats, skips))
    return moves


async def _shifted(
    group: Group, partition: Partition, at: Position, by: int, bounds: Bounds
) -> Position:
    if by > 0:
        ahead = PartitionRange(partition, at, bounds.end)
        return await group.reader.cut(ahead, by) if at < bounds.end else at
    left = await _count(group, partition, [(bounds.first, at)]) + by
    behind = PartitionRange(partition, bounds.first, at)
    return await group.reader.cut(behind, left) if left > 0 else bounds.first


async def _count(group: Group, partition: Partition, spans: Sequence[Span]) -> int:
    count = 0
    for first, end in spans:
        if first < end:
            wanted = PartitionRange(partition, first, end)
            count += (await group.reader.records([wanted]))[partition]
    return count


# -- writing ---------------------------------------------------------------------------------------


async def _check_empty(group: Group, partitions: Sequence[Partition], *, force: bool) -> None:
    members = list(await group.reader.members(group.name, partitions))
    if group.store is not None:
        streams = {each.stream for each in partitions}
        views = await stored_leases(group.store, group.name)
        for stream, view in views.items():
            if stream in streams and not force:
                if not isinstance(view, LeaseView):
                    raise CheckpointFormatError(f"leases of {stream!r}: {view}") from None
                members += view.members
    if members and not force:
        raise ImportRefusedError(
            f"group {group.name!r} runs, stop it first (or --force): {', '.join(members):.200}"
        )


async def _write(
    group: Group, known: Mapping[Partition, Checkpoint | None], moves: Sequence[Move]
) -> None:
    """Sets the broker first: a position that another program has set there overrides the store's."""
    outcomes = await group.reader.reset(group.name, {each.partition: each.to for each in moves})
    done = [each for each in moves if outcomes[each.partition].is_done]
    if group.store is not None:
        entries = [_entry(group, each, known[each.partition]) for each in done]
        await import_checkpoints(group.store, entries, force=True)
    failed = [each for each in moves if each not in done]
    if failed:
        error = outcomes[failed[0].partition].error
        raise AdapterError(f"{len(done)} partitions were reset, {len(failed)} were not: {error}")


def _entry(group: Group, move: Move, known: Checkpoint | None) -> Entry:
    checkpoint = (known or Checkpoint()).at(move.to)
    text = encode_checkpoint(
        checkpoint,
        broker=group.reader.broker,
        partition=move.partition,
        encode_position=group.reader.encode_position,
    )[0]
    return Entry("the reset", group.name, *move.partition, text)


# -- what is shown ---------------------------------------------------------------------------------


def _text(group: Group, position: Position | None) -> str | None:
    return None if position is None else group.reader.encode_position(position)


def _move_row(group: Group, move: Move, *, is_written: bool) -> dict[str, Any]:
    return {
        "stream": move.partition.stream,
        "partition": move.partition.id,
        "from": _text(group, move.current),
        "to": _text(group, move.to),
        "repeats": move.repeats,
        "skips": move.skips,
        "written": is_written,
    }


def _move_line(move: Move, row: Mapping[str, Any]) -> str:
    return (
        f"{move.partition}\t{row['from'] or '-'} → {row['to']}\t"
        f"repeats {move.repeats}, skips {move.skips}"
    )


def _row(group: Group, partition: Partition, checkpoint: Checkpoint | None) -> dict[str, Any]:
    row: dict[str, Any] = {"stream": partition.stream, "partition": partition.id}
    if checkpoint is None:
        return row | {"start": None}
    return row | {
        "start": _text(group, checkpoint.start),
        "watermark": _text(group, checkpoint.watermark),
        "ranges": [[_text(group, a), _text(group, b)] for a, b in checkpoint.ranges],
        "attempts": {str(_text(group, p)): n for p, (n, _due) in checkpoint.attempts.items()},
        "ended": checkpoint.ended,
    }


def _line(row: Mapping[str, Any]) -> str:
    where = f"{row['stream']}/{row['partition']}"
    if "ranges" not in row:
        return f"{where}\tno position"
    ranges = ", ".join(f"{first} to {last}" for first, last in row["ranges"])
    attempts = ", ".join(f"{at} failed {n} times" for at, n in row["attempts"].items())
    fields = [where, "ended" if row["ended"] else f"starts at {row['start']}"]
    fields += [f"settled above: {ranges}"] if ranges else []
    return "\t".join(fields + ([attempts] if attempts else []))
