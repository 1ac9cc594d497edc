"""The command line's parser: commands, options and their help."""

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
    """Parses the command line; ``command`` of the result is the function to call with it.

    Raises:
        SystemExit: with status 2, after saying what cannot work; with 0 after ``--help`` and ``--version``.
    """
    arguments: argparse.Namespace = make_parser().parse_args(argv)
    return arguments


def make_parser() -> Parser:
    """The parser of the command line, for `parse` and for documents."""
    parser = Parser(
        prog="consumer-sdk",
        description="Runs services that consume streams, and looks after their consumer groups.",
    )
    parser.add_argument("--version", action="version", version=f"consumer-sdk {__version__}")
    topics = parser.add_subparsers(required=True, metavar="TOPIC")
    add_run(topics)
    topic = topics.add_parser(
        "checkpoints", help="show, move and delete the checkpoints of a group"
    )
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
        "export", help="write the checkpoints of a group to stdout, as JSON lines"
    )
    _add_store(parser)
    parser.add_argument("--stream", type=text, help="only those of this stream")
    add_json(parser, "write the number of checkpoints, on stderr, as a JSON object too")
    parser.set_defaults(command=in_loop(checkpoints.export))


def _add_import(commands: Commands) -> None:
    parser = commands.add_parser("import", help="write exported checkpoints into a store")
    parser.add_argument("store", metavar="STORE_URL", type=text)
    parser.add_argument("file", metavar="FILE", help="the file that `export` wrote; - for stdin")
    _add_import_options(parser)
    parser.set_defaults(command=checkpoints.import_file)


def _add_import_storm(commands: Commands) -> None:
    parser = commands.add_parser("import-storm", help="import the offsets of a KafkaSpout of Storm")
    parser.add_argument(
        "hosts", metavar="ZK_HOSTS", type=text, help="ZooKeeper servers: zk1:2181,zk2:2181"
    )
    parser.add_argument(
        "zk_root", metavar="ZK_ROOT", type=text, help="the SpoutConfig.zkRoot of the spout"
    )
    parser.add_argument("spout_id", metavar="ID", type=text, help="the SpoutConfig.id of the spout")
    parser.add_argument(
        "--topic", required=True, type=text, help="the topic that the spout has read"
    )
    _add_store(parser)
    _add_import_options(parser)
    parser.set_defaults(command=in_loop(checkpoints.import_storm))


def _add_import_kinesis_spout(commands: Commands) -> None:
    parser = commands.add_parser(
        "import-kinesis-spout", help="import the positions of a kinesis-storm-spout"
    )
    parser.add_argument(
        "hosts", metavar="ZK_HOSTS", type=text, help="ZooKeeper servers: zk1:2181,zk2:2181"
    )
    parser.add_argument(
        "prefix", metavar="PREFIX", type=text, help="the zookeeperPrefix of the spout"
    )
    parser.add_argument(
        "topology", metavar="TOPOLOGY", type=text, help="the topologyName of the spout"
    )
    parser.add_argument("stream", metavar="STREAM", type=text, help="the streamName of the spout")
    _add_store(parser)
    _add_import_options(parser)
    parser.set_defaults(command=in_loop(checkpoints.import_kinesis_spout))


def _add_import_kcl(commands: Commands) -> None:
    parser = commands.add_parser(
        "import-kcl", help="import the leases of the Kinesis Client Library"
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the output of `aws dynamodb scan` on the lease table; - for stdin",
    )
    parser.add_argument(
        "stream", metavar="STREAM", type=text, help="the stream that the library has read"
    )
    _add_store(parser)
    parser.add_argument("--shards", metavar="FILE", help="the output of `aws kinesis list-shards`")
    parser.add_argument(
        "--unread",
        choices=["start", "earliest"],
        help="where shards begin whose leases are at LATEST or AT_TIMESTAMP: where the consumer's start= "
        "says, or at their first record",
    )
    _add_import_options(parser)
    parser.set_defaults(command=checkpoints.import_kcl)


def _add_list(commands: Commands) -> None:
    parser = commands.add_parser("list", help="show the checkpoints of a group")
    _add_store(parser)
    add_json(parser)
    parser.set_defaults(command=in_loop(checkpoints.show))


def _add_delete(commands: Commands) -> None:
    parser = commands.add_parser("delete", help="delete checkpoints, and keep their fences")
    _add_store(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--partition",
        action="append",
        type=text,
        metavar="STREAM/ID",
        help="a partition as `list` writes it; may be given several times",
    )
    which.add_argument("--stream", type=text, help="all partitions of this stream")
    which.add_argument("--all", action="store_true", help="all partitions of the group")
    add_json(parser)
    parser.set_defaults(command=in_loop(checkpoints.delete))


def _add_unpin(commands: Commands) -> None:
    parser = commands.add_parser("unpin", help="delete the pinned start of a group")
    _add_store(parser)
    parser.add_argument(
        "stream", metavar="STREAM", type=text, help="the stream as `list` writes it"
    )
    add_json(parser)
    parser.set_defaults(command=in_loop(checkpoints.unpin))


def _add_leases(topics: Commands) -> None:
    topic = topics.add_parser(
        "leases", help="show, release, reopen and remove the leases of a group"
    )
    topic.epilog = f"STORE_URL: {FORMS}"
    commands = topic.add_subparsers(required=True, metavar="COMMAND")
    shown = commands.add_parser(
        "list", help="show who holds each lease and since when, and which partitions have ended"
    )
    _add_store(shown)
    shown.add_argument("--stream", type=text, help="only those of this stream")
    add_json(shown, "write a JSON object for each lease")
    shown.set_defaults(command=in_loop(leases.show))
    _add_release(commands)
    reopened = commands.add_parser(
        "reopen", help="have partitions read again that were marked as ended"
    )
    _add_store(reopened)
    _add_listed(reopened)
    add_json(reopened, "write the number of leases as a JSON object")
    reopened.set_defaults(command=in_loop(leases.reopen))
    removed = commands.add_parser("remove", help="remove all leases of a stream, also damaged ones")
    _add_store(removed)
    removed.add_argument(
        "--stream", type=text, required=True, help="the stream as `list` writes it"
    )
    add_json(removed, "write the number of leases as a JSON object")
    removed.set_defaults(command=in_loop(leases.remove))


def _add_release(commands: Commands) -> None:
    released = commands.add_parser(
        "release",
        help="take leases from their holders, so that others read the partitions",
        description="Take leases from their holders. The consumers that have room for the partitions take them, "
        "and go\non at the checkpoints. A holder that still runs stops at its next renewal, after a third of "
        "its\nlease_duration at most; what it has not flushed by then is read again.",
    )
    released.exits[3] = "refused: the holder seems to run"
    _add_store(released)
    _add_listed(released)
    released.add_argument(
        "--force", action="store_true", help="take a lease also from a holder that seems to run"
    )
    add_yes(released)
    add_json(released, "write a JSON object for each lease")
    released.set_defaults(command=in_loop(leases.release))


def _add_listed(parser: Parser) -> None:
    parser.add_argument(
        "--partition",
        action="append",
        type=text,
        required=True,
        metavar="STREAM/ID",
        help="a partition as `list` writes it; may be given several times",
    )


def _add_fan_out(topics: Commands) -> None:
    topic = topics.add_parser(
        "fan-out", help="show and remove the enhanced fan-out consumers of a Kinesis stream"
    )
    topic.epilog = "STREAM_URL: kinesis://region/stream?option=value, as the consumer is given it"
    commands = topic.add_subparsers(required=True, metavar="COMMAND")
    parser = commands.add_parser("list", help="show the registered enhanced fan-out consumers")
    parser.add_argument("stream", metavar="STREAM_URL", type=text)
    add_json(parser)
    parser.set_defaults(command=in_loop(fan_out.show))
    parser = commands.add_parser(
        "remove", help="deregister enhanced fan-out consumers that nobody uses any more"
    )
    parser.add_argument("stream", metavar="STREAM_URL", type=text)
    parser.add_argument(
        "name", metavar="NAME", nargs="+", type=text, help="a consumer as `list` writes it"
    )
    add_json(parser)
    parser.set_defaults(command=in_loop(fan_out.remove))


def _add_assets(topics: Commands) -> None:
    topic = topics.add_parser("assets", help="write files for Grafana, Prometheus, editors, shells")
    commands = topic.add_subparsers(required=True, metavar="COMMAND")
    parser = commands.add_parser("schema", help="write a JSON schema of the file of `run --config`")
    add_json(parser, AS_IT_IS)
    parser.set_defaults(command=_write_schema)
    parser = commands.add_parser(
        "completion", help="write a completion script, which the shell sources"
    )
    parser.add_argument(
        "shell", metavar="SHELL", choices=SHELLS, help="the shell: bash, zsh or fish"
    )
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
    parser.exits[3] = "refused: a checkpoint in the store is ahead, or consumers run"
    parser.add_argument(
        "--force", action="store_true", help="overwrite checkpoints that are ahead, too"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="read and compare, and write nothing"
    )
    add_json(parser)
