"""The leases of one group and stream as one text: what may be changed, and how. No I/O.

The text is JSON that a person can read::

    {"version":1,"identity":"arn:…","fence":17,"leases":{
      "shardId-000000000000":{"ended":true,"fence":3,"since":1763000000},
      "shardId-000000000001":{"owner":"9f…c2/host/4711","fence":17,"parents":["shardId-000000000000"]}}}

A field that a lease does not have means nobody, none, false or, for ``since``, not known: older versions
neither write nor keep that. Fences are counted for the whole stream. So the fence of a lease that was
removed and came back is above all earlier ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError
from consumer_sdk.records.leases import Lease, is_readable

__all__ = ["LeaseTable"]

VERSION = 1


@dataclass(slots=True)
class LeaseTable:
    """All leases of a stream in a group.

    Attributes:
        identity: that of the stream; None: not known.
        fence: the largest one so far.
        leases: by partition.
        rows: what was decoded, each with its lease: most are the same in the next text.
    """

    identity: str | None = None
    fence: int = 0
    leases: dict[str, Lease] = field(default_factory=dict)
    rows: dict[str, tuple[Any, Lease]] = field(default_factory=dict, compare=False, repr=False)

    def sync(self, parents: Mapping[str, Sequence[str]], identity: str | None) -> None:
        """See `consumer_sdk.abc.Leases.sync`."""
        if identity not in (None, self.identity):
            if self.identity is not None:
                _check_same_stream(self.identity, str(identity))
                self.leases.clear()
            self.identity = identity
        for partition, its_parents in parents.items():
            lease = self.leases.setdefault(partition, Lease())
            if lease.parents != tuple(its_parents):
                self.leases[partition] = replace(lease, parents=tuple(its_parents))
        for partition in [p for p in self.leases if p not in parents and self._is_done(p)]:
            del self.leases[partition]

    def _is_done(self, partition: str) -> bool:
        children = (lease for lease in self.leases.values() if partition in lease.parents)
        return self.leases[partition].ended and all(child.fence for child in children)

    def take(self, member: str, seen: Mapping[str, int]) -> dict[str, int]:
        """Takes what nobody else has taken since it was seen; returns the new fences."""
        untaken = [p for p, fence in seen.items() if self._is_untaken(p, fence)]
        return {partition: self._take(partition, member) for partition in untaken}

    def _is_untaken(self, partition: str, seen: int) -> bool:
        lease = self.leases.get(partition)
        return lease is not None and lease.fence == seen and is_readable(partition, self.leases)

    def _take(self, partition: str, member: str) -> int:
        self.fence += 1
        lease = self.leases[partition]
        self.leases[partition] = replace(lease, owner=member, fence=self.fence, wanted_by=None)
        return self.fence

    def want(self, member: str, partitions: Sequence[str]) -> None:
        """Leaves a mark on leases that somebody else owns."""
        for partition in partitions:
            lease = self.leases.get(partition)
            if lease is not None and lease.owner not in (None, member):
                self.leases[partition] = replace(lease, wanted_by=member)

    def unwant(self, member: str, partitions: Sequence[str]) -> None:
        """Takes back the member's own marks."""
        for partition in partitions:
            lease = self.leases.get(partition)
            if lease is not None and lease.wanted_by == member:
                self.leases[partition] = replace(lease, wanted_by=None)

    def release(self, member: str, held: Mapping[str, int], *, ended: bool) -> None:
        """Gives up what the member still owns under these fences."""
        for partition, fence in held.items():
            if self.is_held(member, partition, fence):
                lease = self.leases[partition]
                wanted_by = None if ended else lease.wanted_by
                self.leases[partition] = replace(
                    lease, owner=None, wanted_by=wanted_by, ended=ended
                )

    def evict(self, seen: Mapping[str, int]) -> list[str]:
        """Takes from their owners what nobody has taken or released since; returns what it took."""
        owned = [
            partition
            for partition, fence in seen.items()
            if (lease := self.leases.get(partition)) is not None
            and lease.owner is not None
            and lease.fence == fence
        ]
        for partition in owned:
            self.leases[partition] = replace(self.leases[partition], owner=None)
        return owned

    def reopen(self, partitions: Sequence[str] | None) -> None:
        """See `consumer_sdk.abc.Leases.reopen`."""
        for partition in self.leases if partitions is None else partitions:
            lease = self.leases.get(partition)
            if lease is not None and (lease.ended or lease.owner is not None):
                self.leases[partition] = replace(lease, owner=None, wanted_by=None, ended=False)

    def date(self, before: LeaseTable, now: float) -> None:
        """Notes the time in each lease that somebody has taken, released or ended since."""
        for partition, lease in self.leases.items():
            old = before.leases.get(partition, Lease())
            if lease is not old and _tenure(lease) != _tenure(old):
                self.leases[partition] = replace(lease, since=int(now))

    def is_held(self, member: str, partition: str, fence: int) -> bool:
        """The member owns the partition since it took it under this fence."""
        lease = self.leases.get(partition)
        return lease is not None and (lease.owner, lease.fence) == (member, fence)

    def copy(self) -> LeaseTable:
        """Another table with the same leases."""
        return replace(self, leases=dict(self.leases))

    def encode(self) -> str:
        """The text to be stored."""
        leases = {partition: _row(lease) for partition, lease in self.leases.items()}
        body = {"version": VERSION, "identity": self.identity, "fence": self.fence}
        return json.dumps({**body, "leases": leases}, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str, where: str, last: LeaseTable | None = None) -> LeaseTable:
        """Reads `encode` back.

        Args:
            last: what was decoded before, of which most may be the same.

        Raises:
            CheckpointFormatError: somebody else has written it, or a newer version of this program.
        """
        try:
            return _table(json.loads(text), {} if last is None else last.rows)
        except (ValueError, RecursionError) as error:
            raise CheckpointFormatError(
                f"{where} holds no leases that can be read ({error}): nothing was changed. Upgrade "
                f"this program if a newer one has written it; else remove them by `consumer-sdk "
                f"leases remove`: members take theirs anew, and read on at the checkpoints"
            ) from error


def _tenure(lease: Lease) -> tuple[str | None, int, bool]:
    return lease.owner, lease.fence, lease.ended


def _check_same_stream(stored: str, found: str) -> None:
    """Two streams of one name would take each other's leases for those of an older incarnation."""
    if stored.rpartition("@")[0] != found.rpartition("@")[0]:
        raise CheckpointMismatchError(
            f"the leases of this group are of the stream {stored!r}, not of {found!r}, which has the "
            f"same name: use another group"
        )


def _row(lease: Lease) -> dict[str, Any]:
    row = {
        "owner": lease.owner,
        "fence": lease.fence,
        "wanted_by": lease.wanted_by,
        "ended": lease.ended,
        "parents": lease.parents,
        "since": lease.since,
    }
    return {name: value for name, value in row.items() if value}


def _table(body: Any, last: Mapping[str, tuple[Any, Lease]]) -> LeaseTable:
    body = _checked(body, dict, "the text")
    if (version := body.get("version")) != VERSION:
        raise ValueError(f"version {version!r:.80}, and this consumer_sdk knows version {VERSION}")
    rows = _checked(body.get("leases"), dict, "leases")
    read = {
        partition: known
        if (known := last.get(partition)) is not None and known[0] == row
        else (row, _named_lease(partition, row))
        for partition, row in rows.items()
    }
    table = LeaseTable(
        _optional(body, "identity"),
        _checked(body.get("fence"), int, "fence"),
        {partition: lease for partition, (_, lease) in read.items()},
        read,
    )
    if any(not 0 <= lease.fence <= table.fence for lease in table.leases.values()):
        raise ValueError("a fence is out of bounds")
    return table


def _named_lease(partition: str, row: Any) -> Lease:
    try:
        return _lease(_checked(row, dict, "the lease"))
    except ValueError as error:
        raise ValueError(f"{partition:.80}: {error}") from error


def _lease(row: dict[str, Any]) -> Lease:
    return Lease(
        tuple(
            _checked(p, str, "a parent") for p in _checked(row.get("parents", []), list, "parents")
        ),
        _optional(row, "owner"),
        _checked(row.get("fence", 0), int, "fence"),
        _optional(row, "wanted_by"),
        _checked(row.get("ended", False), bool, "ended"),
        _checked(row["since"], int, "since") if "since" in row else None,
    )


def _optional(row: dict[str, Any], name: str) -> str | None:
    value = row.get(name)
    return None if value is None else _checked(value, str, name)


def _checked(value: Any, kind: type, what: str) -> Any:
    if type(value) is not kind:  # a bool is no number here
        raise ValueError(f"{what} is {value!r:.80}")
    return value
