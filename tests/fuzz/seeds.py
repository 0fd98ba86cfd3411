# SPDX-License-Identifier: Apache-2.0
"""What a fuzzer starts with beside tests/fuzz/corpus: seeds.py OUT NAME

OUT/seeds/NAME gets the repository's own files that fuzz_NAME can read, in the form in which it takes them,
and OUT/NAME.dict the words that the importer, the analyses and the schema compare with.
"""
import gzip
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data"
LARGEST = 200_000  # bytes: a mutation of more tells little for its time
EVENTS = ("kineto", "chromejson")
# fuzz_NAME -> what it reads of tests/data
FILES = {"perfdata": "perf/*.data", "kineto": "kineto/**/*.json.gz", "chromejson": "kineto/**/*.json.gz",
         "flightrec": "flightrec/*[0-9n].*", "folded": "folded/*", "memsnap": "memsnap/*", "nccllog": "nccllog/*", "pyspy": "pyspy/*",
         "smi": "smi/*", "torchlog": "torchlog/*"}


def seeds(name):
    """(file name, bytes)"""
    for path in sorted(DATA.glob(FILES[name])) if name in FILES else ():
        data = path.read_bytes()
        if name in EVENTS:  # their first byte is the size of the window
            text = gzip.decompress(data)
            for part, n in (("start", len(text) // 40), ("part", len(text) // 6), ("all", len(text))):
                if n <= LARGEST:
                    yield f"{path.stem}-{part}", b"\xff" + text[:n]
        elif len(data) <= LARGEST:
            yield path.name, data


def words(name):
    sources = [*(ROOT / "src/import").glob(f"{name}/*.[ch]"), *(ROOT / "src/store").glob("*.def")]
    if name in (*EVENTS, "perfdata", "nsys", "lag"):
        sources += sorted((ROOT / "src/analyse").rglob("*.c"))
    found = set()
    for path in sources:
        for text in re.findall(r'"((?:[^"\\\n]|\\.){2,40})"', path.read_text(encoding="utf-8")):
            if "%" not in text and "\\" not in text and "/" not in text.removesuffix(".h"):
                found.add(text)
    return sorted(found)


def main(out, name):
    folder = pathlib.Path(out) / "seeds" / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for file, data in seeds(name):
        (folder / file).write_bytes(data)
    with open(pathlib.Path(out) / f"{name}.dict", "w", encoding="ascii") as f:
        for word in words(name):
            if word.isascii() and word.isprintable():
                f.write(f'"{word}"\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
