"""What Spark keeps in its offset log: how far each partition was read.

The wanted start of a query ("latest", a time, where the group stands) means another position each time
that the broker is asked. So each query starts at a constant, `INITIAL`. The end of the micro-batch in
which a partition is first read says in ``since`` where that partition began. Spark makes an end durable
before it runs the micro-batch: after a crash it plans the same range again, and nobody else has to
remember where it began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from consumer_sdk.errors import CheckpointFormatError
from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Partition, Position
from consumer_sdk.spark_bridge.errors import OffsetFormatError

__all__ = ["EMPTY", "INITIAL", "Offsets", "empty_batch"]

VERSION = 1

SHOWN = 200
"""Characters of a foreign offset that an error quotes."""

EMPTY = "empty"
"""Marks the end of an empty batch, so that it differs from where that begins."""

INITIAL: dict[str, Any] = {"version": VERSION, "positions": {}}
"""What ``initialOffset`` returns, always: nothing is known of any partition yet."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Positions of partitions; all below them is read.

    Attributes:
        positions: the next position of each partition.
        since: where the batch that this ends began to read partitions that its start does not
            know: all in the first batch, later those that are new.
        is_begun: it is not the initial one, even if it has no positions: there were no partitions,
            or all are gone. What comes then is new, and read from its first record.
    """

    positions: Mapping[Partition, Position] = field(default_factory=dict)
    since: Mapping[Partition, Position] = field(default_factory=dict)
    is_begun: bool = field(default=False, kw_only=True)

    @property
    def is_initial(self) -> bool:
        """It is `INITIAL`: the wanted start is still to be resolved."""
        return not self.positions and not self.since and not self.is_begun

    def unknown(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Those of ``partitions`` that it says nothing of: they are new."""
        return [partition for partition in partitions if partition not in self.positions]

    def advance(
        self, stops: Mapping[Partition, Position], since: Mapping[Partition, Position]
    ) -> Offsets:
        """The end of the batch that starts here; itself if that would be empty.

        Spark takes another text for news: a batch that reads nothing has to end in the very
        offset that it started from, ``since`` included.

        Args:
            stops: where each partition is read up to; those that are gone are left out.
            since: where partitions begin that are not known here, at the least.
        """
        if stops == self.positions and not self.is_initial:
            return self
        begins = {partition: since[partition] for partition in self.unknown(stops)}
        return Offsets(stops, begins, is_begun=not stops)

    def ranges_to(self, end: Offsets) -> list[PartitionRange]:
        """What the batch from here to ``end`` reads: sorted, empty and reversed ones included.

        Raises:
            OffsetFormatError: neither says where a partition begins.
        """
        begins = {**end.since, **self.positions}
        try:
            return [PartitionRange(p, begins[p], end.positions[p]) for p in sorted(end.positions)]
        except KeyError as error:
            raise OffsetFormatError(
                f"the checkpoint does not say where {error.args[0]} began: start the query "
                f"with a new checkpoint directory"
            ) from error

    def gone_in(self, end: Offsets) -> list[Partition]:
        """Partitions that ``end`` no longer has, sorted."""
        return sorted(self.positions.keys() - end.positions.keys())

    def to_json(self, encode: Callable[[Position], str]) -> dict[str, Any]:
        """What Spark writes: equal offsets give equal texts, which is how Spark compares them."""
        body = INITIAL | {"positions": _texts(self.positions, encode)}
        if self.since:
            body["since"] = _texts(self.since, encode)
        return body | {"begun": True} if self.is_begun else body

    @classmethod
    def from_json(cls, body: Any, decode: Callable[[str], Position]) -> Offsets:
        """Reads `to_json` back.

        Raises:
            OffsetFormatError: another source wrote it, or it is for another broker.
        """
        if not isinstance(body, dict) or not {"version", "positions"} <= body.keys():
            raise _not_ours(body, "has another form")
        if body["version"] != VERSION:
            raise _not_ours(body, f"has version {body['version']!r}, not {VERSION}")
        if extra := sorted(body.keys() - {"version", "positions", "since", "begun", EMPTY}):
            raise _not_ours(body, f"has {', '.join(map(repr, extra))} too")
        try:
            positions, since = (_read(body.get(n, {}), decode) for n in ("positions", "since"))
            return cls(positions, since, is_begun=bool(body.get("begun")))
        except (AttributeError, TypeError, CheckpointFormatError) as error:
            raise _not_ours(body, f"names a position of another kind ({error})") from error


def empty_batch(start: dict[str, Any]) -> dict[str, Any] | None:
    """The end of a batch without records from ``start``; None where that ends one itself."""
    if EMPTY in start:
        return None
    return {name: start[name] for name in start if name != "since"} | {EMPTY: True}


def _texts(
    positions: Mapping[Partition, Position], encode: Callable[[Position], str]
) -> dict[str, dict[str, str]]:
    streams: dict[str, dict[str, str]] = {}
    for partition in sorted(positions):
        streams.setdefault(partition.stream, {})[partition.id] = encode(positions[partition])
    return streams


def _read(streams: Any, decode: Callable[[str], Position]) -> dict[Partition, Position]:
    found = {
        Partition(stream, id_): text
        for stream, partitions in streams.items()
        for id_, text in partitions.items()
    }
    if not all(isinstance(text, str) for text in found.values()):
        raise TypeError("a position is not a text")
    return {partition: decode(text) for partition, text in found.items()}


def _not_ours(body: Any, why: str) -> OffsetFormatError:
    shown = repr(body)
    if len(shown) > SHOWN:
        shown = f"{shown[:SHOWN]}…"
    return OffsetFormatError(
        f"the offset {shown} in Spark's checkpoint {why}: "
        f"the checkpoint belongs to another source, broker or version; give the query a "
        f"checkpoint directory of its own"
    )
