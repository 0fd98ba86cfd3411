# SPDX-License-Identifier: Apache-2.0
"""What test_kernels.py records: threads of one process that wait for its memory map, and a reader of it outside."""
import ctypes
import mmap
import os
import subprocess
import threading
import time

SECONDS = 4
BYTES = 200 << 20
PROT_READ, PROT_READ_WRITE, MADV_NOHUGEPAGE = 1, 3, 15

libc = ctypes.CDLL(None, use_errno=True)
big = mmap.mmap(-1, BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(big)))
libc.madvise(address, ctypes.c_size_t(BYTES), MADV_NOHUGEPAGE)
for i in range(0, BYTES, 4096):
    big[i] = 1
end = time.monotonic() + SECONDS


def protect_again_and_again():
    while time.monotonic() < end:
        for what in (PROT_READ, PROT_READ_WRITE):
            assert libc.mprotect(address, ctypes.c_size_t(BYTES), what) == 0
        time.sleep(0.05)


READER = """
import sys, time
while True:
    open(f"/proc/{sys.argv[1]}/smaps_rollup").read()
    time.sleep(0.2)
"""
with subprocess.Popen(["python3", "-c", READER, str(os.getpid())]) as reader:
    print("@pids", os.getpid(), reader.pid, flush=True)
    threading.Thread(target=protect_again_and_again).start()
    while time.monotonic() < end:
        small = mmap.mmap(-1, 1 << 16)
        small[0] = 1
        small.close()
        time.sleep(0.001)
    reader.kill()
