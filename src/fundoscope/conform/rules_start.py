"""Rules of starting: the command, the user, the port, what a first 200 promises, and starting again."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from fundoscope.conform import processes
from fundoscope.conform.container import ImageTarget
from fundoscope.conform.contract import BIND_LABEL, DEFAULT_PORT
from fundoscope.conform.finding import Finding, broken, duration, held, judged, not_applicable, not_tried
from fundoscope.conform.live import Live
from fundoscope.conform.target import Target

SHELLS = ("sh", "bash", "dash", "ash", "zsh")
FIRST_FACTOR, FIRST_SLACK_S = 2.0, 0.1  # a first invocation this much beyond the later ones holds a model's load


def command(live: Live) -> Iterator[Finding]:
    target = live.target
    if target.kind == "address":
        yield not_applicable(1, "start command", "an address has been started by somebody else")
        return
    if isinstance(target, ImageTarget):
        yield held(1, "start command", "serve as the argument starts it", f"healthy after {duration(live.ready_s)}")
        first = target.image.entrypoint
    else:
        yield held(1, "start command", "the command line starts it", f"healthy after {duration(live.ready_s)}")
        first = processes.command_of(live.started.pid) if live.started.pid else []
    yield _exec_form(first)


def _exec_form(first: Sequence[str]) -> Finding:
    """Whether what gets the platform's signals is the server itself."""
    check = "exec-form entry point"
    name = Path(first[0]).name if first else ""
    if name in SHELLS and "-c" in first:
        return broken(
            1, check, f"a shell ({' '.join(first)[:80]}) stands between the platform's SIGTERM and the server"
        )
    if name == "tini":
        return broken(1, check, "tini as the entry point is not supported by the platform")
    return held(1, check, f"the first process is {name or 'the image’s command'}, no shell")


def user(live: Live) -> Iterator[Finding]:
    target = live.target
    if not isinstance(target, ImageTarget):
        yield not_applicable(2, "user", f"{_an(target.kind)} runs as whoever started it; an image says its user")
        return
    name = target.image.user.partition(":")[0]
    yield judged(
        name in ("", "0", "root"),
        2,
        "user",
        "runs as root",
        f"the image runs as {target.image.user}; the platform expects root, and mounts are root's",
    )


def _an(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def told_port(live: Live) -> Iterator[Finding]:
    check, target = "SAGEMAKER_BIND_TO_PORT", live.target
    if target.kind == "address":
        yield not_applicable(3, check, "an address has its port already")
        return
    if target.takes_port:
        yield not_tried(3, check, "the command line says the port ({port}); leave it out to try the environment")
    elif isinstance(target, ImageTarget) and (target.labels() or {}).get(BIND_LABEL) != "true":
        yield not_applicable(3, check, f"the image has no label …{BIND_LABEL}=true, so it is never told a port")
    else:
        told, port = live.expected_port, live.address[1]
        yield judged(
            told == port,
            3,
            check,
            f"it listens where SAGEMAKER_BIND_TO_PORT says ({port})",
            f"told to listen on {told} by SAGEMAKER_BIND_TO_PORT, it listens on {port}",
        )
    yield _other_ports(live)


def _other_ports(live: Live) -> Finding:
    check = "second ports"
    if live.started.pid is None:
        return not_tried(3, check, "the container's processes cannot be seen from here")
    told = live.address[1]
    # Told no port, the image is alone in its network and may use what it likes.
    safe = (
        range(live.expected_port + 1, live.expected_port + 51) if live.expected_port != DEFAULT_PORT else range(65536)
    )
    others = sorted(processes.listening_ports(live.tree()) - {told})
    unsafe = [port for port in others if port not in safe]
    good = f"its second ports {others} are safe" if others else "it listens on no other port"
    bad = f"it listens on {unsafe} too, outside SAGEMAKER_SAFE_PORT_RANGE {safe.start}-{safe.stop - 1}"
    return judged(not unsafe, 3, check, good, bad)


def default_port(live: Live) -> Finding:
    """From a start without SAGEMAKER_BIND_TO_PORT."""
    port = live.address[1]
    return judged(
        port == DEFAULT_PORT,
        3,
        "default port",
        f"it listens on {DEFAULT_PORT} when told nothing",
        f"told nothing, it listens on {port}, not {DEFAULT_PORT}",
    )


def healthy_in_time(live: Live) -> Iterator[Finding]:
    limit_s = live.plan.limits.start_s
    if live.target.kind == "address":
        yield not_applicable(7, "healthy after the start", "an address was up before we came")
        return
    yield judged(
        live.ready_s <= limit_s,
        7,
        "healthy after the start",
        f"healthy {duration(live.ready_s)} after the start",
        f"healthy only {duration(live.ready_s)} after the start; {limit_s:g} s are allowed",
        ready_s=live.ready_s,
    )


def suspicious(live: Live) -> bool:
    """Whether the first invocation took so long that a model may have been loaded in it."""
    first = live.invocations[0]
    return not first.ok or first.seconds > FIRST_FACTOR * live.median_s + FIRST_SLACK_S


def honest_at_start(launches: Sequence[Live]) -> Finding:
    """The first invocation after the first 200, best of several launches: accidents do not repeat, loading does."""
    check, live = "invocation at the first 200", launches[-1]
    if live.target.kind == "address":
        return not_applicable(8, check, "an address was up before we came, so its first invocation is past")
    failed = [launch.invocations[0] for launch in launches if not launch.invocations[0].ok]
    if failed:
        return broken(8, check, f"/ping said 200, and the invocation sent at once got {failed[0]}")
    first_s = min(launch.invocations[0].seconds for launch in launches)
    later_s = median(launch.median_s for launch in launches)
    measured = f"first {duration(first_s)}, later median {duration(later_s)}"
    measured += f", best of {len(launches)} starts" if len(launches) > 1 else ""
    return judged(
        first_s <= FIRST_FACTOR * later_s + FIRST_SLACK_S,
        8,
        check,
        "the first invocation after the first 200 takes no longer than others",
        "/ping said 200 before the model was loaded: the first invocation waited for it",
        measured,
        first_s=first_s,
        later_s=later_s,
    )


def symlinks(target: Target) -> Finding:
    check, model = "symbolic links", getattr(target, "model", None)
    if model is None:
        return not_tried(10, check, "the model's folder is not known; say --model FOLDER")
    links = [str(path.relative_to(model)) for path in sorted(model.rglob("*")) if path.is_symlink()]
    return judged(
        not links,
        10,
        check,
        "the model's folder has no symbolic links",
        f"the model's folder has symbolic links ({', '.join(links[:3])}), which the platform does not unpack",
    )


def unwritable(live: Live) -> Finding:
    answer = live.invoke()
    how = "--read-only" if live.target.kind == "image" else "every mount read-only, in a namespace of its own"
    return judged(
        answer.ok,
        10,
        "nothing writable",
        f"it starts and answers where nothing can be written, the model, HOME and /tmp included ({how})",
        f"where nothing can be written ({how}) an invocation got {answer}",
    )


def started_again(live: Live, first_s: float) -> Iterator[Finding]:
    """After SIGKILL, as when the platform replaces an instance."""
    answer = live.invoke()
    yield judged(
        answer.ok,
        15,
        "start after SIGKILL",
        f"killed outright and started again it is healthy after {duration(live.ready_s)} "
        f"(at first {duration(first_s)}); every patch, scaling and replacement costs that much",
        f"killed outright and started again, its invocation got {answer}",
        ready_s=live.ready_s,
        first_ready_s=first_s,
    )
