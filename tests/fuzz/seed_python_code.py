# SPDX-License-Identifier: Apache-2.0
"""A seed of fuzz_python_code.c: seed_python_code.py OUT, copied out of the interpreter that runs it as the recorder
does (src/record/pythons.c)."""
import ctypes
import struct
import sys

MINOR = sys.version_info[1]
# line, file, name, table, instructions: src/record/python_layout.c
AT = {8: (40, 104, 112, 120, 0), 9: (40, 104, 112, 120, 0), 10: (40, 104, 112, 120, 0), 11: (72, 112, 128, 136, 184),
      12: (68, 112, 128, 136, 192), 13: (68, 112, 128, 136, 200), 14: (68, 112, 128, 136, 208)}[MINOR]


def word(at):
    return struct.unpack("<Q", ctypes.string_at(at, 8))[0]


def record(code):
    at = id(code)
    strings = [ctypes.string_at(p, min(72 + 4 * word(p + 16), 300)) for p in (word(at + AT[2]), word(at + AT[1]))]
    table = word(at + AT[3])
    parts = [*strings, ctypes.string_at(table + 32, word(table + 16))]
    first, = struct.unpack("<i", ctypes.string_at(at + AT[0], 4))
    body = b"".join(parts)
    size = (32 + len(body) + 7) // 8 * 8
    return struct.pack("<IIiIIIII", size, MINOR, first, *map(len, parts), AT[4] // 2, 0) + body.ljust(size - 32, b"\0")


SOURCE = """
def plain(x):
    return x

class Näme:
    def grüße(self, x):
        if x:
            return (x +
                    1)
        for 名 in range(x):
            self.grüße(名)
"""


def functions():
    """Of a file whose name says nothing of this machine."""
    names = {}
    exec(compile(SOURCE, "train.py", "exec"), names)  # pylint: disable=exec-used
    return names["plain"], names["Näme"].grüße


with open(sys.argv[1], "wb") as out:
    for function in functions():
        out.write(record(function.__code__))
