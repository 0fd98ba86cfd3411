# SPDX-License-Identifier: Apache-2.0
"""Stores for tests of the fleet: a file of SQLite, and a real ClickHouse server of this distribution where it is
installed; and rows with a known answer."""
import contextlib
import os
import pathlib
import random
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest

TOKEN = "a-token-of-this-test"
CONFIG = """<yandex><logger><level>warning</level><log>{0}/log</log><errorlog>{0}/err</errorlog></logger>
<http_port>{1}</http_port><tcp_port>{2}</tcp_port><listen_host>127.0.0.1</listen_host><path>{0}/data/</path>
<tmp_path>{0}/tmp/</tmp_path><users_config>{0}/users.xml</users_config><default_profile>default</default_profile>
<default_database>default</default_database><mark_cache_size>33554432</mark_cache_size></yandex>"""
USERS = """<yandex><profiles><default/></profiles><users><default><password>%s</password><networks><ip>127.0.0.1</ip>
</networks><profile>default</profile><quota>default</quota></default></users><quotas><default/></quotas></yandex>""" % TOKEN


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """ClickHouse in a folder, which can be killed and started again."""

    def __init__(self, program, folder):
        self.program, self.folder, self.port, self.process = program, folder, free_port(), None
        (folder / "config.xml").write_text(CONFIG.format(folder, self.port, free_port()))
        (folder / "users.xml").write_text(USERS)
        (folder / "token").write_text(TOKEN + "\n")

    def start(self):
        self.process = subprocess.Popen([self.program, f"--config-file={self.folder}/config.xml"], cwd=self.folder,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=5) as r:
                if r.read() == b"Ok.\n":
                    return self
            time.sleep(0.1)
        raise AssertionError("ClickHouse does not answer: " + (self.folder / "err").read_text()[-500:])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def store(self, name):
        return ["--store", f"http://127.0.0.1:{self.port}/{name}", "--token-file", str(self.folder / "token")]


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory):
    program = shutil.which("clickhouse-server", path=os.environ["PATH"] + ":/usr/sbin")
    if not program:
        pytest.skip("clickhouse-server is not installed: apt-get install clickhouse-server")
    server = Server(program, tmp_path_factory.mktemp("clickhouse")).start()
    yield server
    server.kill()


@pytest.fixture(params=["sqlite", "clickhouse"])
def store(request, laggard, tmp_path):
    """Options of laggard fleet for an empty store with its tables."""
    if request.param == "sqlite":
        options = ["--store", f"sqlite:{tmp_path}/fleet.db"]
    else:
        options = request.getfixturevalue("clickhouse").store(f"t{os.getpid()}_{time.monotonic_ns()}")
    done = laggard("fleet", "init", *options)
    assert done.returncode == 0, done.stderr
    return options


def put(laggard_path, store, batches, again=False):
    """Each batch is a list of rows, a tuple each."""
    tool = pathlib.Path(laggard_path).parent / "tests/e2e/fleet_rows"
    text = "\n".join("".join("\t".join(map(str, row)) + "\n" for row in batch) for batch in batches)
    token = store[store.index("--token-file") + 1] if "--token-file" in store else ""
    done = subprocess.run([tool, store[1], token, *(["again"] if again else [])], input=text, text=True, check=False,
                          capture_output=True)
    assert done.returncode == 0, done.stderr


def steps(job, ranks, rows, now_us, seed, late=None, excess=0.0, width=4, step_ms=250.0, noise=0.02):
    """Rows of a job whose ranks step together: each works, then waits for the last one. late: a rank whose work takes
    that share longer, in every step."""
    draw = random.Random(seed)
    for i in range(rows):
        work = [step_ms * (1 + noise * abs(draw.gauss(0, 1)) + (excess if r == late else 0)) for r in range(ranks)]
        dur = max(work) + 20
        for r in range(ranks):
            us = int(width * dur * 1000)
            wait = int(width * (dur - work[r]) * 1000)
            fwd = (us - wait) * 6 // 10
            # job attempt step rank node steps last t0 dur worst max data h2d fwd bwd sync opt side wait ver
            yield ("rank_step", job, 0, width * i, r, r // 8 + 1, width, width * i + width - 1,
                   now_us - (rows - i) * us, us, width * i + 1, us // width + 7, (us - wait) // 10, 0, fwd, 0, wait,
                   us - wait - fwd - (us - wait) // 10, 0, wait, now_us)


def stall(job, rank, n, t0_us, lost_us, waited, process, func, rule="host.lock_held", culprit=0):
    return ("stall", job, 0, 10 + n, rank, rank // 8 + 1, t0_us, lost_us, lost_us, waited, 95, 1, 4711,
            culprit or hash((process, func)) % 2**63, rule, "forward", process, func, "mmap_lock", f"{func};main",
            f"{process} held the mmap_lock", t0_us)
