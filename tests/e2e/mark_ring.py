# SPDX-License-Identifier: Apache-2.0
"""Decode a mark ring, independently of the C reader: the format of include/laggard/mark.h."""
import collections
import glob
import os
import struct

WHAT = {1: "begin", 2: "end", 3: "span", 4: "mark", 5: "meta", 6: "step", 7: "off"}
KIND = {0: "other", 2: "stage", 5: "copy", 6: "collective", 11: "gc", 16: "wait"}
STAGE = ("none", "batch_wait", "h2d", "forward", "backward", "grad_sync", "optimizer", "side",
         "other")
ASYNC, HAND, IMPLICIT, START = 1, 2, 4, 8
Slot = collections.namedtuple(
    "Slot", "index ts what kind stage flags tid name text seq bytes token")
HEADER = ("magic version size pid start slots slots_off names_off names_cap next names_used role "
          "rank world local_rank flags pid_ns created names_lost").split()


class Ring:
    def __init__(self, path):
        with open(path, "rb") as f:
            data = f.read()
        for key, value in zip(HEADER, struct.unpack_from("<19q", data)):
            setattr(self, key, value)
        assert struct.pack("<q", self.magic) == b"LAGMARK1" and self.version == 1
        assert self.size == len(data)
        self.data = data
        self.slots_read = []
        for n in range(self.slots):
            w = struct.unpack_from("<QqQQqQQQ", data, self.slots_off + n * 64)
            if w[0] == 0 or w[0] != w[7]:
                continue
            assert w[0] % self.slots == n
            word = w[2]
            self.slots_read.append(Slot(
                w[0], w[1], WHAT[word >> 32 & 255], KIND[word >> 40 & 255], STAGE[word >> 48 & 255],
                word >> 56, word & 0xffffffff, self.name(w[3] & 0xffffffff), self.name(w[3] >> 32),
                w[4], w[5], w[6]))
        self.slots_read.sort()
        self.unfinished = []
        self.spans()

    def name(self, i):
        if i == 0:
            return ""
        at = self.names_off + (i - 1) * 8
        n, = struct.unpack_from("<I", self.data, at)
        return self.data[at + 4:at + 4 + n].decode()

    def spans(self):
        """Finished spans: (slot of the beginning, end ts), in order of their beginning."""
        open_, out = {}, []
        for s in self.slots_read:
            if s.what == "begin":
                open_[s.index] = s
            elif s.what == "end":
                out.append((open_.pop(s.token), s.ts))
            elif s.what == "span":
                out.append((s, s.ts + s.token))
        self.unfinished = list(open_.values())
        return sorted(out)

    def stages(self):
        return [(b.stage, b.name) for b, _ in self.spans() if b.kind == "stage"]

    def meta(self):
        return {s.name: s.text for s in self.slots_read if s.what == "meta"}

    def marks(self, name):
        return [s for s in self.slots_read if s.what == "mark" and s.name == name]

    def steps(self):
        return [s for s in self.slots_read if s.what == "step"]


def read_all(directory):
    return [Ring(p) for p in sorted(glob.glob(os.path.join(directory, "mark.*")))]


if __name__ == "__main__":
    import sys
    for path in sys.argv[1:]:
        ring = Ring(path)
        print({k: getattr(ring, k) for k in HEADER})
        for slot in ring.slots_read:
            print(slot)
