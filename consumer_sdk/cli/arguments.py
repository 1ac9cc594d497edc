"""What can be written on the command line."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from consumer_sdk.cli import checkpoints
from consumer_sdk.stores.urls import FORMS

__all__ = ["parse"]

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - its only name


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; ``command`` is the function that takes them.

    Raises:
        SystemExit: with status 2, after saying what cannot work; with 0 after ``--help``.
    """
    parser = argparse.ArgumentParser(prog="consumer-sdk", description="Tools for operators.")
    topics = parser.add_subparsers(required=True, metavar="TOPIC")
    topic = topics.add_parser("checkpoints", help="look at, move and delete checkpoints")
    topic.epilog = f"STORE_URL: {FORMS}"
    commands = topic.add_subparsers(required=True, metavar="COMMAND")
    _add_export(commands)
    _add_import(commands)
    _add_import_storm(commands)
    _add_import_kinesis_spout(commands)
    _add_list(commands)
    _add_delete(commands)
    _add_unpin(commands)
    return parser.parse_args(argv)


def _add_export(commands: Commands) -> None:
    parser = commands.add_parser(
        "export", help="write a group's checkpoints to stdout, as JSON lines"
    )
    _add_store(parser)
    parser.add_argument("--stream", type=_text, help="of this stream alone")
    parser.set_defaults(command=_in_loop(checkpoints.export))


def _add_import(commands: Commands) -> None:
    parser = commands.add_parser("import", help="write what was exported into a store")
    parser.add_argument("store", metavar="STORE_URL", type=_text)
    parser.add_argument("file", metavar="FILE", help="- for stdin")
    _add_import_options(parser)
    parser.set_defaults(command=checkpoints.import_file)


def _add_import_storm(commands: Commands) -> None:
    parser = commands.add_parser("import-storm", help="take over from a KafkaSpout of Storm")
    parser.add_argument("hosts", metavar="ZK_HOSTS", type=_text, help="zk1:2181,zk2:2181")
    parser.add_argument("zk_root", metavar="ZK_ROOT", type=_text, help="SpoutConfig.zkRoot")
    parser.add_argument("spout_id", metavar="ID", type=_text, help="SpoutConfig.id")
    parser.add_argument("--topic", required=True, type=_text, help="which the spout has read")
    _add_store(parser)
    _add_import_options(parser)
    parser.set_defaults(command=_in_loop(checkpoints.import_storm))


def _add_import_kinesis_spout(commands: Commands) -> None:
    parser = commands.add_parser("import-kinesis-spout", help="take over from kinesis-storm-spout")
    parser.add_argument("hosts", metavar="ZK_HOSTS", type=_text, help="zk1:2181,zk2:2181")
    parser.add_argument("prefix", metavar="PREFIX", type=_text, help="its zookeeperPrefix")
    parser.add_argument("topology", metavar="TOPOLOGY", type=_text, help="its topologyName")
    parser.add_argument("stream", metavar="STREAM", type=_text, help="its streamName")
    _add_store(parser)
    _add_import_options(parser)
    parser.set_defaults(command=_in_loop(checkpoints.import_kinesis_spout))


def _add_list(commands: Commands) -> None:
    parser = commands.add_parser("list", help="show a group's checkpoints")
    _add_store(parser)
    parser.set_defaults(command=_in_loop(checkpoints.show))


def _add_delete(commands: Commands) -> None:
    parser = commands.add_parser("delete", help="delete checkpoints; their fences stay")
    _add_store(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--partition",
        action="append",
        type=_text,
        metavar="STREAM/ID",
        help="as `list` writes it; may be given several times",
    )
    which.add_argument("--stream", type=_text, help="all of this stream")
    which.add_argument("--all", action="store_true", help="all of the group")
    parser.set_defaults(command=_in_loop(checkpoints.delete))


def _add_unpin(commands: Commands) -> None:
    parser = commands.add_parser("unpin", help="delete a group's pinned start")
    _add_store(parser)
    parser.add_argument("stream", metavar="STREAM", type=_text, help="as `list` writes it")
    parser.set_defaults(command=_in_loop(checkpoints.unpin))


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE_URL", type=_text)
    parser.add_argument("group", metavar="GROUP", type=_text)


def _add_import_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="overwrite also what is ahead")
    parser.add_argument("--dry-run", action="store_true", help="read and compare alone")


def _in_loop(
    command: Callable[[argparse.Namespace], Coroutine[Any, Any, None]],
) -> Callable[[argparse.Namespace], None]:
    return lambda arguments: asyncio.run(command(arguments))


def _text(argument: str) -> str:
    """An argument that is valid Unicode: bytes that are not would fail in some store."""
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(f"{argument!r} is not valid text") from error
    return argument
