"""The numbered manifests of a feed directory: an append-only log claimed number by number.

Rules:

- Manifest ``N`` comes into being whole, by a hard link from a file that is already durable, and
  only if there is none: of two writers that want ``N``, one gets it. (``O_EXCL`` alone would let
  a reader see half a manifest; ``rename`` would replace the winner's.)
- A writer claims ``N`` only after it has read ``0..N-1``: there are no gaps, so that looking
  for news is one ``open`` and never a listing.
- What has been read is made durable before anybody relies on it. Else a power cut could take
  back a manifest that Spark has checkpointed, and its number would be given to other records,
  which Spark would then skip.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from consumer_sdk.spark_bridge.errors import FeedFormatError
from consumer_sdk.spark_bridge.files import sync_directory, write_durably
from consumer_sdk.spark_bridge.manifest import Manifest

__all__ = ["MANIFESTS", "SEGMENTS", "ManifestLog"]

MANIFESTS = "manifests"
SEGMENTS = "segments"
_SUFFIX = ".json"


class ManifestLog:
    """Reads and claims manifests.

    Args:
        directory: the feed directory; its ``manifests`` folder may not exist yet.
    """

    __slots__ = ("_durable", "folder")

    def __init__(self, directory: Path) -> None:
        self.folder = directory / MANIFESTS
        self._durable = 0

    def path(self, number: int) -> Path:
        """Where manifest ``number`` lies."""
        return self.folder / f"{number:010d}{_SUFFIX}"

    def read(self, number: int) -> Manifest:
        """Manifest ``number``.

        Raises:
            FeedFormatError: it is damaged, or is not there.
        """
        manifest = self._try_read(number)
        if manifest is None:
            raise FeedFormatError(
                f"manifest {self.path(number)} is missing: was the feed directory replaced, or "
                "does the checkpoint belong to another one?"
            )
        return manifest

    def news(self, number: int) -> Iterator[Manifest]:
        """Manifests from ``number`` on, as many as there are; all durable once exhausted."""
        while manifest := self._try_read(number):
            yield manifest
            number += 1
        self.sync(number)

    def sync(self, number: int) -> None:
        """Makes every manifest below ``number`` durable, unless this log did so before."""
        if number > self._durable:
            sync_directory(self.folder)
            self._durable = number

    def claim(self, manifest: Manifest, scratch: str) -> None:
        """Tries to make ``manifest`` the one with its number.

        Read `news` to know who got it, and to make it durable. Whatever is raised, the claim
        may still have succeeded.

        Args:
            manifest: what to claim; its segment is durable.
            scratch: a file name that no other writer uses.
        """
        draft = self.folder / scratch
        write_durably(draft, manifest.encode())
        try:
            os.link(draft, self.path(manifest.number))
        except FileExistsError:
            pass  # another writer was faster
        finally:
            draft.unlink(missing_ok=True)

    def check_complete(self) -> None:
        """Compares the numbers with a listing.

        Raises:
            FeedFormatError: a number is missing below another one.
        """
        try:
            names = {entry.name for entry in self.folder.iterdir() if entry.suffix == _SUFFIX}
        except FileNotFoundError:
            return
        missing = next((n for n in range(len(names)) if self.path(n).name not in names), None)
        if missing is not None:
            raise FeedFormatError(
                f"manifest {self.path(missing)} is missing, though there are later ones: "
                "restore it from a copy"
            )

    def _try_read(self, number: int) -> Manifest | None:
        path = self.path(number)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        return Manifest.decode(data, number, str(path))
