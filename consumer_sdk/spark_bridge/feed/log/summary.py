"""What is left of manifests whose segments were deleted.

Summary ``N`` says that no segment below manifest ``N`` is to be read any more, and which integer
positions those had. Text positions would make it large: manifests that have some stay, for as
long as the feed remembers them, and the summary names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from consumer_sdk.spark_bridge.feed.log.manifest_json import damaged, decode, encode

__all__ = ["Summary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Everything below one number.

    Attributes:
        number: the first manifest whose segment is kept.
        ranges: partition's text form → closed intervals of integer positions that the feed has
            or had. It may name later ones too.
        remembered: closed intervals of the numbers below whose manifests are kept for their
            text positions.
        at: the latest time that a manifest says, as there.
    """

    number: int = 0
    ranges: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    remembered: Sequence[tuple[int, int]] = ()
    at: int = 0

    def remembers(self, number: int) -> bool:
        """Manifest ``number``, below this one, is kept."""
        return any(first <= number <= last for first, last in self.remembered)

    def encode(self) -> bytes:
        """Canonical JSON with its own checksum."""
        return encode(
            {
                "summary": self.number,
                "ranges": self.ranges,
                "remembered": self.remembered,
                "at": self.at,
            }
        )

    @classmethod
    def decode(cls, data: bytes, number: int, where: str) -> Summary:
        """Reads `encode` back.

        Raises:
            FeedFormatError: ``data`` is not summary ``number``, or was changed.
        """
        fields = decode(data, where)
        if fields.body.get("summary") != number:
            raise damaged(where, f"it is not summary {number}")
        return cls(
            number=number,
            ranges=fields.intervals_by_key("ranges"),
            remembered=fields.intervals("remembered"),
            at=fields.integer("at"),
        )
