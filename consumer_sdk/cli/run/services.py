"""What a service runs, made of its application and its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from consumer_sdk.cli.run.apps import HANDLER, failed, kind_of, load_object, sibling
from consumer_sdk.cli.run.config import Config
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.runtime import Consumer, Group

if TYPE_CHECKING:
    from consumer_sdk.admin.server import AdminServer
    from consumer_sdk.cli.run.workers import Workers

__all__ = ["WORKER", "admin_server", "make_group", "workers_server"]

WORKER = "CONSUMER_SDK_WORKER"
"""The environment variable that has a worker's number, from 0 up."""


async def make_group(config: Config, found: object) -> Group:
    """The consumers of a service, each with its handler; none is open.

    Args:
        found: what the application's name means; a function is called.

    Raises:
        ConfigurationError: the application and the configuration do not fit, or an option cannot work.
    """
    try:
        group = await _made(config, found)
        group.check()
    except ConfigurationError as error:
        if config.place is None:
            raise
        raise ConfigurationError(f"{config.place}: {error}") from error
    return group


def admin_server(config: Config, group: Group) -> AdminServer:
    """What answers probes, and shows the consumers; to be entered.

    Raises:
        MissingExtraError: the extra ``admin`` is not installed.
        ConfigurationError: an option that cannot work.
    """
    from consumer_sdk.admin import serve

    return serve(*group.consumers, **config.admin_options())


def workers_server(config: Config, workers: Workers) -> AdminServer:
    """As `admin_server`, of all workers together."""
    from consumer_sdk.admin.options import AdminOptions
    from consumer_sdk.admin.server import serve_source

    return serve_source(workers, str(config.app), AdminOptions(**config.admin_options()))


async def _made(config: Config, found: Any) -> Group:
    app = str(config.app)
    kind = kind_of(app, found)
    if kind == "handler":
        options = config.consumer_options()
        return _group(config, Consumer(options.pop("adapter"), **options), found)
    if kind == "factory":
        found = await _called(app, found)
    if isinstance(found, Consumer):
        _refuse(config, "consumer", "the application makes its consumer: give its options there")
        return _group(config, found, load_object(config.handler or sibling(app, HANDLER)))
    if isinstance(found, Group):
        for table in ("consumer", "run", "telemetry"):
            _refuse(config, table, "the application makes its group: give these options there")
        return found
    raise ConfigurationError(
        f"{app}() returned {type(found).__name__}: return a Consumer or a Group; a handler has one "
        f"parameter, the message"
    )


async def _called(app: str, factory: Callable[[], Any]) -> object:
    """What a factory returns; its error is the application's, as one of importing it."""
    try:
        made = factory()
        return await made if inspect.isawaitable(made) else made
    except ConfigurationError:
        raise
    except Exception as error:
        raise failed(f"{app}() failed", error) from error


def _refuse(config: Config, table: str, why: str) -> None:
    elsewhere = {"run": {"workers", "uvloop"}, "telemetry": {"log"}}.get(table, set())
    given = sorted(getattr(config, table).keys() - elsewhere)
    if given:
        raise ConfigurationError(f"[{table}] {given[0]}=: {why}")


def _group(config: Config, consumer: Consumer, handler: Any) -> Group:
    from consumer_sdk import telemetry

    around: Sequence[Callable[..., Any]] = ()
    if config.telemetry.get("traces") == "otel":
        around = [telemetry.traced()]
    if config.telemetry.get("metrics") == "otel":
        telemetry.otel(consumer)
    group = Group()
    group.add(consumer, handler, around=around, **config.run_options())
    return group
