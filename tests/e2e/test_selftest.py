# SPDX-License-Identifier: Apache-2.0
"""laggard selftest: it goes the user's way, and notices what does not work."""
import os
import re
import shutil
import subprocess
import tempfile

import pytest


@pytest.mark.live
def test_it_works_here(laggard, can_record):  # pylint: disable=unused-argument
    done = laggard("selftest")
    print(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["reads", "yes:"], ["records", "yes:"], ["names", "yes:"]]
    assert re.search(r"120 steps, 12 slow, is said to have 1[12][0-9], 1[0-9] slow", lines[1])


def test_without_privileges_it_still_records(laggard_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    folder = tempfile.mkdtemp()  # pytest's own are closed to others
    os.chmod(folder, 0o755)
    program = shutil.copy(laggard_path, os.path.join(folder, "laggard"))
    done = subprocess.run([program, "selftest"], capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
                          user=65534, group=65534, extra_groups=[], cwd="/", env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"})
    shutil.rmtree(folder)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("reads    yes") and lines[1].startswith("records  yes"), done.stdout + done.stderr
    assert done.returncode == 0


def test_what_does_not_work_is_noticed(laggard_path, laggard):
    """Without room for a file nothing can be read or recorded."""
    done = subprocess.run(["sh", "-c", f"ulimit -f 0; trap '' XFSZ; exec {laggard_path} selftest | cat"], capture_output=True, text=True,
                          check=False, timeout=120, stdin=subprocess.DEVNULL)
    assert re.search(r"^reads +no", done.stdout, re.M) and re.search(r"^records +no", done.stdout, re.M)
    assert laggard("selftest", "x").returncode == 2
