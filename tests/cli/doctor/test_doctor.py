"""``consumer-sdk doctor`` on real servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumer
from consumer_sdk.adapters.urls import open_for_tools
from consumer_sdk.testing.servers import KafkaServer
from tests.cli.test_groups_seen import BROKERS, Seen, place, seen
from tests.cli.worlds import World, golden, kafka_world, status

__all__ = ["place", "seen"]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is there is no failure, however long the machine stands still."""
    monkeypatch.setattr("consumer_sdk.cli.doctor.servers.PATIENCE", 300.0)


async def findings(capsys: pytest.CaptureFixture[str], *urls: str) -> tuple[int, dict[str, Any]]:
    """The exit status, and what was found by what was looked at."""
    code = await status("doctor", *urls, "--json")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return code, {row["what"]: row for row in rows}


@pytest.mark.parametrize("place", [BROKERS[1], BROKERS[3], BROKERS[4]], indirect=True)
async def test_group_that_is_all_right_is_said_so(
    seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each broker, with its store; nothing is joined, and the store is as it was."""
    code, found = await findings(capsys, seen.url, str(seen.store))
    assert {row["level"] for row in found.values()} <= {"ok", "warn"}, found
    assert {"versions", "open files", "broker", "streams", "reading", "group", "store"} <= set(
        found
    )
    assert found["group"]["found"] == f"{seen.group} may be joined, and has 0 members"
    assert " s behind, and " in found["retention"]["found"]
    assert code in {0, 3}
    assert len(await seen.consume(3)) == 3  # of the six, three were settled


@pytest.mark.kafka
async def test_what_is_wrong_fails_with_what_to_do(
    kafka_server: KafkaServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A topic that is missing, a store that cannot be, a server that is away, an option that is none."""
    world = kafka_world(kafka_server)
    stream = await world.stream()
    code, found = await findings(capsys, world.url("no-such-topic", group="g"))
    assert (code, found["broker"]["level"]) == (1, "FAIL")
    assert "no-such-topic" in found["broker"]["found"]
    assert found["broker"]["todo"] == ""  # the error says what to do, and it is not the credentials
    code, found = await findings(capsys, world.url(stream, share_group="billing"))
    assert found["group"]["found"].startswith("share group billing: the broker keeps")
    url = world.url(stream, group="g")
    code, found = await findings(capsys, url, f"sqlite://{tmp_path}/none/state.db")
    assert (code, found["store"]["level"]) == (1, "FAIL")
    assert "see that the directory" in found["store"]["found"]
    code, found = await findings(capsys, url, f"sqlite://{tmp_path}/state.db")
    assert (code, found["store"]["level"]) == (3, "warn")
    assert not (tmp_path / "state.db").exists()
    code, found = await findings(capsys, world.url(stream))
    assert (code, found["group"]["level"]) == (3, "warn")
    assert await status("doctor", world.url(stream, grup="g")) == 2
    assert "did you mean group=?" in capsys.readouterr().err


@pytest.mark.kafka
async def test_group_that_runs_is_told_with_its_members(
    kafka_server: KafkaServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """And may be joined, as far as rights go; lines are for people without ``--json``."""
    world: World = kafka_world(kafka_server)
    stream = await world.stream()
    url = world.url(stream, group="billing-doctor")
    async with Consumer(url):
        assert await status("doctor", url) in {0, 3}
    lines = capsys.readouterr().out.splitlines()
    text = "".join(f"{line}\n" for line in lines[2:])  # versions and limits are this machine's
    host, _, port = world.base.removeprefix("kafka://").rpartition(":")
    golden("doctor.txt", text, {f"{host}:{port}": "HOST:PORT", host: "HOST", stream: "T"})
    reader, _ = open_for_tools(url)
    await reader.open()
    try:
        await reader.check_group("group-that-is-not")
    finally:
        await reader.aclose()
