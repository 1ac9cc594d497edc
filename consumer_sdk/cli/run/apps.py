"""What ``module:name`` means: a handler, a consumer, a group, or a function that makes one of the last two."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any, Literal, TypeAlias

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.runtime import Consumer, Group

__all__ = ["HANDLER", "Kind", "failed", "kind_of", "load_app", "load_object", "sibling"]

HANDLER = "handle"
"""The handler of a consumer's module, if nothing names another."""

Kind: TypeAlias = Literal["handler", "consumer", "group", "factory"]

FORM = "write module:name, such as billing.service:handle"


def load_app(app: str) -> tuple[object, Kind]:
    """What an application's name means.

    Raises:
        ConfigurationError: there is no such module or name, or it is none of what can be run. The
            traceback of a module that fails is on stderr.
    """
    found = load_object(app)
    return found, kind_of(app, found)


def load_object(place: str) -> object:
    """The object at ``module:name``; modules of the working directory come first.

    Raises:
        ConfigurationError: as `load_app`.
    """
    module, colon, name = place.partition(":")
    is_file = module.endswith(".py") and Path(module).is_file()
    if is_file or not (colon and name and all(map(str.isidentifier, module.split(".")))):
        raise ConfigurationError(f"{place!r}: {_form(module, name)}")
    found: Any = _imported(module)
    for part in name.split("."):
        if not hasattr(found, part):
            near = _near(part, [each for each in dir(found) if not each.startswith("_")])
            raise ConfigurationError(f"{place!r}: {module} has no {part!r}{near}")
        found = getattr(found, part)
    return found


def _form(module: str, name: str) -> str:
    """How to write it: of a file's path the module."""
    parts = PurePath(module.removesuffix(".py")).parts
    if module.endswith(".py") and all(map(str.isidentifier, parts)):
        return f"write {'.'.join(parts)}:{name or HANDLER}"
    return FORM


def sibling(place: str, name: str) -> str:
    """Another name of the same module."""
    return f"{place.partition(':')[0]}:{name}"


def kind_of(place: str, found: object) -> Kind:
    """What an object is to be run as.

    Raises:
        ConfigurationError: as nothing.
    """
    if isinstance(found, Consumer):
        return "consumer"
    if isinstance(found, Group):
        return "group"
    if not callable(found) or inspect.isclass(found):
        raise ConfigurationError(
            f"{place!r} is {type(found).__name__}: give an async handler, a Consumer, a Group, or a "
            f"function that needs no argument, and returns one of the last two"
        )
    if not _takes(found):
        return "handler"
    # What takes anything wraps a handler; a parameter that may be left out is a factory's option.
    is_wrapper = inspect.iscoroutinefunction(found) and _takes_any_number(found)
    return "handler" if is_wrapper else "factory"


def _takes_any_number(function: Any) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return next((each.kind for each in parameters), None) is inspect.Parameter.VAR_POSITIONAL


def _takes(function: Any, *arguments: object) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError):
        return False
    return True


def _imported(module: str) -> object:
    here = os.getcwd()  # noqa: PTH109 - an entry of sys.path is a text
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise failed(f"{module} cannot be imported", error) from error  # one that it imports
        raise ConfigurationError(
            f"there is no module {error.name!r}{_near_module(error.name)}; looked in {here} and in "
            f"what is installed"
        ) from error
    except Exception as error:
        raise failed(f"{module} cannot be imported", error) from error


def failed(what: str, error: Exception) -> ConfigurationError:
    """Shows where an application failed, without the frames of whoever imported or called it."""
    frames = error.__traceback__
    while frames is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)
    return ConfigurationError(f"{what}: {type(error).__name__}: {error}")


def _is_ours(file: str) -> bool:
    is_of_run = PurePath(file).parent == PurePath(__file__).parent
    return is_of_run or file == importlib.__file__ or file.startswith("<frozen importlib")


def _near_module(name: str) -> str:
    package, _, last = name.rpartition(".")
    path = getattr(sys.modules.get(package), "__path__", None) if package else [os.getcwd()]  # noqa: PTH109 - likewise
    return _near(last, (each.name for each in pkgutil.iter_modules(path)), whole=False)


def _near(name: str, known: Iterable[str], *, whole: bool = True) -> str:
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f": did you mean {near[0]}?"
    return f": there are {', '.join(known[:20])}" if known and whole else ""
