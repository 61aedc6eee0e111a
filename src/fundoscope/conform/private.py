"""Run a command in a mount namespace of its own: `python private.py [--read-only] [--bind FROM TO] -- COMMAND …`.

`--read-only` leaves nothing writable; `--bind` shows a folder, read-only, where the platform would (/opt/ml/model),
whether or not that place exists here. A file of its own, run by path, because it replaces itself with the command: the
process that conform watches and signals is the command and nothing else. Needs root, or a kernel that lets users make
namespaces; says so otherwise.
"""

import ctypes
import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
KEPT = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
LEFT_ALONE = ("/proc", "/sys", "/dev")  # as `docker run --read-only` leaves them
CANNOT = 97  # the exit status that says: it was this file that failed, not the command


def main(arguments: list[str]) -> None:
    options, command = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    try:
        _enter_namespace()
        while "--bind" in options:
            at = options.index("--bind")
            _show(Path(options[at + 1]), Path(options[at + 2]))
            del options[at : at + 3]
        if "--read-only" in options:
            _remount_all()
        os.execvp(command[0], command)
    except OSError as problem:
        sys.stderr.write(f"{problem}\n")
        sys.exit(CANNOT)


def _enter_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", CLONE_NEWNS)
    except PermissionError:
        _call("unshare", CLONE_NEWNS | CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    try:
        _call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    except OSError as problem:
        if problem.errno != errno.EINVAL:
            raise
        _make_root_a_mount()


def _make_root_a_mount() -> None:
    """In a chroot the root is a plain folder, which cannot be made private or read-only: bind it, and go there."""
    here = Path.cwd()
    _call("mount", b"/", b"/mnt", None, MS_BIND | MS_REC, None)
    os.chroot("/mnt")
    os.chdir(here)
    _call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)


def _show(folder: Path, place: Path) -> None:
    """`folder` at `place`. Where that does not exist, the nearest folder above it is laid out anew in memory."""
    here = Path.cwd()
    if not place.exists():
        above = next(parent for parent in place.parents if parent.exists())
        if above == Path("/"):
            raise OSError(f"there is no folder above {place}")
        old = os.open(above, os.O_RDONLY)
        _call("mount", b"tmpfs", os.fsencode(above), b"tmpfs", 0, None)
        for entry in os.scandir(old):
            _keep(Path(f"/proc/self/fd/{old}", entry.name), above / entry.name)
        os.close(old)
        place.mkdir(parents=True)
    _bind(folder, place)
    _call("mount", None, os.fsencode(place), None, MS_REMOUNT | MS_BIND | MS_RDONLY, None)
    os.chdir(here)  # it may have been laid out anew


def _keep(old: Path, new: Path) -> None:
    if old.is_symlink():
        new.symlink_to(old.readlink())
    elif old.is_dir():
        new.mkdir()
        _bind(old, new)
    else:
        new.touch()
        _bind(old, new)


def _bind(source: Path, place: Path) -> None:
    _call("mount", os.fsencode(source), os.fsencode(place), None, MS_BIND | MS_REC, None)


def _remount_all() -> None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        place, options = words[4].encode().decode("unicode_escape"), words[5].split(",")
        if any(place == left or place.startswith(f"{left}/") for left in LEFT_ALONE):
            continue
        kept = sum(KEPT.get(option, 0) for option in options)
        with suppress(OSError):  # one that lies under another cannot be reached, by the command neither
            _call("mount", None, os.fsencode(place), None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept, None)
    writable = [place for place in ("/", "/tmp", Path.cwd(), Path.home()) if not _read_only(place)]
    if writable:
        raise OSError(f"{writable[0]} is still writable")


def _read_only(place: str | Path) -> bool:
    return not Path(place).exists() or bool(os.statvfs(place).f_flag & os.ST_RDONLY)


def _call(name: str, *arguments: bytes | int | None) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    packed = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in arguments]
    if getattr(library, name)(*packed) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


if __name__ == "__main__":
    main(sys.argv[1:])
