"""The way of one task's rows to a destination."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from consumer_sdk.abc import DeadLetters
from consumer_sdk.dead_letters import MemoryDeadLetters
from consumer_sdk.errors import ConfigurationError, StoreError, TransientStoreError
from consumer_sdk.records import DeadLetter, Outcome
from consumer_sdk.spark_bridge.dead_letters import delivery as dead_letter_delivery
from consumer_sdk.spark_bridge.dead_letters.delivery import Delivery, deliver
from consumer_sdk.spark_bridge.errors import DeadLetterError
from consumer_sdk.testing import Faults, Simulation, simulate
from tests.spark_bridge.dead_letters.given import letter

LOOPS = {"consumer_sdk broker loop"}


class Recording(DeadLetters):
    """Takes everything, and remembers how it was called."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.letters: list[DeadLetter] = []

    def named(self, url: str) -> DeadLetters:
        """Stands for `dead_letters_from_url`."""
        self.calls.append(url)
        return self

    async def open(self) -> None:
        self.calls.append("open")

    async def send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        self.calls.append("send")
        self.letters += letters
        return [Outcome.durable()] * len(letters)

    async def aclose(self) -> None:
        self.calls.append("aclose")


def batch(numbers: range) -> pa.RecordBatch:
    """Rows with no more columns than there must be."""
    rows = [
        {"value": b"%d" % at, "topic": "orders", "partition": 0, "offset": at, "reason": "no"}
        for at in numbers
    ]
    return pa.RecordBatch.from_pylist(rows)


def test_what_may_pass_is_tried_again_until_it_has_passed() -> None:
    """Two refusals cost 0.3 virtual seconds, and the letters are there once."""
    faults = Faults()
    faults.fail_next("dead_letter", times=2)
    destination = MemoryDeadLetters(faults=faults)

    async def main(simulation: Simulation) -> float:
        start = simulation.clock.monotonic()
        await deliver(destination, [letter(0), letter(1)], 30.0, "memory:")
        return simulation.clock.monotonic() - start

    assert simulate(main) == pytest.approx(0.3)
    assert destination.letters == [letter(0), letter(1)]


def test_a_destination_that_stays_away_fails_the_task_in_time() -> None:
    """A typed error with the cause, before the patience is over; nothing counts as written."""
    faults = Faults()
    faults.fail_next("dead_letter", times=1000)
    destination = MemoryDeadLetters(faults=faults)

    async def main(simulation: Simulation) -> float:
        with pytest.raises(DeadLetterError, match=r"1 of 1 dead letters.*memory:") as caught:
            await deliver(destination, [letter(0)], 7.0, "memory:")
        assert isinstance(caught.value.__cause__, TransientStoreError)
        return simulation.clock.monotonic()

    assert 3.0 < simulate(main) <= 7.0
    assert destination.letters == []


def test_what_cannot_pass_is_not_tried_again() -> None:
    """A refusal for good fails the task at once."""
    faults = Faults(error=lambda _seam: StoreError("too large"))
    faults.fail_next("dead_letter")
    destination = MemoryDeadLetters(faults=faults)

    async def main(simulation: Simulation) -> float:
        with pytest.raises(DeadLetterError, match="too large"):
            await deliver(destination, [letter(0)], 30.0, "memory:")
        return simulation.clock.monotonic()

    assert simulate(main) == 0.0


def test_all_batches_of_a_task_go_through_one_connection_that_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every row is sent, in parts of any size, and neither connection nor thread is left."""
    destination = Recording()
    monkeypatch.setattr(dead_letter_delivery, "dead_letters_from_url", destination.named)
    delivery = Delivery("memory:", "etl", 5.0)
    written = delivery.write(iter([batch(range(700)), batch(range(0)), batch(range(700, 1203))]))
    assert written == 1203
    assert [int(each.position) for each in destination.letters] == list(range(1203))
    assert destination.calls == ["memory:", "open", "send", "send", "send", "aclose"]
    assert not LOOPS & {each.name for each in threading.enumerate()}


def test_a_task_that_fails_closes_its_connection_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever went wrong, after rows were sent or before."""
    destination = Recording()
    monkeypatch.setattr(dead_letter_delivery, "dead_letters_from_url", destination.named)
    stray = batch(range(1)).set_column(1, "topic", pa.array([None], pa.string()))
    with pytest.raises(DeadLetterError, match="topic"):
        Delivery("memory:", "etl", 5.0).write([batch(range(500)), stray])
    assert destination.calls == ["memory:", "open", "send", "aclose"]
    assert not LOOPS & {each.name for each in threading.enumerate()}


def test_a_task_without_rows_connects_to_nothing(tmp_path: Path) -> None:
    """Most micro-batches have no rejects: they cost no connection."""
    path = tmp_path / "letters.db"
    assert Delivery(f"sqlite://{path}", "etl", 5.0).write(iter([batch(range(0))])) == 0
    assert not path.exists()


def test_a_delivery_shows_no_options() -> None:
    """It travels, and a secret in its URL is in no text (Spark trap 22)."""
    delivery = Delivery("kafka://host:1/dlq?sasl_plain_password=hidden", "etl", 5.0)
    assert "hidden" not in repr(delivery)
    assert pickle.loads(pickle.dumps(delivery)) == delivery  # noqa: S301 - our own bytes


def test_a_secret_that_is_named_is_looked_up_where_the_connection_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The plan and the driver hold the names alone (Spark trap 22)."""
    monkeypatch.setenv("DLQ_PASSWORD", "s&cret")
    (tmp_path / "user").write_text("me\n")
    destination = Recording()
    monkeypatch.setattr(dead_letter_delivery, "dead_letters_from_url", destination.named)
    options = f"sasl_plain_username=file:{tmp_path}/user&sasl_plain_password=env:DLQ_PASSWORD"
    Delivery(f"kafka://host:1/dlq?{options}", "etl", 5.0).write([batch(range(1))])
    url = "kafka://host:1/dlq?sasl_plain_username=me&sasl_plain_password=s%26cret"
    assert destination.calls[0] == url


def test_a_secret_that_is_not_there_is_said_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task fails before it connects."""
    monkeypatch.delenv("DLQ_PASSWORD", raising=False)
    with pytest.raises(ConfigurationError, match=r"sasl_plain_password=env.*'DLQ_PASSWORD'"):
        Delivery("kafka://h:1/dlq?sasl_plain_password=env:DLQ_PASSWORD", "etl", 5.0).write(
            [batch(range(1))]
        )
