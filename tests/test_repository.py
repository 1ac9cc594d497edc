"""Claims about the repository as a whole: layers, links, exports, import cost, what files say."""

import ast
import importlib
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

import consumer_sdk

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "consumer_sdk"

# From the bottom up; parts in one row may use each other.
LAYERS = (
    {"records", "errors", "options", "abc", "range_reads", "record_writes", "lazy"}
    | {"log_limits", "log_secrets", "named_secrets", "strict_json", "tls_trouble"},
    {"checkpoints"},
    {"trackers"},
    {"adapters", "stores", "leases", "schema_registry"},
    {"dead_letters"},
    {"runtime"},
    {"spark_bridge", "telemetry", "decoders"},
    {"admin"},
    {"cli"},
    {"testing"},
)
WHOLE = {"benchmarks", "docs", "examples", "fuzz", "integration", "sim", "typing"}
"""Folders of tests that go through all of the package."""
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}
CLIENTS = {
    "aiobotocore": {"adapters", "stores"},
    "aiokafka": {"adapters", "dead_letters"},
    "fastavro": {"decoders", "spark_bridge"},
    "fsspec": {"spark_bridge"},
    "google": {"decoders", "spark_bridge"},
    "kazoo": {"stores"},
    "msgspec": {"decoders"},
    "numpy": {"adapters"},
    "opentelemetry": {"telemetry"},
    "prometheus_client": {"admin", "telemetry"},
    "pulsar": {"adapters"},
    "pyarrow": {"adapters", "spark_bridge"},
    "pydantic": {"decoders"},
    "pyspark": {"spark_bridge"},
    "rich": {"cli"},
    "starlette": {"admin"},
    "uvicorn": {"admin"},
}
PUBLIC = (
    "consumer_sdk",
    "consumer_sdk.adapters",
    "consumer_sdk.admin",
    "consumer_sdk.dead_letters",
    "consumer_sdk.decoders",
    "consumer_sdk.runtime",
    "consumer_sdk.schema_registry",
    "consumer_sdk.spark_bridge",
    "consumer_sdk.stores",
    "consumer_sdk.telemetry",
    "consumer_sdk.testing",
    "consumer_sdk.testing.kinesis",
    "consumer_sdk.testing.memory",
    "consumer_sdk.testing.servers",
    "consumer_sdk.trackers",
)
FAKES = "consumer_sdk.testing.memory"
"""What ``memory://`` opens; the packages of its kinds get it by name, when it is asked for."""
FACES = [PACKAGE / part / "__init__.py" for part in ("adapters", "stores", "dead_letters")]
LAZY_NAME = re.compile(r"consumer_sdk(\.\w+)+")  # import_module("consumer_sdk.adapters.kafka")


def modules() -> list[Path]:
    """Return the source files of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """Return the part of the package that a file belongs to; the facade has none."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Return what a file imports: at its top, in functions, and for type checkers alike.

    An import for type checkers counts too: a name that a lower layer needs in a signature is a
    dependency that its reader has to follow upwards.
    """
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            yield str(node.module)
            # `from consumer_sdk import runtime` names the layer after the import.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and LAZY_NAME.fullmatch(str(node.value)):
            yield str(node.value)


def imported_parts(path: Path) -> set[str]:
    """Return the parts of the package that a file imports."""
    found = (name for name in imports(path) if path not in FACES or not name.startswith(FAKES))
    names = (name.split(".") for name in found)
    return {name[1] for name in names if name[0] == "consumer_sdk" and len(name) > 1} & set(RANK)


def test_every_module_has_a_layer() -> None:
    """A new part of the package is given its place in `LAYERS`."""
    parts = {part_of(path) for path in modules()} - {"__init__", "__main__"}
    assert parts <= set(RANK)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    """No module imports from a layer above its own; nothing shipped imports `testing`.

    But for names of the in-memory fakes, in the packages that also export what is not a fake.
    """
    rank = RANK.get(part_of(path), RANK["testing"] - 1)  # the facade sees all but testing
    upward = {part for part in imported_parts(path) if RANK[part] > rank}
    assert not upward


def test_parts_of_a_row_do_not_need_each_other() -> None:
    """Of two parts in a row one uses the other at most."""
    uses = {(part_of(path), other) for path in modules() for other in imported_parts(path)}
    assert not {(one, other) for one, other in uses if one < other and (other, one) in uses}


def rooms_in(room: Path) -> list[Path]:
    """Return the rooms inside a room."""
    return sorted(inner.parent for inner in room.glob("*/__init__.py"))


def uses_in(room: Path) -> dict[str, set[str]]:
    """Return for each room inside a room, by its name, which of the others it imports."""
    names = {inner.name for inner in rooms_in(room)}
    depth, start = len(room.relative_to(ROOT).parts), ".".join(room.relative_to(ROOT).parts) + "."
    return {
        inner.name: {
            name.split(".")[depth]
            for path in inner.rglob("*.py")
            for name in imports(path)
            if name.startswith(start)
        }
        & names - {inner.name}
        for inner in rooms_in(room)
    }


@pytest.mark.parametrize(
    "room",
    [room for path in modules() if rooms_in(room := path.parent) and path.name == "__init__.py"][
        1:
    ],
    ids=lambda room: str(room.relative_to(PACKAGE)),
)
def test_rooms_inside_a_room_import_one_way(room: Path) -> None:
    """The rooms inside a room have an order: none needs itself through others."""
    uses = uses_in(room)
    if room == PACKAGE / "spark_bridge" / "pull":
        uses["options"].discard("planning")  # the options of a read are made of the planning's own
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle: {' <- '.join(error.args[1])}")


def test_tests_lie_in_the_room_of_what_they_test() -> None:
    """Each folder of tests has the path of a room, or of a module; but for tests of whole programs."""
    folders = {
        path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")
    }
    rooms = {folder for folder in folders if folder.parts and folder.parts[0] not in WHOLE}
    strange = {f for f in rooms if not ((PACKAGE / f).is_dir() or (PACKAGE / f"{f}.py").is_file())}
    assert not strange


@pytest.mark.parametrize("client", CLIENTS)
def test_client_is_imported_in_its_layer_only(client: str) -> None:
    """Each outside system has one place; the testing kit may talk to all."""
    users = {
        part_of(path)
        for path in modules()
        if any(name.split(".")[0] == client for name in imports(path))
    }
    assert users <= CLIENTS[client] | {"testing"}


def test_trackers_are_pure() -> None:
    """Trackers and checkpoints have no event loop, no clock, no log and no I/O."""
    impure = {"asyncio", "logging", "socket", "sqlite3", "subprocess", "threading", "time"}
    parts = (PACKAGE / "trackers").rglob("*.py"), (PACKAGE / "checkpoints").rglob("*.py")
    for path in chain(*parts):
        assert not {name.split(".")[0] for name in imports(path)} & impure, path


@pytest.mark.parametrize("name", ["adapters", "trackers", "spark_bridge"])
def test_root_link_leads_into_the_package(name: str) -> None:
    """Each main part is one step from the root, by a relative link that a clone keeps."""
    link = ROOT / name
    assert link.is_symlink()
    assert link.readlink() == Path("consumer_sdk") / name
    assert (link / "__init__.py").is_file()


@pytest.mark.parametrize("name", PUBLIC)
def test_exports_exist_and_are_sorted(name: str) -> None:
    """Each name in ``__all__`` can be had, and is there once; lazy ones too."""
    module = importlib.import_module(name)
    exported = module.__all__
    assert exported == sorted(set(exported))
    for each in exported:
        assert getattr(module, each) is not None


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_exported(name: str) -> None:
    """What a package's ``__init__`` imports from its own modules is in ``__all__``."""
    module = importlib.import_module(name)
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    found = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(name)
        for alias in node.names
    }
    found -= {"lazy_names"}  # how the rest is exported
    assert {each for each in found if not each.startswith("_")} <= set(module.__all__)


def test_all_modules_can_be_imported() -> None:
    """No module depends on the order in which others were imported."""
    names = [
        info.name
        for info in pkgutil.walk_packages(consumer_sdk.__path__, "consumer_sdk.")
        if not info.name.endswith("__main__")
    ]
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", code, *reversed(names)], check=True)


def test_import_loads_no_client() -> None:
    """The facade and the packages with lazy exports load no broker client and no Spark."""
    code = "import sys, json\n"
    code += "".join(f"import {name}\n" for name in PUBLIC if "testing" not in name)
    code += "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert not set(json.loads(loaded.stdout)) & set(CLIENTS)


def test_import_loads_no_fake() -> None:
    """Who does not ask for the in-memory broker, store or dead letters gets nothing of `testing`."""
    code = "import sys\n"
    code += "".join(f"import {name}\n" for name in PUBLIC if "testing" not in name)
    code += "print([name for name in sys.modules if name.startswith('consumer_sdk.testing')])"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert loaded.stdout.strip() == b"[]"


def processor_time(code: str) -> float:
    """Return the seconds of processor time that a fresh interpreter takes for the code."""
    code += "\nimport resource; used = resource.getrusage(resource.RUSAGE_SELF)"
    code += "\nprint(used.ru_utime + used.ru_stime)"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    return float(result.stdout)


def test_import_costs_less_than_100_ms() -> None:
    """`import consumer_sdk` is cheap; processor time, since wall time measures the neighbours."""
    # The least of some: neighbours empty the caches.
    ours, nothing = (
        min(processor_time(code) for _ in range(7)) for code in ("import consumer_sdk", "")
    )
    assert ours - nothing < 0.1


def test_no_addresses_of_registries_or_machines_in_files() -> None:
    """A clone works against whatever index its user has set up."""
    # Written in two halves, so that this file is not the one that is found.
    halves = (
        "pypi .org",
        "pythonhosted .org",
        "repo1. maven",
        "maven .org",
        "registry.npm js",
        "proxy.golang .org",
        "/wo rk/",
        "/ro ot/",
    )
    pattern = "|".join(re.escape(each.replace(" ", "")) for each in halves)
    command = ["git", "-C", str(ROOT), "grep", "-nIE", "--untracked", pattern]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert found.returncode == 1, found.stdout + found.stderr
