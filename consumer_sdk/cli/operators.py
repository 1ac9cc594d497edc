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

STREAMS = """\
URL is the one that the consumers of the group use:
  kafka://host:port/topic?group=name
  pulsar://host:port/topic?subscription=name&admin_url=http://host:port
  kinesis://region/stream?group=name
"""
LETTERS = """\
URL is where the dead letters are; the options of a consumer may follow:
  kafka://host:port/topic
  pulsar://host:port/topic?admin_url=http://host:port
  kinesis://region/stream
  sqlite:///absolute/path/letters.db
"""
STORE = "the consumers' store, if they have one: sqlite:///path/state.db"


def add_dead_letters(topics: Commands) -> None:
    """``dead-letters``."""
    topic = topics.add_parser("dead-letters", help="show, replay and purge dead letters")
    topic.epilog = LETTERS
    commands = topic.add_subparsers(required=True, metavar="COMMAND")
    listed = _letters(
        commands, "list", "list the dead letters that were neither replayed nor purged"
    )
    listed.set_defaults(command=in_loop(dead_letters.show_all))
    shown = _letters(commands, "show", "show dead letters with their error, headers and value")
    shown.add_argument(
        "place",
        metavar="PLACE",
        nargs="*",
        type=text,
        help="only the letter at this place, as `list` shows it",
    )
    shown.set_defaults(command=in_loop(dead_letters.show))
    replayed = _letters(
        commands,
        "replay",
        "send the records of dead letters again, unchanged",
        "A letter is removed only after the broker has stored its record.\nIf a replay is killed, run it "
        "again: no letter is lost, and the last few may be sent twice.",
    )
    replayed.add_argument(
        "--to",
        type=text,
        metavar="URL",
        help="the broker to send to, with or without a topic; default: the stream that each record came from",
    )
    replayed.add_argument("--rate", type=rate, metavar="N", help="send at most N records a second")
    add_yes(replayed)
    replayed.set_defaults(command=in_loop(dead_letters.replay))
    purged = _letters(commands, "purge", "delete dead letters")
    add_yes(purged)
    purged.set_defaults(command=in_loop(dead_letters.purge))


def add_groups(commands: Commands) -> None:
    """``checkpoints show`` and ``reset``, which take a consumer's URL."""
    shown = _group(
        commands,
        "show",
        "show where a group would start, its unsettled records and their failed attempts",
    )
    shown.set_defaults(command=in_loop(resets.show))
    moved = _group(
        commands,
        "reset",
        "set the positions where a group starts",
        "It writes the positions to the broker and to the store. What the group knows of settled records\n"
        "beyond its position, and of failed attempts, is forgotten.",
    )
    moved.exits[3] = "refused: the group has running consumers"
    moved.add_argument(
        "--to", type=text, metavar="earliest|latest|POSITION|TIME", help="the new position"
    )
    moved.add_argument(
        "--shift",
        type=int,
        metavar="N",
        help="move by N records, or back by -N: from --to, or else from the group's position",
    )
    moved.add_argument(
        "--force",
        action="store_true",
        help="reset even if consumers seem to run; Kafka itself refuses a group with members",
    )
    add_yes(moved)
    moved.epilog = f"{STREAMS}\nPOSITION is one as `show` writes it.\n{TIMES}"
    moved.set_defaults(command=in_loop(resets.reset))


def add_lags(topics: Commands) -> None:
    """``lag``, ``explain`` and ``tail``."""
    parser = _group(
        topics, "lag", "show how far a group is behind, even if its consumers do not run"
    )
    parser.add_argument("--watch", type=rate, metavar="SECONDS", help="repeat every SECONDS")
    parser.add_argument(
        "--fail-above",
        type=amount,
        metavar="N",
        help="exit with status 1 if a partition is more than N behind",
    )
    parser.add_argument(
        "--by",
        choices=["records", "seconds"],
        default="records",
        help="the unit of --fail-above; default: records",
    )
    parser.set_defaults(command=in_loop(lags.lag))
    parser = _group(
        topics,
        "explain",
        "show which record holds a group's position back, even if its consumers do not run",
    )
    parser.set_defaults(command=in_loop(lags.explain))
    _add_tail(topics)


def add_doctor(topics: Commands) -> None:
    """``doctor``."""
    parser = topics.add_parser(
        "doctor",
        help="check what a consumer needs to run",
        description="Check what a consumer needs to run, and write a line for each check. It joins no group.",
    )
    parser.epilog = STREAMS
    parser.exits[1] = "a check failed; its line says what was found, and what to do"
    parser.exits[3] = "no check failed, and at least one warns"
    parser.add_argument("url", metavar="URL", type=text)
    parser.add_argument("store", metavar="STORE_URL", nargs="?", type=text, help=STORE)
    add_json(parser)
    parser.set_defaults(command=in_loop(doctor))


def _add_tail(topics: Commands) -> None:
    parser = topics.add_parser("tail", help="show records of a stream, without joining a group")
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
        "--from",
        dest="start",
        type=text,
        metavar="TIME",
        help="show records from this time on, in place of the last N",
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="then wait for new records and show them"
    )
    parser.add_argument("-n", dest="count", type=count, metavar="N", help="stop after N records")
    parser.add_argument("--key", type=text, help="only records with this key")
    parser.add_argument(
        "--headers", action="store_true", help="also show position, time, key and headers"
    )
    parser.add_argument(
        "--format",
        choices=["raw", "json", "hex"],
        default="raw",
        help="how to write values; default: raw",
    )
    add_partitions(parser)
    add_json(parser)
    parser.set_defaults(command=in_loop(tails.tail))


def _group(commands: Commands, name: str, what: str, more: str = "") -> Parser:
    parser = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}.\n{more}".rstrip()
    )
    parser.epilog = STREAMS
    parser.add_argument("url", metavar="URL", type=text)
    parser.add_argument("--store", type=text, metavar="STORE_URL", help=STORE)
    add_partitions(parser)
    add_json(parser)
    return parser


def _letters(commands: Commands, name: str, what: str, more: str = "") -> Parser:
    parser = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}.\n{more}".rstrip()
    )
    parser.epilog = f"{LETTERS}\n{TIMES}"
    parser.add_argument("url", metavar="URL", type=text)
    parser.add_argument(
        "--error-type",
        type=text,
        metavar="NAME",
        help="only letters with this error, such as ValueError or json.JSONDecodeError",
    )
    parser.add_argument(
        "--since",
        type=text,
        metavar="TIME",
        help="only records that were dead-lettered at this time or later",
    )
    parser.add_argument(
        "--stream",
        type=text,
        metavar="NAME",
        help="only letters whose records came from this stream",
    )
    parser.add_argument("--limit", type=count, metavar="N", help="at most N letters")
    parser.add_argument(
        "--group",
        type=text,
        metavar="NAME",
        help="the group whose position tells which letters of a topic or stream are left; default: the URL's, "
        "or dead-letters",
    )
    parser.add_argument(
        "--store",
        type=text,
        metavar="STORE_URL",
        help="the store of --group; Kinesis needs one to replay and purge",
    )
    add_json(parser)
    return parser
