# SPDX-License-Identifier: Apache-2.0
"""Programs of another user that look like CPython and hold what no CPython would, in a recording that takes them for
training (RANK is theirs to set), beside an honest Python whose function must keep its name."""
import os
import pathlib
import platform
import shutil
import stat
import subprocess
import sys

import pytest
from live import unbroken

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import test_attacks_symbols  # noqa: E402
from test_attacks_symbols import BEYOND_S, MEMORY, NOBODY, lost, query, record, recorded, stage  # noqa: E402, F401

pytestmark = [pytest.mark.live,
              pytest.mark.skipif(os.geteuid() != 0, reason="attacks by another user need root to record"),
              pytest.mark.skipif(platform.machine() != "x86_64", reason="Python's frames are read on x86 only")]

HONEST = """
def honest_function(n):
    while n:
        n -= 1
while True:
    honest_function(100000)
"""


@pytest.fixture
def attackers(laggard_path, stage, monkeypatch):  # noqa: F811
    """Starts the honest Python, and what attack_python.c does under each of the names."""
    tool = pathlib.Path(laggard_path).parent / "tests/e2e/attack_python"
    assert tool.exists(), "tests/e2e/attack_python is not built"
    shutil.copy(tool, stage.folder / "python3.13")
    monkeypatch.setattr(test_attacks_symbols, "FOR_S", 4)  # an interpreter is found after 1.5 s
    env = {**os.environ, "WORLD_SIZE": "9", "ATTACK_SECONDS": "120"}

    def start(*what):
        honest = subprocess.Popen(["/usr/bin/python3", "-c", HONEST], env={**env, "RANK": "0"})
        stage.running.append(honest)
        for rank, args in enumerate(what, 1):
            proc = subprocess.Popen(["nice", "-n", "5", stage.folder / "python3.13", *args], cwd=stage.folder,
                                    env={**env, "RANK": str(rank)})
            stage.running.append(proc)
    return start


def holds(laggard, r, stage):  # noqa: F811
    ended = [p.returncode for p in stage.running if p.poll() is not None]
    if ended and set(ended) == {4}:
        pytest.skip("this machine does not let the attack begin (its root is no mount point: a chroot, say)")
    assert not ended, f"attackers ended: {ended}"
    assert all(pathlib.Path(f"/proc/{p.pid}").stat().st_uid == NOBODY for p in stage.running[1:])
    unbroken(r.watch.sum <= MEMORY, r.watch.peak)
    done = laggard("explain", "--json", r.path)
    unbroken(done.returncode == 0, done.stderr)
    assert r.beyond_s < BEYOND_S, f"{r.beyond_s:.2f} s beyond --for\n{r.text}"
    assert query(laggard, r.path, "SELECT count(*) n FROM frame WHERE name = 'honest_function' AND kind = 2")[0]["n"] > 0, \
        f"the honest function lost its name\n{r.text}"


def forged(laggard, r):
    return query(laggard, r.path, "SELECT name, file, line FROM frame WHERE kind = 2 AND file <> '<string>'")


def test_memory_that_its_user_withholds(laggard, stage, record, attackers):  # noqa: F811
    """Code objects in a file of a FUSE server that answers no read: who reads them waits, and cannot be ended. Others
    whose memory comes keep their names; that of these is not asked for over and over."""
    if not pathlib.Path("/dev/fuse").exists():
        pytest.skip("no FUSE here")
    os.mknod(stage.folder / "fuse", stat.S_IFCHR | 0o666, os.makedev(10, 229))
    folders = [stage.folder / f"mount{i}" for i in range(3)]
    for folder in folders:
        folder.mkdir(mode=0o777)
    attackers(*(("fuse", folder, stage.folder / "fuse") for folder in folders))
    r = record()
    holds(laggard, r, stage)
    assert any("gave no memory to read" in text for text in lost(laggard, r.path)), lost(laggard, r.path)


def test_a_page_that_its_user_withholds(laggard, stage, record, attackers):  # noqa: F811
    """userfaultfd(2), for one's own faults or for all where vm.unprivileged_userfaultfd lets users."""
    attackers(("fault",), ("fault",))
    holds(laggard, record(), stage)


def test_objects_that_lie(laggard, stage, record, attackers):  # noqa: F811
    """Frames in a circle, lengths of 2^60, names that steer terminals, pages that come and go while they are read."""
    attackers(("loop",), ("claims",), ("names",), ("gone",))
    r = record()
    holds(laggard, r, stage)
    seen = forged(laggard, r)
    assert seen, "no forged frame was told"
    for row in seen:
        assert (row["name"] + row["file"]).isprintable() and len(row["name"]) <= 400 and len(row["file"]) <= 500, row


def test_a_storm_of_objects(laggard, stage, record, attackers):  # noqa: F811
    """Objects of 60 KiB as fast as they can be made, and a line table of that size asked for all its places."""
    attackers(("storm",), ("storm",), ("fill",), ("lines",))
    r = record()
    holds(laggard, r, stage)
    assert forged(laggard, r), "no forged frame was told"
    assert any("too many" in text or "faster than they are read" in text for text in lost(laggard, r.path)), \
        lost(laggard, r.path)
