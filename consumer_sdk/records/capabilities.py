"""What a broker can and cannot do, as data."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

__all__ = ["Capabilities", "Kind"]


class Kind(enum.Enum):
    """How a broker remembers what was settled."""

    LOG = "log"
    """A watermark with settled ranges above it; order is kept."""
    QUEUE = "queue"
    """Only what was settled, one by one; the broker redelivers the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an adapter can do: differences between brokers are data, checked at start-up.

    Attributes:
        kind: LOG or QUEUE.
        commits: the broker keeps a position for the group, so that no store is needed.
        metadata_size: characters of metadata that a commit can carry; 0 for none.
        wants_settled: flushes must name every newly settled record (its native handle).
            What is redelivered although it was settled is then named again. The broker may deliver
            late, below others, what it has not delivered before: see `Adapter.gaps`.
        wants_ends: `Adapter.commit` is told of checkpoints that have ended, once they are durable.
        keeps_key_order: the records of a key come to one consumer, in order.
        needs_leases: assignments come from leases, so that a store which has them is required.
        pauses_partitions: one partition can be paused alone.
        counts_deliveries: the broker counts how often it has delivered each record, for all consumers
            together: `Run.deliveries`. No store is needed for that.
        max_deliveries: of a record; this one goes to the dead letters, and to no handler: the broker gives
            a record up without a word after its last delivery, this one or the next. None for no limit.
        longest_hold: seconds that a record may wait here for its next attempt. One that has to wait
            longer is given back: `AckFlush.released`.
        max_unacked: how many unsettled records the broker allows; None for no limit.
        lag_unit: ``"records"``, ``"milliseconds"`` or None.
        knows_ends: the broker can say which position is next at a partition's end. Where it cannot,
            "latest" is pinned as the time of its clock, and there is no check of ranges.
        tells_new: `Adapter.committed` tells a group that has never been from one that has done
            nothing. Where it cannot, the broker's cursor decides alone, and there is no ``start``.
    """

    kind: Kind = Kind.LOG
    commits: bool = True
    metadata_size: int = 0
    wants_settled: bool = False
    wants_ends: bool = False
    keeps_key_order: bool = True
    needs_leases: bool = False
    pauses_partitions: bool = True
    counts_deliveries: bool = False
    max_deliveries: int | None = None
    longest_hold: float = math.inf
    max_unacked: int | None = None
    lag_unit: str | None = "records"
    knows_ends: bool = True
    tells_new: bool = True
