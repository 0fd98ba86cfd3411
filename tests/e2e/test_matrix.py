# SPDX-License-Identifier: Apache-2.0
"""A part of the matrix (tests/matrix): another one for every commit, so that no draw can be tuned to."""
import os
import re
import subprocess
import sys


def test_drawn_jobs_are_judged_right(root, laggard_path):
    """Of one draw of every second family (some 30), four of five have the true cause first; of some 30 healthy draws at most
    one is accused: each commit's are others, and `make matrix`, which draws ten times as many, demands none."""
    counted = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=root, check=False, capture_output=True, text=True)
    seed = counted.stdout.strip() or "1"
    done = subprocess.run([sys.executable, root / "tests/matrix/run", "--draws", "1", "--healthy", "40", "--seed", seed, "--part", f"{int(seed) % 2}/2"],
                          check=False, capture_output=True, text=True, timeout=600,
                          env={**os.environ, "LAGGARD": str(laggard_path)})
    assert "Traceback" not in done.stderr, done.stderr
    print(done.stdout)
    accused = re.search(r"on \d\d healthy draws: (\d+) \(goal 0\)", done.stdout)
    assert int(accused[1]) <= 1, f"seed {seed}: {done.stdout}"
    first = float(re.search(r"The true cause first: ([\d.]+)%", done.stdout)[1])
    assert first >= 80, f"seed {seed}: {done.stdout}"
