"""``fan-out``: look at and remove the enhanced fan-out consumers of a Kinesis stream."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from consumer_sdk.cli.terminal import Rows

if TYPE_CHECKING:
    from consumer_sdk.adapters.kinesis.service.client import ClientService

__all__ = ["remove", "show"]


async def show(arguments: Namespace) -> None:
    """One line for each consumer that is registered: its name, its status, since when."""
    async with _opened(arguments.stream) as service:
        with Rows(is_json=arguments.json) as rows:
            for found in await service.consumers():
                rows.say(asdict(found), f"{found.name}\t{found.status}\t{found.created}")


async def remove(arguments: Namespace) -> None:
    """Deregisters consumers by name."""
    async with _opened(arguments.stream) as service:
        for name in arguments.name:
            await service.deregister(name)
            if arguments.json:
                sys.stdout.write(json.dumps({"removed": name}) + "\n")
            else:
                sys.stderr.write(f"removed {name}\n")


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[ClientService]:
    from consumer_sdk.adapters.kinesis import KinesisAdapter

    service = KinesisAdapter.from_url(url).client_service()
    try:
        await service.open()
        yield service
    finally:
        await service.aclose()
