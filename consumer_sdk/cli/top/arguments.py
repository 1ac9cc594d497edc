"""What can be written for ``top``."""

from __future__ import annotations

from consumer_sdk.cli.parsing import Commands, add_json, text
from consumer_sdk.cli.top.command import top

__all__ = ["add_top"]


def add_top(topics: Commands) -> None:
    """``top``."""
    parser = topics.add_parser(
        "top",
        help="watch a running consumer, and pause its partitions",
        description="Watch a running consumer by its admin server: admin.serve(consumer).",
    )
    parser.epilog = (
        "Keys: arrows choose a partition, p pauses or resumes it, e explains it, s sorts, tab goes to\n"
        "the next consumer of the process, q leaves."
    )
    parser.add_argument(
        "where",
        metavar="SOCKET|URL",
        nargs="?",
        type=text,
        help="the admin server: /path, unix:/path or http://host:port; by default the one of this user",
    )
    parser.add_argument(
        "--token", type=text, metavar="TOKEN", help="the server's: env:NAME or file:/path"
    )
    parser.add_argument("--once", action="store_true", help="show it once, and end")
    add_json(parser)
    parser.set_defaults(command=top)
