"""What can be written for ``run``."""

from __future__ import annotations

from typing import get_args

from consumer_sdk.cli.parsing import Commands, count, text
from consumer_sdk.cli.run.command import run
from consumer_sdk.cli.run.config import Log
from consumer_sdk.runtime import Ordering

__all__ = ["add_run"]

APP = """\
APP is module:name, of the working directory or installed. The name is of
  an async handler, which needs --url or a file
  a Consumer; its handler is --handler, or handle of the same module
  a Group
  a function that needs no argument, and returns one of the last two

SIGTERM and Ctrl-C end it after what is in hand. What stands here comes before the file of --config.
"""


def add_run(topics: Commands) -> None:
    """``run``."""
    parser = topics.add_parser("run", help="run a service", description="Run a service.")
    parser.epilog = APP
    parser.exits = {
        0: "ended by a signal, or by itself",
        1: "it failed; stderr says what, where, and what to do",
        2: "the application, an option or a URL cannot work",
        130: "interrupted before it ran",
    }
    parser.add_argument(
        "app", metavar="APP", nargs="?", type=text, help="see below; or app= in FILE"
    )
    parser.add_argument("--config", metavar="FILE", help="options, as TOML")
    parser.add_argument("--url", type=text, help="kafka://host:9092/orders?group=billing")
    parser.add_argument("--store", type=text, metavar="STORE_URL", help="sqlite:///path/state.db")
    parser.add_argument("--handler", type=text, metavar="module:name", help="of a Consumer")
    parser.add_argument("--concurrency", type=count, metavar="N", help="handlers at once; 100")
    parser.add_argument("--ordering", choices=[each.value for each in Ordering], help="key")
    parser.add_argument("--workers", type=count, metavar="N", help="processes of one group; 1")
    parser.add_argument(
        "--admin",
        metavar="ADDR",
        type=text,
        help="probes, metrics, a page: auto, unix:/path, 127.0.0.1:9464",
    )
    parser.add_argument("--log", choices=get_args(Log), help="lines on stderr; text")
    parser.add_argument("--uvloop", action="store_true", help="use uvloop's event loop")
    parser.add_argument(
        "--reload", action="store_true", help="start again when a Python file here changes"
    )
    parser.add_argument(
        "--check", action="store_true", help="say what would be run, and where it would begin"
    )
    parser.add_argument("--json", action="store_true", help="what --check says, as a JSON object")
    parser.set_defaults(command=run, is_quiet=lambda arguments: arguments.check)
