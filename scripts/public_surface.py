"""Writes tests/public_surface.txt anew: every public name, with its signature.

Kinds, defaults and values are those of the running program. Annotations are those of the source, because Python 3.14
prints some types in other words than 3.11. So the file is the same on each Python.

``--check`` writes nothing, and ends with 1 where the file is not what it would write.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache, cached_property
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import FunctionType, MemberDescriptorType

__all__ = ["FILE", "MODULES", "differences", "entries", "parsed", "surface", "written"]

FILE = Path(__file__).parent.parent / "tests" / "public_surface.txt"
MODULES = (
    "consumer_sdk",
    "consumer_sdk.abc",
    "consumer_sdk.adapters",
    "consumer_sdk.admin",
    "consumer_sdk.dead_letters",
    "consumer_sdk.decoders",
    "consumer_sdk.errors",
    "consumer_sdk.schema_registry",
    "consumer_sdk.spark_bridge",
    "consumer_sdk.stores",
    "consumer_sdk.telemetry",
    "consumer_sdk.testing",
    "consumer_sdk.trackers",
)
PACKAGES = {"consumer_sdk"}  # whose source has the annotations
WIDTH = 100
# A user calls these by their syntax; the others are how a class is made.
SYNTAX = {
    *("__aenter__", "__aexit__", "__aiter__", "__anext__", "__await__", "__bool__", "__call__"),
    *("__contains__", "__enter__", "__exit__", "__getitem__", "__iter__", "__len__", "__next__"),
}
PRIVATE = ":meta private:"
"""Sphinx, too, leaves out what has this in its docstring."""
HEAD = """\
# Every public name of the package. `python scripts/public_surface.py` writes this file.
# A line that goes or changes is a change for users: docs/versions.md says what a release may change.
"""


def surface(names: tuple[str, ...] = MODULES) -> dict[str, str]:
    """Where a reader imports a name from → what it is; members follow their class.

    A name of several modules is described at the first one.
    """
    homes: dict[object, str] = {}
    found: dict[str, str] = {}
    exported = [(name, each) for name in names for each in import_module(name).__all__]
    for name, each in exported:
        value = getattr(import_module(name), each)
        if isinstance(value, type | FunctionType):
            homes.setdefault(value, f"{name}.{each}")
    for name, each in exported:
        value, path = getattr(import_module(name), each), f"{name}.{each}"
        if (home := _home(value, homes, path)) != path:
            found[path] = f" = {home}"
        else:
            found |= entries(path, value, homes)
    return found


def _home(value: object, homes: Mapping[object, str], path: str) -> str:
    return homes[value] if isinstance(value, type | FunctionType) else path


def entries(path: str, value: object, homes: Mapping[object, str]) -> dict[str, str]:
    """What one name adds to the surface."""
    if isinstance(value, type):
        members = {f"{path}.{name}": text for name, text in sorted(_members(value, homes))}
        return {path: _class(value)} | members
    if isinstance(value, FunctionType):
        return {path: f": {_function(value)}"}
    return {path: f": {type(value).__name__}"}


def _class(value: type) -> str:
    bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
    return f": class({bases}){_made(value)}"


def _made(value: type) -> str:
    """How it is made; nothing for what its base makes, and for what nobody makes."""
    made = vars(value).get("__init__")
    if issubclass(value, Enum) or inspect.isabstract(value) or _is_protocol(value):
        return ""
    if made is None and "__new__" not in vars(value):
        inherited = next((c for c in value.__mro__ if "__init__" in vars(c)), object)
        return _made(inherited) if _is_ours(inherited) else ""
    return _signature(value, made if isinstance(made, FunctionType) else None, _annotations(value))


def _is_ours(value: type) -> bool:
    return value.__module__.split(".", maxsplit=1)[0] in PACKAGES


def _is_protocol(value: type) -> bool:
    return bool(vars(value).get("_is_protocol"))


def _members(value: type, homes: Mapping[object, str]) -> Iterator[tuple[str, str]]:
    """Its own members, and those of bases that are not public themselves."""
    mine = [
        each for each in value.__mro__ if _is_ours(each) and (each is value or each not in homes)
    ]
    found: dict[str, str] = {}
    for each in reversed(mine):
        found |= {name: f": {kind}" for name, kind in _annotations(each).items()}
        found |= {name: f": {kind}" for name, kind in _assigned(each).items() if name not in found}
        for name, member in vars(each).items():
            if text := _member(each, member, found.get(name)):
                found[name] = text
    hidden = {name for each in mine for name in _marked(each)}
    public = (name for name in found if _is_public(name) and name not in hidden)
    yield from ((name, found[name]) for name in public)


def _marked(value: type) -> Iterator[str]:
    """The members whose docstrings say that they are private."""
    for name, member in vars(value).items():
        if PRIVATE in (inspect.getdoc(getattr(member, "__func__", member)) or ""):
            yield name
    for field, text in pairwise(getattr(_class_node(value), "body", [])):
        if isinstance(field, ast.AnnAssign) and PRIVATE in ast.unparse(text):
            yield ast.unparse(field.target)


def _is_public(name: str) -> bool:
    return name in SYNTAX or not name.startswith("_")


def _member(owner: type, member: object, known: str | None) -> str:
    abstract = "abstract " if getattr(member, "__isabstractmethod__", False) else ""
    if text := _called(member):
        return f": {abstract}{text}"
    if isinstance(member, Enum) and isinstance(owner, type(Enum)):
        return f" = {member.value!r}"
    if isinstance(member, MemberDescriptorType) or _is_namedtuple_field(member):
        return known or ": attribute"
    if isinstance(member, type):
        return ": class"
    return f"{known or ''} = {_plain(member)}" if not known or _is_plain(member) else known


def _called(member: object) -> str:
    """A method or property in words; nothing for others."""
    match member:
        case staticmethod():
            return f"static method {_function(member.__func__)}"
        case classmethod():
            return f"class method {_function(member.__func__, bound=True)}"
        case FunctionType():
            return f"method {_function(member, bound=True)}"
        case property():
            return f"property{_returns(member.fget)}"
        case cached_property():
            return f"property{_returns(member.func)}"
    return ""


def _is_namedtuple_field(member: object) -> bool:
    return type(member).__name__ == "_tuplegetter"


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str | bytes | Enum)


def _plain(value: object) -> str:
    """A value in words that are the same in each process and each Python."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, type | FunctionType):
        return value.__name__
    if isinstance(value, frozenset | set):
        return f"{{{', '.join(sorted(map(_plain, value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_plain, value))})"
    text = repr(value)
    return f"{type(value).__name__}(...)" if " at 0x" in text or len(text) > WIDTH else text


def _function(value: object, *, bound: bool = False) -> str:
    inner = inspect.unwrap(value) if isinstance(value, FunctionType) else value
    if not isinstance(inner, FunctionType):
        return "(...)"
    waits = inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(value)
    text = _signature(value, inner, {}, bound=bound)
    return f"{'async ' if waits else ''}{text}{_returns(inner)}"


def _signature(
    value: object, source: FunctionType | None, known: Mapping[str, str], *, bound: bool = False
) -> str:
    """The arguments; each in a line of its own, if one line is too long."""
    try:
        asked = list(inspect.signature(value).parameters.values())  # type: ignore[arg-type]
    except ValueError:  # a class of C
        return "(...)"
    kinds = {**known, **_argument_types(source)}
    texts = list(_parameters(asked[1:] if bound else asked, kinds))
    line = f"({', '.join(texts)})"
    return line if len(line) <= WIDTH else "(" + "".join(f"\n    {text}," for text in texts) + "\n)"


def _parameters(asked: list[inspect.Parameter], kinds: Mapping[str, str]) -> Iterator[str]:
    before = None
    for each in asked:
        if before is each.POSITIONAL_ONLY and each.kind is not before:
            yield "/"
        if each.kind is each.KEYWORD_ONLY and before not in {
            each.KEYWORD_ONLY,
            each.VAR_POSITIONAL,
        }:
            yield "*"
        stars = "*" * (2 * (each.kind is each.VAR_KEYWORD) + (each.kind is each.VAR_POSITIONAL))
        kind = f": {kinds[each.name]}" if each.name in kinds else ""
        default = "" if each.default is each.empty else f" = {_plain(each.default)}"
        yield f"{stars}{each.name}{kind}{default}"
        before = each.kind
    if before is inspect.Parameter.POSITIONAL_ONLY:
        yield "/"


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))


@cache
def _definitions(file: str) -> dict[tuple[str, int], ast.FunctionDef | ast.AsyncFunctionDef]:
    """Name and first line, which is that of a decorator if there is one → the function."""
    nodes = (
        n for n in ast.walk(_tree(file)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {(n.name, min([n.lineno, *(d.lineno for d in n.decorator_list)])): n for n in nodes}


def _definition(value: object) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    if not isinstance(value, FunctionType) or not Path(value.__code__.co_filename).is_file():
        return None
    code = value.__code__
    return _definitions(code.co_filename).get((code.co_name, code.co_firstlineno))


def _argument_types(value: FunctionType | None) -> dict[str, str]:
    node = _definition(value)
    if node is None:
        return {}
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    every += [each for each in (node.args.vararg, node.args.kwarg) if each]
    return {each.arg: _text(each.annotation) for each in every if each.annotation}


def _returns(value: object) -> str:
    node = _definition(value)
    return f" -> {_text(node.returns)}" if node and node.returns else ""


def _text(node: ast.expr) -> str:
    return (
        node.value
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        else ast.unparse(node)
    )


@cache
def _class_nodes(file: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.walk(_tree(file)) if isinstance(node, ast.ClassDef)}


def _class_node(value: type) -> ast.ClassDef | None:
    if not _is_ours(value):
        return None
    file = sys.modules[value.__module__].__file__
    return _class_nodes(str(file)).get(value.__name__)


def _annotations(value: type) -> dict[str, str]:
    """The types of its fields, and of its bases' fields if it is a dataclass."""
    found: dict[str, str] = {}
    for each in reversed(value.__mro__):
        if each is value or hasattr(value, "__dataclass_fields__"):
            body = getattr(_class_node(each), "body", [])
            found |= {
                node.target.id: _text(node.annotation)
                for node in body
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            }
    return found


def _assigned(value: type) -> dict[str, str]:
    """The attributes that its ``__init__`` gives to an object."""
    body = getattr(_class_node(value), "body", [])
    made = [each for each in body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    found: dict[str, str] = {}
    for node in (node for each in made for node in ast.walk(each)):
        targets = node.targets if isinstance(node, ast.Assign) else []
        kind = "attribute"
        if isinstance(node, ast.AnnAssign):
            targets, kind = [node.target], _text(node.annotation)
        for each in targets:
            if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self":
                found[each.attr] = kind
    return found


def written(found: Mapping[str, str]) -> str:
    """The file's text."""
    return HEAD + "".join(f"\n{name}{text}" for name, text in found.items()) + "\n"


def parsed(text: str) -> dict[str, str]:
    """The names of a file's text, and what it says of each; the inverse of `written`."""
    blocks = re.split(r"\n(?=consumer_sdk)", text)[1:]
    pairs = (re.match(r"([\w.]+)(.*)", block.rstrip("\n"), re.DOTALL) for block in blocks)
    return {pair[1]: pair[2] for pair in pairs if pair}


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What was added, removed and changed, a line or some for each name."""
    lines = [f"removed: {name}{before[name]}" for name in before if name not in now]
    lines += [f"added: {name}{now[name]}" for name in now if name not in before]
    both = (name for name in before if name in now and before[name] != now[name])
    return lines + [f"changed: {name}\n  was{before[name]}\n  is{now[name]}" for name in both]


def main(arguments: list[str]) -> int:
    """Write the file, or with ``--check`` print how it differs; 1 if it does."""
    now = surface()
    if "--check" not in arguments:
        FILE.write_text(written(now), encoding="utf-8")
        print(f"{FILE}: {len(now)} names")
        return 0
    lines = differences(parsed(FILE.read_text(encoding="utf-8")), now)
    print("\n".join(lines) or f"{FILE.name} lists all {len(now)} public names")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
