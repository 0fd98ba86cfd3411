# SPDX-License-Identifier: Apache-2.0
"""Attacks on the recorder's reading of symbols, and with locks that are withheld from it, beside an honest job of which
the verdict is the same as without (test_attacks_memory.py does so with the attacks on memory)."""
import contextlib
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from honest_job import HZ, undisturbed, unharmed  # noqa: E402, F401
from test_attacks_locks import start  # noqa: E402
from test_attacks_symbols import doublings, family, query, stage  # noqa: E402, F401

pytestmark = [pytest.mark.live,
              pytest.mark.skipif(os.geteuid() != 0, reason="attacks by another user need root to record")]


@contextlib.contextmanager
def ended(stage, begin):  # noqa: F811
    """The attack as a context. What its processes started is nobody's child once they have ended."""
    begin()
    left_s = []
    try:
        yield left_s
        assert all(p.poll() is None for p in stage.running), "the attack ended before the recording did"
        for pid in (pid for p in stage.running for pid in family(p.pid)[1:]):
            ticks = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
            left_s.append(sum(map(int, ticks)) / HZ)
    finally:
        stage.end()


def test_names_that_double_beside_the_job(laggard, laggard_path, undisturbed, stage, tmp_path):  # noqa: F811
    def begin():
        for _ in range(2):
            stage.start("""
                leave_root()
                at = anonymous()
                with open(my_map, "w") as f:
                    f.write(f"{at:x} {page:x} {sys.argv[4]}\\n")
                go(); run(at)
            """, doublings(30))
    unharmed(laggard, laggard_path, tmp_path, undisturbed, ended(stage, begin))
    names = query(laggard, tmp_path / "run.lag", "select name from frame where name like 'f(A, P<A, A>%'")
    assert names, "the names were read"


def test_locks_that_are_withheld_beside_the_job(laggard, laggard_path, undisturbed, stage, tmp_path):  # noqa: F811
    unharmed(laggard, laggard_path, tmp_path, undisturbed, ended(stage, lambda: start(laggard_path, stage, "overlay")))
    said = query(laggard, tmp_path / "run.lag", "select text from diag where text like '%were not looked at%'")
    assert said, "the attackers were met"
