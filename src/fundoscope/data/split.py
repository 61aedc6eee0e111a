"""Who trains, who tunes, who tests: stratified by grade, with a patient's photographs and copies on one side.

The draw depends on the seed and on what the files hold, not on the order of rows or on where the files lie.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fundoscope.data.manifest import Photograph

Group = list[int]  # places in the list of photographs


def assign_splits(
    photographs: Sequence[Photograph], *, seed: int, test: float = 0.30, tune: float = 0.20
) -> tuple[Photograph, ...]:
    """Give every photograph in use a split: `test` of all, `tune` of what is left, the rest train.

    Splits that are given stay. What shares a patient or its bytes with them joins them; if none of them is
    "tune", it is cut from the training part.
    """
    splits = [photograph.split for photograph in photographs]
    tune_given = "tune" in splits
    usable = {i for i, p in enumerate(photographs) if not p.left_out and p.grade is not None}
    whole = linked(len(photographs), on_one_side(photographs))
    groups = [used for group in whole if (used := [i for i in group if i in usable])]
    for group in groups:
        _join_the_given(group, splits)
    unassigned = [group for group in groups if not splits[group[0]]]
    _set(splits, unassigned, "train")
    _set(splits, draw(photographs, unassigned, test, seed=f"{seed} test"), "test")
    if not tune_given:
        in_train = [group for group in groups if {splits[i] for i in group} == {"train"}]
        _set(splits, draw(photographs, in_train, tune, seed=f"{seed} tune"), "tune")
    return tuple(replace(p, split=split) for p, split in zip(photographs, splits, strict=True))


def _set(splits: list[str], groups: list[Group], split: str) -> None:
    for group in groups:
        for i in group:
            splits[i] = split


def _join_the_given(group: Group, splits: list[str]) -> None:
    given = {splits[i] for i in group} - {""}
    for i in group:
        if given and not splits[i]:
            splits[i] = min(given) if len(given) == 1 else "train"


def draw(photographs: Sequence[Photograph], groups: list[Group], share: float, *, seed: str) -> list[Group]:
    """Take `share` of the photographs, whole groups at a time, evenly from every combination of grades.

    Groups stand in a line, like beside like, in random order among their like; walking along it, one is taken
    whenever the taken fall behind their share. Any stretch of the line, so any stratum, then gives its share to
    within one group.
    """
    taken: list[Group] = []
    passed = n_taken = 0
    for group in sorted(groups, key=lambda group: (_grades(photographs, group), _lot(photographs, group, seed))):
        passed += len(group)
        if share * passed - n_taken >= len(group) / 2:
            taken.append(group)
            n_taken += len(group)
    return taken


def _grades(photographs: Sequence[Photograph], group: Group) -> list[int]:
    return sorted((photographs[i].grade or 0 for i in group), reverse=True)


def _lot(photographs: Sequence[Photograph], group: Group, seed: str) -> str:
    name = min(photographs[i].sha256 or photographs[i].path for i in group)
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()


def on_one_side(photographs: Sequence[Photograph]) -> Iterator[tuple[int, int]]:
    """Pairs that share a patient or their bytes."""
    first: dict[tuple[str, str], int] = {}
    for i, photograph in enumerate(photographs):
        # Two sources may both have a patient 10: they are not the same person.
        for kind, name in ((f"patient of {photograph.source}", photograph.patient), ("bytes", photograph.sha256)):
            if name and (earlier := first.setdefault((kind, name), i)) != i:
                yield earlier, i


def linked(n: int, pairs: Iterable[tuple[int, int]]) -> list[Group]:
    """The numbers below n in groups, such that the two of every pair are in one."""
    parent = list(range(n))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in pairs:
        low, high = sorted((root(i), root(j)))
        parent[high] = low
    found: dict[int, Group] = defaultdict(list)
    for i in range(n):
        found[root(i)].append(i)
    return list(found.values())
