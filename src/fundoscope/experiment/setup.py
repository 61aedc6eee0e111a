"""The third activity, configure: environments made, data found, and what this machine cannot run said beforehand."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Design
from fundoscope.experiment.environments import Environment, adopt, create, find, why_not
from fundoscope.experiment.machine import this_machine
from fundoscope.experiment.workloads import environment_of, environments_of


@dataclass
class SetUp:
    environments: list[Environment] = field(default_factory=list)
    data: list[str] = field(default_factory=list)  # a line each
    lacking: dict[str, int] = field(default_factory=dict)  # reason -> cells that cannot run


def set_up(
    design: Design,
    environments: Path,
    data: Path,
    *,
    use: Mapping[str, str],
    say: Callable[[str], None],
    strict: bool = True,
) -> SetUp:
    """`use`: framework -> an interpreter that has it. Not strict: an environment that could not be made before is not
    tried again. What this machine lacks is left for trials to fail by; data that nobody has are an error."""
    found = SetUp()
    wanted = environments_of(design)
    for framework in use:
        if framework not in {name for name, _ in wanted}:
            raise FundoscopeError(f"no cell needs '{framework}'", "leave that --use out")
    for framework, device in wanted:
        try:
            environment = _environment(framework, device, environments, use, say, again=strict)
        except FundoscopeError as problem:
            say(f"{framework} on the {device.upper()}: {problem.message}")
            _lack(found, design, (framework, device), problem.message)
            continue
        if environment is None:
            _lack(found, design, (framework, device), "no GPU")
        else:
            found.environments.append(environment)
    found.data += _find_data(design, data, say)
    return found


def _environment(
    framework: str, device: str, folder: Path, use: Mapping[str, str], say: Callable[[str], None], *, again: bool
) -> Environment | None:
    if device == "gpu" and not this_machine().gpus:
        return None
    if framework in use:
        return adopt(framework, device, Path(use[framework]), folder)
    if existing := find(framework, device, folder):
        return existing
    if not again and (why := why_not(framework, device, folder)):
        raise FundoscopeError(why)  # tried before; `study setup` tries again
    return create(framework, device, folder, say=say)


def _lack(found: SetUp, design: Design, pair: tuple[str, str], why: str) -> None:
    cells = [c for c in design.cells if environment_of(design.workload, {**design.settings, **c.levels}) == pair]
    found.lacking[why] = found.lacking.get(why, 0) + len(cells)


def _find_data(design: Design, folder: Path, say: Callable[[str], None]) -> list[str]:
    """The pictures of every data set that is used, fetched or drawn where they are not there."""
    if design.workload == "referral":
        return _find_records(design, folder, say)
    if design.workload != "cnn" or design.settings.get("data", "files") != "files":
        return []
    from fundoscope.experiment.images import fetch, load

    lines = []
    used = {{**design.settings, **cell.levels}["dataset"] for cell in design.cells}
    for dataset in sorted(used):
        try:
            load(dataset, 32, folder, train=1, most_test=1)
        except FundoscopeError as absent:
            say(f"{absent.message}: fetching it into {folder}")
            fetch(dataset, folder)
        lines.append(f"{dataset} in {folder}")
    return lines


def _find_records(design: Design, folder: Path, say: Callable[[str], None]) -> list[str]:
    from fundoscope.experiment.referral import ReferralJob, draw_records

    jobs = {ReferralJob(**{**design.settings, **cell.levels}) for cell in design.cells}
    lines = []
    for job in sorted((job for job in jobs if job.drawn), key=lambda job: job.recipe):
        say(f"drawing {job.drawn} eyes for the recipe '{job.recipe}', unless they are there")
        lines.append(f"{draw_records(job, folder)}")
    return list(dict.fromkeys(lines))
