#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make a big torch.profiler trace by repeating a real one: make_trace.py TRACE OUT [MEGABYTES].

The text of the events is kept as the profiler wrote it; each copy is shifted in time, correlation
ids repeat (as they do in a long job).
"""
import gzip
import json
import re
import subprocess
import sys


def text_of(path):
    if str(path).endswith(".zst"):
        done = subprocess.run(["zstd", "-dc", str(path)], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return done.stdout.decode("utf-8", "replace")
    with (gzip.open if str(path).endswith(".gz") else open)(path, "rt", encoding="utf-8", errors="replace") as f:
        return f.read()


def events_of(text):
    """(start, end) of the events within the text: from behind the bracket to behind the last one."""
    head = re.search(r'"traceEvents"\s*:\s*\[', text)
    start = head.end() if head else text.index("[") + 1
    _, end = json.JSONDecoder(strict=False).raw_decode(text, start - 1)
    return start, text.rindex("}", start, end) + 1


def main():
    source, out = sys.argv[1:3]
    want = int(float(sys.argv[3]) * 1e6) if len(sys.argv) > 3 else 300_000_000
    text = text_of(source)
    start, close = events_of(text)
    events, tail = text[start:close], text[close:]
    stamp = re.compile(r'("ts"\s*:\s*"?)(\d+)')
    times = [int(m.group(2)) for m in stamp.finditer(events)]
    period = max(times) - min(t for t in times if t) + 1000
    written = 0
    with open(out, "w") as f:
        f.write(text[:start])
        copy = 0
        while written < want:
            part = events if not copy else stamp.sub(
                lambda m: m.group(1) + str(int(m.group(2)) + copy * period), events)
            f.write((",\n" if copy else "") + part)
            written += len(part)
            copy += 1
        f.write(tail)
    print(f"{out}: {written / 1e6:.0f} MB, {copy} copies")


if __name__ == "__main__":
    main()
