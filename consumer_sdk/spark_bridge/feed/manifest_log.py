"""The numbered manifests of a feed directory: an append-only log, which writers claim number by number.

Rules:

- Manifest ``N`` comes into being whole, and only if there is none: of two writers that want
  ``N``, one gets it.
- A writer claims ``N`` only after it has read ``0..N-1``: there are no gaps, so that looking
  for news is one ``open`` and never a listing of the manifests.
- What has been read is made durable before anybody relies on it. Else a power cut could take
  back a manifest that Spark has checkpointed, and its number would be given to other records,
  which Spark would then skip.
- The log may be cut off from below: summary ``F`` is made durable first, then manifests below
  ``F`` (the floor) are deleted. Their names are free again, and a writer that was stopped
  meanwhile may claim one. So **nothing that was read or claimed at ``N`` counts unless the floor,
  asked for afterwards, is at most ``N``**: had a manifest at ``N`` been deleted before, the floor
  above it would have been there before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from consumer_sdk.spark_bridge.errors import FeedFormatError
from consumer_sdk.spark_bridge.feed.files import Files
from consumer_sdk.spark_bridge.feed.manifests import Manifest, Summary

__all__ = ["FOLDERS", "MANIFESTS", "READERS", "SEGMENTS", "SUMMARIES", "WRITERS", "ManifestLog"]


MANIFESTS = "manifests"
SEGMENTS = "segments"
SUMMARIES = "summaries"
READERS = "readers"
WRITERS = "writers"
FOLDERS = (SEGMENTS, MANIFESTS, SUMMARIES, READERS, WRITERS)
_SUFFIX = ".json"


class ManifestLog:
    """Reads, claims and cuts off manifests.

    Args:
        files: of the feed directory; its folders may not exist yet.
    """

    __slots__ = ("_durable", "files")

    def __init__(self, files: Files) -> None:
        self.files = files
        self._durable = 0

    def name(self, number: int) -> str:
        """The file of manifest ``number``."""
        return f"{MANIFESTS}/{_file(number)}"

    def read(self, number: int) -> Manifest:
        """Manifest ``number``.

        Raises:
            FeedFormatError: it is damaged, or is not there.
        """
        manifest = self.find(number)
        if manifest is None:
            raise FeedFormatError(
                f"manifest {self._where(self.name(number))} is missing: was the feed directory "
                "replaced, or does the checkpoint belong to another one?"
            )
        return manifest

    def find(self, number: int) -> Manifest | None:
        """Manifest ``number``, or None if it is not there."""
        name = self.name(number)
        try:
            data = self.files.read(name)
        except FileNotFoundError:
            return None
        return Manifest.decode(data, number, self._where(name))

    def news(self, number: int) -> Iterator[Manifest]:
        """Manifests from ``number`` on, as many as there are; all durable once exhausted."""
        while manifest := self.find(number):
            yield manifest
            number += 1
        self.sync(number)

    def sync(self, number: int) -> None:
        """Makes every manifest below ``number`` durable, unless this log did so before."""
        if number > self._durable:
            self.files.sync(MANIFESTS)
            self._durable = number

    def claim(self, manifest: Manifest, scratch: str) -> bool:
        """Tries to make ``manifest`` the one with its number; says whether the file is new.

        Read `news`, then the `floor`, to know who got it, and to make it durable. Whatever is
        raised, the claim may still have succeeded.

        Args:
            manifest: what to claim; its segment is durable.
            scratch: a file name that no other writer uses.
        """
        try:
            name = self.name(manifest.number)
            self.files.claim(name, manifest.encode(), f"{MANIFESTS}/{scratch}")
        except FileExistsError:
            return False
        return True

    def floor(self) -> int:
        """The first number whose segment is kept: 0 until one was deleted."""
        return max(_numbers(self.files.names(SUMMARIES)), default=0)

    def summary(self) -> Summary:
        """The summary of everything below the floor.

        Raises:
            FeedFormatError: it is damaged.
        """
        while number := self.floor():
            name = f"{SUMMARIES}/{_file(number)}"
            try:
                return Summary.decode(self.files.read(name), number, self._where(name))
            except FileNotFoundError:
                continue  # another one has just taken its place
        return Summary()

    def truncate(self, summary: Summary, scratch: str) -> bool:
        """Makes ``summary`` durable; False if another writer has made one for that number.

        Args:
            summary: knows every position below its number.
            scratch: a file name that no other writer uses.
        """
        name = f"{SUMMARIES}/{_file(summary.number)}"
        try:
            self.files.claim(name, summary.encode(), f"{SUMMARIES}/{scratch}")
        except FileExistsError:
            return False
        self.files.sync(SUMMARIES)
        return True

    def sweep(self, summary: Summary, swept: int = 0) -> None:
        """Deletes what ``summary``, which is durable, makes superfluous.

        Args:
            summary: what is left.
            swept: segments below this number are gone already.
        """
        for number in sorted(self._below(summary.number)):
            is_remembered = summary.remembers(number)
            if is_remembered and number < swept:
                continue
            if manifest := self.find(number):
                self.files.delete(f"{SEGMENTS}/{manifest.segment}")
            if not is_remembered:
                self.files.delete(self.name(number))
        for number in _numbers(self.files.names(SUMMARIES)):
            if number < summary.number:
                self.files.delete(f"{SUMMARIES}/{_file(number)}")

    def check_complete(self) -> None:
        """Compares the numbers with a listing.

        Raises:
            FeedFormatError: a number is missing below another one.
        """
        floor = self.floor()
        numbers = {number for number in self._all() if number >= floor}
        missing = next((n for n in range(floor, floor + len(numbers)) if n not in numbers), None)
        if missing is not None and missing >= self.floor():
            raise FeedFormatError(
                f"manifest {self._where(self.name(missing))} is missing, though there are later "
                "ones: restore it from a copy"
            )

    def check_kept(self, number: int) -> None:
        """Whoever still wants to read manifest ``number`` can.

        Raises:
            FeedFormatError: it was deleted.
        """
        if number < (floor := self.floor()):
            raise FeedFormatError(
                f"the feed {self.files.directory} has deleted its segments below {floor}, and this "
                f"query stands at {number}: nobody held them for it. Give each query a reader "
                "name of its own (?retention=committed&reader=NAME), which holds what it has not "
                "committed; to go on without the deleted records, start with a new checkpoint"
            )

    def _below(self, floor: int) -> Iterator[int]:
        return (number for number in self._all() if number < floor)

    def _all(self) -> Iterator[int]:
        return _numbers(self.files.names(MANIFESTS))

    def _where(self, name: str) -> str:
        return f"{self.files.directory}/{name}"


def _file(number: int) -> str:
    return f"{number:010d}{_SUFFIX}"


def _numbers(names: Iterable[str]) -> Iterator[int]:
    stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return (int(stem) for stem in stems if stem.isdecimal())
