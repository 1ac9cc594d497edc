"""Small changes of a module's syntax tree that some test ought to notice."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["Mutant", "mutants"]

Node = TypeVar("Node", bound=ast.AST)

SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.FloorDiv,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitXor: (ast.BitAnd,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
}
REMOVABLE = (ast.Assign, ast.AugAssign, ast.Delete, ast.Expr, ast.Raise, ast.Continue, ast.Break)
NOT_CODE = {"annotation", "returns", "decorator_list", "bases", "type_comment", "ctx"}
NAME_LISTS = {"__all__", "__slots__"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file; ``place`` is the dotted name of the function around it.

    ``lines`` are those of the statement, of a compound one its head; empty if it runs at import.
    """

    path: Path
    place: str
    change: str
    tree: ast.Module
    lines: range = range(0)

    @property
    def key(self) -> tuple[str, str, str]:
        """What names it."""
        return (self.path.name, self.place, self.change)


def mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of a file; each must be used before the next is asked for."""
    tree = ast.parse(path.read_text(encoding="utf-8"))

    def visit(
        node: ast.AST, place: str, around: ast.AST, *, is_called: bool = False
    ) -> Iterator[Mutant]:
        is_called = is_called or isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef))
        for child, name, at in children(node):
            # A number alone says too little; a name that is missing at import says it itself.
            shown = around if isinstance(child, (ast.Constant, ast.UnaryOp)) else child
            others = [
                each for each in alternatives(child) if place or not isinstance(each, ast.Pass)
            ]
            before = first_line(shown) if others else ""
            for other in others:
                put(node, name, at, other)
                after = first_line(other if shown is child else shown)
                change = f"{before} → {after}"
                yield Mutant(
                    path, place, change, tree, lines_of(child, around) if is_called else range(0)
                )
                put(node, name, at, child)
            inner = f"{place}.{name_of(child)}".strip(".")
            inside = child if isinstance(child, ast.stmt) else around
            yield from visit(child, inner, inside, is_called=is_called)

    yield from visit(tree, "", tree)


# -- what may stand in a node's place -------------------------------------------------------------


def alternatives(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    yield from replacements(node)
    if isinstance(node, REMOVABLE) and not is_docstring(node):
        yield ast.Pass()


@singledispatch
def replacements(_node: ast.AST) -> Iterator[ast.AST]:
    """Other nodes of the same kind."""
    yield from ()


@replacements.register
def _(node: ast.Compare) -> Iterator[ast.AST]:
    for at, operator in enumerate(node.ops):
        for swap in SWAPS.get(type(operator), ()):
            yield changed(node, ops=[*node.ops[:at], swap(), *node.ops[at + 1 :]])


@replacements.register
def _(node: ast.BoolOp) -> Iterator[ast.AST]:
    yield from node.values
    yield from (changed(node, op=swap()) for swap in SWAPS[type(node.op)])


@replacements.register(ast.BinOp)
@replacements.register(ast.AugAssign)
def _(node: ast.BinOp | ast.AugAssign) -> Iterator[ast.AST]:
    yield from (changed(node, op=swap()) for swap in SWAPS.get(type(node.op), ()))


@replacements.register
def _(node: ast.UnaryOp) -> Iterator[ast.AST]:
    yield node.operand


@replacements.register
def _(node: ast.Constant) -> Iterator[ast.AST]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, (int, float)):
        yield ast.Constant(node.value + 1)


@replacements.register
def _(node: ast.Return) -> Iterator[ast.AST]:
    if node.value is not None:
        yield ast.Return(ast.UnaryOp(ast.Not(), node.value))


@replacements.register(ast.If)
@replacements.register(ast.While)
@replacements.register(ast.IfExp)
def _(node: ast.If | ast.While | ast.IfExp) -> Iterator[ast.AST]:
    # Comparisons and combinations have mutants of their own.
    if not isinstance(node.test, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
        yield changed(node, test=ast.UnaryOp(ast.Not(), node.test))


@replacements.register
def _(node: ast.comprehension) -> Iterator[ast.AST]:
    if node.ifs:
        yield changed(node, ifs=[])


def changed(node: Node, **fields: Any) -> Node:
    """A copy with other fields."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def is_docstring(node: ast.AST) -> bool:
    """A text that stands alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


# -- the tree -------------------------------------------------------------------------------------


def children(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """The nodes of code below one: where they hang, and at which place of a list."""
    for name, value in ast.iter_fields(node):
        if name in NOT_CODE:
            continue
        below = enumerate(value) if isinstance(value, list) else [(None, value)]
        for at, child in below:
            if isinstance(child, ast.AST) and not is_left_out(child, node):
                yield child, name, at


def is_left_out(node: ast.AST, above: ast.AST) -> bool:
    """Names for tools, how much of a value a message shows, and `zip`'s check of this code."""
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) in NAME_LISTS
    if isinstance(node, ast.Subscript):
        return isinstance(above, ast.FormattedValue) and isinstance(node.slice, ast.Slice)
    return isinstance(node, ast.keyword) and node.arg == "strict"


def put(node: ast.AST, name: str, at: int | None, child: ast.AST) -> None:
    """Hangs a node below another."""
    if at is None:
        setattr(node, name, child)
    else:
        getattr(node, name)[at] = child


def first_line(node: ast.AST) -> str:
    """A node as code; of a statement with a body its first line."""
    return ast.unparse(ast.fix_missing_locations(node)).strip().splitlines()[0]


def lines_of(child: ast.AST, around: ast.AST) -> range:
    """The lines that run if a node does: of its statement, without the statements in that one."""
    whole = child if isinstance(child, ast.stmt) else around
    if not isinstance(whole, ast.stmt):
        return range(0)
    first = min(each.lineno for each in (whole, *getattr(whole, "decorator_list", ())))
    below = getattr(whole, "body", None)
    last = below[0].lineno - 1 if isinstance(below, list) else whole.end_lineno
    return range(first, max(last or 0, getattr(child, "end_lineno", 0), whole.lineno) + 1)


def name_of(node: ast.AST) -> str:
    """The name that a function or class adds to a place."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return node.name if isinstance(node, kinds) else ""
