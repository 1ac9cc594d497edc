"""``consumer-sdk run``: one process, or one that looks after several."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType

from consumer_sdk.cli.run.apps import load_app
from consumer_sdk.cli.run.checking import check
from consumer_sdk.cli.run.config import Config, read_config
from consumer_sdk.cli.run.links import answering, inherited
from consumer_sdk.cli.run.services import WORKER, admin_server, make_group, workers_server
from consumer_sdk.cli.run.supervisor import SIGNALLED, Supervisor, worker_command
from consumer_sdk.cli.run.workers import Workers
from consumer_sdk.errors import ConfigurationError, MissingExtraError
from consumer_sdk.runtime import Group
from consumer_sdk.runtime.signals import is_pythons_own
from consumer_sdk.telemetry import JsonFormatter

__all__ = ["run"]

TEXT = "%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s"


def run(arguments: Namespace) -> int:
    """Runs, or checks, what the command line and the file name; returns the exit status."""
    link = inherited()
    config = configured(arguments)
    is_worker = WORKER in os.environ
    is_several = config.run.get("workers", 1) > 1
    if arguments.reload and not (is_worker or arguments.check):
        _set_up_logs(config)
        return _supervised(config, arguments)
    found, _kind = load_app(str(config.app))
    if arguments.check:
        asyncio.run(check(config, found, is_json=arguments.json))
        return 0
    _set_up_logs(config)
    if is_several and not is_worker:
        return _supervised(config, arguments)
    with asyncio.Runner(loop_factory=_loop_factory(config)) as runner:
        return runner.run(_work(config, found, link) if is_worker else _serve(config, found))


def configured(arguments: Namespace) -> Config:
    """The file, and over it the command line.

    Raises:
        ConfigurationError: one of them cannot work.
    """
    config = Config() if arguments.config is None else read_config(arguments.config)
    config = config.changed("consumer", url=arguments.url, store=arguments.store)
    config = config.changed(
        "run",
        concurrency=arguments.concurrency,
        ordering=arguments.ordering,
        workers=arguments.workers,
        uvloop=arguments.uvloop or None,
    )
    config = config.changed("telemetry", log=arguments.log)
    config = config.changed("admin", listen=arguments.admin)
    config = config.named(app=arguments.app, handler=arguments.handler)
    if config.app is None:
        raise ConfigurationError("what to run? give APP, or app= in the file of --config")
    return config


def _supervised(config: Config, arguments: Namespace) -> int:
    count = config.run.get("workers", 1)
    workers = None if config.admin is None else Workers(count)
    supervisor = Supervisor(
        worker_command(sys.argv[1:]),
        count,
        reloads=arguments.reload,
        watched=[arguments.config] if arguments.config else [],
        workers=workers,
    )
    return asyncio.run(_supervise(config, supervisor, workers))


async def _supervise(config: Config, supervisor: Supervisor, workers: Workers | None) -> int:
    """One server for all workers, as long as there are some."""
    async with nullcontext() if workers is None else workers_server(config, workers):
        return await supervisor.run()


async def _serve(config: Config, found: object) -> int:
    group = await make_group(config, found)
    async with nullcontext() if config.admin is None else admin_server(config, group):
        await group.run()
    return 0


async def _work(config: Config, found: object, link: socket.socket | None) -> int:
    """A worker's exit status tells its parent of a signal that has ended it."""
    ending = _Ending()
    with _stopped_with_parent(ending.stop):
        try:
            group = await make_group(config, found)
            async with answering(link, group.consumers):
                ending.group = group
                with _noted_signals(ending):
                    await group.run()
        except asyncio.CancelledError:
            if not ending.is_early:
                raise
    return ending.status


class _Ending:
    """How a worker is ended: its group is stopped, or whatever comes before there is one.

    Attributes:
        group: None as long as there is none.
        is_early: it was ended before.
        status: the exit status.
    """

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self.group: Group | None = None
        self.is_early = False
        self.status = 0

    def stop(self) -> None:
        if self.group is not None:
            self.group.stop()
        elif self._task is not None:
            self.is_early = True
            self._task.cancel()


@contextmanager
def _noted_signals(ending: _Ending) -> Iterator[None]:
    """Whoever listens before the consumers do hears of signals too; so does what was there before."""
    found = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def heard(number: int, frame: FrameType | None) -> None:
        ending.status = SIGNALLED + number
        before = found[signal.Signals(number)]
        if callable(before) and not is_pythons_own(before):
            before(number, frame)

    for number in found:
        signal.signal(number, heard)
    try:
        yield
    finally:
        for number, before in found.items():
            signal.signal(number, before)


@contextmanager
def _stopped_with_parent(stop: Callable[[], None]) -> Iterator[None]:
    """A worker's stdin is a pipe of its parent's: its end is the parent's, even one by ``kill -9``."""
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()

    def ended() -> None:
        if not os.read(stdin, 1):
            loop.remove_reader(stdin)
            stop()

    loop.add_reader(stdin, ended)
    try:
        yield
    finally:
        loop.remove_reader(stdin)


def _set_up_logs(config: Config) -> None:
    """To stderr, unless the application has set up its own as it was imported."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    is_json = config.telemetry.get("log") == "json"
    handler.setFormatter(JsonFormatter() if is_json else logging.Formatter(TEXT))
    root.addHandler(handler)
    root.setLevel(logging.INFO)


def _loop_factory(config: Config) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not config.run.get("uvloop"):
        return None
    try:
        import uvloop
    except ImportError as error:
        raise MissingExtraError("uvloop", "uvloop") from error
    return uvloop.new_event_loop
