# SPDX-License-Identifier: Apache-2.0
"""What a fuzzer starts with is made of the repository alone."""
import shutil
import sqlite3
import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["kineto", "chromejson", "perfdata", "nsys", "lag"])
def test_seeds_and_words_are_made_of_the_repository(root, tmp_path, name):
    subprocess.run([sys.executable, root / "tests/fuzz/seeds.py", tmp_path, name], check=True)
    seeds = list((tmp_path / "seeds" / name).iterdir())
    # Those of the last two are in the corpus: databases, and recordings that seed_lag made.
    assert len(seeds) >= 5 if name in ("kineto", "chromejson", "perfdata") else not seeds
    assert list((root / "tests/fuzz/corpus" / name).iterdir())
    words = (tmp_path / f"{name}.dict").read_text(encoding="ascii").splitlines()
    assert len(words) > 500 and all(w[0] == w[-1] == '"' for w in words)


def test_the_databases_of_the_corpus_are_those_of_the_unit_test(root, tmp_path):
    """Written anew they hold what is there; versions of SQLite leave different bytes in a page's free room."""
    def held(path):
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            return list(db.iterdump())
    shutil.copytree(root / "tests/unit", tmp_path / "tests/unit")
    (tmp_path / "tests/fuzz/corpus/nsys").mkdir(parents=True)
    shutil.copy(root / "tests/fuzz/seed_nsys.py", tmp_path / "tests/fuzz")
    subprocess.run([sys.executable, tmp_path / "tests/fuzz/seed_nsys.py"], check=True)
    made = sorted((tmp_path / "tests/fuzz/corpus/nsys").iterdir())
    assert len(made) == 3
    for path in made:
        assert held(path) == held(root / "tests/fuzz/corpus/nsys" / path.name)
        assert len(held(path)) > 5
