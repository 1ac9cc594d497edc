"""Runs a server in the foreground until Ctrl-C: ``python -m consumer_sdk.testing.servers kafka``."""

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from consumer_sdk.errors import ConsumerSdkError
from consumer_sdk.testing.servers import (
    KafkaServer,
    KinesaliteServer,
    KinesisServer,
    PulsarServer,
    Server,
    ZooKeeperServer,
    external_address,
    external_pulsar,
    external_url,
    find_node,
    install_package,
    resolve_jars,
)
from consumer_sdk.testing.servers.kafka import KAFKA_JARS
from consumer_sdk.testing.servers.pulsar.server import PULSAR, unpacked

_SERVERS: dict[
    str, type[KafkaServer | KinesaliteServer | KinesisServer | PulsarServer | ZooKeeperServer]
] = {
    "kafka": KafkaServer,
    "kinesis": KinesisServer,
    "kinesalite": KinesaliteServer,
    "pulsar": PulsarServer,
    "zookeeper": ZooKeeperServer,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m consumer_sdk.testing.servers",
        description="Run a real server in the foreground until Ctrl-C, or only fetch what the servers need.",
    )
    parser.add_argument("what", choices=[*_SERVERS, "fetch"])
    parser.add_argument("--port", type=int, help="the port for clients (a free one)")
    parser.add_argument("--dir", type=Path, help="where data and log lie (a temporary folder)")
    return parser.parse_args()


async def _run(server: Server) -> None:
    asked_to_end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked_to_end.set)
    starting = asyncio.create_task(server.start())
    ending = asyncio.create_task(asked_to_end.wait())
    try:
        await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
        if not asked_to_end.is_set():
            await starting
            print(
                f"{server.name} listens on {server.address}, pid {server.pid}, log {server.log}",
                flush=True,
            )
        while server.is_running and not asked_to_end.is_set():
            await asyncio.wait((ending,), timeout=0.5)
    finally:
        for task in (starting, ending):
            task.cancel()
        await asyncio.gather(starting, ending, return_exceptions=True)
        await server.aclose()


def _fetch() -> None:
    # Somebody who brings their own server needs none of ours.
    if external_address("CONSUMER_SDK_KAFKA") is None:
        resolve_jars(KAFKA_JARS)
    if external_url("CONSUMER_SDK_KINESIS") is None:
        for server in (KinesisServer, KinesaliteServer):
            install_package(find_node(), server.package)
    if external_pulsar() is None:
        unpacked(PULSAR)


def main() -> int:
    """Run what the command line asks for; 1 when it failed."""
    arguments = _arguments()
    logging.basicConfig(level=logging.INFO, format="servers: %(message)s")
    try:
        if arguments.what == "fetch":
            _fetch()
        else:
            asyncio.run(
                _run(_SERVERS[arguments.what](directory=arguments.dir, port=arguments.port))
            )
    except ConsumerSdkError as error:
        print(f"servers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
