"""Mutants of a module: the same source with one small fault in it.

The faults are mutmut's (its mutators, not its runner: that one patches functions in the process of the tests, so that
it reaches neither a constant nor a decorated function, nor the servers that our tests start), and one of our own: a
statement that only calls something is left out.

No mutant is made of what no test should hold still: docstrings and type annotations, imports, decorators, and strings
with a space in them, which are sentences for people.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper, ParentNodeProvider, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string

SKIPPED = (cst.Annotation, cst.Import, cst.ImportFrom, cst.Decorator)


@dataclass(frozen=True)
class Mutant:
    path: str  # of the module, below src/fundoscope
    function: str  # dotted; empty at the top of the module
    first: int  # the lines of the statement that has the fault
    last: int
    was: str  # the lines that differ, without their indentation
    now: str
    in_body: bool  # of a function; if not, it is run when the module is imported
    turn: int  # 1, or more where a function has the same fault twice
    start: int  # the bytes of the module that `faulty` takes the place of
    end: int
    faulty: str

    @property
    def id(self) -> str:
        words = "\n".join((self.path, self.function, self.was, self.now, str(self.turn)))
        return hashlib.sha256(words.encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        return f"{self.path}:{self.first} {self.function}: {self.was}  ->  {self.now}"

    def source(self, code: bytes) -> str:
        """The module with the fault, made of the one without."""
        return (code[: self.start] + self.faulty.encode() + code[self.end :]).decode()

    def compiles(self, code: bytes) -> bool:
        try:
            compile(self.source(code), self.path, "exec")
        except (SyntaxError, ValueError):
            return False
        return True

    def rank(self, seed: int) -> str:
        """Where it stands in the sample of this seed, whatever other mutants there are."""
        return hashlib.sha256(f"{seed} {self.id}".encode()).hexdigest()


def sample(mutants: Iterable[Mutant], source: Path, *, seed: int, count: int) -> list[Mutant]:
    """Drawn by rank, so that a change of one function leaves the sample as it was everywhere else."""
    drawn = sorted(mutants, key=lambda mutant: mutant.rank(seed))
    return list(islice((m for m in drawn if m.compiles((source / m.path).read_bytes())), count))


def mutants_of(source: Path, path: str) -> list[Mutant]:
    """Of src/fundoscope/`path`, under the folder `source`."""
    code = (source / path).read_bytes()
    wrapper = MetadataWrapper(cst.parse_module(code))
    text, visitor = code.decode(), _Faults()
    wrapper.visit(visitor)
    turns: Counter[tuple[str, str, str]] = Counter()
    mutants = {}
    for fault, (start, end), function, (first, last), in_body in visitor.faults:
        faulty = wrapper.module.code_for_node(fault)
        mutated = (code[:start] + faulty.encode() + code[end:]).decode()
        if mutated == text or mutated in mutants:
            continue
        was, now = _difference(text, mutated)
        turns[function, was, now] += 1
        turn = turns[function, was, now]
        mutants[mutated] = Mutant(path, function, first, last, was, now, in_body, turn, start, end, faulty)
    return list(mutants.values())


class _Faults(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider, ByteSpanPositionProvider, ParentNodeProvider)

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[tuple[cst.CSTNode, tuple[int, int], str, tuple[int, int], bool]] = []
        self.within: list[str] = []
        self.bodies = 0  # of functions, around this node

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, SKIPPED) or _is_docstring(node) or _is_type(node, self.within) or _is_for_types(node):
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self.within.append(node.name.value)
        for faulty in _faulty(node):
            self.faults.append((faulty, self._span(node), ".".join(self.within), self._lines(node), self.bodies > 0))
        self.bodies += self._is_body(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        self.bodies -= self._is_body(original_node)
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self.within.pop()

    def _is_body(self, node: cst.CSTNode) -> bool:
        return isinstance(node, cst.BaseSuite) and isinstance(
            self.get_metadata(ParentNodeProvider, node), cst.FunctionDef
        )

    def _span(self, node: cst.CSTNode) -> tuple[int, int]:
        span = self.get_metadata(ByteSpanPositionProvider, node)
        return span.start, span.start + span.length

    def _lines(self, node: cst.CSTNode) -> tuple[int, int]:
        """Of the statement around it; of a statement with a body, its head."""
        while not isinstance(
            node, cst.SimpleStatementLine | cst.BaseCompoundStatement | cst.ExceptHandler | cst.Module
        ):
            node = self.get_metadata(ParentNodeProvider, node)
        place = self.get_metadata(PositionProvider, node)
        first, last = place.start.line, place.end.line
        body = getattr(node, "body", None)
        if isinstance(body, cst.IndentedBlock):
            last = max(first, self.get_metadata(PositionProvider, body.body[0]).start.line - 1)
        return first, last


def _faulty(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    for kind, operator in mutation_operators:
        if isinstance(node, kind):
            found = [] if operator is operator_string and _is_sentence(node) else list(operator(node))
            # Of a string one fault is enough: the others are the same in capitals and without.
            yield from found[:1] if operator is operator_string else found
    if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call | cst.Await):
        yield cst.Pass()


def _is_docstring(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Expr) and isinstance(node.value, cst.BaseString | cst.ConcatenatedString)


def _is_sentence(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleString) and " " in node.value.strip("\"' ")


def _is_type(node: cst.CSTNode, within: list[str]) -> bool:
    """Grade = Literal["A", "B"], at the top of a module."""
    if within or not isinstance(node, cst.Assign) or not isinstance(node.targets[0].target, cst.Name):
        return False
    name = node.targets[0].target.value
    return name[:1].isupper() and not name.isupper()


def _is_for_types(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.If) and isinstance(node.test, cst.Name) and node.test.value == "TYPE_CHECKING"


def _difference(code: str, mutated: str) -> tuple[str, str]:
    """The lines that differ: what is left without those that both begin and end with."""
    was, now = code.splitlines(), mutated.splitlines()
    while was and now and was[0] == now[0]:
        del was[0], now[0]
    while was and now and was[-1] == now[-1]:
        del was[-1], now[-1]
    return " ".join(map(str.strip, was)), " ".join(map(str.strip, now)) or "(nothing)"
