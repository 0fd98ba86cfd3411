# SPDX-License-Identifier: Apache-2.0
"""A process of another user whose mmap_lock is held for ever: whoever asks for its command line, environment or
mappings waits, as ps(1) does. As nobody, beside an honest process whose function must keep its name."""
import os
import pathlib
import stat
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_attacks_symbols import holds, record, recorded, stage  # noqa: E402, F401

pytestmark = [pytest.mark.live,
              pytest.mark.skipif(os.geteuid() != 0, reason="attacks by another user need root to record")]


def start(laggard_path, stage, *mode):  # noqa: F811
    """Three of them; the server, which alone can let a waiting process go, is ended with the stage."""
    if not pathlib.Path("/dev/fuse").exists():
        pytest.skip("no FUSE here")
    tool = pathlib.Path(laggard_path).parent / "tests/e2e/attack_lock"
    assert tool.exists(), "tests/e2e/attack_lock is not built"
    os.mknod(stage.folder / "fuse", stat.S_IFCHR | 0o666, os.makedev(10, 229))
    (stage.folder / "fuse").chmod(0o666)
    for i in range(3):
        folder, ready = stage.folder / f"mount{i}", stage.folder / f"held{i}"
        folder.mkdir(mode=0o777)
        proc = subprocess.Popen([tool, folder, stage.folder / "fuse", ready, *mode])
        stage.running.append(proc)
        end = time.monotonic() + 20
        while not ready.exists():
            if proc.poll() == 4:
                pytest.skip("no user namespaces here, or no FUSE in them")
            assert proc.poll() is None and time.monotonic() < end, "the attacker did not come up"
            time.sleep(0.01)


def test_a_lock_that_is_withheld(laggard, laggard_path, stage, record):  # noqa: F811
    start(laggard_path, stage)
    stage.honest()
    holds(laggard, record())


def test_code_of_an_overlay_whose_server_is_silent(laggard, laggard_path, stage, record):  # noqa: F811
    start(laggard_path, stage, "overlay")
    stage.honest()
    r = record()
    holds(laggard, r)
    said = laggard("query", r.path, "select text from diag").stdout
    assert "were not looked at: who runs those processes decides what is mounted there" in said
