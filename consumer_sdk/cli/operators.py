"""The parsers of the commands that look at streams and groups from outside."""

from __future__ import annotations

from consumer_sdk.cli import tails
from consumer_sdk.cli.doctor.command import doctor
from consumer_sdk.cli.groups import lags, resets
from consumer_sdk.cli.letters import dead_letters
from consumer_sdk.cli.parsing import (
    Commands,
    Parser,
    add_json,
    add_partitions,
    add_yes,
    amount,
    count,
    in_loop,
    rate,
    text,
)
from consumer_sdk.cli.times import FORMS as TIMES

__all__ = ["add_dead_letters", "add_doctor", "add_groups", "add_lags"]

STREAMS = (
    "URL: as the consumers are given it: kafka://host:port/topic?group=name, "
    "pulsar://host:port/topic?subscription=name&admin_url=http://host:port, "
    "kinesis://region/stream?group=name"
)
LETTERS = (
    "URL: kafka://host:port/topic, pulsar://host:port/topic?admin_url=http://host:port, "
    "kinesis://region/stream or sqlite:///absolute/path/letters.db; options of consumers may follow."
)


def add_dead_letters(topics: Commands) -> None:
    """``dead-letters``."""
    topic = topics.add_parser("dead-letters", help="show, replay and purge dead letters")
    topic.epilog = LETTERS
    commands = topic.add_subparsers(required=True, metavar="COMMAND")
    listed = _letters(
        commands, "list", "show a line for each letter that was not replayed or purged"
    )
    listed.set_defaults(command=in_loop(dead_letters.show_all))
    shown = _letters(commands, "show", "show letters as a whole: error, headers, value")
    shown.add_argument(
        "place", metavar="PLACE", nargs="*", type=text, help="a letter's place as `list` writes it"
    )
    shown.set_defaults(command=in_loop(dead_letters.show))
    replayed = _letters(
        commands,
        "replay",
        "send the records of letters again, unchanged",
        "A letter is removed only after its record is stored where it was sent. After a replay that was killed, "
        "run it again: no letter is lost, and the last few may be sent twice.",
    )
    replayed.add_argument(
        "--to",
        type=text,
        metavar="URL",
        help="where to send them, with or without a topic; by default each record's own stream",
    )
    replayed.add_argument("--rate", type=rate, metavar="N", help="send N letters a second at most")
    add_yes(replayed)
    replayed.set_defaults(command=in_loop(dead_letters.replay))
    purged = _letters(commands, "purge", "delete letters")
    add_yes(purged)
    purged.set_defaults(command=in_loop(dead_letters.purge))


def add_groups(commands: Commands) -> None:
    """``checkpoints show`` and ``reset``, which take a consumer's URL."""
    shown = _group(commands, "show", "show where a group would start, its holes and its attempts")
    shown.set_defaults(command=in_loop(resets.show))
    moved = _group(
        commands,
        "reset",
        "set where a group starts",
        "The store and the broker are set; the group's holes and attempts are forgotten.",
    )
    moved.exits[3] = "refused: consumers of the group run"
    moved.add_argument(
        "--to", type=text, metavar="earliest|latest|POSITION|TIME", help="where the group starts"
    )
    moved.add_argument("--shift", type=int, metavar="N", help="move N records forth, or back (-N)")
    moved.add_argument("--force", action="store_true", help="do it although consumers seem to run")
    add_yes(moved)
    moved.epilog = f"{STREAMS}\n{TIMES}"
    moved.set_defaults(command=in_loop(resets.reset))


def add_lags(topics: Commands) -> None:
    """``lag``, ``explain`` and ``tail``."""
    parser = _group(topics, "lag", "show how far a group is behind; its consumers need not run")
    parser.add_argument("--watch", type=rate, metavar="SECONDS", help="show it again every SECONDS")
    parser.add_argument(
        "--fail-above",
        type=amount,
        metavar="N",
        help="exit with status 1 if a partition is farther behind",
    )
    parser.add_argument(
        "--by",
        choices=["records", "seconds"],
        default="records",
        help="the unit of N; default: records",
    )
    parser.set_defaults(command=in_loop(lags.lag))
    parser = _group(
        topics, "explain", "show which record pins a group's position; its consumers need not run"
    )
    parser.set_defaults(command=in_loop(lags.explain))
    _add_tail(topics)


def add_doctor(topics: Commands) -> None:
    """``doctor``."""
    parser = topics.add_parser(
        "doctor",
        help="check what a consumer needs to run",
        description="Check what a consumer needs to run, and write a line for each check.",
    )
    parser.epilog = STREAMS
    parser.exits[1] = "a check fails; its line says what was found, and what to do"
    parser.exits[3] = "no check fails, and one warns"
    parser.add_argument("url", metavar="URL", type=text)
    parser.add_argument(
        "store", metavar="STORE_URL", nargs="?", type=text, help="the store of the consumers"
    )
    add_json(parser)
    parser.set_defaults(command=in_loop(doctor))


def _add_tail(topics: Commands) -> None:
    parser = topics.add_parser(
        "tail", help="show records of a stream", description="Show records of a stream."
    )
    parser.epilog = f"{STREAMS}\n{TIMES}"
    parser.add_argument("url", metavar="URL", type=text)
    parser.add_argument(
        "--last",
        type=count,
        default=10,
        metavar="N",
        help="show the last N records of each partition; default: 10",
    )
    parser.add_argument(
        "--from", dest="start", type=text, metavar="TIME", help="show records from then on"
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on, and show records as they come"
    )
    parser.add_argument("-n", dest="count", type=count, metavar="N", help="end after N records")
    parser.add_argument("--key", type=text, help="only records with this key")
    parser.add_argument(
        "--headers", action="store_true", help="show position, time, key and headers too"
    )
    parser.add_argument(
        "--format",
        choices=["raw", "json", "hex"],
        default="raw",
        help="the form of values; default: raw",
    )
    add_partitions(parser)
    add_json(parser)
    parser.set_defaults(command=in_loop(tails.tail))


def _group(commands: Commands, name: str, what: str, more: str = "") -> Parser:
    parser = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}. {more}"
    )
    parser.epilog = STREAMS
    parser.add_argument("url", metavar="URL", type=text)
    parser.add_argument(
        "--store", type=text, metavar="STORE_URL", help="the store of the consumers"
    )
    add_partitions(parser)
    add_json(parser)
    return parser


def _letters(commands: Commands, name: str, what: str, more: str = "") -> Parser:
    parser = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}. {more}"
    )
    parser.epilog = f"{LETTERS}\n{TIMES}"
    parser.add_argument("url", metavar="URL", type=text)
    parser.add_argument(
        "--error-type",
        type=text,
        metavar="NAME",
        help="only letters with this error: ValueError, json.JSONDecodeError",
    )
    parser.add_argument(
        "--since", type=text, metavar="TIME", help="only letters that were given up then or later"
    )
    parser.add_argument(
        "--stream",
        type=text,
        metavar="NAME",
        help="only letters whose record came from this stream",
    )
    parser.add_argument("--limit", type=count, metavar="N", help="N letters at most")
    parser.add_argument(
        "--group",
        type=text,
        metavar="NAME",
        help="the group that settles the letters of a topic or stream; default: the URL's, or dead-letters",
    )
    parser.add_argument(
        "--store",
        type=text,
        metavar="STORE_URL",
        help="the store of that group; Kinesis needs one to replay and purge",
    )
    add_json(parser)
    return parser
