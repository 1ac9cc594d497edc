"""Claims about the Kinesis servers, on the real ones."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import get_session
from aiohttp import ClientSession

from consumer_sdk.testing.servers import (
    KinesaliteServer,
    KinesisEndpoint,
    KinesisServer,
    PortInUseError,
    ServerError,
    ServerStartError,
)
from tests.testing.servers.listening import listening, only_loopback
from tests.testing.servers.processes import is_gone

pytestmark = pytest.mark.kinesis

SHARD_0, SHARD_1 = "shardId-000000000000", "shardId-000000000001"
SERVERS = pytest.mark.parametrize("server_class", [KinesisServer, KinesaliteServer])
ONE_OF_THEM = pytest.mark.parametrize(
    "server_class", [pytest.param(KinesisServer, marks=pytest.mark.campaign), KinesaliteServer]
)
"""Both in the campaigns: they have their process in common."""

AnyServer = type[KinesisServer] | type[KinesaliteServer]


@pytest.fixture(params=["kinesis_server", "kinesalite_server"])
def kinesis(request: pytest.FixtureRequest) -> KinesisEndpoint:
    """Give each of the shared servers in turn."""
    server = request.getfixturevalue(request.param)
    assert isinstance(server, KinesisEndpoint)
    return server


@asynccontextmanager
async def connected(kinesis: KinesisEndpoint) -> AsyncIterator[Any]:
    """Give a client of the caller's own, made of what the server tells."""
    client = get_session().create_client(
        "kinesis",
        endpoint_url=kinesis.endpoint_url,
        region_name=kinesis.region,
        **kinesis.credentials,
    )
    async with client as opened:
        yield opened


async def data(kinesis: KinesisEndpoint, stream: str, shard: str) -> list[bytes]:
    """Return all data of a shard, a closed one's too."""
    found: list[bytes] = []
    async with connected(kinesis) as client:
        start = await client.get_shard_iterator(
            StreamName=stream, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
        )
        answer = await client.get_records(ShardIterator=start["ShardIterator"])
        found += (record["Data"] for record in answer["Records"])
    return found


async def test_idle_connection_stays_open(kinesalite_server: KinesisEndpoint) -> None:
    """Node's own five seconds end where a busy client sends its next request."""
    async with (
        ClientSession() as client,
        client.post(kinesalite_server.endpoint_url, headers={"Connection": "keep-alive"}) as answer,
    ):
        assert answer.headers["Keep-Alive"] == "timeout=600"


async def test_created_stream_is_active_and_refused_when_it_exists(
    kinesis: KinesisEndpoint,
) -> None:
    """A stream is usable when create_stream returns; Kinesis's own words are in an error."""
    await kinesis.create_stream("created", 3)
    async with connected(kinesis) as client:
        summary = await client.describe_stream_summary(StreamName="created")
    description = summary["StreamDescriptionSummary"]
    assert (description["StreamStatus"], description["OpenShardCount"]) == ("ACTIVE", 3)
    with pytest.raises(ServerError, match="already exists"):
        await kinesis.create_stream("created")


async def test_put_records_arrive_in_order_in_the_named_shard(kinesis: KinesisEndpoint) -> None:
    """More than one batch, in the shard that was asked for, each with its sequence number."""
    await kinesis.create_stream("put", 2)
    records = [(f"key-{number}", b"%d" % number) for number in range(501)]
    taken = await kinesis.put("put", records, shard=SHARD_1)
    assert {shard for shard, _ in taken} == {SHARD_1}
    numbers = [int(sequence_number) for _, sequence_number in taken]
    assert numbers == sorted(set(numbers))
    assert await data(kinesis, "put", SHARD_1) == [value for _, value in records]
    assert await data(kinesis, "put", SHARD_0) == []


async def test_records_without_a_named_shard_go_where_their_keys_say(
    kinesis: KinesisEndpoint,
) -> None:
    """Many keys reach both shards, and put says which."""
    await kinesis.create_stream("by-keys", 2)
    taken = await kinesis.put("by-keys", [(f"key-{number}", b"") for number in range(50)])
    assert {shard for shard, _ in taken} == {SHARD_0, SHARD_1}


async def test_large_records_are_put_in_several_batches(kinesis: KinesisEndpoint) -> None:
    """What is more than one call may carry is split."""
    await kinesis.create_stream("large")
    value = bytes(1_000_000)
    assert len(await kinesis.put("large", [("key", value)] * 6)) == 6


async def test_split_and_merge_give_the_children(kinesis: KinesisEndpoint) -> None:
    """Both children share the parent's hash keys; their merge has the whole range again."""
    await kinesis.create_stream("reshard")
    (parent,) = await kinesis.shards("reshard")
    low, high = await kinesis.split("reshard", SHARD_0)
    child = await kinesis.merge("reshard", low, high)
    shards = {shard["ShardId"]: shard for shard in await kinesis.shards("reshard")}
    assert sorted(shards) == sorted([SHARD_0, low, high, child])
    assert shards[child]["HashKeyRange"] == parent["HashKeyRange"]
    assert shards[low]["ParentShardId"] == shards[high]["ParentShardId"] == SHARD_0


async def test_shard_that_is_not_there_is_named(kinesis: KinesisEndpoint) -> None:
    """A slip in a shard's id is a typed error, before anything is put."""
    await kinesis.create_stream("known")
    with pytest.raises(ServerError, match="no shard 'shardId-9'"):
        await kinesis.put("known", [("key", b"")], shard="shardId-9")


async def test_child_shards_and_filters_are_known_to_kinesis_local(
    own_kinesis_server: KinesisServer,
) -> None:
    """What this server is chosen for: a closed shard tells its children, and filters count."""
    server = own_kinesis_server
    await server.create_stream("closed")
    children = await server.split("closed", SHARD_0)
    async with connected(server) as client:
        start = await client.get_shard_iterator(
            StreamName="closed", ShardId=SHARD_0, ShardIteratorType="TRIM_HORIZON"
        )
        answer = await client.get_records(ShardIterator=start["ShardIterator"])
        latest = await client.list_shards(StreamName="closed", ShardFilter={"Type": "AT_LATEST"})
    assert "NextShardIterator" not in answer
    assert [child["ShardId"] for child in answer["ChildShards"]] == children
    assert [shard["ShardId"] for shard in latest["Shards"]] == children


@pytest.mark.skipif(not Path("/proc/self/net").exists(), reason="only Linux lists sockets there")
@ONE_OF_THEM
async def test_only_loopback_is_served(server_class: AnyServer) -> None:
    """No port of the server can be reached from another machine."""
    async with server_class() as server:
        assert listening(server.pid) == only_loopback(*server.ports)


@ONE_OF_THEM
async def test_kill_empties_pause_keeps(server_class: AnyServer) -> None:
    """A restart has the port and no stream; a paused server answers late and loses nothing."""
    async with server_class() as server:
        await server.create_stream("lost")
        before, url = server.pid, server.endpoint_url
        await server.kill()
        assert is_gone(before)
        await server.restart()
        assert server.endpoint_url == url
        await server.create_stream("lost")  # else refused, as one that exists

        server.pause()
        asking = asyncio.create_task(server.shards("lost"))
        assert await asyncio.wait({asking}, timeout=0.5) == (set(), {asking})
        server.resume()
        assert len(await asking) == 1
        folder = server.directory
    assert not folder.exists()


@ONE_OF_THEM
async def test_stopped_server_ends_by_itself(server_class: AnyServer) -> None:
    """SIGTERM is enough, and no process is left."""
    async with server_class() as server:
        pid = server.pid
        await server.stop(patience=300)  # after which it would be killed
        assert is_gone(pid)
        assert f"exit status {-signal.SIGKILL}," not in server.last_words


@SERVERS
async def test_port_in_use_is_named(server_class: AnyServer) -> None:
    """Somebody else's port is a typed error, and no process is left."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = server_class(port=port)
        with pytest.raises(PortInUseError, match=str(port)):
            await server.start()
        assert not server.is_running
        await server.aclose()


async def test_refused_setting_is_shown() -> None:
    """The servers' own words about a bad setting are in the error."""
    with pytest.raises(ServerStartError, match=r"(?s)ended at its start.*SHARD_LIMIT.*many"):
        async with KinesisServer(settings={"SHARD_LIMIT": "many"}):
            pass
    with pytest.raises(ServerStartError, match=r"(?s)ended at its start.*location string"):
        async with KinesaliteServer(options={"path": 1}):
            pass


async def test_settings_replace_ours() -> None:
    """A limit that a test asks for is the server's."""
    async with KinesisServer(settings={"SHARD_LIMIT": 1}) as local:
        with pytest.raises(ServerError, match="LimitExceeded"):
            await local.create_stream("wide", 2)
    async with KinesaliteServer(options={"shardLimit": 1}) as lite:
        with pytest.raises(ServerError, match="LimitExceeded"):
            await lite.create_stream("wide", 2)


async def test_nobody_there_is_a_typed_error() -> None:
    """A server that was killed is named by the calls that miss it."""
    async with KinesaliteServer() as server:
        await server.kill()
        with pytest.raises(ServerError, match=server.endpoint_url):
            await server.shards("any")


@pytest.mark.campaign
async def test_variables_of_the_shell_do_not_reach_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Region, account and first streams are the server's own, whatever the shell has."""
    monkeypatch.setenv("AWS_REGION", "eu-west-9")
    monkeypatch.setenv("AWS_ACCOUNT_ID", "111111111111")
    monkeypatch.setenv("INITIALIZE_STREAMS", "unasked:1")
    for server_class in (KinesisServer, KinesaliteServer):
        async with server_class() as server:
            await server.create_stream("mine")
            async with connected(server) as client:
                streams = (await client.list_streams())["StreamNames"]
                summary = await client.describe_stream_summary(StreamName="mine")
        assert streams == ["mine"]
        arn = summary["StreamDescriptionSummary"]["StreamARN"]
        assert arn == "arn:aws:kinesis:us-east-1:000000000000:stream/mine"


@pytest.mark.parametrize(
    "what", ["kinesis", pytest.param("kinesalite", marks=pytest.mark.campaign)]
)
def test_command_line_runs_a_server_until_ctrl_c(tmp_path: Path, what: str) -> None:
    """``python -m consumer_sdk.testing.servers`` prints the address, and ends clean."""
    command = [sys.executable, "-m", "consumer_sdk.testing.servers", what, "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        words = run.stdout.readline().replace(",", "").split()
        run.send_signal(signal.SIGINT)
        assert run.wait() == 0
    assert words[1:3] == ["listens", "on"]
    assert is_gone(int(words[words.index("pid") + 1]))
