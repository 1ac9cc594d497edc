"""What is written to ZooKeeper, on one in memory: how many requests it takes, and what others do between two of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError, RolledBackError, RuntimeInconsistency

from consumer_sdk.errors import StoreError, TransientStoreError
from consumer_sdk.records import Assignment, Outcome, OutcomeKind, Partition
from consumer_sdk.stores.fencing import NOBODY, Stamp, Write
from consumer_sdk.stores.zookeeper import writing
from consumer_sdk.stores.zookeeper.bridge import Call, UnknownResultError
from consumer_sdk.stores.zookeeper.tree import (
    Tree,
    Znode,
    checkpoint_path,
    decode_znode,
    encode_znode,
)
from consumer_sdk.stores.zookeeper.writing import Claiming, Place, Saving
from tests.stores.fake_zookeeper import Change, Client, FakeBridge, FakeZooKeeper, T

TWO_CLAIMS, TWO_WRITES = 2400, 700
"""Bytes: a request takes two znodes that are made, or two that are set."""

GROUP, STREAM = "/sdk/g", "/sdk/g/orders"


class Server(FakeZooKeeper):
    """Refuses writes to some znodes."""

    closed: str | None = None

    def change(self, changes: Sequence[Change]) -> list[Any]:
        """Like the other one."""
        at = next((n for n, change in enumerate(changes) if change.path == self.closed), None)
        if at is None:
            return super().change(changes)
        rest = len(changes) - at - 1
        return [*[RolledBackError()] * at, NoAuthError(), *[RuntimeInconsistency()] * rest]


class Bridge(FakeBridge):
    """Notes what is asked, and lets others act just before a request.

    Attributes:
        asked: the kind of each call, and of how many subjects.
        before: of each kind what others do before the next calls, one after another.
    """

    def __init__(self, server: FakeZooKeeper) -> None:
        super().__init__(server)
        self.asked: list[tuple[str, int]] = []
        self.before: dict[str, list[Callable[[], object]]] = {}

    async def ask(self, call: Call[T], subjects: Sequence[T]) -> list[Any]:
        """Like the other one."""
        kind = getattr(call, "__name__", "").removeprefix("_")
        self.asked.append((kind, len(subjects)))
        if acts := self.before.get(kind):
            acts.pop(0)()
        return await super().ask(call, subjects)

    def took(self) -> list[tuple[str, int]]:
        """What was asked since the last time."""
        asked, self.asked = self.asked, []
        return asked


def nothing() -> None:
    """Nobody does anything."""


class World:
    """A server, an owner of partitions, and what it has of them."""

    def __init__(self, partitions: int = 1) -> None:
        self.server = Server()
        self.bridge = Bridge(self.server)
        self.tree = Tree(self.bridge)  # type: ignore[arg-type] # the same seam
        self.paths = [
            checkpoint_path("/sdk", "g", Partition("orders", str(number)))
            for number in range(partitions)
        ]
        self._epochs = count(1)

    async def claim(self, limit: int = TWO_CLAIMS, fence: int | None = None) -> Claiming:
        """A new owner claims them."""
        assignments = [
            Assignment(Partition("orders", path.rpartition("/")[2]), next(self._epochs), fence)
            for path in self.paths
        ]
        places = {a: Place(path, 0) for a, path in zip(assignments, self.paths, strict=True)}
        claiming = Claiming(self.tree, limit, "me", places)
        await claiming.run(assignments)
        return claiming

    def save(
        self, claimed: Claiming, text: str, serial: int = 1, *, after: Saving | None = None
    ) -> Saving:
        """A save of the owner, which was not begun; the first one, or one that comes after another."""
        granted = claimed.granted.items()
        writes = [Write(a, text, stamp._replace(serial=serial)) for a, (stamp, _) in granted]
        places = {assignment: place for assignment, (_, place) in granted}
        if after is not None:
            places = after.places
        return Saving(self.tree, TWO_WRITES, writes, places)

    def stored(self, number: int = 0) -> tuple[Stamp, str | None]:
        """What a checkpoint's znode says."""
        return decode_znode(self.server.znodes[self.paths[number]].data, "")

    def touch(self, number: int = 0) -> None:
        """Somebody writes what is there already, or makes a znode that is missing."""
        path = self.paths[number]
        znode = self.server.znodes.get(path)
        data = encode_znode(Stamp("they", None, 0), None) if znode is None else znode.data
        self.server.znodes[path] = Znode(data, 0 if znode is None else znode.version + 1)

    def take(self, number: int = 0, fence: int = 9) -> None:
        """Another owner claims, with a newer fence."""
        self.touch(number)
        path = self.paths[number]
        data = encode_znode(Stamp("they", fence, 0), "theirs")
        self.server.znodes[path] = self.server.znodes[path]._replace(data=data)


def kinds(outcomes: dict[Assignment, Outcome]) -> list[OutcomeKind]:
    """Of each, in order of the partitions."""
    ordered = sorted(outcomes, key=lambda assignment: assignment.partition)
    return [outcomes[assignment].kind for assignment in ordered]


DURABLE, FENCED, RETRY = OutcomeKind.DURABLE, OutcomeKind.FENCED, OutcomeKind.RETRY


# -- how many requests it takes --------------------------------------------------------------


async def test_as_much_is_written_at_a_time_as_a_request_takes() -> None:
    """Claims read once, and make the parent once; saves read nothing while nobody comes in between."""
    world = World(5)
    claimed = await world.claim()
    assert world.bridge.took() == [("get", 5), ("ensure", 1), *[("commit", 1)] * 3]
    saving = None
    for serial in (1, 2):
        saving = world.save(claimed, f"text {serial}", serial, after=saving)
        assert kinds(await saving.run()) == [DURABLE] * 5
        assert world.bridge.took() == [("commit", 1)] * 3
        assert [world.stored(number)[1] for number in range(5)] == [f"text {serial}"] * 5


async def test_claim_of_what_is_there_makes_nothing_and_can_be_saved_at_once() -> None:
    """It brings the text that is stored; its own write is the one to write over."""
    world = World(4)
    await world.save(await world.claim(), "text").run()
    world.bridge.took()
    claimed = await world.claim(TWO_WRITES)
    assert world.bridge.took() == [("get", 4), *[("commit", 1)] * 2]
    assert set(claimed.answers.values()) == {"text"}
    assert kinds(await world.save(claimed, "more").run()) == [DURABLE] * 4
    assert world.bridge.took() == [("commit", 1)] * 2


async def test_save_whose_answer_was_lost_is_read_back_and_goes_on_from_there() -> None:
    """What was written need not be written again, nor read before the next save."""
    world = World()
    claimed = await world.claim()
    world.bridge.took()
    world.bridge.loses_reply = True
    saving = world.save(claimed, "text")
    assert kinds(await saving.run()) == [DURABLE]
    assert world.bridge.took() == [("commit", 1), ("get", 1)]
    assert kinds(await world.save(claimed, "more", 2, after=saving).run()) == [DURABLE]
    assert world.bridge.took() == [("commit", 1)]
    assert world.stored()[1] == "more"


# -- saves -----------------------------------------------------------------------------------


async def test_one_znode_that_is_refused_does_not_keep_the_others_from_being_saved() -> None:
    """It is to be tried again, and its error names it."""
    world = World(4)
    claimed = await world.claim()
    world.server.closed = world.paths[1]
    outcomes = await world.save(claimed, "text").run()
    assert kinds(outcomes) == [DURABLE, RETRY, DURABLE, DURABLE]
    (error,) = [outcome.error for outcome in outcomes.values() if outcome.kind is RETRY]
    assert type(error) is StoreError
    assert str(error).startswith(f"{world.paths[1]}: ")
    assert "not permitted" in str(error)
    assert [world.stored(number)[1] for number in range(4)] == ["text", None, "text", "text"]


async def test_outage_in_the_middle_of_a_save_leaves_the_rest_to_the_next_one() -> None:
    """With the outage's own error."""
    world = World(4)
    claimed = await world.claim()
    world.bridge.before["commit"] = [nothing, lambda: setattr(world.bridge, "is_down", True)]
    outcomes = await world.save(claimed, "text").run()
    assert kinds(outcomes) == [DURABLE, DURABLE, RETRY, RETRY]
    for outcome in outcomes.values():
        assert outcome.error is None or str(outcome.error) == "no connection"


async def test_checkpoint_that_was_removed_or_taken_is_fenced() -> None:
    """It is written over by nobody who does not own it, however often it is tried."""
    world = World(2)
    claimed = await world.claim()
    del world.server.znodes[world.paths[0]]
    world.take(1)
    saving = world.save(claimed, "text")
    assert kinds(await saving.run()) == [FENCED, FENCED]
    assert kinds(await world.save(claimed, "text", 2).run()) == [FENCED, FENCED]
    assert world.stored(1) == (Stamp("they", 9, 0), "theirs")
    assert world.paths[0] not in world.server.znodes
    # Not even with the places that the first one has left.
    assert kinds(await world.save(claimed, "text", 3, after=saving).run()) == [FENCED, FENCED]


# -- claims ----------------------------------------------------------------------------------


async def test_claim_that_others_come_in_between_is_made_again_for_these_alone() -> None:
    """What is granted is what is stored."""
    world = World(4)
    world.bridge.before["commit"] = [nothing, lambda: world.touch(3)]
    claimed = await world.claim()
    assert world.bridge.took() == [
        ("get", 4),
        ("ensure", 1),
        *[("commit", 1)] * 2,
        ("get", 2),
        ("ensure", 1),
        ("commit", 1),
    ]
    for number, (stamp, place) in enumerate(claimed.granted.values()):
        assert world.stored(number)[0] == stamp
        assert place == Place(world.paths[number], world.server.znodes[place.path].version)


async def test_claim_that_a_newer_one_comes_in_between_is_not_granted() -> None:
    """Although it would have been, a moment before."""
    world = World()
    world.bridge.before["commit"] = [world.take]
    claimed = await world.claim(fence=3)
    assert claimed.granted == {}
    (answer,) = claimed.answers.values()
    assert isinstance(answer, Outcome)
    assert answer.kind is FENCED
    assert world.stored()[0] == Stamp("they", 9, 0)


async def test_claim_that_is_refused_says_which() -> None:
    """Trying again would not help."""
    world = World(2)
    world.server.closed = world.paths[1]
    with pytest.raises(StoreError, match=f"{world.paths[1]}: .*not permitted"):
        await world.claim()


async def test_claim_whose_answer_was_lost_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what was written."""
    world = World(2)
    monkeypatch.setattr(world.server, "change", lambda _changes: ConnectionLoss())
    with pytest.raises(UnknownResultError, match=f"^writing {world.paths[0]} and 1 more: "):
        await world.claim()


async def test_parent_that_may_not_be_made_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which names it."""
    monkeypatch.setattr(Client, "ensure_path_async", lambda _self, _path: NoAuthError())
    with pytest.raises(StoreError, match=f"^{STREAM}: .*not permitted"):
        await World().claim()


# -- deletes and pins ------------------------------------------------------------------------


async def test_delete_that_others_come_in_between_is_made_again() -> None:
    """In the end there is a tombstone with the newest fence."""
    world = World(2)
    await world.claim(fence=3)
    world.bridge.before["commit"] = [lambda: world.take(1)]
    missing = f"{STREAM}/9"
    await writing.leave_tombstones(world.tree, TWO_WRITES, [*world.paths, world.paths[0], missing])
    assert world.stored(0) == (Stamp(NOBODY, 3, 0), None)
    assert world.stored(1) == (Stamp(NOBODY, 9, 0), None)
    assert missing not in world.server.znodes


async def test_checkpoint_that_is_claimed_meanwhile_is_not_purged() -> None:
    """Nor one that has another text; it is no error."""
    world = World(3)
    await world.save(await world.claim(), "text").run()
    world.bridge.before["delete"] = [world.touch, lambda: world.server.znodes.pop(world.paths[1])]
    texts = dict(zip(world.paths, ("text", "text", "another"), strict=True))
    await writing.purge(world.tree, texts)
    assert [path in world.server.znodes for path in world.paths] == [True, False, True]
    await writing.purge(world.tree, dict.fromkeys(world.paths, "text"))
    assert not any(path in world.server.znodes for path in world.paths)


async def test_checkpoint_that_may_not_be_removed_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which names it."""
    world = World()
    await world.save(await world.claim(), "text").run()
    monkeypatch.setattr(Client, "delete_async", lambda _self, _path, _version: NoAuthError())
    with pytest.raises(StoreError, match=f"^{world.paths[0]}: .*not permitted"):
        await writing.purge(world.tree, {world.paths[0]: "text"})


async def test_start_is_pinned_though_somebody_unpins_meanwhile() -> None:
    """The stream's znode may go at any moment."""
    world = World()
    world.bridge.before["get"] = [lambda: world.server.znodes.pop(STREAM)]
    assert await writing.pin(world.tree, STREAM, "latest") == "latest"
    assert await writing.pin(world.tree, STREAM, "earliest") == "latest"


async def test_starts_are_read_though_streams_go_meanwhile() -> None:
    """What was listed a moment ago is left out."""
    world = World()
    for stream in ("a", "b"):
        await writing.pin(world.tree, f"{GROUP}/{stream}", "latest")
    world.bridge.before["get"] = [lambda: world.server.znodes.pop(f"{GROUP}/a")]
    assert await writing.pins(world.tree, GROUP) == {"b": "latest"}


async def save_again(world: World) -> None:
    """A save of what was claimed, which raises what it would have answered."""
    stamp, _ = world.stored()
    assignment = Assignment(Partition("orders", "0"), 1)
    places = {assignment: Place(world.paths[0], 0)}
    writes = [Write(assignment, "text", stamp._replace(serial=1))]
    saving = Saving(world.tree, TWO_WRITES, writes, places)
    (outcome,) = (await saving.run()).values()
    assert outcome.error is not None
    raise outcome.error


CALLS: dict[str, Callable[[World], Awaitable[object]]] = {
    "saving": save_again,
    "claiming": World.claim,
    "deleting": lambda world: writing.leave_tombstones(world.tree, TWO_WRITES, world.paths),
    "pinning": lambda world: writing.pin(world.tree, STREAM, "latest"),
    "unpinning": lambda world: writing.unpin(world.tree, STREAM),
}


@pytest.fixture
async def busy(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> World:
    """Somebody writes the same znodes before each of our writes."""
    world, what = World(), request.getfixturevalue("what")
    await world.claim()
    if what == "unpinning":
        await writing.pin(world.tree, STREAM, "earliest")
    monkeypatch.setattr(writing, "ROUNDS", 5)

    def write() -> None:
        world.touch()
        stream = world.server.znodes[STREAM]
        world.server.znodes[STREAM] = stream._replace(version=stream.version + 1)

    world.bridge.took()
    world.bridge.before["commit"] = [write] * 100
    return world


@pytest.mark.parametrize("what", CALLS)
async def test_others_who_come_in_between_each_time_are_an_error_that_passes(
    busy: World, what: str
) -> None:
    """After as many tries as were given."""
    with pytest.raises(TransientStoreError, match=f"^{what}: others came in between 5 times"):
        await CALLS[what](busy)
    assert busy.bridge.took().count(("commit", 1)) == 5


@pytest.mark.parametrize("what", ["deleting", "pinning", "unpinning"])
async def test_refusal_is_no_conflict(busy: World, what: str) -> None:
    """It is said at once, with the znode."""
    busy.server.closed = busy.paths[0] if what == "deleting" else STREAM
    with pytest.raises(StoreError, match=f"{busy.server.closed}: .*not permitted"):
        await CALLS[what](busy)
    assert busy.bridge.took().count(("commit", 1)) == 1
