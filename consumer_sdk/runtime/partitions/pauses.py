"""Which partitions a person has paused: kept while they move away and come back; pure."""

from __future__ import annotations

from consumer_sdk.records import Partition

__all__ = ["Pauses"]


class Pauses:
    """What was paused by hand, and why: single partitions, or all but some."""

    def __init__(self) -> None:
        self._some: dict[Partition, str] = {}
        self._all: str | None = None
        self._spared: set[Partition] = set()

    def pause(self, partition: Partition | None, reason: str) -> None:
        """Pauses one, or all of now and later for None."""
        if partition is None:
            self._all = reason
            self._spared.clear()
        else:
            self._some[partition] = reason

    def resume(self, partition: Partition | None) -> None:
        """Ends the pause of one, also where all are paused; or of all for None."""
        if partition is None:
            self._all = None
            self._some.clear()
        else:
            self._some.pop(partition, None)
            if self._all is not None:
                self._spared.add(partition)

    def reason(self, partition: Partition) -> str | None:
        """Why it is paused; None if it is not."""
        return self._some.get(partition, None if partition in self._spared else self._all)

    def own_reason(self, partition: Partition) -> str | None:
        """Why it was paused by itself; None if it was not."""
        return self._some.get(partition)
