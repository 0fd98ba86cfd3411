# SPDX-License-Identifier: Apache-2.0
"""An unprivileged user beside a recording (attack.c): the recorder's memory and time are bounded, and it says of an
honest job what it says without the attack."""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess

import pytest
from honest_job import undisturbed, unharmed  # noqa: F401


@pytest.fixture
def attack(laggard_path):
    """The attacker, started as root: it becomes uid 65534 by itself."""
    tool = pathlib.Path(laggard_path).parent / "tests/e2e/attack"
    assert tool.exists(), "tests/e2e/attack is not built"
    return str(tool)


def open_to_all(folder):
    """A folder in pytest's, which are root's alone."""
    folder.mkdir()
    folder.chmod(0o777)
    for p in folder.parents:
        if p.owner() == "root" and p != pathlib.Path("/") and str(p).startswith("/tmp/"):
            p.chmod(p.stat().st_mode | 0o711)
    return folder


@contextlib.contextmanager
def attacked(attack, what, folder):
    """Two attackers as uid 65534 for as long, in folders of their own: they give their files the same names."""
    open_to_all(folder)
    attackers = [subprocess.Popen([attack, what, open_to_all(folder / name)],
                                  env={**os.environ, "ATTACK_SECONDS": "30"}) for name in "ab"]
    try:
        yield
        assert all(a.poll() is None for a in attackers), "the attack ended before the recording did"
        assert all(pathlib.Path(f"/proc/{a.pid}").stat().st_uid == 65534 for a in attackers)
    finally:
        for a in attackers:
            a.kill()
            a.wait()


@pytest.mark.live
@pytest.mark.parametrize("what", ("names", "threads", "processes", "maps", "stacks"))
def test_a_storm_beside_the_job(laggard, laggard_path, attack, undisturbed, tmp_path, what):
    unharmed(laggard, laggard_path, tmp_path, undisturbed, attacked(attack, what, tmp_path / "open"))


@pytest.mark.live
def test_a_ring_of_hostile_names(laggard, laggard_path, attack, undisturbed, tmp_path):
    """The job's own user, nobody, fills a ring: 4 KiB a name, two names a slot, 300000 slots a second. Of the job's
    other process the same is said as without it."""
    folder = open_to_all(tmp_path / "open")
    tool = shutil.copy(attack, folder)
    v, said = unharmed(laggard, laggard_path, folder, undisturbed, contextlib.nullcontext(), beside_it=(),
                       beside=f'{tool} ring "$LAGGARD_MARKS/mark.$$.9" & ', options=("--user", "nobody"))
    assert v["uid"] == 65534
    assert ", an implausible number lost -> " in said, "the ring's own count of lost names is forged"
    out = folder / "run.lag"
    done = laggard("query", out, "SELECT count(*) AS n FROM mark", "--json")
    assert json.loads(done.stdout)[0]["n"] > 10000, "the ring was read"
    limits = json.loads(laggard("explain", out, "--json").stdout)["limits"]
    assert any("more names than are kept of one process" in line for line in limits), limits
