"""What a run of kills has come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.integration.spark_kills.sink import Row

__all__ = ["Figures", "Looks"]


@dataclass
class Looks:
    """Comparisons of where the group stands with what is known to be done.

    Attributes:
        made: all of them.
        exact: nothing was logged as done while the broker was asked.
        ahead: partitions that stood further than that, with both positions.
    """

    made: int = 0
    exact: int = 0
    ahead: list[str] = field(default_factory=list)

    def take(
        self, group: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> None:
        """Compares.

        Args:
            group: where the group stands, by partition.
            before: what was done before the broker was asked; it lacks what was never read.
            after: likewise afterwards.
        """
        self.made += 1
        self.exact += before == after
        self.ahead += [
            f"{partition}: {at} > {after.get(partition)}"
            for partition, at in group.items()
            if partition not in after or at > after[partition]
        ]


@dataclass
class Figures:
    """What was claimed of one run, and what it shows besides.

    Attributes:
        kills: by what was killed.
        sent: records that the broker has.
        lost: of them, those that the sink lacks.
        duplicates: how often a record was there once more than once.
        strange: rows of the sink that nobody sent.
        looks: at the group's position.
        within_batch: kills while a batch ran.
        repeated: batches that ran again.
        differing: of them, those that held other rows.
        failed: how often the query failed.
        orphans: processes that outlived their driver by long, and were killed.
        recoveries: seconds from a kill to the first record in the sink that was sent afterwards.
        lag: of the group in the end.
    """

    kills: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    lost: int = 0
    duplicates: int = 0
    strange: int = 0
    looks: Looks = field(default_factory=Looks)
    within_batch: int = 0
    repeated: int = 0
    differing: int = 0
    failed: int = 0
    orphans: int = 0
    recoveries: list[float] = field(default_factory=list)
    lag: int | None = None

    def count_rows(self, sent: Collection[Row], rows: Iterable[Row]) -> None:
        """Compares what was sent with what arrived."""
        counts = Counter(rows)
        wanted = set(sent)
        self.sent = len(wanted)
        self.lost = len(wanted - counts.keys())
        self.strange = len(counts.keys() - wanted)
        self.duplicates = sum(counts.values()) - len(counts)

    def check(self) -> None:
        """Everything that is claimed."""
        text = str(self)
        assert self.sent > 0, text
        assert (self.lost, self.duplicates, self.strange) == (0, 0, 0), text
        assert not self.looks.ahead, text
        assert self.looks.exact > 0, text
        assert self.differing == 0, text
        assert self.lag == 0, text

    def __str__(self) -> str:
        kills = ", ".join(f"{count} of {target}" for target, count in sorted(self.kills.items()))
        longest = max(self.recoveries, default=0.0)
        return (
            f"kills: {kills}, {self.within_batch} within a batch; {self.sent} records, "
            f"{self.lost} lost, {self.duplicates} duplicates, {self.strange} strange; "
            f"{self.looks.made} looks at the group, {self.looks.exact} exact, "
            f"ahead: {self.looks.ahead[:5] or 'never'}; {self.repeated} batches ran again, "
            f"{self.differing} with other rows; the query failed {self.failed} times; "
            f"{self.orphans} orphans; longest recovery {longest:.1f} s; lag {self.lag}"
        )
