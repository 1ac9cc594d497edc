"""The progress of Spark's queries, which each query writes into the feed directory.

``readers/NAME.json`` holds the number of the first manifest that the query NAME may read again. No
writer deletes a segment from there on. So a query that is gone for good keeps all segments, until
somebody deletes its file.
"""

from __future__ import annotations

import logging
import re
import secrets

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.errors import FeedError
from consumer_sdk.spark_bridge.feed.files import Files
from consumer_sdk.spark_bridge.feed.manifest_log import READERS, ManifestLog
from consumer_sdk.spark_bridge.feed.manifests import decode, encode

__all__ = ["ReaderMark", "check_name", "read_marks"]

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_SUFFIX = ".json"


def check_name(name: str) -> None:
    """Refuses what cannot be a file's name everywhere.

    Raises:
        ConfigurationError: ``name`` cannot name a reader.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"reader={name!r}: use up to 64 letters, digits, '_', '-' and '.', no '.' or '-' first"
        )


def read_marks(files: Files) -> dict[str, int]:
    """The first number that each reader may read again, by its name.

    Raises:
        FeedFormatError: a reader's file is damaged.
        OSError: they cannot be read.
    """
    names = [name for name in files.names(READERS) if name.endswith(_SUFFIX)]
    found = {name: _read(files, f"{READERS}/{name}") for name in names}
    return {name.removesuffix(_SUFFIX): each[0] for name, each in found.items() if each}


class ReaderMark:
    """The progress of one query; the process that plans its micro-batches writes it.

    Args:
        files: of the feed directory.
        name: the reader's, for one query alone.
    """

    __slots__ = ("_at", "_files", "_name", "_owner")

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = name
        self._owner = ""
        self._at: int | None = None

    def hold_all(self) -> int:
        """Holds everything that is kept, durably; returns its first number.

        Raises:
            OSError: it cannot be written down, so that a start cannot be relied upon.
        """
        manifests = ManifestLog(self._files)
        while True:
            floor = manifests.floor()
            self._write(floor)
            if manifests.floor() == floor:
                return floor

    def hold(self, number: int) -> None:
        """As `move`, unless this process has said already how far the query is."""
        if self._at is None:
            self.move(number)

    def move(self, number: int) -> None:
        """The query reads nothing below ``number`` again. Failures are logged and made up for.

        Raises:
            FeedError: another query uses the same name.
        """
        if number == self._at:
            return
        try:
            self._write(number)
        except OSError as error:
            log.warning("reader %s could not write how far it is: %s", self._name, error)

    def _write(self, number: int) -> None:
        name = f"{READERS}/{self._name}{_SUFFIX}"
        if self._owner:
            self._check_owner(name)
        # Not before it is needed: a reader is pickled to processes that write nothing.
        self._owner = self._owner or secrets.token_hex(8)
        body = {"reader": self._name, "next": number, "owner": self._owner}
        self._files.replace(name, encode(body), f"{READERS}/{self._name}-{self._owner}.tmp")
        self._at = number

    def _check_owner(self, name: str) -> None:
        found = _read(self._files, name)
        if found and found[1] != self._owner:
            raise FeedError(
                f"another query has taken over the reader name {self._name!r} of the feed "
                f"{self._files.directory}: each query needs a name of its own, and runs once"
            )


def _read(files: Files, name: str) -> tuple[int, str] | None:
    """A reader's number and owner; None if it was deleted."""
    try:
        data = files.read(name)
    except FileNotFoundError:
        return None
    fields = decode(data, f"{files.directory}/{name}")
    return fields.integer("next"), str(fields.body.get("owner"))
