"""What can be written for ``run``."""

from __future__ import annotations

from typing import get_args

from consumer_sdk.cli.parsing import Commands, count, text
from consumer_sdk.cli.run.command import run
from consumer_sdk.cli.run.config import Log
from consumer_sdk.runtime import Ordering

__all__ = ["add_run"]

APP = """\
APP is module:name. The module is in the working directory, or installed. The name is one of
  an async handler, which needs --url, or url= in the file of --config
  a Consumer, whose handler is --handler, or the name `handle` in the same module
  a Group
  a function without arguments that returns a Consumer or a Group

SIGTERM and Ctrl-C stop the service after the records in flight are handled.
An option here overrides the same option in the file of --config.
"""


def add_run(topics: Commands) -> None:
    """``run``."""
    parser = topics.add_parser("run", help="run a service: consumers and their handlers")
    parser.epilog = APP
    parser.exits = {
        0: "stopped by a signal, or ended by itself",
        1: "it failed; stderr says what, where, and what to do",
        2: "APP, an option or a URL cannot be used",
        130: "interrupted before it had started",
    }
    parser.add_argument(
        "app",
        metavar="APP",
        nargs="?",
        type=text,
        help="module:name, see below; default: app in the file of --config",
    )
    parser.add_argument("--config", metavar="FILE", help="a TOML file with options")
    parser.add_argument(
        "--url",
        type=text,
        help="the stream and the group, such as kafka://host:9092/orders?group=billing",
    )
    parser.add_argument(
        "--store",
        type=text,
        metavar="STORE_URL",
        help="the store of checkpoints, such as sqlite:///path/state.db",
    )
    parser.add_argument(
        "--handler", type=text, metavar="module:name", help="the handler, if APP is a Consumer"
    )
    parser.add_argument(
        "--concurrency", type=count, metavar="N", help="handlers that run at once; default: 100"
    )
    parser.add_argument(
        "--ordering",
        choices=[each.value for each in Ordering],
        help="which records are handled one after another; default: key",
    )
    parser.add_argument(
        "--workers", type=count, metavar="N", help="processes, all members of the group; default: 1"
    )
    parser.add_argument(
        "--admin",
        metavar="ADDR",
        type=text,
        help="serve probes, metrics and a live page at auto (a socket), unix:/path or 127.0.0.1:9464",
    )
    parser.add_argument(
        "--log", choices=get_args(Log), help="format of the log on stderr; default: text"
    )
    parser.add_argument("--uvloop", action="store_true", help="use the event loop of uvloop")
    parser.add_argument(
        "--reload",
        action="store_true",
        help="restart when a Python file below the working directory, or the file of --config, changes",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="do not run: check the options, and show where each partition would start",
    )
    parser.add_argument(
        "--json", action="store_true", help="write the result of --check as a JSON object"
    )
    parser.set_defaults(command=run, is_quiet=lambda arguments: arguments.check)
