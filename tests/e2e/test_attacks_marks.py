# SPDX-License-Identifier: Apache-2.0
"""Mark rings of a user whom nobody asked to train: whoever has RANK and LAGGARD_MARKS in his environment is read in a
recording of the whole machine. As nobody, beside an honest process whose function must keep its name."""
import os
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_attacks_symbols import holds, record, recorded, stage  # noqa: E402, F401

pytestmark = [pytest.mark.live,
              pytest.mark.skipif(os.geteuid() != 0, reason="attacks by another user need root to record")]

# A header that is right, and slots of which one has been overtaken: what comes behind it must be searched for.
RING = """
    import struct, threading
    leave_root()
    folder = os.environ["LAGGARD_MARKS"]
    os.makedirs(folder, 0o700, exist_ok=True)
    start = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
    here = os.stat("/proc/self/ns/pid").st_ino

    def ring(name, slots, pid_ns, first):
        names = page + 64 * slots
        words = [0x314b52414d47414c, 1, names + page, os.getpid(), start, slots, page, names, page, 1, 0, 1, -1, 0, -1,
                 0, pid_ns, time.monotonic_ns(), 0]
        path = f"{folder}/mark.{name}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        os.ftruncate(fd, names + page)
        os.pwrite(fd, struct.pack(f"<{len(words)}q", *words), 0)
        os.pwrite(fd, struct.pack("<q", first), page + 64)
        os.close(fd)
        return path
"""
LARGE = RING + """
    for i in range(3000):
        ring(i, 1 << 20, here, 1 + (1 << 40))
    go()
    while True:
        time.sleep(1)
"""
ELSEWHERE = RING + """
    made = [ring(i, 16, 12345, 0) for i in range(10000)]
    go()
    while True:
        for i, path in enumerate(made):
            os.unlink(path)
            ring(i, 16, 12345, 0)
"""


@pytest.fixture
def marking():
    folder = f"/dev/shm/laggard-{4000000000 + os.getpid()}"
    os.mkdir(folder)
    os.chown(folder, 65534, 65534)
    yield {**os.environ, "RANK": "1", "WORLD_SIZE": "2", "LAGGARD_MARKS": f"{folder}/kept"}
    shutil.rmtree(folder)


@pytest.mark.parametrize("script", [LARGE, ELSEWHERE], ids=["large", "elsewhere"])
def test_thousands_of_rings(marking, laggard, stage, record, script):  # noqa: F811
    """3000 rings of 64 MiB of nothing, each of which was overtaken, and 10000 again and again whose process is said to
    be in a namespace that nobody is in."""
    stage.honest()
    stage.start(script, env=marking)
    holds(laggard, record())
