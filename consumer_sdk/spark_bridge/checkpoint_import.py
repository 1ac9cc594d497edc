"""Converts the checkpoint of a query on Spark's own Kafka source for the same query on this source.

Most of a checkpoint has the same form for both sources: numbers of micro-batches, commits, state.
Each file of ``offsets/`` has a line for each source, in the source's own form. Those lines are
rewritten, and the rest is copied.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Partition, Position
from consumer_sdk.spark_bridge.errors import OffsetFormatError
from consumer_sdk.spark_bridge.pull.planning.offsets import Offsets

__all__ = ["import_checkpoint"]

_Positions = Mapping[Partition, Position]


def import_checkpoint(old: str | PathLike[str], new: str | PathLike[str]) -> None:
    """Makes a checkpoint with which ``format("consumer_sdk")`` goes on where ``format("kafka")`` was.

    Stop the old query first. A micro-batch that the old query had planned and not finished is run
    again, with the same number and the same records. The query's state is kept. The new query needs
    the same sources in the same order, and the same operators. ``old`` is not changed.

    Args:
        old: the ``checkpointLocation`` of the old query, on a file system of this machine.
        new: the ``checkpointLocation`` of the new query, which must not exist yet.

    Raises:
        ConfigurationError: ``old`` is no checkpoint, or ``new`` exists.
        OffsetFormatError: no source of the old query was Spark's Kafka source, or a newer Spark
            wrote it in another form.
    """
    source, target = Path(old), Path(new)
    if not (source / "offsets").is_dir():
        raise ConfigurationError(
            f"{source} is no checkpoint of a streaming query: no offsets/ in it"
        )
    if target.exists():
        raise ConfigurationError(f"{target} exists: give a directory that does not")
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    try:
        shutil.copytree(source, made, dirs_exist_ok=True, ignore=_is_in_the_way)
        _rewrite(source, made)
        made.rename(target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _is_in_the_way(folder: str, names: Sequence[str]) -> set[str]:
    """What belongs to the old source, and checksums of files that are rewritten."""
    if Path(folder).name == "offsets":
        return {name for name in names if name.endswith(".crc")}
    return {"sources"} & set(names)


def _rewrite(source: Path, made: Path) -> None:
    before: dict[int, _Positions] = {}
    logs = sorted(made.glob("offsets/[0-9]*"), key=lambda path: int(path.name))
    for log in logs:
        head, lines = _read(log)
        for place, line in enumerate(lines):
            positions = _kafkas(line)
            if positions is not None:
                begins = (
                    _initial(source, place) if log.name == "0" else _new(before, place, positions)
                )
                lines[place] = _ours(begins, positions)
                before[place] = positions
        log.write_text("\n".join([*head, *lines]), encoding="utf-8")
    if not before:
        raise OffsetFormatError(f"{source}: no source of its query was Spark's Kafka source")


def _read(log: Path) -> tuple[list[str], list[str]]:
    """Version and metadata, and a line for each source."""
    lines = log.read_text(encoding="utf-8").split("\n")
    if lines[0] != "v1":
        raise OffsetFormatError(f"offsets/{log.name} has version {lines[0]!r}, not 'v1'")
    return lines[:2], lines[2:]


def _initial(source: Path, place: int) -> _Positions:
    """Where a source began: Spark's Kafka source has a file for that."""
    path = source / "sources" / str(place) / "0"
    # A zero byte for Spark 2.1, the version, and the positions.
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return _kafkas(text.rpartition("\n")[2]) or {}


def _new(before: Mapping[int, _Positions], place: int, positions: _Positions) -> _Positions:
    """Spark's source reads a partition that is new from 0; if that is gone, records are lost."""
    known = before.get(place, positions)
    return {each: 0 for each in positions if each not in known}


def _kafkas(line: str) -> _Positions | None:
    """``{"orders":{"0":41}}``; None if it is another source's."""
    try:
        body = json.loads(line)
    except ValueError:
        return None
    if not isinstance(body, dict) or not all(map(_are_offsets, body.values())):
        return None
    return {Partition(topic, id_): at for topic, each in body.items() for id_, at in each.items()}


def _are_offsets(found: Any) -> bool:
    return isinstance(found, dict) and all(
        id_.isdecimal() and type(at) is int for id_, at in found.items()
    )


def _ours(begins: _Positions, positions: _Positions) -> str:
    since = {each: at for each, at in begins.items() if each in positions}
    return json.dumps(Offsets(positions, since, is_begun=not positions).to_json(str))
