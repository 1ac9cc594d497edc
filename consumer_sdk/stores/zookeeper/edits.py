"""What needs no claim in ZooKeeper: what an operator deletes, where a group starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from consumer_sdk.errors import CheckpointFormatError
from consumer_sdk.stores.fencing import NOBODY, Stamp
from consumer_sdk.stores.zookeeper.errors import is_conflict, translate
from consumer_sdk.stores.zookeeper.tree import Put, Tree, Znode, batches
from consumer_sdk.stores.zookeeper.writing import ROUNDS, contended
from consumer_sdk.stores.zookeeper.znodes import (
    decode_pin,
    decode_znode,
    encode_pin,
    encode_znode,
    unescape,
)

__all__ = ["bury", "pin", "pins", "purge", "unpin"]


async def bury(tree: Tree, limit: int, paths: Iterable[str]) -> None:
    """Leaves tombstones with the fences, also of what cannot be read.

    Raises:
        StoreError: some may be left: bury them again.
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
