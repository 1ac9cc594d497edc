"""A dashboard for Grafana and alert rules for Prometheus, as files of the package."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from importlib.resources import files

from consumer_sdk.cli.parsing import Commands, add_json

__all__ = ["ASSETS", "AS_IT_IS", "AS_TEXT", "add_monitoring", "asset", "write_asset"]

AS_IT_IS = "write the same JSON on one line"
AS_TEXT = "write a JSON object with the text and a file name"
"""What ``--json`` writes of a file that is JSON, and of any other."""

ASSETS = {
    "grafana": ("grafana.json", "write a Grafana dashboard to stdout, to import or to provision"),
    "prometheus": (
        "prometheus.yml",
        "write Prometheus alert rules to stdout, for a file that rule_files names",
    ),
}


def add_monitoring(commands: Commands) -> None:
    """``assets grafana`` and ``assets prometheus``."""
    for name, (file, what) in ASSETS.items():
        parser = commands.add_parser(name, help=what)
        add_json(parser, AS_IT_IS if file.endswith(".json") else AS_TEXT)
        parser.set_defaults(command=_write, asset=name)


def asset(name: str) -> str:
    """The text of one."""
    return (files("consumer_sdk.telemetry") / "assets" / ASSETS[name][0]).read_text("utf-8")


def _write(arguments: Namespace) -> None:
    write_asset(ASSETS[arguments.asset][0], asset(arguments.asset), arguments)


def write_asset(name: str, text: str, arguments: Namespace) -> None:
    """Writes a file's text to stdout, or with ``--json`` an object on one line.

    Args:
        name: of the file; one that ends with ``.json`` is such an object.
    """
    if arguments.json:
        row = json.loads(text) if name.endswith(".json") else {"name": name, "text": text}
        text = json.dumps(row) + "\n"
    sys.stdout.write(text)
