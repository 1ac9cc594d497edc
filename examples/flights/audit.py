"""Checks the demo's promise: each produced record was either processed once or dead-lettered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from examples.flights.ledger import Origin
from examples.flights.progress import number


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Counts records by their origin, from both ends of the pipe.

    Attributes:
        produced: records that the producer counted.
        processed: records of the topic that Spark saw.
        dead_lettered: records of the topic found among the dead letters.
        missing: records of the topic that are in neither.
        both: seen *and* dead-lettered.
        repeated: seen more than once.
        strange: seen or dead-lettered, although they are not in the topic.
        redelivered: delivered to the handler again after the kill.
    """

    produced: int
    processed: int
    dead_lettered: int
    missing: int
    both: int
    repeated: int
    strange: int
    redelivered: int

    @property
    def adds_up(self) -> bool:
        """Produced = processed + dead-lettered, record by record."""
        wrong = self.missing + self.both + self.repeated + self.strange
        return wrong == 0 and self.produced == self.processed + self.dead_lettered

    def __str__(self) -> str:
        sign = "=" if self.adds_up else "!="
        line = (
            f"produced {number(self.produced)} {sign} processed {number(self.processed)}"
            f" + dead-lettered {number(self.dead_lettered)}; redelivered {number(self.redelivered)}"
        )
        wrong = {name: getattr(self, name) for name in ("missing", "both", "repeated", "strange")}
        details = ", ".join(f"{name} {number(count)}" for name, count in wrong.items() if count)
        return f"{line} (wrong: {details})" if details else line


def audit(
    produced: int,
    ends: Mapping[int, int],
    seen: Counter[Origin],
    dead: AbstractSet[Origin],
    redelivered: int,
) -> Audit:
    """Compares the topic with the records that Spark saw and with the dead letters.

    Args:
        produced: how many records the producer counted.
        ends: the end offset of each partition of a topic made for this run.
        seen: how often Spark saw each record.
        dead: the origins of the dead letters; a letter may be written twice and counts once.
        redelivered: how many deliveries were repeated.
    """
    made = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    return Audit(
        produced=produced,
        processed=len(made & seen.keys()),
        dead_lettered=len(made & dead),
        missing=len(made - seen.keys() - dead),
        both=len(seen.keys() & dead),
        repeated=sum(count > 1 for count in seen.values()),
        strange=len((seen.keys() | dead) - made),
        redelivered=redelivered,
    )
