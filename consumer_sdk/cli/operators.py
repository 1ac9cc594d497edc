"""What can be written for the commands that look at streams and groups from outside."""

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
    topic = topics.add_parser(
        "dead-letters", help="look at dead letters, send them again, purge them"
    )
    topic.epilog = LETTERS
    commands = topic.add_subparsers(required=True, metavar="COMMAND")
    listed = _letters(commands, "list", "show a line for each letter that is left")
    listed.set_defaults(command=in_loop(dead_letters.show_all))
    shown = _letters(commands, "show", "show all of letters: why, headers, value")
    shown.add_argument("place", metavar="PLACE", nargs="*", type=text, help="as `list` writes it")
    shown.set_defaults(command=in_loop(dead_letters.show))
    replayed = _letters(
        commands,
        "replay",
        "send records again, as they were",
        "A letter goes only when its record is stored where it was sent. A replay that was killed is "
        "called again: no letter is lost, and the last few may be sent twice.",
    )
    replayed.add_argument(
        "--to",
        type=text,
        metavar="URL",
        help="where to, with or without a topic; by default each record's own stream",
    )
    replayed.add_argument("--rate", type=rate, metavar="N", help="letters a second, at most")
    add_yes(replayed)
    replayed.set_defaults(command=in_loop(dead_letters.replay))
    purged = _letters(commands, "purge", "throw letters away")
    add_yes(purged)
    purged.set_defaults(command=in_loop(dead_letters.purge))


def add_groups(commands: Commands) -> None:
    """``checkpoints show`` and ``reset``, which take a consumer's URL."""
    shown = _group(commands, "show", "show where a group would start, with its holes and attempts")
    shown.set_defaults(command=in_loop(resets.show))
    moved = _group(
        commands,
        "reset",
        "set where a group starts",
        "In the store and in the broker; what was known of holes and attempts is cleared.",
    )
    moved.exits[3] = "refused: consumers of the group run"
    moved.add_argument("--to", type=text, metavar="earliest|latest|POSITION|TIME", help="where to")
    moved.add_argument("--shift", type=int, metavar="N", help="so many records on, or back (-N)")
    moved.add_argument("--force", action="store_true", help="also while consumers seem to run")
    add_yes(moved)
    moved.epilog = f"{STREAMS}\n{TIMES}"
    moved.set_defaults(command=in_loop(resets.reset))


def add_lags(topics: Commands) -> None:
    """``lag``, ``explain`` and ``tail``."""
    parser = _group(topics, "lag", "show how far a group is behind, whether it runs or not")
    parser.add_argument("--watch", type=rate, metavar="SECONDS", help="again and again, so often")
    parser.add_argument(
        "--fail-above", type=amount, metavar="N", help="status 1 if one is farther behind"
    )
    parser.add_argument(
        "--by", choices=["records", "seconds"], default="records", help="what N counts; records"
    )
    parser.set_defaults(command=in_loop(lags.lag))
    parser = _group(topics, "explain", "show what pins a group's position, whether it runs or not")
    parser.set_defaults(command=in_loop(lags.explain))
    _add_tail(topics)


def add_doctor(topics: Commands) -> None:
    """``doctor``."""
    parser = topics.add_parser(
        "doctor",
        help="say what would keep a consumer from running",
        description="Say what would keep a consumer from running: a line for each thing that it needs.",
    )
    parser.epilog = STREAMS
    parser.exits[1] = "something fails; its line says what, and what to do"
    parser.exits[3] = "nothing fails, and something is worth a look"
    parser.add_argument("url", metavar="URL", type=text)
    parser.add_argument("store", metavar="STORE_URL", nargs="?", type=text, help="the consumers'")
    add_json(parser)
    parser.set_defaults(command=in_loop(doctor))


def _add_tail(topics: Commands) -> None:
    parser = topics.add_parser("tail", help="show records", description="Show records of a stream.")
    parser.epilog = f"{STREAMS}\n{TIMES}"
    parser.add_argument("url", metavar="URL", type=text)
    parser.add_argument(
        "--last", type=count, default=10, metavar="N", help="the last N of each partition; 10"
    )
    parser.add_argument("--from", dest="start", type=text, metavar="TIME", help="from then on")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as records come")
    parser.add_argument("-n", dest="count", type=count, metavar="N", help="end after N records")
    parser.add_argument("--key", type=text, help="records of this key alone")
    parser.add_argument("--headers", action="store_true", help="place, time, key and headers too")
    parser.add_argument(
        "--format", choices=["raw", "json", "hex"], default="raw", help="of values; raw"
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
    parser.add_argument("--store", type=text, metavar="STORE_URL", help="that of the consumers")
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
        "--error-type", type=text, metavar="NAME", help="ValueError, json.JSONDecodeError"
    )
    parser.add_argument("--since", type=text, metavar="TIME", help="given up then or later")
    parser.add_argument("--stream", type=text, metavar="NAME", help="that came from this stream")
    parser.add_argument("--limit", type=count, metavar="N", help="so many letters, at most")
    parser.add_argument(
        "--group",
        type=text,
        metavar="NAME",
        help="who deals with them, in a topic or stream; dead-letters, if neither this nor the URL says",
    )
    parser.add_argument(
        "--store",
        type=text,
        metavar="STORE_URL",
        help="where that is kept: Kinesis needs one to replay and purge",
    )
    add_json(parser)
    return parser
