"""How Spark finds the source where nobody has registered it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pyspark_consumer_sdk
from consumer_sdk import spark_bridge

pytest.importorskip("pyspark")


def test_spark_finds_the_source_by_its_module() -> None:
    """Spark asks each module named ``pyspark_*`` for a ``DefaultSource``."""
    from consumer_sdk.spark_bridge.data_source import ConsumerSdkDataSource

    assert pyspark_consumer_sdk.DefaultSource is ConsumerSdkDataSource
    assert pyspark_consumer_sdk.DefaultSource.name() == "consumer_sdk"


def test_the_module_itself_imports_nothing() -> None:
    """Trap 17: Spark imports it in every session, whatever the session is for."""
    code = "import sys, pyspark_consumer_sdk; print('consumer_sdk' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "False"


def test_a_source_that_cannot_be_imported_breaks_no_look_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exception here would take all other Python sources with it."""
    monkeypatch.setitem(sys.modules, "consumer_sdk.spark_bridge.data_source", None)
    assert not hasattr(pyspark_consumer_sdk, "DefaultSource")
    assert not hasattr(pyspark_consumer_sdk, "AnythingElse")


IMPORTS = """
import sys
import consumer_sdk.spark_bridge.data_source
print(*sorted(sys.modules))
import consumer_sdk.spark_bridge.pull.batch_reader, consumer_sdk.spark_bridge.pull.stream_reader
print(*sorted(sys.modules))
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
PullOptions.parse({"url": "kafka://127.0.0.1:1/orders"}).open_reader()
print(*sorted(sys.modules))
import consumer_sdk.spark_bridge.pull.run
print(*sorted(sys.modules))
"""


def test_processes_of_spark_import_only_what_they_run() -> None:
    """Each query starts some: who looks for the source, makes it, plans it; and each worker."""
    found = subprocess.run(
        [sys.executable, "-c", IMPORTS], check=True, capture_output=True, text=True
    )
    made, read, opened, planned = (set(line.split()) for line in found.stdout.splitlines())
    bridge = "consumer_sdk.spark_bridge"
    assert not made & {f"{bridge}.feed.reader", f"{bridge}.pull.reading", "asyncio", "ssl"}
    assert not read & {f"{bridge}.pull.run", "consumer_sdk.trackers", "consumer_sdk.stores"}
    assert not opened & {"consumer_sdk.adapters.kafka.adapter", "consumer_sdk.trackers"}
    unused = {"consumer_sdk.trackers", "consumer_sdk.stores.urls", "consumer_sdk.checkpoints.json"}
    assert not planned & {*unused, f"{bridge}.feed.url", "consumer_sdk.abc", "pandas"}


WORKER = """
import pickle, sys
task = pickle.loads(bytes.fromhex(sys.argv[1]))
assert task.read
task._options.for_tasks().open_reader()
print(*sorted(sys.modules))
"""

# What a service has, and a task has no use for.
FOREIGN = (
    "consumer_sdk.adapters.kafka.adapter",
    "consumer_sdk.adapters.kafka.consumer",
    "consumer_sdk.adapters.kinesis",
    "consumer_sdk.adapters.pulsar.consumer",
    "consumer_sdk.cli",
    "consumer_sdk.dead_letters",
    "consumer_sdk.runtime",
    "consumer_sdk.spark_bridge.feed",
    "consumer_sdk.stores",
    "consumer_sdk.telemetry",
    "consumer_sdk.trackers",
)


@pytest.mark.parametrize(
    "url",
    [
        "kafka://127.0.0.1:1/orders?group=billing",
        "pulsar://127.0.0.1:1/orders?subscription=billing",
    ],
)
def test_worker_that_reads_a_range_imports_no_consumer(url: str) -> None:
    """Each Python worker of each executor pays for what it imports."""
    from consumer_sdk.spark_bridge.pull.options.options import PullOptions
    from consumer_sdk.spark_bridge.pull.stream_reader import PullStreamReader

    reader = pickle.dumps(PullStreamReader(PullOptions.parse({"url": url, "store": "sqlite:///s"})))
    command = [sys.executable, "-c", WORKER, reader.hex()]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "consumer_sdk.spark_bridge.pull.reading" in found
    foreign = [name for name in found if f"{name}.".startswith(tuple(f"{f}." for f in FOREIGN))]
    assert not foreign


@pytest.mark.parametrize(
    "module, registries",
    [("rescued", False), ("avro.values", True), ("protobuf.values", True)],
)
def test_worker_that_decodes_imports_no_records(module: str, *, registries: bool) -> None:
    """It has values, not records; JSON's needs no schema registry either."""
    code = f"import sys, consumer_sdk.spark_bridge.decoding.{module}; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert f"consumer_sdk.spark_bridge.decoding.{module}" in found
    assert not {"consumer_sdk.records", "consumer_sdk.range_reads"} & set(found)
    assert ("consumer_sdk.schema_registry" in found) == registries


class Session:
    """Notes the environment of the processes of what is registered."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.sparkContext = self.dataSource = self
        self.defaultParallelism = 4
        self.environment = environment
        self.noted: list[dict[str, str]] = []

    def register(self, source: type) -> None:
        """As Spark, which copies it."""
        assert source is pyspark_consumer_sdk.DefaultSource
        self.noted.append(dict(self.environment))


@pytest.mark.parametrize("path", [None, "/libs"])
def test_processes_of_a_registered_source_have_a_quick_start(path: str | None) -> None:
    """They find `python_start` first, and what they found before behind it; other Python code is as it was."""
    environment = {"PYTHONHASHSEED": "0"} | ({"PYTHONPATH": path} if path else {})
    session: Any = Session(dict(environment))
    spark_bridge.register(session)
    start, *rest = session.noted[0].pop("PYTHONPATH").split(os.pathsep)
    assert (Path(start) / "sitecustomize.py").is_file()
    assert rest == ([path] if path else [])
    assert session.noted[0]["CONSUMER_SDK_SPARK_TASKS"] == "4"
    assert session.environment == environment
