# SPDX-License-Identifier: Apache-2.0
"""Files of real tools with known answers: those of tests/data/cases, which every clone has, and for the large sweep
(`make cases`) those of the folder LG_CASES as well. Both have one table of what is known of each."""
import gzip
import os
import pathlib
import subprocess

OWN = pathlib.Path(__file__).resolve().parents[1] / "data/cases"
SWEEP = pathlib.Path(os.environ["LG_CASES"]) if os.environ.get("LG_CASES") else None
ROOTS = [OWN] + ([SWEEP] if SWEEP and SWEEP.is_dir() else [])
PACKED = ("", ".zst", ".gz")


def find(pattern):
    """Files that match, packed or not, in every folder of cases."""
    return sorted({p for root in ROOTS for end in PACKED for p in root.glob(pattern + end) if p.is_file()})


def tables():
    """[(folder, text)] of the tables: one row a file, and in it what is known."""
    names = ((OWN, "README.md"), (SWEEP, "INDEX.md"))  # docs: elsewhere
    return [(root, (root / name).read_text(encoding="utf-8")) for root, name in names
            if root in ROOTS and (root / name).exists()]


def plain(path):
    """The name without what packing adds to it."""
    return path.name.removesuffix(".zst").removesuffix(".gz")


def content(path):
    """The bytes, unpacked."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        return gzip.decompress(data)
    if data[:4] == b"\x28\xb5\x2f\xfd":
        return subprocess.run(["zstd", "-dcq"], input=data, check=True, stdout=subprocess.PIPE).stdout
    return data


def label(path):
    """For a test's name: the file, and which folder of cases it is from where there are two."""
    root = next((r for r in ROOTS if path.is_relative_to(r)), path.parent)
    return f"{'sweep:' if root == SWEEP else ''}{path.relative_to(root)}"
