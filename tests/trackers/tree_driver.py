"""Does the same to tree trackers and to a model, and compares them at every step.

The model of a tree is the set of its open edges. Two trackers stand for two partitions, so that
branches may be joined over both; receipts are made elsewhere, merged, damaged by nobody, and
applied in any order and number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, count

import pytest

from consumer_sdk import HandlerError, Receipts
from consumer_sdk.records import Branch, Message
from consumer_sdk.records.tokens import Anchor, decode_token
from consumer_sdk.trackers import NamingTrees, TreeTracker
from consumer_sdk.trackers.trees.receipts import Fate
from tests.trackers.grove import Grove

GROVES = 2
OFFICES = 3


class Model:
    """What one tracker has: root → its open edges, by numbers of our own."""

    def __init__(self) -> None:
        self.open: dict[int, set[int]] = {}
        self.messages: dict[int, Message] = {}
        self.ends: dict[int, str] = {}
        self.ignored = 0
        self.is_closed = False

    def ack(self, root: int, edge: int) -> bool:
        """One edge is done; the last one ends its tree."""
        edges = self.open.get(root, set())
        if edge not in edges:
            return self.late()
        edges.remove(edge)
        if not edges:
            self.end(root, "finished")
        return True

    def fail(self, root: int) -> bool:
        """All of it is over."""
        return self.end(root, "failed") if root in self.open else self.late()

    def end(self, root: int, how: str) -> bool:
        """A tree is over."""
        del self.open[root]
        self.ends[self.messages.pop(root).position] = how
        return True

    def late(self) -> bool:
        """Nothing changed."""
        self.ignored += 1
        return False


Place = tuple[int, int, int]
"""A grove's number, a root and an edge of the model."""


@dataclass
class Work:
    """A branch in hand, or elsewhere as a token.

    Attributes:
        places: its anchors; one, but for joined branches.
        office: where it is, if it is a token: tokens and the children made of them stay together.
        is_first: a `Tree`: it can fail its tree also after it was settled.
    """

    places: list[Place]
    branch: Branch | None = None
    token: bytes = b""
    office: int = 0
    is_first: bool = False
    is_settled: bool = False
    fates: set[Fate] = field(default_factory=set)


class TreeDriver:
    """Two groves, and offices in other processes that settle tokens."""

    def __init__(self, *, is_naming: bool = False) -> None:
        kind: type[TreeTracker] = NamingTrees if is_naming else TreeTracker
        self.groves = [Grove(kind, seed) for seed in range(GROVES)]
        self.models = [Model() for _ in range(GROVES)]
        self.offices = [Receipts() for _ in range(OFFICES)]
        self.edges, self.positions = count(), count()
        self.work: list[Work] = []
        self.messages: list[tuple[int, Message]] = []
        self.at: dict[Anchor, Place] = {}

    def pick(self, choice: int) -> Work | None:
        """Some work; mostly one that is open."""
        if not self.work:
            return None
        start = (choice // 8) % len(self.work)
        among = chain(self.work[start:], self.work[:start])
        return next((w for w in among if not w.is_settled or not choice % 8), self.work[start])

    def _grow(self, place: Place) -> Place:
        """A child of an anchor: an edge that the model waits for, unless the tree is over."""
        number, root, _ = place
        edge = next(self.edges)
        if root in self.models[number].open:
            self.models[number].open[root].add(edge)
        return number, root, edge

    # -- steps ----------------------------------------------------------------------------

    def open(self, choice: int, trees: int = 1) -> None:
        """New trees in one grove; with some of them over at once, chunks come and go."""
        number = choice % GROVES
        grove, model = self.groves[number], self.models[number]
        for at in range(trees):
            message = grove.message(next(self.positions))
            branch = grove.trees.tree(message)
            edge = next(self.edges)
            if not model.is_closed:
                model.open[branch.root], model.messages[branch.root] = {edge}, message
            self.work.append(Work([(number, branch.root, edge)], branch, is_first=True))
            self.messages.append((number, message))
            if at % 8:
                self._ack(self.work[-1])
        self.check()

    def another(self, choice: int) -> None:
        """One more first branch of a tree, which may be over."""
        if not self.messages:
            return
        number, message = self.messages[choice % len(self.messages)]
        branch = self.groves[number].trees.another(message)
        self.work.append(Work([self._grow((number, message.root, 0))], branch, is_first=True))
        self.check()

    def branch(self, choice: int) -> None:
        """A child of some work, here or in its office; of settled work it is refused."""
        parent = self.pick(choice)
        if parent is None:
            return
        if parent.is_settled:
            with pytest.raises(HandlerError):
                self._child(parent)
            return
        child = self._child(parent)
        child.places = [self._grow(place) for place in parent.places]
        self._note(child)

    def _child(self, parent: Work) -> Work:
        if parent.branch is not None:
            return Work([], parent.branch.branch())
        token = self.offices[parent.office].branch(parent.token)
        return Work([], None, token, parent.office)

    def _note(self, work: Work) -> None:
        self.work.append(work)
        if work.token:
            self.at.update(zip(decode_token(work.token), work.places, strict=True))
        self.check()

    def join(self, choices: list[int]) -> None:
        """One child of several branches, of one tree or of several."""
        parents = [work for work in map(self.pick, choices) if work is not None]
        branches = [work.branch for work in parents if work.branch is not None]
        if len(branches) < len(parents) or not parents:
            return
        if any(work.is_settled for work in parents):
            with pytest.raises(HandlerError):
                Branch.join(branches)
        else:
            child = Work([], Branch.join(branches))
            child.places = [self._grow(place) for work in parents for place in work.places]
            self._note(child)
        self.check()

    def ack(self, choice: int) -> None:
        """Here at once; elsewhere it is a receipt, which changes nothing yet."""
        work = self.pick(choice)
        if work is not None:
            self._ack(work)
        self.check()

    def _ack(self, work: Work) -> None:
        if work.branch is None:
            self._receive(work, Fate.ACKED)
            return
        expected = [self.models[n].ack(root, edge) for n, root, edge in self._spend(work)]
        assert work.branch.ack() == any(expected)

    def _spend(self, work: Work) -> list[Place]:
        """The places to settle; a second time there are none to be found."""
        places = [(n, root, -1) for n, root, _ in work.places] if work.is_settled else work.places
        work.is_settled = True
        return places

    def fail(self, choice: int, fate: Fate = Fate.FAILED) -> None:
        """A failed or rejected branch ends all of its trees."""
        work = self.pick(choice)
        if work is None:
            return
        if work.branch is None:
            self._receive(work, fate)
            return
        is_late = work.is_settled and not work.is_first
        work.is_settled = True
        models = [(self.models[number], root) for number, root, _ in work.places]
        expected = [model.late() if is_late else model.fail(root) for model, root in models]
        act = work.branch.fail if fate is Fate.FAILED else work.branch.reject
        assert act() == any(expected)
        self.check()

    def _receive(self, work: Work, fate: Fate) -> None:
        office = self.offices[work.office]
        names = {Fate.ACKED: "ack", Fate.FAILED: "fail", Fate.REJECTED: "reject"}
        getattr(office, names[fate])(work.token)
        work.is_settled = True
        work.fates.add(fate)

    def hand_over(self, choice: int, office: int) -> None:
        """A branch becomes a token."""
        work = self.pick(choice)
        if work is None or work.branch is None:
            return
        if work.is_settled:
            with pytest.raises(HandlerError):
                work.branch.token()
            return
        work.is_settled = True
        self._note(Work(work.places, None, work.branch.token(), office % OFFICES))

    def deliver(self, office: int, other: int | None = None, *, as_bytes: bool = False) -> None:
        """Receipts arrive, alone or merged with another office's, for the first time or again."""
        receipts = self.offices[office % OFFICES]
        if other is not None:
            receipts |= self.offices[other % OFFICES]
            self.offices[office % OFFICES] = self.offices[other % OFFICES] = receipts
        if as_bytes:
            receipts = Receipts.from_bytes(bytes(receipts))
        for anchor, receipt in receipts.items():
            number, root, edge = self.at[anchor]
            if receipt.fate is Fate.OPEN:
                expected = False
            elif receipt.fate is Fate.ACKED:
                expected = self.models[number].ack(root, edge)
            else:
                expected = self.models[number].fail(root)
            assert self.groves[number].trees.settle(anchor, receipt) == expected
        self.check()

    def release(self, choice: int) -> None:
        """A delivery ends by other means."""
        number = choice % GROVES
        model = self.models[number]
        if model.open:
            root = list(model.open)[choice // 8 % len(model.open)]
            del model.open[root]
            self.groves[number].trees.release(model.messages.pop(root))
        self.check()

    def close(self, choice: int) -> None:
        """An assignment is over."""
        number = choice % GROVES
        self.groves[number].trees.close()
        model = self.models[number]
        model.open, model.messages, model.is_closed = {}, {}, True
        self.check()

    # -- comparing ------------------------------------------------------------------------

    def check(self) -> None:
        """As many trees are open and over as in the model, and nothing is kept of the latter."""
        for grove, model in zip(self.groves, self.models, strict=True):
            trees = grove.trees
            assert trees.live == len(model.open)
            assert len(grove.ends) == len(model.ends)
            assert grove.ignored == model.ignored
            assert trees._settled.keys() <= model.open.keys()
            needed = {root >> 8 for root in model.open}
            assert set(trees._chunks) - {trees.opened >> 8} <= needed <= set(trees._chunks)
            if isinstance(trees, NamingTrees):
                assert trees._names.keys() == model.open.keys()

    def check_ends(self) -> None:
        """Which trees are open, and how the others ended; costlier, so once in a while."""
        for grove, model in zip(self.groves, self.models, strict=True):
            assert dict(grove.trees.roots()) == model.messages
            ends = {
                position: "finished" if end == "finished" else "failed"
                for position, end in grove.ends.items()
            }
            assert ends == model.ends
        for work in self.work:
            if work.fates:
                office = dict(self.offices[work.office].items())
                for anchor in decode_token(work.token):
                    assert office[anchor].fate is max(work.fates)
