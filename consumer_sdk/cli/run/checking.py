"""``consumer-sdk run --check``: what would be run, and where it would begin; joins nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from consumer_sdk.adapters.urls import TOOLS, open_for_tools, share_group_of
from consumer_sdk.cli.groups.checkpoints import is_made
from consumer_sdk.cli.groups.groups import opened_reader
from consumer_sdk.cli.groups.lags import Lag, opened_lags
from consumer_sdk.cli.run.config import Config
from consumer_sdk.cli.run.services import admin_server, make_group
from consumer_sdk.cli.terminal import Rows
from consumer_sdk.dead_letters.urls import dead_letters_from_url

__all__ = ["check"]


async def check(config: Config, found: object, *, is_json: bool) -> None:
    """Writes what the configuration says, without secrets, and where each partition would begin.

    The consumers are made, which checks their options, and not opened. Broker, store and dead
    letters of a handler are opened, by no member of its group; no file is made.

    Raises:
        ConsumerSdkError: what would keep it from running.
    """
    group = await make_group(config, found)
    if config.admin is not None:
        admin_server(config, group)
    made = [repr(each) for each in group.consumers]
    asked, rows = await _asked(config)
    shown = config.shown()
    if is_json:
        answer = {"config": shown, "consumers": made, "partitions": [asdict(row) for row in rows]}
        sys.stdout.write(json.dumps(answer) + "\n")
        return
    lines = [*_settings(shown), *(f"would run {each}" for each in made), asked]
    lines += [_partition(row, config) for row in rows]
    with Rows(is_json=False) as out:
        for line in lines:
            out.say({}, line)


async def _asked(config: Config) -> tuple[str, list[Lag]]:
    """What the broker was asked, and what it said."""
    if "url" not in config.consumer:
        return "the application makes its consumers: their brokers were not asked", []
    options = config.consumer_options()
    url, store = options["adapter"], options.get("store")
    if urlsplit(url).scheme not in TOOLS:
        return "the broker is in this process: it was not asked", []
    if letters := options.get("dead_letters"):
        await _open_letters(letters)
    shared = share_group_of(url)
    named = open_for_tools(url)[1] if shared is None else shared
    if named is None:
        async with opened_reader(url) as (reader, _group):
            count = len(await reader.partitions())
        return f"{count} partitions, and no group: each start begins anew", []
    async with opened_lags(url, store if is_made(store) else None) as lags:
        kind = "group" if shared is None else "share group"
        return f"{kind} {named}, with nobody joined:", await lags(None)


async def _open_letters(url: str) -> None:
    if not is_made(url):
        return
    letters = dead_letters_from_url(url)
    try:
        await letters.open()
    finally:
        await letters.aclose()


# -- shown ----------------------------------------------------------------------------------------


def _settings(shown: dict[str, Any], within: str = "") -> Iterator[str]:
    """``run.concurrency = 500``, a line each."""
    for name, value in shown.items():
        if isinstance(value, dict):
            yield from _settings(value, f"{within}{name}.")
        else:
            yield f"{within}{name} = {json.dumps(value, ensure_ascii=False)}"


def _partition(row: Lag, config: Config) -> str:
    where = f"{row.stream}/{row.partition}\t"
    if row.start is None and row.holes is None:
        return f"{where}the share group has not begun: {row.records} records"
    if row.start is None:
        start = config.consumer.get("start", "earliest")
        return f"{where}would begin at start={start}, of {row.records} records"
    holes = f", {row.settled_above} of those behind it settled" if row.settled_above else ""
    return f"{where}would go on at {row.start}: {row.records} records{holes}"
