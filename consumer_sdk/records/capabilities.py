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
    """What an adapter can do. Differences between brokers are data, which the runtime checks at the start.

    Attributes:
        kind: LOG or QUEUE.
        commits: the broker keeps a position for the group, so that no store is needed.
        metadata_size: characters of metadata that a commit can carry; 0 for none.
        wants_settled: a flush has to name every newly settled record (its native handle). A settled
            record that the broker redelivers is named again. The broker may deliver a record late,
            below others: see `Adapter.gaps`.
        wants_ends: `Adapter.commit` gets checkpoints that have ended, when they are durable.
        keeps_key_order: the records of a key come to one consumer, in order.
        needs_leases: assignments come from leases, so that a store which has them is required.
        pauses_partitions: one partition can be paused alone.
        counts_deliveries: the broker counts how often it has delivered each record, for all consumers
            together: `Run.deliveries`. No store is needed for that.
        max_deliveries: the delivery at which a record goes to the dead letters, and to no handler.
            The broker silently drops a record after its last delivery, which is this one or the
            next. None for no limit.
        longest_hold: seconds that a record may wait in this consumer for its next attempt. A record
            that has to wait longer is given back: `AckFlush.released`.
        max_unacked: how many unsettled records the broker allows; None for no limit.
        lag_unit: ``"records"``, ``"milliseconds"`` or None.
        knows_ends: the broker can tell the next position at a partition's end. If it cannot,
            "latest" is pinned as the time of the broker's clock, and ranges are not checked.
        tells_new: `Adapter.committed` distinguishes a new group from one that has committed
            nothing. If it cannot, the broker's cursor alone decides, and ``start`` is refused.
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
