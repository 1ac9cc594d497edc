"""Trees that can name their open branches, for debugging: a dict for each tree."""

from __future__ import annotations

from typing import Any, NamedTuple

from consumer_sdk.records.tokens import Anchor
from consumer_sdk.trackers.trees.edges import child_edge
from consumer_sdk.trackers.trees.receipts import Fate, Receipt
from consumer_sdk.trackers.trees.table import FIRST_EDGE
from consumer_sdk.trackers.trees.tracker import TreeTracker

__all__ = ["NamingTrees"]

MOST = 1_000
"""Children of a branch in another process that are named; the receipt says how many there are."""


class _Named(NamedTuple):
    name: str
    children: int = 0

    def child(self, number: int) -> _Named:
        return _Named(f"{self.name}.{number}")


class NamingTrees(TreeTracker):
    """A `TreeTracker` that knows its branches by name.

    A branch is found by what it still has to XOR, which changes with each child it makes.
    """

    __slots__ = ("_names",)

    def __init__(self, *args: Any, **options: Any) -> None:
        self._names: dict[int, dict[int, _Named]] = {}
        super().__init__(*args, **options)
        self.is_naming = True

    def open(self, owner: Any) -> int:
        root = super().open(owner)
        if not self._is_closed:
            self._names[root] = {FIRST_EDGE: _Named("tree")}
        return root

    def add(self, root: int, edge: int) -> None:
        super().add(root, edge)
        self._names.get(root, {})[edge] = _Named("tree")

    def named(self, root: int, parent: int, child: int, name: str | None) -> None:
        names = self._names.get(root, {})
        if known := names.pop(parent, None):
            number = known.children + 1
            names[parent ^ child] = known._replace(children=number)
            names[child] = _Named(name) if name else known.child(number)

    def open_branches(self, root: int) -> list[str]:
        return [named.name for named in self._names.get(root, {}).values()]

    def xor(self, root: int, edge: int) -> Any:
        self._names.get(root, {}).pop(edge, None)
        return super().xor(root, edge)

    def settle(self, anchor: Anchor, receipt: Receipt) -> bool:
        known = self._names.get(anchor.root, {}).get(anchor.edge)
        is_new = super().settle(anchor, receipt)
        if known and receipt.fate is Fate.ACKED:
            self._name_children(anchor, known, receipt.children)
        return is_new

    def _name_children(self, anchor: Anchor, parent: _Named, children: int) -> None:
        names = self._names.get(anchor.root, {})
        names.pop(anchor.edge, None)
        for number in range(min(children, MOST)):
            edge = child_edge(anchor.edge, number)
            if edge not in self._settled.get(anchor.root, ()):
                names[edge] = parent.child(parent.children + number + 1)

    def _end(self, chunk: Any, root: int) -> Any:
        self._names.pop(root, None)
        return super()._end(chunk, root)

    def close(self) -> None:
        super().close()
        self._names = {}
