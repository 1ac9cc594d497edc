"""docs/from-….md: a program here goes on where the other one was."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
import uuid
from functools import partial
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from kazoo.client import KazooClient

from consumer_sdk.cli import main
from consumer_sdk.testing.servers import KafkaServer, KinesisServer, PulsarServer, ZooKeeperServer
from tests.adapters.kafka.harness import KafkaHarness
from tests.docs.pages import Page

ORDERS = [b'{"customer": "%s", "amount": %d}' % each for each in ((b"ann", 1), (b"bob", 2))]
LATER = [b'{"customer": "%s", "amount": %d}' % each for each in ((b"ann", 3), (b"bob", 4))]


@pytest.mark.kafka
@pytest.mark.parametrize(
    "name, before, after",
    [
        ("from-aiokafka", "with_aiokafka.py", "with_consumer_sdk.py"),
        ("from-faststream", "with_faststream.py", "in_consumer_sdk.py"),
    ],
)
def test_second_program_charges_what_the_first_one_left(
    kafka_server: KafkaServer, name: str, before: str, after: str
) -> None:
    """Each of the group's records once, over both programs."""
    page, servers = Page(name), kafka_server.bootstrap_servers
    asyncio.run(kafka_server.create_topic(name, partitions=1))
    for file, orders in ((before, ORDERS), (after, LATER)):
        end = asyncio.run(_send(servers, name, orders)) + 1
        shown = page.shown(f"python {file}")
        with page.running(f"python {file}", KAFKA=servers) as program:
            committed = partial(_wait_for_commit, servers, name, end)
            assert program.until_interrupted(shown, committed) == shown


async def _send(servers: str, topic: str, orders: list[bytes]) -> int:
    """Returns the last one's offset."""
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        sent = [await producer.send_and_wait(topic, order) for order in orders]
    return int(sent[-1].offset)


def _wait_for_commit(servers: str, name: str, position: int) -> None:
    asyncio.run(_committed(servers, name, position))


async def _committed(servers: str, name: str, position: int) -> None:
    """Until the group has committed that position; its name is that of the topic."""
    place = TopicPartition(name, 0)
    async with KafkaHarness(servers) as kafka:
        while True:
            offsets = await kafka.admin.list_consumer_group_offsets(name)
            if place in offsets and offsets[place].offset == position:
                return


@pytest.mark.pulsar
def test_second_program_charges_what_the_first_one_left_in_pulsar(
    pulsar_server: PulsarServer,
) -> None:
    """Each of the subscription's messages once, over both programs."""
    page, topic = Page("from-pulsar-client"), "from-pulsar-client"
    asyncio.run(pulsar_server.create_topic(topic))
    asyncio.run(pulsar_server.create_subscription(topic, "billing"))
    for file, orders in (("with_pulsar_client.py", ORDERS), ("with_pulsar_adapter.py", LATER)):
        asyncio.run(pulsar_server.produce(topic, orders))
        shown = page.shown(f"python {file}")
        with page.running(f"python {file}", PULSAR=pulsar_server.service_url) as program:
            settled = partial(_wait_for_acks, pulsar_server, topic)
            assert program.until_interrupted(shown, settled) == shown


def _wait_for_acks(server: PulsarServer, topic: str) -> None:
    while asyncio.run(server.backlog(topic, "billing")):
        time.sleep(0.1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands and programs run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _printed(capsys: pytest.CaptureFixture[str], command: str, names: dict[str, str]) -> str:
    for name, other in names.items():
        command = command.replace(name, other)
    status = main(shlex.split(command)[1:])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    return printed.out


@pytest.mark.kinesis
def test_consumer_goes_on_where_the_kcl_has_stopped(
    kinesis_server: KinesisServer,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page's lease names the second of four clicks, on a stream of the test's own."""
    stream = f"clicks-{uuid.uuid4().hex}"
    asyncio.run(kinesis_server.create_stream(stream))
    clicks = [("k", b"click %d" % number) for number in range(4)]
    sequences = [at for _, at in asyncio.run(kinesis_server.put(stream, clicks))]
    (lease,) = json.loads((Page("from-kcl").snippets / "leases.json").read_text("utf-8"))["Items"]
    region = ("eu-central-1", kinesis_server.region)
    names = {
        '"clicks"': f'"{stream}"',
        region[0]: region[1],
        lease["checkpoint"]["S"]: sequences[1],
    }
    page = Page("from-kcl").copied(folder, names)
    for end in (" --dry-run", ""):
        command = (
            f"consumer-sdk checkpoints import-kcl leases.json clicks sqlite:state.db billing{end}"
        )
        printed = _printed(capsys, command, {" clicks ": f" {stream} "})
        assert printed == page.shown(command)
    for name, value in (("ACCESS_KEY_ID", "any"), ("SECRET_ACCESS_KEY", "any")):
        monkeypatch.setenv(f"AWS_{name}", value)
    shown = page.shown("python clicks.py")
    with page.running("python clicks.py", KINESIS=kinesis_server.endpoint_url) as program:
        assert program.until_interrupted(shown) == shown


@pytest.mark.kafka
@pytest.mark.zookeeper
def test_consumer_goes_on_where_the_spout_has_stopped(
    kafka_server: KafkaServer,
    zookeeper_server: ZooKeeperServer,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The spout had committed the first of two sentences."""
    page, root = Page("from-storm"), f"/storm-kafka-{uuid.uuid4().hex}"
    asyncio.run(kafka_server.create_topic("from-storm", partitions=1))
    asyncio.run(_send(kafka_server.bootstrap_servers, "from-storm", [b"or not", b"to be"]))
    shell = KazooClient(zookeeper_server.hosts)
    shell.start(timeout=300)
    offset = {"offset": 1, "partition": 0, "topic": "from-storm"}
    state = json.dumps({**offset, "topology": {"id": "t", "name": "words"}, "broker": {}})
    shell.create(f"{root}/words/partition_0", state.encode(), makepath=True)
    shell.stop()
    shell.close()
    names = {"127.0.0.1:2181": zookeeper_server.hosts, "/storm-kafka": root}
    for end in (" --dry-run", ""):
        command = (
            "consumer-sdk checkpoints import-storm 127.0.0.1:2181 /storm-kafka words "
            f"--topic from-storm sqlite:state.db words{end}"
        )
        assert _printed(capsys, command, names) == page.shown(command)
    shown = page.shown("python words.py")
    with page.running("python words.py", KAFKA=kafka_server.bootstrap_servers) as program:
        assert program.until_interrupted(shown) == shown
