"""The blocks of a module's functions: what runs together, from its first line on."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

PARTS = ("body", "orelse", "finalbody")


@dataclass(frozen=True)
class Block:
    function: str  # dotted
    lines: frozenset[int]  # without those of the blocks inside it


def marked(code: str, path: str) -> str:
    """The same module, that tells which blocks are run."""
    tree = ast.parse(code)
    for _, statements in _blocks(tree, (), inside=False):
        first = statements[0]
        at = 1 if _is_text(first) and len(statements) > 1 else 0
        call = ast.parse(f"__reach_mark__({path!r}, {first.lineno})").body[0]
        statements.insert(at, call)
    top = 1 if tree.body and _is_text(tree.body[0]) else 0
    tree.body.insert(top, ast.parse("from fundoscope.reached import mark as __reach_mark__").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def blocks(code: str) -> dict[int, Block]:
    """By first line."""
    return {
        statements[0].lineno: Block(function, frozenset(line for one in statements for line in _own(one)))
        for function, statements in _blocks(ast.parse(code), (), inside=False)
    }


def _blocks(node: ast.AST, within: tuple[str, ...], *, inside: bool) -> Iterator[tuple[str, list[ast.stmt]]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        within, inside = (*within, node.name), not isinstance(node, ast.ClassDef)
    for child in list(ast.iter_child_nodes(node)):
        yield from _blocks(child, within, inside=inside)
    if inside:
        for part in PARTS:
            statements = getattr(node, part, None)
            if isinstance(statements, list) and statements and isinstance(statements[0], ast.stmt):
                yield ".".join(within), statements


def _own(statement: ast.stmt) -> Iterator[int]:
    last = statement.end_lineno or statement.lineno
    inner = [part[0].lineno for name in PARTS if isinstance(part := getattr(statement, name, None), list) and part]
    inner += [handler.lineno for handler in getattr(statement, "handlers", [])]
    inner += [case.pattern.lineno for case in getattr(statement, "cases", [])]
    start = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
    yield from range(start, max(start + 1, min([last + 1, *inner])))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
