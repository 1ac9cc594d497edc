"""What is written to ZooKeeper: claims, saves, deletes and pinned starts, in few requests.

A request is all or nothing, and of several puts that are refused ZooKeeper names the first alone. So
the znodes of a refused request, or of one whose answer was lost, are read back. The stamp of each says
what became of its write (`consumer_sdk.stores.fencing`), and its version is the one to write over.

The version alone is not enough. It tells that *something* was written since. The stamp tells whether
that was this save, an older one of the same claim that arrived late, or another owner's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from consumer_sdk.errors import CheckpointFormatError, StoreError, TransientStoreError
from consumer_sdk.records import Assignment, Outcome, OutcomeKind
from consumer_sdk.stores.fencing import NOBODY, Stamp, Write, judge, overwritten, refused, take
from consumer_sdk.stores.zookeeper.bridge import UnknownResultError, is_conflict, translate
from consumer_sdk.stores.zookeeper.tree import (
    Put,
    Refusal,
    Tree,
    Znode,
    batches,
    decode_pin,
    decode_znode,
    encode_pin,
    encode_znode,
    unescape,
)

__all__ = [
    "ROUNDS",
    "Claiming",
    "Place",
    "Saving",
    "contended",
    "leave_tombstones",
    "pin",
    "pins",
    "purge",
    "unpin",
]

ROUNDS = 100
"""How often somebody may come in between a read and a write: an owner that saves without a pause
wins against a claim five times out of six."""


DURABLE = Outcome.durable()


class Place(NamedTuple):
    """Where a claim's checkpoint is, and the version that it has left or written last."""

    path: str
    version: int


class Saving:
    """One save: what is known of it, and what is left to be done.

    Args:
        places: where each assignment's checkpoint is.

    Attributes:
        outcomes: how it ended for each assignment.
        places: the ones to go on with.
    """

    def __init__(
        self,
        tree: Tree,
        limit: int,
        writes: Iterable[Write],
        places: Mapping[Assignment, Place],
    ) -> None:
        self._tree = tree
        self._limit = limit
        # Of two writes of one assignment the later one wins.
        self._left = {write.assignment: write for write in writes}
        self.places = {assignment: places[assignment] for assignment in self._left}
        self.outcomes: dict[Assignment, Outcome] = {}

    async def run(self) -> dict[Assignment, Outcome]:
        """Writes all that may be written; never raises a `StoreError`."""
        error: StoreError = contended("saving")
        try:
            for _ in range(ROUNDS):
                await self._send()
                if not self._left:
                    break
                await self._read_back()
        except StoreError as caught:
            error = caught
        for assignment in list(self._left):
            self._settle(assignment, Outcome.retry(error))
        return self.outcomes

    async def _send(self) -> None:
        """Leaves what was refused, or may have been written, to be read back."""
        assignments = list(self._left)
        first = 0
        for batch in batches(map(self._put, assignments), self._limit):
            members = assignments[first : first + len(batch)]
            first += len(batch)
            try:
                refusal = await self._tree.write(batch)
            except UnknownResultError:
                return
            self._note(members, refusal)

    def _put(self, assignment: Assignment) -> Put:
        _, text, stamp = self._left[assignment]
        path, version = self.places[assignment]
        return Put(path, encode_znode(stamp, text), version)

    def _note(self, members: Sequence[Assignment], refusal: Refusal | None) -> None:
        if refusal is None:
            for assignment in members:
                path, version = self.places[assignment]
                self.places[assignment] = Place(path, version + 1)
                self._settle(assignment, DURABLE)
        elif not is_conflict(refusal.error):
            culprit = members[refusal.at]
            error = translate(refusal.error, self.places[culprit].path)
            self._settle(culprit, Outcome.retry(error))

    async def _read_back(self) -> None:
        assignments = list(self._left)
        znodes = await self._tree.read([self.places[a].path for a in assignments])
        for assignment, znode in zip(assignments, znodes, strict=True):
            place = self.places[assignment]
            verdict = _judge(znode, self._left[assignment], place.path)
            if znode is not None and (verdict is None or verdict.kind is OutcomeKind.DURABLE):
                # Never another owner's version: a second try would then write over it.
                self.places[assignment] = place._replace(version=znode.version)
            if verdict is not None:
                self._settle(assignment, verdict)

    def _settle(self, assignment: Assignment, outcome: Outcome) -> None:
        self.outcomes[assignment] = outcome
        del self._left[assignment]


def _judge(znode: Znode | None, write: Write, path: str) -> Outcome | None:
    """What the znode says of a write; None: it is to be written."""
    if znode is None:
        return refused(None)
    try:
        stored, _ = decode_znode(znode.data, path)
    except CheckpointFormatError as error:
        return overwritten(error)
    return judge(stored, write.stamp)


class Claiming:
    """One claim of several assignments; repeated reads until nobody came in between.

    Attributes:
        granted: the claims that are written.
        answers: for each assignment its text, None, or a FENCED outcome.
    """

    def __init__(
        self, tree: Tree, limit: int, writer: str, places: Mapping[Assignment, Place]
    ) -> None:
        self._tree = tree
        self._limit = limit
        self._writer = writer
        self._places = places
        self.granted: dict[Assignment, tuple[Stamp, Place]] = {}
        self.answers: dict[Assignment, str | Outcome | None] = {}

    async def run(self, assignments: Sequence[Assignment]) -> None:
        """Claims all that may be claimed.

        Raises:
            StoreError: some of them may be claimed, by an owner whom nobody knows.
        """
        left = assignments
        for _ in range(ROUNDS):
            if not left:
                return
            left = await self._round(left)
        if left:
            raise contended("claiming")

    async def _round(self, assignments: Sequence[Assignment]) -> list[Assignment]:
        """One read and one write of each; returns those that somebody else was faster with."""
        znodes = await self._read(assignments)
        puts = {a: put for a in assignments if (put := self._claim(a, znodes))}
        await self._make_parents(puts.values())
        members, late = list(puts), []
        for batch in batches(puts.values(), self._limit):
            refusal = await self._tree.write(batch)
            if refusal is not None:
                self._check(batch, refusal)
                late += members[: len(batch)]
            del members[: len(batch)]
        return late

    async def _read(self, assignments: Sequence[Assignment]) -> dict[str, Znode | None]:
        paths = list(dict.fromkeys(self._places[a].path for a in assignments))
        return dict(zip(paths, await self._tree.read(paths), strict=True))

    def _claim(self, assignment: Assignment, znodes: dict[str, Znode | None]) -> Put | None:
        """What is to be written, unless the claim is refused; ``znodes`` say what will be there."""
        path = self._places[assignment].path
        znode = znodes[path]
        stored, text = (None, None) if znode is None else decode_znode(znode.data, path)
        # Two claims of one partition in one call must not share a writer.
        stamp = take(stored, assignment.fence, f"{self._writer}.{assignment.epoch}")
        if stamp is None:
            self.granted.pop(assignment, None)
            self.answers[assignment] = refused(stored)
            return None
        put = Put(path, encode_znode(stamp, text), None if znode is None else znode.version)
        version = 0 if znode is None else znode.version + 1
        znodes[path] = Znode(put.data, version)
        self.granted[assignment] = stamp, Place(path, version)
        self.answers[assignment] = text
        return put

    async def _make_parents(self, puts: Iterable[Put]) -> None:
        parents = {put.path.rpartition("/")[0]: None for put in puts if put.version is None}
        for parent in parents:
            await self._tree.ensure(parent)

    def _check(self, batch: Sequence[Put], refusal: Refusal) -> None:
        if not is_conflict(refusal.error):
            raise translate(refusal.error, batch[refusal.at].path)


def contended(what: str) -> TransientStoreError:
    """Others wrote the same znodes again and again."""
    return TransientStoreError(f"{what}: others came in between {ROUNDS} times, it is tried again")


async def leave_tombstones(tree: Tree, limit: int, paths: Iterable[str]) -> None:
    """Leaves tombstones with the fences, also of what cannot be read.

    Raises:
        StoreError: some may be left: delete them again.
    """
    left = sorted(set(paths))
    for _ in range(ROUNDS):
        znodes = zip(left, await tree.read(left), strict=True)
        puts = [_tombstone(path, znode) for path, znode in znodes if znode is not None]
        left = []
        for batch in batches(puts, limit):
            if await _is_conflict(tree, batch):
                left += [put.path for put in batch]
        if not left:
            return
    raise contended("deleting")


async def purge(tree: Tree, texts: Mapping[str, str]) -> None:
    """Removes znodes that still have these texts, unless somebody claims them meanwhile.

    Raises:
        StoreError: some may be left: purge them again.
    """
    for path, znode in zip(texts, await tree.read(list(texts)), strict=True):
        if znode is not None and decode_znode(znode.data, path)[1] == texts[path]:
            await tree.prune(path, znode.version)


async def pin(tree: Tree, path: str, start: str) -> str:
    """Creates a stream's resolved start if absent; returns the one that is stored.

    Raises:
        StoreError: it may be stored: pin it again.
    """
    for _ in range(ROUNDS):
        await tree.ensure(path)  # each time: an unpin may have removed it
        (znode,) = await tree.read([path])
        data, version = znode or Znode(b"", 0)
        if (stored := decode_pin(data, path)) is not None:
            return stored
        if not await _is_conflict(tree, [Put(path, encode_pin(start), version)]):
            return start
    raise contended("pinning")


async def pins(tree: Tree, group: str) -> dict[str, str]:
    """The resolved starts below a group's path, by stream.

    Raises:
        StoreError: they cannot be read.
    """
    (elements,) = await tree.children([group])
    names = {element: name for element in elements if (name := unescape(element)) is not None}
    paths = [f"{group}/{element}" for element in names]
    found: dict[str, str] = {}
    for name, path, znode in zip(names.values(), paths, await tree.read(paths), strict=True):
        if znode is not None and (start := decode_pin(znode.data, path)) is not None:
            found[name] = start
    return found


async def unpin(tree: Tree, path: str) -> bool:
    """Deletes a stream's resolved start, whatever it is; whether there was one.

    Raises:
        StoreError: it may be there still: unpin it again.
    """
    for _ in range(ROUNDS):
        (znode,) = await tree.read([path])
        if znode is None or not znode.data:
            return False
        if not await _is_conflict(tree, [Put(path, b"", znode.version)]):
            await tree.prune(path, znode.version + 1)
            return True
    raise contended("unpinning")


def _tombstone(path: str, znode: Znode) -> Put:
    try:
        stored, _ = decode_znode(znode.data, path)
    except CheckpointFormatError:
        stored = Stamp(NOBODY, None, 0)
    return Put(path, encode_znode(Stamp(NOBODY, stored.fence, 0), None), znode.version)


async def _is_conflict(tree: Tree, puts: Sequence[Put]) -> bool:
    """Writes; False: that is done, True: somebody else has written."""
    refusal = await tree.write(puts)
    if refusal is not None and not is_conflict(refusal.error):
        raise translate(refusal.error, puts[refusal.at].path)
    return refusal is not None
