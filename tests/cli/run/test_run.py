"""``consumer-sdk run`` as processes: what runs, restarts, reloads and ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
import threading
import uuid
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from consumer_sdk.cli.run.supervisor import Supervisor, modified
from consumer_sdk.testing.servers import KafkaServer
from tests.admin.asking import POST, Answer, ask
from tests.cli.groups.test_checkpoints import COMMAND, ROOT
from tests.cli.worlds import golden, kafka_world, status
from tests.integration.field import until
from tests.testing.servers.processes import is_gone

SERVICE = """\
import os
from consumer_sdk import Message
from consumer_sdk.testing import MemoryAdapter, MemoryBroker

def said(text):
    with open("said", "a") as file:
        file.write(f"{os.getpid()} {text}\\n")

said("imported")
broker = MemoryBroker("b")
broker.create_stream("orders")

async def handle(message: Message) -> None:
    said((message.value or b"").decode())

def make_nothing():
    said("called")
"""
MEMORY = ["service:handle", "--url", "memory://b/orders?group=billing"]


class Service:
    """A run of ``consumer-sdk run`` in a folder with a module ``service``.

    Attributes:
        log: what it has written to stderr so far.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = ""

    @asynccontextmanager
    async def running(self, *arguments: str) -> AsyncIterator[Process]:
        """The process; killed in the end if it still runs."""
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            "run",
            *arguments,
            cwd=self.folder,
            stderr=PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        reading = asyncio.create_task(self._read(process))
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await reading

    async def _read(self, process: Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            self.log += line.decode()

    def said(self) -> list[tuple[int, str]]:
        """What handlers have written: pid and text."""
        file = self.folder / "said"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(pid), text) for pid, text in map(str.split, lines)]

    def said_of(self, text: str) -> set[int]:
        """The pids of those that have written this."""
        return {pid for pid, said in self.said() if said == text}

    @property
    def workers(self) -> list[int]:
        """The pids of all workers so far."""
        return [int(pid) for pid in re.findall(r"worker \d+: pid (\d+)", self.log)]

    def pid_of(self, number: int) -> int:
        """The last one of this number."""
        return int(re.findall(rf"worker {number}: pid (\d+)", self.log)[-1])

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Waits for something to become true."""
        try:
            await until(is_so, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from error

    async def opened(self, count: int) -> None:
        """Waits until so many consumers have been opened."""
        await self.until(lambda: self.log.count("engine: opened") == count, f"{count} opened")


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """One whose handler writes each value into a file."""
    (tmp_path / "service.py").write_text(SERVICE)
    return Service(tmp_path)


@pytest.mark.kafka
async def test_workers_share_a_group_and_one_that_is_killed_is_replaced(
    service: Service, kafka_server: KafkaServer
) -> None:
    """Every record is handled, and SIGTERM ends all with what they had in hand: nothing is left.

    Some may be handled twice: on a busy machine a member may miss its session of 6 s.
    """
    world = kafka_world(kafka_server)
    stream, group = await world.stream(4), f"billing-{uuid.uuid4().hex[:8]}"
    (service.folder / "consumer.toml").write_text(
        """
        app = "service:handle"
        [consumer]
        url = "env:ORDERS"
        [run]
        workers = 2
        """
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORDERS", world.url(stream, group=group, session_timeout="6"))
        async with service.running("--config", "consumer.toml") as process:
            await service.opened(2)
            await _write(kafka_server, stream, "a")
            await service.until(lambda: _handled(service) >= _values("a"), "all handled")
            killed = service.workers[0]
            os.kill(killed, signal.SIGKILL)
            await service.opened(3)
            assert f"worker {killed} died by SIGKILL; another one starts in 0.5 s" in service.log
            await _write(kafka_server, stream, "b")
            await service.until(lambda: _handled(service) >= _values("b"), "all handled again")
            process.terminate()
            assert await process.wait() == 0
    assert all(map(is_gone, service.workers))
    assert service.log.count("engine: closed") == 2, service.log
    reading, _ = await _lag(world.url(stream, group=group))
    assert reading == 0


class Page:
    """What the workers' one admin server answers; a hang is an error.

    Attributes:
        settled: of the last scrape; it never falls.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self.settled = 0.0

    async def ask(self, path: str, method: str = "GET", body: bytes = b"") -> Answer:
        """Waits as long as a busy machine may need, and no longer."""
        async with asyncio.timeout(60):
            return await ask(self._address, path, method, POST, body)

    async def view(self) -> Any:
        """The one consumer."""
        (found,) = (await self.ask("/api/view")).json["consumers"]
        return found

    async def scrape(self) -> float:
        """How many records are settled, says the exposition of all."""
        text = (await self.ask("/metrics")).body.decode()
        names = [line for line in text.splitlines() if line.startswith("# TYPE")]
        assert len(names) == len(set(names)), "one exposition"
        settled = re.findall(r"^consumer_sdk_settled_total{.*} ([0-9.]+)$", text, re.MULTILINE)
        now = sum(map(float, settled))
        assert now >= self.settled
        self.settled = now
        return now

    async def until(self, is_so: Callable[[Any], bool], what: str) -> Any:
        """Looks until it is so."""
        async with asyncio.timeout(120):
            while not is_so(found := await self.view()):
                await asyncio.sleep(0.05)
        return found

    async def until_settled(self, count: int) -> None:
        """Scrapes until so many are settled, or more."""
        async with asyncio.timeout(120):
            while await self.scrape() < count:
                await asyncio.sleep(0.05)


@pytest.mark.kafka
async def test_workers_have_one_page_and_one_set_of_metrics_whatever_becomes_of_them(
    service: Service, kafka_server: KafkaServer
) -> None:
    """One is killed, and no count falls; one is stopped, and the page says so at once."""
    world = kafka_world(kafka_server)
    stream, group = await world.stream(4), f"billing-{uuid.uuid4().hex[:8]}"
    url = world.url(stream, group=group, session_timeout="6")
    with TemporaryDirectory() as folder:
        (service.folder / "consumer.toml").write_text(
            f"""
            app = "service:handle"
            [consumer]
            url = "{url}"
            [run]
            workers = 2
            [admin]
            listen = "unix:{folder}/admin.sock"
            actions = true
            """
        )
        page = Page(f"unix:{folder}/admin.sock")
        async with service.running("--config", "consumer.toml") as process:
            await service.opened(2)
            view = await page.until(lambda v: v["ready"] and _held_by(v) == {0, 1}, "both")
            assert len(view["partitions"]) == view["held"] == 4
            await _write(kafka_server, stream, "a")
            await page.until_settled(40)

            path = f"/api/partitions/{stream}/0"
            assert (await page.ask(f"{path}/pause", "POST", b'{"reason": "why"}')).status == 200
            os.kill(service.pid_of(0), signal.SIGKILL)
            view = await page.until(lambda v: not v["ready"], "one is away")
            assert view["reasons"][0].startswith("worker 0 "), view["reasons"]
            assert await page.scrape() >= 40
            await service.opened(3)
            view = await page.until(lambda v: v["ready"] and _held_by(v) == {0, 1}, "both again")
            assert {row["id"] for row in view["partitions"] if row["pause_text"] == "why"} == {"0"}
            assert (await page.ask(f"{path}/resume", "POST")).status == 200
            await _write(kafka_server, stream, "b")
            await page.until_settled(80)

            os.kill(service.pid_of(1), signal.SIGSTOP)
            try:
                silent = "worker 1 has not answered for "
                await page.until(lambda v: any(map(_says(silent), v["reasons"])), "silent")
                assert (await page.ask("/healthz")).status in {200, 503}
                assert await page.scrape() >= 80
            finally:
                os.kill(service.pid_of(1), signal.SIGCONT)
            await page.until(lambda v: v["ready"] and not v["reasons"], "it answers again")
            process.terminate()
            assert await process.wait() == 0


def _says(begin: str) -> Callable[[str], bool]:
    return lambda reason: reason.startswith(begin)


def _held_by(view: Any) -> set[int]:
    return {row["worker"] for row in view["partitions"]}


async def _write(server: KafkaServer, stream: str, prefix: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers) as producer:
        for at, value in enumerate(sorted(_values(prefix))):
            await producer.send(stream, value.encode(), partition=at % 4)


def _values(prefix: str) -> set[str]:
    return {f"{prefix}{at}" for at in range(40)}


def _handled(service: Service) -> set[str]:
    return {text for _pid, text in service.said()}


async def _lag(url: str) -> tuple[int, str]:
    return await status("lag", url, "--fail-above", "0"), url


async def test_workers_of_a_parent_that_is_killed_end(service: Service) -> None:
    """They see it at their stdin, and drain."""
    async with service.running(*MEMORY, "--workers", "2") as process:
        await service.opened(2)
        process.kill()
        await service.until(lambda: all(map(is_gone, service.workers)), "workers have ended")
        await service.until(lambda: service.log.count("engine: closed") == 2, "both closed")


@pytest.mark.campaign
async def test_workers_of_a_parent_that_is_killed_end_before_they_have_a_consumer(
    service: Service,
) -> None:
    """Whatever they wait for."""
    with (service.folder / "service.py").open("a") as file:
        file.write(
            "import asyncio\nasync def build():\n said('builds')\n await asyncio.Event().wait()\n"
        )
    async with service.running("service:build", "--workers", "2") as process:
        await service.until(lambda: len(service.said_of("builds")) == 2, "both build")
        process.kill()
        await service.until(lambda: all(map(is_gone, service.workers)), "workers have ended")
    assert "Traceback" not in service.log


async def test_workers_are_seen_at_one_socket_until_they_end(service: Service) -> None:
    """Ready when all are, with the partitions of all; then the socket is gone."""
    with TemporaryDirectory() as folder:  # a socket's path is short
        listen = f"unix:{folder}/admin.sock"
        async with service.running(*MEMORY, "--workers", "2", "--admin", listen) as process:
            await service.opened(2)
            view = await Page(listen).until(lambda v: v["ready"], "both are ready")
            assert view["name"] == "billing · memory"
            assert {event["text"].partition(":")[0] for event in view["events"]} == {
                "worker 0",
                "worker 1",
            }
            process.terminate()
            assert await process.wait() == 0
        assert list(os.scandir(folder)) == []


def script(folder: Path, text: str) -> Path:
    """An executable file of the shell's."""
    made = folder / "worker"
    made.write_text(f"#!/bin/sh\n{text}\n")
    made.chmod(0o755)
    return made


def started(caplog: pytest.LogCaptureFixture) -> list[int]:
    """The pids of all workers so far."""
    return [int(pid) for pid in re.findall(r"worker \d+: pid (\d+)", caplog.text)]


async def test_signal_that_comes_twice_at_once_kills_no_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """``timeout`` sends it to its child, and to the child's group: all drain."""
    caplog.set_level(logging.INFO)
    command = script(tmp_path, "trap 'exit 0' TERM\nread line")
    supervisor = Supervisor([str(command)], 2)
    running = asyncio.create_task(supervisor.run())
    await until(lambda: len(started(caplog)) == 2, "two workers")
    for _ in range(3):
        supervisor._heard()
    assert await running == 0


async def test_another_signal_kills_workers_that_do_not_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that block their loop, say."""
    caplog.set_level(logging.INFO)
    supervisor = Supervisor([str(script(tmp_path, "trap '' TERM\nread line"))], 2)
    running = asyncio.create_task(supervisor.run())
    await until(lambda: len(started(caplog)) == 2, "two workers")

    def is_over() -> bool:
        supervisor._heard()  # within a second of the first it is the same one
        return running.done()

    await until(is_over, "ended")
    assert all(map(is_gone, started(caplog)))


@pytest.mark.campaign
async def test_worker_that_is_ended_by_a_signal_of_its_own_is_replaced(service: Service) -> None:
    """It has drained, but its service is not over."""
    async with service.running(*MEMORY, "--workers", "2") as process:
        await service.opened(2)
        ended = service.workers[0]
        os.kill(ended, signal.SIGTERM)
        await service.opened(3)
        said = f"worker {ended} was ended by SIGTERM; another one starts in 0.5 s"
        assert any(said in line and "WARNING" in line for line in service.log.splitlines())
        process.terminate()
        assert await process.wait() == 0
    assert service.log.count("engine: closed") == 3


async def test_worker_that_cannot_be_started_leaves_the_others_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again, as one that has died."""
    caplog.set_level(logging.INFO)
    read = tmp_path / "read"
    command, away = script(tmp_path, f"echo >> {read}\nexec cat"), tmp_path / "away"
    running = asyncio.create_task(Supervisor([str(command)], 2).run())
    await until(lambda: len(started(caplog)) == 2, "two workers")
    # The shell opens the file only after the process is there.
    await until(lambda: read.exists() and read.stat().st_size == 2, "both have read it")
    command.rename(away)
    os.kill(started(caplog)[0], signal.SIGKILL)
    await until(lambda: "worker 0: cannot be started" in caplog.text, "it cannot be started")
    assert not is_gone(started(caplog)[1])
    away.rename(command)
    await until(lambda: len(started(caplog)) == 3, "a third worker")
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    assert all(map(is_gone, started(caplog)))


async def test_service_that_cannot_work_ends_all_workers(service: Service) -> None:
    """With the status of a mistake, and not again and again."""
    async with service.running("service:make_nothing", "--workers", "2") as process:
        assert await process.wait() == 2
    assert "service:make_nothing() returned NoneType: return a Consumer or a Group" in service.log
    assert len(service.workers) == 2


async def test_first_look_at_the_files_comes_before_the_workers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is changed while they start is seen, however slow the first look is."""
    caplog.set_level(logging.INFO)
    monkeypatch.chdir(tmp_path)
    file, looks = tmp_path / "service.py", iter([True])
    looked, begin = threading.Event(), threading.Event()

    def slow(*files: Any) -> dict[str, int]:
        if next(looks, False):
            found = modified(*files)
            looked.set()
            begin.wait(30)
            return found
        return modified(*files)

    monkeypatch.setattr("consumer_sdk.cli.run.supervisor.modified", slow)
    command = script(tmp_path, "exec cat")
    running = asyncio.create_task(Supervisor([str(command)], 1, reloads=True).run())
    await until(looked.is_set, "the first look")
    before = started(caplog)
    file.touch()
    begin.set()
    assert before == []
    await until(lambda: "service.py changed" in caplog.text, "the change is seen")
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0


def replace(file: Path, text: str) -> None:
    """Whoever looks meanwhile never finds it empty, as between `Path.write_text`'s two steps."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


async def test_changed_file_starts_the_service_again(service: Service) -> None:
    """Also after it could not start; Ctrl-C ends it."""
    file = service.folder / "service.py"
    async with service.running(*MEMORY, "--reload") as process:
        await service.opened(1)
        replace(file, "import no_such_package\n")
        await service.until(lambda: "waits for a change" in service.log, "it fails")
        assert service.log.count("Traceback") == 1
        replace(file, f"{SERVICE}\n")
        await service.opened(2)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
    assert "service.py changed; starting again" in service.log
    assert all(map(is_gone, service.workers))


async def test_single_process_ends_at_a_signal_with_json_lines(service: Service) -> None:
    """A module that fails shows its traceback once, and the status of a mistake."""
    async with service.running(*MEMORY, "--log", "json") as process:
        await service.until(lambda: "assigned" in service.log, "assigned")
        process.terminate()
        assert await process.wait() == 0
    lines = [json.loads(line) for line in service.log.splitlines()]
    assert lines[-1]["message"].startswith("closed: memory, group 'billing'")
    service.log = ""
    (service.folder / "service.py").write_text("1 / 0\n")
    async with service.running(*MEMORY, "--workers", "2") as process:
        assert await process.wait() == 2
    assert service.log.count("Traceback") == 1
    last = service.log.splitlines()[-1]
    assert last == "consumer-sdk: service cannot be imported: ZeroDivisionError: division by zero"


@pytest.mark.kafka
async def test_check_says_what_would_be_run_and_joins_nothing(
    service: Service,
    kafka_server: KafkaServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each setting, without secrets; where each partition would begin; no file is made."""
    monkeypatch.chdir(service.folder)
    monkeypatch.setattr("sys.path", [str(service.folder), *sys.path])
    monkeypatch.delitem(sys.modules, "service", raising=False)
    world = kafka_world(kafka_server)
    stream, name = await world.stream(2), f"group-{uuid.uuid4().hex[:8]}"
    await world.write(stream, [(b"k", b"v")] * 3)
    url = world.url(stream, group=name)
    file = service.folder / "consumer.toml"
    file.write_text(
        f"""
        app = "service:handle"
        [consumer]
        url = "{url}"
        store = "sqlite:{service.folder}/state.db"
        dead_letters = "{world.base}/orders-dlq"
        retry = {{ max_attempts = 3 }}
        [run]
        workers = 2
        """
    )
    assert await status("run", "--config", str(file), "--check", "--concurrency", "7") == 0
    names = {world.base: "kafka://HOST", world.base.removeprefix("kafka://"): "HOST", stream: "T"}
    out = capsys.readouterr().out
    golden("run-check.txt", out, {**names, name: "G", str(service.folder): "FOLDER"})
    assert not (service.folder / "state.db").exists()

    assert await status("run", "--config", str(file), "--check", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["records"] for row in shown["partitions"]] == [3, 0]
    file.write_text(f"app = 'service:handle'\n[consumer]\nurl = '{url}'\nfetch_wait = 0")
    assert await status("run", "--config", str(file), "--check") == 2
    assert "consumer.toml: fetch_wait=0: give seconds, above 0" in capsys.readouterr().err
    assert await status("run", "service:handle", "--check", "--url", world.url(stream)) == 0
    assert "2 partitions, and no group" in capsys.readouterr().out
