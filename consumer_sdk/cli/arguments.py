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
        description="Run services that consume streams, and operate their consumer groups.",
    )
    parser.add_argument("--version", action="version", version=f"consumer-sdk {__version__}")
    topics = parser.add_subparsers(required=True, metavar="TOPIC")
    add_run(topics)
    topic = topics.add_parser(
        "checkpoints", help="show, move and delete the checkpoints (stored positions) of a group"
    )
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
    parser.add_argument("--stream", type=text, help="only the checkpoints of this stream")
    add_json(parser, "also write the number of checkpoints on stderr as a JSON object")
    parser.set_defaults(command=in_loop(checkpoints.export))


def _add_import(commands: Commands) -> None:
    parser = commands.add_parser("import", help="write checkpoints from `export` into a store")
    parser.add_argument("store", metavar="STORE_URL", type=text, help=FORMS)
    parser.add_argument("file", metavar="FILE", help="the output of `export`; - for stdin")
    _add_import_options(parser)
    parser.set_defaults(command=checkpoints.import_file)


def _add_import_storm(commands: Commands) -> None:
    parser = commands.add_parser(
        "import-storm", help="import the offsets of a Storm KafkaSpout from ZooKeeper"
    )
    parser.add_argument(
        "hosts", metavar="ZK_HOSTS", type=text, help="ZooKeeper servers: zk1:2181,zk2:2181"
    )
    parser.add_argument(
        "zk_root", metavar="ZK_ROOT", type=text, help="the SpoutConfig.zkRoot of the spout"
    )
    parser.add_argument("spout_id", metavar="ID", type=text, help="the SpoutConfig.id of the spout")
    parser.add_argument("--topic", required=True, type=text, help="the topic that the spout read")
    _add_store(parser)
    _add_import_options(parser)
    parser.set_defaults(command=in_loop(checkpoints.import_storm))


def _add_import_kinesis_spout(commands: Commands) -> None:
    parser = commands.add_parser(
        "import-kinesis-spout", help="import the positions of a kinesis-storm-spout from ZooKeeper"
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
        "import-kcl", help="import the positions of the Kinesis Client Library from its lease table"
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the output of `aws dynamodb scan` on the lease table; - for stdin",
    )
    parser.add_argument(
        "stream", metavar="STREAM", type=text, help="the stream that the library read"
    )
    _add_store(parser)
    parser.add_argument(
        "--shards",
        metavar="FILE",
        help="the output of `aws kinesis list-shards`, to mark older shards without a lease as ended",
    )
    parser.add_argument(
        "--unread",
        choices=["start", "earliest"],
        help="where to start a shard whose lease is at LATEST or AT_TIMESTAMP: as the consumer's start= option "
        "says (start), or at its first record (earliest)",
    )
    _add_import_options(parser)
    parser.set_defaults(command=checkpoints.import_kcl)


def _add_list(commands: Commands) -> None:
    parser = commands.add_parser("list", help="show the checkpoints of a group")
    _add_store(parser)
    add_json(parser)
    parser.set_defaults(command=in_loop(checkpoints.show))


def _add_delete(commands: Commands) -> None:
    parser = commands.add_parser(
        "delete",
        help="delete checkpoints; their fencing numbers stay, so that former owners cannot write",
    )
    _add_store(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--partition",
        action="append",
        type=text,
        metavar="STREAM/ID",
        help="a partition as `list` writes it; repeat it for several partitions",
    )
    which.add_argument(
        "--stream", type=text, help="the checkpoints of all partitions of this stream"
    )
    which.add_argument("--all", action="store_true", help="all checkpoints of the group")
    add_json(parser)
    parser.set_defaults(command=in_loop(checkpoints.delete))


def _add_unpin(commands: Commands) -> None:
    parser = commands.add_parser(
        "unpin", help="delete the start position that a group has pinned for a stream"
    )
    _add_store(parser)
    parser.add_argument(
        "stream", metavar="STREAM", type=text, help="the stream as `list` writes it"
    )
    add_json(parser)
    parser.set_defaults(command=in_loop(checkpoints.unpin))


def _add_leases(topics: Commands) -> None:
    topic = topics.add_parser(
        "leases", help="show, release, reopen and remove the leases of a Kinesis group"
    )
    commands = topic.add_subparsers(required=True, metavar="COMMAND")
    shown = commands.add_parser(
        "list", help="show who holds each lease, since when, and which partitions have ended"
    )
    _add_store(shown)
    shown.add_argument("--stream", type=text, help="only the leases of this stream")
    add_json(shown, "write a JSON object for each lease")
    shown.set_defaults(command=in_loop(leases.show))
    _add_release(commands)
    reopened = commands.add_parser(
        "reopen", help="read partitions again that are marked as ended, after their settled records"
    )
    _add_store(reopened)
    _add_listed(reopened)
    add_json(reopened, "write the number of leases as a JSON object")
    reopened.set_defaults(command=in_loop(leases.reopen))
    removed = commands.add_parser("remove", help="remove all leases of a stream, even damaged ones")
    _add_store(removed)
    removed.add_argument(
        "--stream", type=text, required=True, help="the stream as `list` writes it"
    )
    add_json(removed, "write the number of leases as a JSON object")
    removed.set_defaults(command=in_loop(leases.remove))


def _add_release(commands: Commands) -> None:
    released = commands.add_parser(
        "release",
        help="take leases from their holders, so that other consumers read the partitions",
        description="Take leases from their holders. Other consumers claim the partitions and continue at their "
        "checkpoints.\nA holder that still runs stops reading at its next lease renewal, within a third of its "
        "lease_duration.\nRecords whose acks it has not flushed by then are delivered again.",
    )
    released.exits[3] = "refused: a holder seems to run"
    _add_store(released)
    _add_listed(released)
    released.add_argument(
        "--force", action="store_true", help="take a lease even if its holder seems to run"
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
        help="a partition as `list` writes it; repeat it for several partitions",
    )


def _add_fan_out(topics: Commands) -> None:
    topic = topics.add_parser(
        "fan-out", help="show and remove the enhanced fan-out consumers of a Kinesis stream"
    )
    topic.epilog = (
        "STREAM_URL is the one that the consumers use: kinesis://region/stream?option=value"
    )
    commands = topic.add_subparsers(required=True, metavar="COMMAND")
    parser = commands.add_parser(
        "list", help="show the enhanced fan-out consumers that are registered with a Kinesis stream"
    )
    parser.add_argument(
        "stream", metavar="STREAM_URL", type=text, help="kinesis://region/stream?option=value"
    )
    add_json(parser)
    parser.set_defaults(command=in_loop(fan_out.show))
    parser = commands.add_parser(
        "remove", help="deregister enhanced fan-out consumers that nobody uses"
    )
    parser.add_argument(
        "stream", metavar="STREAM_URL", type=text, help="kinesis://region/stream?option=value"
    )
    parser.add_argument(
        "name", metavar="NAME", nargs="+", type=text, help="a consumer as `list` writes it"
    )
    add_json(parser)
    parser.set_defaults(command=in_loop(fan_out.remove))


def _add_assets(topics: Commands) -> None:
    topic = topics.add_parser(
        "assets", help="write files for Grafana, Prometheus, editors and shells"
    )
    commands = topic.add_subparsers(required=True, metavar="COMMAND")
    parser = commands.add_parser(
        "schema", help="write a JSON schema of the configuration file of `run --config`"
    )
    add_json(parser, AS_IT_IS)
    parser.set_defaults(command=_write_schema)
    parser = commands.add_parser(
        "completion", help="write a completion script, to source in the shell"
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
    parser.add_argument("store", metavar="STORE_URL", type=text, help=FORMS)
    parser.add_argument("group", metavar="GROUP", type=text, help="the consumer group")


def _add_import_options(parser: Parser) -> None:
    parser.exits[3] = (
        "refused: the store has a later checkpoint, or the group has running consumers"
    )
    parser.add_argument("--force", action="store_true", help="also overwrite later checkpoints")
    parser.add_argument(
        "--dry-run", action="store_true", help="compare with the store, and write nothing"
    )
    add_json(parser)
