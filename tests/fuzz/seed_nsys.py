# SPDX-License-Identifier: Apache-2.0
"""Write the corpus of fuzz_nsys: the databases of tests/unit/test_nsys.c with the smallest pages."""
import os
import re
import sqlite3

HERE = os.path.dirname(os.path.abspath(__file__))
text = open(os.path.join(HERE, "..", "unit", "test_nsys.c")).read()
macro = {m.group(1): m.group(2) for m in re.finditer(r'#define (G|GP) "(\d+)"', text)}


def literal(block):
    for name, value in macro.items():
        block = re.sub(rf"\b{name}\b(?=[\s,\"])", f'"{value}"', block)
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', block)).replace('\\"', '"')


strings = literal(re.search(r"#define STRINGS(.*?);\"\n", text, re.S).group(1) + ';"')
newest = literal(re.search(r"newest\[\] =\s+STRINGS(.*?);\n\n", text, re.S).group(1))
hostile = literal(re.search(r"do_not_run.*?database\((.*?)\);\n", text, re.S).group(1))
for name, sql in (("newest", strings + newest), ("strings", strings), ("hostile", hostile)):
    path = os.path.join(HERE, "corpus", "nsys", name + ".sqlite")
    if os.path.exists(path):
        os.unlink(path)
    db = sqlite3.connect(path)
    db.execute("PRAGMA page_size=512")
    db.executescript(sql)
    db.execute("VACUUM")
    db.close()
