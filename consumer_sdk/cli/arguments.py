"""What can be written on the command line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from consumer_sdk import __version__
from consumer_sdk.cli import fan_out
from consumer_sdk.cli.assets.completion import SHELLS, completion
from consumer_sdk.cli.assets.monitoring import AS_IT_IS, AS_TEXT, add_monitoring, write_asset
from consumer_sdk.cli.assets.schema import config_schema
from consumer_sdk.cli.groups import checkpoints, leases
from consumer_sdk.cli.operators import add_dead_letters, add_doctor, add_groups, add_lags
from consumer_sdk.cli.parsing import Commands, Parser, add_json, add_yes, in_loop, text
from consumer_sdk.cli.run.arguments import add_run
from consumer_sdk.cli.top.command import add_top
from consumer_sdk.stores.urls import FORMS

__all__ = ["make_parser", "parse"]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; ``command`` is the function that takes them.

    Raises:
        SystemExit: with status 2, after saying what cannot work; with 0 after ``--help`` and ``--version``.
    """
    arguments: argparse.Namespace = make_parser().parse_args(argv)
    return arguments


def make_parser() -> Parser:
    """What can be written, for `parse` and for documents."""
    parser = Parser(prog="consumer-sdk", description="Runs services, and looks after their groups.")
    parser.add_argument("--version", action="version", version=f"consumer-sdk {__version__}")
    topics = parser.add_subparsers(required=True, metavar="TOPIC")
    add_run(topics)
    topic = topics.add_parser("checkpoints", help="look at, move and delete checkpoints")
    topic.epilog = f"STORE_URL: {FORMS}"
    commands = topic.add_subparsers(required=True, metavar="COMMAND")
    _add_export(commands)
    _add_import(commands)
    _add_import_storm(commands)
    _add_import_kinesis_spout(commands)
    _add_import_kcl(commands)
    _add_list(commands)
    _add_delete(commands)
    _add_unpin(commands)
    add_groups(commands)
    _add_leases(topics)
    _add_fan_out(topics)
    add_dead_letters(topics)
    add_lags(topics)
    add_doctor(topics)
    _add_assets(topics)
    add_top(topics)
    return parser


def _add_export(commands: Commands) -> None:
    parser = commands.add_parser(
        "export", help="write a group's checkpoints to stdout, as JSON lines"
    )
    _add_store(parser)
    parser.add_argument("--stream", type=text, help="of this stream alone")
    add_json(parser, "how many, on stderr, as a JSON object too")
    parser.set_defaults(command=in_loop(checkpoints.export))


def _add_import(commands: Commands) -> None:
    parser = commands.add_parser("import", help="write what was exported into a store")
    parser.add_argument("store", metavar="STORE_URL", type=text)
    parser.add_argument("file", metavar="FILE", help="- for stdin")
    _add_import_options(parser)
    parser.set_defaults(command=checkpoints.import_file)


def _add_import_storm(commands: Commands) -> None:
    parser = commands.add_parser("import-storm", help="take over from a KafkaSpout of Storm")
    parser.add_argument("hosts", metavar="ZK_HOSTS", type=text, help="zk1:2181,zk2:2181")
    parser.add_argument("zk_root", metavar="ZK_ROOT", type=text, help="SpoutConfig.zkRoot")
    parser.add_argument("spout_id", metavar="ID", type=text, help="SpoutConfig.id")
    parser.add_argument("--topic", required=True, type=text, help="which the spout has read")
    _add_store(parser)
    _add_import_options(parser)
    parser.set_defaults(command=in_loop(checkpoints.import_storm))


def _add_import_kinesis_spout(commands: Commands) -> None:
    parser = commands.add_parser("import-kinesis-spout", help="take over from kinesis-storm-spout")
    parser.add_argument("hosts", metavar="ZK_HOSTS", type=text, help="zk1:2181,zk2:2181")
    parser.add_argument("prefix", metavar="PREFIX", type=text, help="its zookeeperPrefix")
    parser.add_argument("topology", metavar="TOPOLOGY", type=text, help="its topologyName")
    parser.add_argument("stream", metavar="STREAM", type=text, help="its streamName")
    _add_store(parser)
    _add_import_options(parser)
    parser.set_defaults(command=in_loop(checkpoints.import_kinesis_spout))


def _add_import_kcl(commands: Commands) -> None:
    parser = commands.add_parser("import-kcl", help="take over from the Kinesis Client Library")
    parser.add_argument("file", metavar="FILE", help="from `aws dynamodb scan`; - for stdin")
    parser.add_argument("stream", metavar="STREAM", type=text, help="which it has read")
    _add_store(parser)
    parser.add_argument("--shards", metavar="FILE", help="from `aws kinesis list-shards`")
    parser.add_argument(
        "--unread",
        choices=["start", "earliest"],
        help="where leases at LATEST or AT_TIMESTAMP begin: where the consumer's start= says, or "
        "at their first record",
    )
    _add_import_options(parser)
    parser.set_defaults(command=checkpoints.import_kcl)


def _add_list(commands: Commands) -> None:
    parser = commands.add_parser("list", help="show a group's checkpoints")
    _add_store(parser)
    add_json(parser)
    parser.set_defaults(command=in_loop(checkpoints.show))


def _add_delete(commands: Commands) -> None:
    parser = commands.add_parser("delete", help="delete checkpoints; their fences stay")
    _add_store(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--partition",
        action="append",
        type=text,
        metavar="STREAM/ID",
        help="as `list` writes it; may be given several times",
    )
    which.add_argument("--stream", type=text, help="all of this stream")
    which.add_argument("--all", action="store_true", help="all of the group")
    add_json(parser)
    parser.set_defaults(command=in_loop(checkpoints.delete))


def _add_unpin(commands: Commands) -> None:
    parser = commands.add_parser("unpin", help="delete a group's pinned start")
    _add_store(parser)
    parser.add_argument("stream", metavar="STREAM", type=text, help="as `list` writes it")
    add_json(parser)
    parser.set_defaults(command=in_loop(checkpoints.unpin))


def _add_leases(topics: Commands) -> None:
    topic = topics.add_parser("leases", help="look at who reads what, release it, take ends back")
    topic.epilog = f"STORE_URL: {FORMS}"
    commands = topic.add_subparsers(required=True, metavar="COMMAND")
    shown = commands.add_parser("list", help="show who holds what, since when, and what has ended")
    _add_store(shown)
    shown.add_argument("--stream", type=text, help="of this stream alone")
    add_json(shown, "a JSON object for each lease")
    shown.set_defaults(command=in_loop(leases.show))
    _add_release(commands)
    reopened = commands.add_parser("reopen", help="take back that partitions have ended")
    _add_store(reopened)
    _add_listed(reopened)
    add_json(reopened, "how many, as a JSON object")
    reopened.set_defaults(command=in_loop(leases.reopen))
    removed = commands.add_parser("remove", help="remove a stream's leases, also damaged ones")
    _add_store(removed)
    removed.add_argument("--stream", type=text, required=True, help="as `list` writes it")
    add_json(removed, "how many, as a JSON object")
    removed.set_defaults(command=in_loop(leases.remove))


def _add_release(commands: Commands) -> None:
    released = commands.add_parser(
        "release",
        help="take partitions from their holders, for others to read",
        description="Take partitions from their holders: whose share they are takes them, and goes on "
        "at the\ncheckpoint. A holder that lives stops with its next renewal, a third of its "
        "lease_duration\nat most; what it has not flushed by then is read again.",
    )
    released.exits[3] = "refused: the holder seems to live"
    _add_store(released)
    _add_listed(released)
    released.add_argument(
        "--force", action="store_true", help="also from a holder that seems to live"
    )
    add_yes(released)
    add_json(released, "a JSON object for each lease")
    released.set_defaults(command=in_loop(leases.release))


def _add_listed(parser: Parser) -> None:
    parser.add_argument(
        "--partition",
        action="append",
        type=text,
        required=True,
        metavar="STREAM/ID",
        help="as `list` writes it; may be given several times",
    )


def _add_fan_out(topics: Commands) -> None:
    topic = topics.add_parser("fan-out", help="look at and remove a Kinesis stream's consumers")
    topic.epilog = "STREAM_URL: kinesis://region/stream?option=value, as the consumer is given it"
    commands = topic.add_subparsers(required=True, metavar="COMMAND")
    parser = commands.add_parser("list", help="show the registered enhanced fan-out consumers")
    parser.add_argument("stream", metavar="STREAM_URL", type=text)
    add_json(parser)
    parser.set_defaults(command=in_loop(fan_out.show))
    parser = commands.add_parser("remove", help="deregister some, which nobody reads by any more")
    parser.add_argument("stream", metavar="STREAM_URL", type=text)
    parser.add_argument("name", metavar="NAME", nargs="+", type=text, help="as `list` writes it")
    add_json(parser)
    parser.set_defaults(command=in_loop(fan_out.remove))


def _add_assets(topics: Commands) -> None:
    topic = topics.add_parser("assets", help="write files for Grafana, Prometheus, editors, shells")
    commands = topic.add_subparsers(required=True, metavar="COMMAND")
    parser = commands.add_parser("schema", help="a JSON schema of the file of `run --config`")
    add_json(parser, AS_IT_IS)
    parser.set_defaults(command=_write_schema)
    parser = commands.add_parser("completion", help="completion for a shell, to be sourced")
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")
    add_json(parser, AS_TEXT)
    parser.set_defaults(command=_write_completion)
    add_monitoring(commands)


def _write_schema(arguments: argparse.Namespace) -> None:
    write_asset("consumer.schema.json", json.dumps(config_schema(), indent=2) + "\n", arguments)


def _write_completion(arguments: argparse.Namespace) -> None:
    script = completion(make_parser(), arguments.shell)
    write_asset(f"consumer-sdk.{arguments.shell}", script, arguments)


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE_URL", type=text)
    parser.add_argument("group", metavar="GROUP", type=text)


def _add_import_options(parser: Parser) -> None:
    parser.exits[3] = "refused: the store knows better, or consumers run"
    parser.add_argument("--force", action="store_true", help="overwrite also what is ahead")
    parser.add_argument("--dry-run", action="store_true", help="read and compare alone")
    add_json(parser)
