# SPDX-License-Identifier: Apache-2.0
"""tenant.py --gb N: an unrelated process with memory, for an agent to look at in healthy runs."""
import argparse
import mmap
import time

import numpy

PAGE = 4096
MADV_NOHUGEPAGE = 15

parser = argparse.ArgumentParser()
parser.add_argument("--gb", type=float, default=1)
parser.add_argument("--ready", required=True, help="file that appears when the memory is there")
args = parser.parse_args()
n_pages = int(args.gb * 1e9) // PAGE
table = mmap.mmap(-1, n_pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
table.madvise(MADV_NOHUGEPAGE)
pages = numpy.frombuffer(table, dtype=numpy.uint8).reshape(n_pages, PAGE)
pages[numpy.random.default_rng(1).permutation(n_pages), 0] = 1
open(args.ready, "w", encoding="ascii").close()
while True:
    time.sleep(3600)
