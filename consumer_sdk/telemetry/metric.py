"""The form of a metric, apart from where its values come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from consumer_sdk.runtime import HistogramSnapshot

__all__ = ["Kind", "Labels", "Metric", "Readers", "Reading", "Single", "system"]

SYSTEMS = {"kinesis": "aws_kinesis"}
"""Brokers that OpenTelemetry's conventions, or their users, call by another name."""

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = Mapping[str, str]


class Reading(NamedTuple):
    """One value of a metric."""

    labels: Labels
    value: float | HistogramSnapshot


Readers: TypeAlias = Mapping[type, Callable[[Any], Iterator[Reading]]]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: as OpenTelemetry has it.
        kind: what it is; a counter never falls while what is counted lives.
        unit: in UCUM, such as ``"s"`` or ``"{message}"``.
        description: one line.
        labels: those that its values may have, besides the system and the group.
        readers: a type of snapshot → its values in one, without the labels that all of that have.
        is_common: a gauge of something that several may look at: the largest value counts.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    labels: tuple[str, ...]
    readers: Readers
    is_common: bool = False


S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Single(Generic[S]):
    """Makes metrics with one value, or none, for each snapshot of a type.

    Attributes:
        seen: the type of the snapshots.
        labels: those that its values have, besides the system and the group.
        is_live: whether a snapshot's gauges are shown; its counters always are.
    """

    seen: type[S]
    labels: tuple[str, ...] = ()
    is_live: Callable[[S], bool] = lambda _: True

    def __call__(
        self,
        name: str,
        kind: Kind,
        unit: str,
        description: str,
        value: Callable[[S], float | None],
        *,
        is_common: bool = False,
    ) -> Metric:
        """A metric; a value that is None or no finite number is left out."""

        def read(snapshot: S) -> Iterator[Reading]:
            number = value(snapshot) if kind == "counter" or self.is_live(snapshot) else None
            if number is not None and math.isfinite(number):
                yield Reading({}, number)

        return Metric(name, kind, unit, description, self.labels, {self.seen: read}, is_common)


def system(broker: str) -> str:
    """``messaging.system`` of a broker."""
    return SYSTEMS.get(broker, broker)
