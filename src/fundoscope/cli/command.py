"""How every verb looks: its help, its answer, its errors. One place, so that they all look alike."""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

Item = TypeVar("Item")
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


@dataclass(frozen=True)
class Answer:
    """What a verb found: `values` for --json, `lines` for people, the next command, and whether all is well."""

    values: dict[str, Any]
    lines: list[str] = field(default_factory=list)
    next: str = ""
    ok: bool = True


Run = Callable[[argparse.Namespace], Answer]


def verb(commands: Commands, name: str, run: Run, *, help: str, example: str) -> argparse.ArgumentParser:
    """Add a verb; the caller adds its arguments. `example` is shown below the help."""
    parser = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON, for machines")
    parser.set_defaults(run=run)
    return parser


def bar(items: Iterable[Item], *, total: int, label: str) -> Iterable[Item]:
    """A progress bar on standard error, after two seconds, and only where somebody looks."""
    from tqdm import tqdm  # a tenth of a second that most commands need not pay

    return tqdm(items, total=total, desc=label, delay=2, disable=None, dynamic_ncols=True)  # type: ignore[no-any-return]


def table(rows: list[list[Any]], *, header: list[str]) -> list[str]:
    """Aligned columns that can be copied: numbers to the right, words to the left."""
    cells = [header, *[["" if cell is None else str(cell) for cell in row] for row in rows]]
    widths = [max(len(line[i]) for line in cells) for i in range(len(header))]
    right = [all(_is_number(line[i]) for line in cells[1:]) and bool(rows) for i in range(len(header))]

    def aligned(line: list[str]) -> str:
        padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    return [aligned(header), "  ".join("-" * w for w in widths), *map(aligned, cells[1:])]


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").replace("-", "").replace("%", "").strip().isdigit() or not cell
