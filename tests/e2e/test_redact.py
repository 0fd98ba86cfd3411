# SPDX-License-Identifier: Apache-2.0
"""--redact: a recording that may be shared, and still has its verdict."""
import json
import os

SECRETS = (b"acme-merger", b"t0ps3cret", b"node17.acme.example", b"secret_folder")
BUSY = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: sum(range(1000))\n"


def start(folder, *options):
    """The words of a recording of a script whose folder, arguments and environment are its owner's."""
    script = folder / "secret_folder" / "busy.py"
    script.parent.mkdir()
    script.write_text(BUSY)
    env = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "node17.acme.example", "SLURM_JOB_NAME": "acme-merger"}
    return (*options, "--", "/usr/bin/python3", script, "--token=t0ps3cret"), env


def everything(laggard, path):
    out = b""
    for table in ("process", "thread", "frame", "meta", "mark", "diag", "span", "track"):
        out += laggard("query", path, f"select * from {table}", "--csv").stdout.encode()
    return out


def test_a_recording_loses_what_tells_of_its_owner(laggard, can_record, own_folder):
    words, env = start(own_folder)
    raw, shared = own_folder / "raw.lag", own_folder / "shared.lag"
    assert laggard("record", "--user", "root", "-o", raw, *words, env=env).returncode == 0
    told = everything(laggard, raw)
    assert [s for s in SECRETS if s not in told] == []  # or the rest of this shows nothing
    assert laggard("convert", raw, "-o", shared, "--redact").returncode == 0
    told = everything(laggard, shared)
    assert [s for s in SECRETS if s in told] == []
    assert b"busy.py" in told and b"/usr/bin/python3" in told
    before, after = (json.loads(laggard("explain", p, "--json").stdout) for p in (raw, shared))
    for key in ("steps", "stages", "bound", "unexplained_share"):
        assert before[key] == after[key], key
    assert [(f["id"], f["lost_ms"], f["severity"]) for f in before["findings"]] == \
        [(f["id"], f["lost_ms"], f["severity"]) for f in after["findings"]]
    # Whatever it is drawn as.
    drawn = own_folder / "shared.json"
    assert laggard("convert", raw, "-o", drawn, "--redact").returncode == 0
    assert [s for s in SECRETS if s in drawn.read_bytes()] == []


def test_record_writes_it_so(laggard, can_record, own_folder):
    words, env = start(own_folder, "--redact")
    path = own_folder / "run.lag"
    done = laggard("record", "--user", "root", "-o", path, *words, env=env)
    assert done.returncode == 0 and path.stat().st_mode & 0o777 == 0o600 and path.stat().st_uid == os.geteuid()
    told = everything(laggard, path)
    assert b"busy.py" in told and [s for s in SECRETS if s in told] == []
    assert sorted(p.name for p in own_folder.iterdir()) == ["run.lag", "secret_folder"]
