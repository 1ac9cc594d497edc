"""A dashboard for Grafana and alert rules for Prometheus, as files of the package."""

from __future__ import annotations

import sys
from argparse import Namespace
from importlib.resources import files

from consumer_sdk.cli.parsing import Commands

__all__ = ["ASSETS", "add_monitoring", "asset"]

ASSETS = {
    "grafana": ("grafana.json", "write a dashboard, for Grafana's import or provisioning"),
    "prometheus": ("prometheus.yml", "write alert rules, for Prometheus' rule_files"),
}


def add_monitoring(commands: Commands) -> None:
    """``assets grafana`` and ``assets prometheus``."""
    for name, (_, what) in ASSETS.items():
        parser = commands.add_parser(
            name, help=what, description=f"{what.capitalize()}; to stdout."
        )
        parser.set_defaults(command=_write, asset=name)


def asset(name: str) -> str:
    """The text of one."""
    return (files("consumer_sdk.telemetry") / "assets" / ASSETS[name][0]).read_text("utf-8")


def _write(arguments: Namespace) -> None:
    sys.stdout.write(asset(arguments.asset))
