"""One model, collected by OpenTelemetry's SDK and by prometheus_client."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.semconv.schemas import Schemas
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from consumer_sdk import (
    ConfigurationError,
    Consumer,
    ConsumerClosedError,
    Message,
    MissingExtraError,
    telemetry,
)
from consumer_sdk.runtime import Snapshot
from consumer_sdk.telemetry import sampling
from consumer_sdk.telemetry.model import ATTRIBUTES, METRICS, SCHEMA_URL, collected, grouped
from consumer_sdk.telemetry.prometheus import prometheus_name
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from tests.runtime.bench import Bench, bench

ORDER = ("stream", "partition", "operation", "event", "error_type", "le")


def _prometheus(registry: CollectorRegistry) -> dict[str, dict[tuple[str, ...], float]]:
    """Name → labels but system and group → value."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            assert (sample.labels.pop("system"), sample.labels.pop("group")) == ("memory", "g")
            labels = tuple(sample.labels[name] for name in ORDER if name in sample.labels)
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


async def _handle(message: Message) -> None:
    await asyncio.sleep(0.02)
    if message.value == b"bad":
        raise KeyError("bad")


def test_prometheus_reads_what_the_consumer_did() -> None:
    """Counters, histograms and gauges with their labels; also after the end."""

    async def test(b: Bench) -> None:
        b.append("a=1", "b=2", "c=bad")
        consumer = b.consumer()
        registry = CollectorRegistry()
        registry.register(telemetry.collector(consumer))
        await b.run(consumer, _handle, seconds=30)
        found = _prometheus(registry)
        assert found["consumer_sdk_settled_total"] == {("s", "0"): 3}
        assert found["consumer_sdk_failed_total"] == {("s", "0"): 3}
        assert found["messaging_client_consumed_messages_total"] == {("s", "0", "receive"): 5}
        assert found["consumer_sdk_dead_lettered_total"] == {("KeyError",): 1}
        times = found["messaging_process_duration_seconds_count"]
        assert times == {("s", "process", ""): 2, ("s", "process", "KeyError"): 3}
        buckets = found["messaging_process_duration_seconds_bucket"]
        assert buckets["s", "process", "", "0.01"] == 0
        assert buckets["s", "process", "", "0.025"] == 2
        assert found["consumer_sdk_assignments_total"]["s", "0", "assigned"] == 1
        assert found["consumer_sdk_ready"] == {(): 0}
        assert "consumer_sdk_in_flight" not in found  # of partitions that are held

    bench(test)


def test_consumers_of_one_group_are_counted_together() -> None:
    """Prometheus takes one value for each set of labels."""

    async def test(b: Bench) -> None:
        consumers = [b.consumer(), b.consumer()]
        registry = CollectorRegistry()
        registry.register(telemetry.collector(*consumers))
        async with consumers[0]:
            await asyncio.sleep(5)
            async with consumers[1]:  # takes one of the partitions
                b.append("1", "2")
                for each in consumers:
                    (await anext(each)).ack()
                text = generate_latest(registry).decode()
                names = [line.rpartition(" ")[0] for line in text.splitlines()]
                samples = [name for name in names if not name.startswith("#")]
                assert len(samples) == len(set(samples))
                found = _prometheus(registry)
                assert found["consumer_sdk_ready"] == {(): 2}
                parts = [p for each in consumers for p in each.snapshot().partitions]
                counts = found["consumer_sdk_assignments_total"]
                assigned = [n for labels, n in counts.items() if labels[2] == "assigned"]
                assert len(assigned) == 2 < len(parts)
                assert sum(assigned) == sum(part.assigned for part in parts)
                assert sum(found["consumer_sdk_settled_total"].values()) == 2
                assert found["consumer_sdk_loop_lag_seconds"] == {(): 0}

    bench(test, partitions=2)


def test_opentelemetry_reads_the_same() -> None:
    """Under the names and attributes of the semantic conventions."""

    async def test(b: Bench) -> None:
        b.append("a=1", "b=2")
        consumer = b.consumer()
        reader = InMemoryMetricReader()
        telemetry.otel(consumer, provider=MeterProvider([reader]))
        running = asyncio.create_task(consumer.run(_handle))
        await asyncio.sleep(5)
        consumer.pause()
        found = _points(reader)
        ids = {"messaging.destination.name": "s", "messaging.destination.partition.id": "0"}
        ours = {"messaging.system": "memory", "messaging.consumer.group.name": "g"}
        assert found["consumer_sdk.settled"] == [({**ours, **ids}, 2)]
        assert found["consumer_sdk.paused"] == [
            ({**ours, **ids, "consumer_sdk.reason": "operator"}, 1)
        ]
        (count,) = found["messaging.process.duration.count"]
        assert count[1] == 2
        assert found["messaging.process.duration.bucket"][-1][0]["le"] == "+Inf"
        assert found["consumer_sdk.ready"] == [(ours, 1)]
        consumer.stop()
        await running

    bench(test)


def test_opentelemetry_reads_all_consumers_of_a_provider() -> None:
    """Whether they come in one call or in several; a provider has one instrument of a name."""

    async def test(b: Bench) -> None:
        consumers = [b.consumer(group) for group in ("g", "g", "h")]
        reader = InMemoryMetricReader()
        provider = MeterProvider([reader])
        telemetry.otel(*consumers[:2], provider=provider)
        telemetry.otel(*consumers[1:], provider=provider)
        async with consumers[0], consumers[1], consumers[2]:
            await asyncio.sleep(5)
            found = _points(reader)["consumer_sdk.ready"]
            ready = {attributes["messaging.consumer.group.name"]: n for attributes, n in found}
            assert ready == {"g": 2, "h": 1}

    bench(test)


def _points(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], float]]]:
    found: dict[str, list[tuple[dict[str, Any], float]]] = {}
    data = reader.get_metrics_data()
    assert data is not None
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.schema_url == SCHEMA_URL
    for metric in scope.metrics:
        points: Any = metric.data.data_points
        found[metric.name] = [(dict(p.attributes), p.value) for p in points]
    return found


async def test_scrape_in_another_thread_waits_for_the_event_loop() -> None:
    """A snapshot is taken where the consumer lives; a loop that is blocked gives the last one."""
    # A real loop: virtual time cannot wait for a thread.
    broker = MemoryBroker()
    broker.create_stream("s", 3)
    registry = CollectorRegistry()
    async with Consumer(MemoryAdapter(broker, "s", group="g")) as consumer:
        registry.register(telemetry.collector(consumer))
        while not consumer.stats().partitions:
            await asyncio.sleep(0.01)
        found = await asyncio.to_thread(_prometheus, registry)
        assert len(found["consumer_sdk_in_flight"]) == 3
        thread = threading.Thread(target=generate_latest, args=[registry])
        thread.start()
        thread.join()  # blocks the loop; the snapshot of before is fresh enough
        assert not thread.is_alive()


async def test_snapshot_that_came_too_late_serves_the_next_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loop that turns slowly is asked once, and its answer is not thrown away."""
    monkeypatch.setattr(sampling, "PATIENCE", 0.001)
    broker = MemoryBroker()
    broker.create_stream("s", 1)
    async with Consumer(MemoryAdapter(broker, "s", group="g")) as consumer:
        sampler = sampling.Sampler(consumer)
        found: list[Snapshot | None] = []

        def ask() -> None:
            sampler._taken = -sampling.FRESH
            found.append(sampler.snapshot())

        for _ in range(2):
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()  # blocks the loop
        assert found == [None, None]
        monkeypatch.setattr(sampling, "PATIENCE", 1e6)
        await asyncio.to_thread(ask)
        assert found[2] is not None


async def test_snapshot_that_always_comes_too_late_is_still_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loop so slow that nobody waits long enough: the metrics are late, and do not stand still."""
    monkeypatch.setattr(sampling, "PATIENCE", 0.0)
    monkeypatch.setattr(sampling, "FRESH", 0.0)
    broker = MemoryBroker()
    broker.create_stream("s", 1)
    async with Consumer(MemoryAdapter(broker, "s", group="g")) as consumer:
        sampler = sampling.Sampler(consumer)
        found: list[Snapshot | None] = []
        for _ in range(3):
            thread = threading.Thread(target=lambda: found.append(sampler.snapshot()))
            thread.start()
            thread.join()  # blocks the loop
            while sampler._asked is None or not sampler._asked.done():
                await asyncio.sleep(0)
        first, second, third = found
        assert first is None
        assert second is not None
        assert third is not None
        assert second.time < third.time


def test_partition_that_is_there_twice_has_one_value() -> None:
    """Two for one set of labels would cost the whole scrape."""

    async def test(b: Bench) -> None:
        async with b.consumer() as consumer:
            await asyncio.sleep(5)
            once = consumer.snapshot()
            twice = replace(once, partitions=once.partitions * 2)
            metric = next(each for each in METRICS if each.name == "consumer_sdk.assignments")
            (one, *_), (two, *_) = (
                collected(metric, grouped([once])),
                collected(metric, grouped([twice])),
            )
            assert (two.labels, two.value) == (one.labels, 2)
            assert len(list(collected(metric, grouped([twice])))) == len(
                list(collected(metric, grouped([once])))
            )

    bench(test)


def test_samples_of_a_family_can_be_read_again() -> None:
    """They are made while they are read; a registry may ask twice, for their number, or for one."""

    async def test(b: Bench) -> None:
        async with b.consumer() as consumer:
            await asyncio.sleep(5)
            families = {each.name: each for each in telemetry.collector(consumer).collect()}
            samples = families["consumer_sdk_assignments"].samples
            assert [*samples] == [*samples] == samples[:]
            assert len(samples) == 3
            labels = {"system": "memory", "group": "g", "stream": "s", "partition": "0"}
            assert samples[0].labels == {**labels, "event": "assigned"}
            assert (samples[0].name, samples[0].value) == ("consumer_sdk_assignments_total", 1)

    bench(test)


def test_samples_of_many_partitions_are_not_there_at_once() -> None:
    """So many objects would make the garbage collector hold up the event loop."""

    def samples_there() -> int:
        return sum(type(each) is Sample for each in gc.get_objects())

    async def test(b: Bench) -> None:
        async with b.consumer() as consumer:
            await asyncio.sleep(5)
            before = samples_there()
            for family in telemetry.collector(consumer).collect():
                if family.name == "consumer_sdk_assignments":
                    samples = iter(family.samples)
                    assert next(samples) is not None
                    assert samples_there() <= before + 1

    bench(test, partitions=20)


def test_scrape_after_the_event_loop_has_ended_says_so() -> None:
    """The last counters, and not ready: an error would cost the process all of its metrics."""
    registry = CollectorRegistry()

    async def main() -> Consumer:
        broker = MemoryBroker()
        broker.create_stream("s", 1)
        async with Consumer(MemoryAdapter(broker, "s", group="g")) as consumer:
            registry.register(telemetry.collector(consumer))
        return consumer

    consumer = asyncio.run(main())
    assert _prometheus(registry)["consumer_sdk_ready"] == {(): 0}
    assert consumer.health().reasons == ("the consumer is closed",)


async def test_scrape_in_the_event_loop_waits_for_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One in a thread waits for the loop, which must not wait for that thread."""
    monkeypatch.setattr(sampling, "PATIENCE", 1e6)
    broker = MemoryBroker()
    broker.create_stream("s", 1)
    async with Consumer(MemoryAdapter(broker, "s", group="g")) as consumer:
        sampler = sampling.Sampler(consumer)
        thread = threading.Thread(target=sampler.snapshot)
        thread.start()
        while not sampler._lock.locked():
            pass
        assert sampler.snapshot() is not None
        await asyncio.to_thread(thread.join)


async def test_consumer_of_a_loop_that_runs_is_looked_at_there_alone() -> None:
    """In another thread its partitions may change in the middle of a look."""
    broker = MemoryBroker()
    broker.create_stream("s", 1)
    async with Consumer(MemoryAdapter(broker, "s", group="g")) as consumer:
        for look in (consumer.snapshot, consumer.health, consumer.pause):
            with pytest.raises(ConsumerClosedError, match="another event loop"):
                await asyncio.to_thread(look)


@pytest.mark.parametrize(
    "name, package, extra",
    [
        ("collector", "prometheus_client.core", "prometheus"),
        ("otel", "opentelemetry", "otel"),
        ("traced", "opentelemetry", "otel"),
    ],
)
def test_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    """Only when it is asked for: the log formatter needs neither."""
    home = getattr(telemetry, name).__module__
    monkeypatch.delattr(telemetry, name)
    monkeypatch.delitem(sys.modules, home)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'consumer-sdk\[{extra}\]'"):
        getattr(telemetry, name)


def test_names_are_those_of_the_pinned_conventions() -> None:
    """What begins as theirs is theirs; the installed package has the version that is pinned."""
    assert Schemas.V1_44_0.value == SCHEMA_URL
    theirs = {v for k, v in vars(messaging_metrics).items() if k.startswith("MESSAGING")}
    theirs |= {v for k, v in vars(messaging_attributes).items() if k.startswith("MESSAGING")}
    theirs |= {error_attributes.ERROR_TYPE}
    for name in [*ATTRIBUTES.values(), *(metric.name for metric in METRICS)]:
        assert name in theirs or name.startswith("consumer_sdk."), name


def test_names_are_unique_and_labels_known() -> None:
    """Also as Prometheus has them."""
    assert len({prometheus_name(metric) for metric in METRICS}) == len(METRICS)
    assert {label for metric in METRICS for label in metric.labels} <= ATTRIBUTES.keys()
    names = {prometheus_name(metric) for metric in METRICS}
    assert {"consumer_sdk_pinned_age_seconds", "consumer_sdk_lag_seconds"} <= names


@pytest.mark.parametrize("make", [telemetry.collector, telemetry.otel])
def test_what_is_no_consumer_is_refused(make: Any) -> None:
    """At once, not at the first scrape."""
    with pytest.raises(ConfigurationError, match="give a Consumer"):
        make("kafka://…")
