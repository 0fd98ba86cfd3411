# SPDX-License-Identifier: Apache-2.0
"""A cgroup with a CPU quota, to start programs in."""
import contextlib
import os
import pathlib
import time


@contextlib.contextmanager
def group(cpus):
    """(what to start a program by, so that it and its children have so many CPUs of time; the group); ([], None) where
    cpus is None. RuntimeError where no such group can be made."""
    if cpus is None:
        yield [], None
        return
    v1 = pathlib.Path("/sys/fs/cgroup/cpu")
    path = (v1 if v1.is_dir() else pathlib.Path("/sys/fs/cgroup")) / f"laggard-quota-{os.getpid()}"
    try:
        if not v1.is_dir():
            (path.parent / "cgroup.subtree_control").write_text("+cpu")
        path.mkdir()
        time_ = str(int(cpus * 100_000))
        (path / ("cpu.cfs_quota_us" if v1.is_dir() else "cpu.max")).write_text(time_ if v1.is_dir() else f"{time_} 100000")
    except OSError as e:
        with contextlib.suppress(OSError):
            path.rmdir()
        raise RuntimeError(f"no cgroup with a quota can be made: {e}") from e
    try:
        yield ["sh", "-c", f'echo $$ > {path}/cgroup.procs && exec "$@"', "sh"], path
    finally:
        for _ in range(100):
            try:
                path.rmdir()
                break
            except OSError:
                time.sleep(0.05)  # the last of it is about to end


def throttled_ms(path):
    """How long it had no quota left, over all CPUs."""
    stat = dict(line.split() for line in (path / "cpu.stat").read_text().splitlines())
    return int(stat["throttled_time"]) / 1e6 if "throttled_time" in stat else int(stat["throttled_usec"]) / 1e3
