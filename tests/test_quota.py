"""Limits as the kernel's control-group files state them, of both versions; the files are written out here."""

from pathlib import Path

import pytest

from fundoscope import quota


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_version_2_takes_the_tightest_of_the_groups_above(tmp_path: Path) -> None:
    root, member = tmp_path / "cgroup", tmp_path / "member"
    member.write_text("0::/pod/box\n")
    write(root, cpu__max="max 100000")
    write(root / "pod", cpu__max="150000 100000", memory__max="1073741824")
    write(root / "pod/box", cpu__max="max 100000", memory__max="max")
    assert quota.cpu_quota(root, member) == 1.5
    assert quota.memory_limit_bytes(root, member) == 2**30


def test_version_1_reads_each_controllers_own_tree(tmp_path: Path) -> None:
    root, member = tmp_path / "cgroup", tmp_path / "member"
    member.write_text("5:memory:/box\n4:cpu,cpuacct:/box\n0::/\n")
    write(root / "cpu,cpuacct/box", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    write(root / "memory/box", memory__limit_in_bytes="536870912")
    write(root / "memory", memory__limit_in_bytes="9223372036854771712")
    assert quota.cpu_quota(root, member) == 0.5
    assert quota.memory_limit_bytes(root, member) == 512 * 2**20


def test_version_1_without_a_limit_says_minus_one(tmp_path: Path) -> None:
    root, member = tmp_path / "cgroup", tmp_path / "member"
    member.write_text("4:cpu:/\n5:memory:/\n")
    write(root / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    write(root / "memory", memory__limit_in_bytes="9223372036854771712")
    assert quota.cpu_quota(root, member) is None
    assert quota.memory_limit_bytes(root, member) is None


def test_a_container_that_sees_its_own_group_as_the_root_reads_it_there(tmp_path: Path) -> None:
    root, member = tmp_path / "cgroup", tmp_path / "member"
    member.write_text("4:cpu:/docker/0123456789\n")  # the host's path, which is not mounted here
    write(root / "cpu", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    assert quota.cpu_quota(root, member) == 2.0


def test_where_there_are_no_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert quota.cpu_quota(tmp_path, tmp_path / "none") is None
    assert quota.memory_limit_bytes(tmp_path, tmp_path / "none") is None


@pytest.mark.parametrize(("limit", "expected"), [(0.5, 1), (1.0, 1), (1.2, 2), (64.0, 4), (None, 4)])
def test_cores_are_what_the_quota_pays_for_and_no_more_than_there_are(
    monkeypatch: pytest.MonkeyPatch, limit: float | None, expected: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(quota, "cpu_quota", lambda: limit)
    assert quota.cores() == expected
