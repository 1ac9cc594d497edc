"""The subscription of range reads, with a native client that is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import _pulsar
import pytest

from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.adapters.pulsar.client import calls
from consumer_sdk.adapters.pulsar.client.admin import Admin
from consumer_sdk.adapters.pulsar.client.faults import BusyError
from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.client.topics import partition_of
from consumer_sdk.adapters.pulsar.ranges.cursors import PAUSES, Cursors
from consumer_sdk.adapters.pulsar.ranges.options import NOBODY
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    PartitionLostError,
    TransientAdapterError,
)
from consumer_sdk.records import Outcome, OutcomeKind
from consumer_sdk.testing import Simulation, simulate
from tests.adapters.pulsar.scripted import DISCONNECTED, Callback, Client, Result

TOPIC = "persistent://public/default/t"
PARTITION = partition_of(TOPIC)
Position = _pulsar.InitialPosition


class Broker(Client):
    """Keeps what it is asked for.

    Attributes:
        asked: name, type, position and queue of each subscription.
        is_away: the connection is lost as soon as there is one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Any, ...]] = []
        self.is_away = False

    def subscribe_async(self, topic: str, name: str, options: Any, done: Callback) -> None:
        """As the answers say."""
        position = options.subscription_initial_position()
        self.asked.append((name, options.consumer_type(), position, options.receiver_queue_size()))
        super().subscribe_async(topic, name, options, done)
        for native in self.made.get(topic, ()):
            native.is_closed = native.is_closed or self.is_away

    @property
    def acks(self) -> list[tuple[int, int, int, int]]:
        """The ids that were acked with all before them; each consumer is closed."""
        natives = self.made.get(TOPIC, [])
        assert all(native.is_closed for native in natives)
        assert all(is_cumulative for native in natives for _, is_cumulative in native.acks)
        return [numbers_of(found) for native in natives for found, _ in native.acks]


def numbers_of(found: Any) -> tuple[int, int, int, int]:
    """What is in an id."""
    return found.partition(), found.ledger_id(), found.entry_id(), found.batch_index()


class Rest(Admin):
    """A REST API that says what a test wants.

    Attributes:
        names: the subscriptions of the topic; None: it was deleted.
        stands: where the cursor is.
        asked: for which topics and subscriptions.
    """

    def __init__(self, *names: str, stands: Place | None = None) -> None:
        self.names: Sequence[str] | None = names
        self.stands = stands
        self.asked: list[tuple[str, ...]] = []

    async def subscriptions(self, topic: str) -> Sequence[str]:
        self.asked.append((topic,))
        return self.names or []

    async def internals(self, topic: str) -> dict[str, Any] | None:
        self.asked.append((topic,))
        return None if self.names is None else {}

    async def cursor(self, topic: str, subscription: str) -> Place | None:
        self.asked.append((topic, subscription))
        return self.stands


def cursors_of(
    client: Client, admin: Admin | None = None, subscription: str = "s", **options: Any
) -> Cursors:
    """Of one subscription; without the REST API if none is given."""
    adapter = PulsarAdapter(
        TOPIC, service_url="pulsar://h:6650", subscription=subscription, **options
    )
    return Cursors(client, admin, adapter._options)


async def commit(cursors: Cursors, position: Place = (7, 3, 0)) -> Outcome:
    """Of the topic."""
    found = await cursors.commit({PARTITION: position})
    assert list(found) == [PARTITION]
    return found[PARTITION]


# -- keeping ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "initial, are_new, position",
    [
        ("latest", False, Position.Latest),
        ("latest", True, Position.Earliest),
        ("earliest", False, Position.Earliest),
        ("earliest", True, Position.Earliest),
    ],
)
async def test_subscription_begins_where_it_was_asked_to(
    initial: str,
    are_new: bool,  # noqa: FBT001 - a column of the table
    position: Any,
) -> None:
    """But a partition that came later is kept from its first record on; nothing is received."""
    client = Broker()
    cursors = cursors_of(client, initial_position=initial)
    for _ in range(2):
        await cursors.keep([PARTITION], are_new=are_new)
    assert client.asked == [("s", _pulsar.ConsumerType.Exclusive, position, 0)]
    assert client.acks == []


@pytest.mark.parametrize("names, made", [(["s", "other"], 0), (["other"], 1), ([], 1)])
async def test_subscription_that_is_there_is_not_held(names: list[str], made: int) -> None:
    """The REST API tells; other subscriptions are none."""
    client, rest = Broker(), Rest(*names)
    cursors = cursors_of(client, rest)
    for _ in range(2):
        await cursors.keep([PARTITION], are_new=False)
    assert len(client.asked) == made
    assert rest.asked == [(TOPIC,)]


async def test_subscription_that_somebody_uses_is_there(caplog: pytest.LogCaptureFixture) -> None:
    """That is all that opening needs."""
    caplog.set_level("INFO")
    client = Broker()
    client.answers[TOPIC] = [Result.ConsumerBusy]
    cursors = cursors_of(client)
    for _ in range(2):
        await cursors.keep([PARTITION], are_new=False)
    assert len(client.asked) == 1
    assert "somebody uses 's'" in caplog.text


async def test_subscription_that_cannot_be_made_is_an_error_and_made_later() -> None:
    """Else records could go before anybody has read them."""
    client = Broker()
    client.answers[TOPIC] = [Result.ServiceUnitNotReady]
    cursors = cursors_of(client)
    with pytest.raises(TransientAdapterError, match=f"subscribing to {TOPIC} as 's'"):
        await cursors.keep([PARTITION], are_new=False)
    await cursors.keep([PARTITION], are_new=False)
    assert len(client.made[TOPIC]) == 1


async def test_nothing_is_subscribed_without_a_name() -> None:
    """And a commit has no position to move."""
    client = Broker()
    cursors = cursors_of(client, subscription=NOBODY)
    await cursors.keep([PARTITION], are_new=False)
    outcome = await commit(cursors)
    assert (outcome.kind, type(outcome.error)) == (OutcomeKind.FENCED, ConfigurationError)
    assert client.asked == []


@pytest.mark.parametrize("closing", [DISCONNECTED, Result.TopicNotFound, None])
async def test_subscription_whose_consumer_cannot_be_closed_is_kept(
    closing: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """(1) The broker has it; (2) the connection is lost, and with it the consumer."""
    monkeypatch.setitem(calls.close.__kwdefaults__ or {}, "patience", 0.01)
    client = Client()
    client.closing = closing
    cursors = cursors_of(client)
    for _ in range(2):
        await cursors.keep([PARTITION], are_new=False)
    assert len(client.made[TOPIC]) == 1
    assert f"closing the consumer of {TOPIC}: " in caplog.text


# -- committing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "position, acked",
    [((7, 3, 0), (7, 2)), ((7, 3, 5), (7, 2)), ((7, 0, 0), (7, -1)), ((0, 1, 0), (0, 0))],
)
async def test_commit_acks_all_entries_below_the_position_and_no_other(
    position: Place, acked: tuple[int, int]
) -> None:
    """A batch of which a part is done comes whole; entry -1 stands for all ledgers below.

    A subscription that somebody has deleted is made again at the earliest record, whatever was asked for at first.
    """
    client = Broker()
    cursors = cursors_of(client, initial_position="latest")
    assert (await commit(cursors, position)).kind is OutcomeKind.SENT
    assert client.acks == [(-1, *acked, -1)]
    assert client.asked == [("s", _pulsar.ConsumerType.Exclusive, Position.Earliest, 0)]


async def test_first_commit_at_the_topics_begin_is_made() -> None:
    """It may be the first ledger's first entry."""
    client = Broker()
    await commit(cursors_of(client), (0, 0, 0))
    assert client.acks == [(-1, 0, -1, -1)]


async def test_commit_that_was_made_is_not_made_again() -> None:
    """Nor an older one: each holds the subscription."""
    client = Broker()
    cursors = cursors_of(client)
    for position in ((7, 3, 0), (7, 3, 9), (7, 2, 0), (6, 9, 0), (7, 4, 0), (8, 0, 0)):
        assert (await commit(cursors, position)).kind is OutcomeKind.SENT
    assert client.acks == [(-1, 7, 2, -1), (-1, 7, 3, -1), (-1, 8, -1, -1)]


@pytest.mark.parametrize(
    "stands, kind",
    [
        (None, OutcomeKind.RETRY),
        ((7, 2, 0), OutcomeKind.RETRY),
        ((7, 3, 0), OutcomeKind.SENT),
        ((8, 0, 0), OutcomeKind.SENT),
    ],
)
async def test_commit_is_made_where_the_cursor_has_moved(
    stands: Place | None, kind: OutcomeKind
) -> None:
    """The client may drop an ack in silence: then it is made again."""
    client, rest = Broker(), Rest("s", stands=stands)
    cursors = cursors_of(client, rest)
    assert (await commit(cursors)).kind is kind
    assert rest.asked == [(TOPIC,), (TOPIC, "s")]
    rest.stands = (7, 3, 0)
    assert (await commit(cursors)).kind is OutcomeKind.SENT
    assert len(client.acks) == 1 + (kind is OutcomeKind.RETRY)


async def test_commit_of_a_topic_that_was_deleted_does_not_make_it_again() -> None:
    """To subscribe may make it."""
    client, rest = Broker(), Rest()
    rest.names = None
    outcome = await commit(cursors_of(client, rest))
    assert (outcome.kind, type(outcome.error)) == (OutcomeKind.GONE, PartitionLostError)
    assert client.asked == []


async def test_commit_whose_connection_was_lost_is_tried_again() -> None:
    """The client drops what it is to ack then, and says nothing."""
    client = Broker()
    client.is_away = True
    cursors = cursors_of(client)
    outcome = await commit(cursors)
    assert (outcome.kind, type(outcome.error)) == (OutcomeKind.RETRY, TransientAdapterError)
    client.is_away = False
    assert (await commit(cursors)).kind is OutcomeKind.SENT
    assert client.acks == [(-1, 7, 2, -1)] * 2


async def test_commit_whose_consumer_cannot_be_closed_is_tried_again() -> None:
    """The broker's answer to the close is all that tells of the ack before it."""
    client = Client()
    client.closing = DISCONNECTED
    cursors = cursors_of(client)
    outcome = await commit(cursors)
    assert outcome.kind is OutcomeKind.RETRY
    assert f"closing the consumer of {TOPIC}" in str(outcome.error)
    client.closing = Result.Ok
    assert (await commit(cursors)).kind is OutcomeKind.SENT


@pytest.mark.parametrize(
    "busy, kind", [(1, OutcomeKind.SENT), (3, OutcomeKind.SENT), (4, OutcomeKind.FENCED)]
)
def test_commit_waits_for_who_holds_the_subscription_for_a_moment(
    busy: int, kind: OutcomeKind
) -> None:
    """Whoever holds it longer is another consumer."""

    async def main(_: Simulation) -> None:
        client = Broker()
        client.answers[TOPIC] = [Result.ConsumerBusy] * busy
        time = asyncio.get_running_loop().time
        began = time()
        outcome = await commit(cursors_of(client))
        assert outcome.kind is kind
        assert time() - began == pytest.approx([0, 0.05, 0, 0.5, 0.5][busy])
        assert len(client.asked) == min(busy, len(PAUSES)) + 1
        if kind is OutcomeKind.FENCED:
            assert type(outcome.error) is BusyError

    simulate(main)


async def test_commit_that_is_refused_is_fenced() -> None:
    """It raises nothing, and says why."""
    client = Broker()
    client.answers[TOPIC] = [Result.AuthorizationError]
    outcome = await commit(cursors_of(client))
    assert (outcome.kind, type(outcome.error)) == (OutcomeKind.FENCED, PartitionLostError)
    assert str(outcome.error).startswith(f"{PARTITION}: subscribing to {TOPIC} as 's'")
    assert outcome.error is not None
    assert isinstance(outcome.error.__cause__, AdapterError)
