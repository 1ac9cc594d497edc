"""What is looked at before the first transaction, on brokers that a script stands for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaConnectionError, LeaderNotAvailableError, UnknownError

from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.adapters.kafka.transactions import transactions as module
from consumer_sdk.adapters.kafka.transactions.structs import NOBODY, InitProducerId
from consumer_sdk.adapters.kafka.transactions.transactions import (
    HEADER_OVERHEAD,
    OVERHEAD,
    KafkaTransactions,
)
from consumer_sdk.dead_letters import KafkaDeadLetters
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    OutputError,
    TransientAdapterError,
)
from consumer_sdk.records.outputs import Output
from consumer_sdk.testing import MemoryDeadLetters
from tests.adapters.kafka.transactions.model import ModelCluster

ENOUGH = {9: (1, 9), 22: (0, 3), 28: (0, 3)}
"""The oldest brokers that exactly once works with."""


class Brokers(ModelCluster):
    """Has the topic ``out``, and versions.

    Attributes:
        known: API key → versions.
        trouble: what is raised when the versions are asked for.
        made: what the cluster was made with, and how long it was opened for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.known = dict(ENOUGH)
        self.trouble: Exception | None = None
        self.made: list[Any] = []

    def __call__(self, options: Any, topics: Any) -> Brokers:
        """In the place of `Cluster`."""
        self.made += [options, topics]
        return self

    async def open(self, timeout: float) -> None:
        """It is reached."""
        self.made.append(timeout)

    async def versions(self, node: int | None) -> Any:
        """Of any broker."""
        assert node is None
        if self.trouble is not None:
            raise self.trouble
        return self.known


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """Whom `KafkaTransactions` finds."""
    made = Brokers()
    monkeypatch.setattr(module, "Cluster", made)
    return made


def adapter(**options: Any) -> KafkaAdapter:
    """One that is not connected, though it is open."""
    given: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "connect_timeout": 7.0}
    made: Any = KafkaAdapter("in", group="g", **(given | options))
    made._opened = SimpleNamespace(options=made._options, is_closed=False)
    return cast("KafkaAdapter", made)


async def test_opening_begins_an_epoch(brokers: Brokers) -> None:
    """On the servers that are read from; with topics or without, and the first epoch fences whoever was before."""
    asked: list[Any] = []

    async def answer(cluster: ModelCluster, request: Any) -> Any:
        asked.append(request)
        return await cluster.answer(request)

    brokers.troubles[InitProducerId] = [answer]
    transactions = KafkaTransactions("tx", topics=["out"], timeout=30.0, compression="gzip")
    await transactions.open(adapter())
    options, topics, timeout = brokers.made
    assert options["bootstrap_servers"] == ["127.0.0.1:1"]
    assert (topics, timeout) == ({"out"}, 7.0)
    (request,) = asked
    assert request.fields == {
        "transactional_id": "tx",
        "transaction_timeout_ms": 30_000,
        "producer_id": NOBODY.id,
        "producer_epoch": NOBODY.epoch,
        "tags": {},
    }
    assert brokers.epoch == 0
    with pytest.raises(ConfigurationError, match="belongs to another consumer"):
        await transactions.open(adapter())
    await transactions.aclose()
    assert brokers.is_closed


def test_epoch_is_asked_for_by_name_and_known_producer() -> None:
    """In the version that refuses a producer that was replaced (KIP-360)."""
    request: Any = InitProducerId("tx", 0.25, (2**40, 6))  # type: ignore[arg-type]  # a plain pair does as well
    made = request.prepare({22: (0, 5)})
    assert (made.API_KEY, made.API_VERSION, made.FLEXIBLE_VERSION) == (22, 3, True)
    found = type(made).decode(made.encode()).to_object()
    assert found == {
        "transactional_id": "tx",
        "transaction_timeout_ms": 250,
        "producer_id": 2**40,
        "producer_epoch": 6,
        "tags": {},
    }
    with pytest.raises(NotImplementedError):
        request.prepare({22: (0, 2)})


@pytest.mark.parametrize(
    "key, name", [(9, "OffsetFetch"), (22, "InitProducerId"), (28, "TxnOffsetCommit")]
)
@pytest.mark.parametrize("is_known", [True, False])
async def test_brokers_that_are_too_old_are_refused(
    brokers: Brokers, key: int, name: str, *, is_known: bool
) -> None:
    """A consumer that took over could read a position before it is committed."""
    least = brokers.known.pop(key)[1]
    if is_known:
        brokers.known[key] = (0, least - 1)
    with pytest.raises(ConfigurationError, match=rf"no {name} of version {least}, .*Kafka 3\.7"):
        await KafkaTransactions("tx").open(adapter())
    assert not brokers.sent


@pytest.mark.parametrize(
    "trouble, kind",
    [(KafkaConnectionError("gone"), TransientAdapterError), (UnknownError("?"), AdapterError)],
)
async def test_brokers_that_do_not_tell_their_versions_are_no_old_ones(
    brokers: Brokers, trouble: Exception, kind: type[Exception]
) -> None:
    """A later try may find out."""
    brokers.trouble = trouble
    with pytest.raises(kind, match="asking for the broker's versions: ") as found:
        await KafkaTransactions("tx").open(adapter())
    assert found.value.__cause__ is trouble


async def test_topic_that_does_not_exist_is_refused_before_the_first_record(
    brokers: Brokers,
) -> None:
    """No output creates one."""
    with pytest.raises(ConfigurationError, match="topic 'absent' does not exist"):
        await KafkaTransactions("tx", topics=["out", "absent"]).open(adapter())
    assert not brokers.sent


async def test_topic_in_trouble_is_named(brokers: Brokers) -> None:
    """It is there, but for a moment nobody leads it; or this principal may not see it."""

    def check(_topic: str) -> None:
        raise LeaderNotAvailableError("out")

    brokers.metadata.check_topic = check
    with pytest.raises(
        TransientAdapterError, match=r"KafkaTransactions\(topics=…\), topic 'out': "
    ):
        await KafkaTransactions("tx", topics=["out"]).open(adapter())


def test_largest_output_is_counted_with_what_a_batch_adds() -> None:
    """Its head, and each header; to the byte."""
    headers = (("a", b"1"), ("b", None))
    for given in ((), headers):
        output = Output.make("out", bytes(100), b"key", given)
        size = output.size + OVERHEAD + HEADER_OVERHEAD * len(given)
        KafkaTransactions("tx", max_output_bytes=size).check_output(output)
        with pytest.raises(OutputError, match=f"has {size:,} bytes, .* allows {size - 1:,}"):
            KafkaTransactions("tx", max_output_bytes=size - 1).check_output(output)


async def test_dead_letters_are_part_of_transactions_on_the_same_servers(brokers: Brokers) -> None:
    """In whichever order they are named; elsewhere they are written by themselves."""
    servers = ["127.0.0.1:1", "127.0.0.1:2"]
    transactions = KafkaTransactions("tx")
    here = KafkaDeadLetters("letters", bootstrap_servers=servers[::-1])
    assert transactions.letters_of(here) is None  # it is not open
    await transactions.open(adapter(bootstrap_servers=servers))
    assert transactions.letters_of(here) == here.outputs
    there = KafkaDeadLetters("letters", bootstrap_servers=servers[:1])
    assert transactions.letters_of(there) is None
    assert transactions.letters_of(MemoryDeadLetters()) is None


def test_adapter_of_another_broker_is_refused() -> None:
    """Its positions are not Kafka's; what it is called tells the log."""
    transactions: Any = KafkaTransactions("tx")
    assert repr(transactions) == "KafkaTransactions(transactional_id='tx')"
    with pytest.raises(ConfigurationError, match="the adapter reads memory"):
        transactions.check(SimpleNamespace(broker="memory"))
    transactions.check(adapter())
