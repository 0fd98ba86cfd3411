# SPDX-License-Identifier: Apache-2.0
"""Loaders that are late for a known reason, recorded live: real torch, real workers."""
import json
import os
import time

import pytest
from live import Disturbed

pytestmark = pytest.mark.live

SCRIPT = """
import mmap, os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info
what, path = sys.argv[1:3]
torch.set_num_threads(1)

def spin(s):
    end = time.perf_counter() + s
    while time.perf_counter() < end:
        pass

class Items(Dataset):
    def __len__(self):
        return 4 * (6 if what == "respawn" else 400)

    def __getitem__(self, i):
        if what in ("workers_zero", "transform"):
            spin(0.004)
        elif what == "slow_worker":
            time.sleep(0.015 if get_worker_info().id == 1 else 0.001)
        elif what == "io":
            if not hasattr(self, "room"):
                self.room, self.fd = mmap.mmap(-1, 8 << 20), os.open(path, os.O_RDONLY | os.O_DIRECT)
            os.preadv(self.fd, [self.room], (i % 4) << 23)
        return torch.zeros(8)

workers = {"workers_zero": 0, "slow_worker": 3}.get(what, 1)
loader = DataLoader(Items(), batch_size=4, num_workers=workers, persistent_workers=what != "respawn" and workers > 0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
end = time.monotonic() + 4
while time.monotonic() < end:
    for batch in loader:
        spin(0.04 if what == "none" else 0.006)
        loss = model(batch).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.monotonic() > end:
            break
"""


@pytest.fixture
def found(laggard, torch_python, cpu_taken, tmp_path):
    """found("io") -> the findings about the loader. Where the machine itself stood still, that looks like work of
    whoever was to make the batch: such a run says nothing."""
    if os.geteuid() != 0:
        pytest.skip("recording who wakes whom needs root")

    def of(what, path="-"):
        taken, began = cpu_taken(), time.monotonic_ns()
        done = laggard("record", "-o", tmp_path / "run.lag", "--", torch_python, "-c", SCRIPT, what, path)
        share = (cpu_taken() - taken) / (time.monotonic_ns() - began) / os.cpu_count()
        if share > 0.02:
            raise Disturbed(f"the hypervisor took {100 * share:.0f} % of the CPUs meanwhile")
        assert done.returncode == 0, done.stderr
        if "tier bpf" not in done.stderr:
            pytest.skip("no BPF here")
        verdict = json.loads(laggard("explain", tmp_path / "run.lag", "--json").stdout)
        return [f for f in verdict["findings"] if f["id"] == "data.loader_wait"]
    return of


@pytest.mark.parametrize("what, words", [
    ("workers_zero", "no workers"), ("transform", "busy with it"), ("slow_worker", "slower than the others"),
    ("respawn", "started anew")])
def test_the_reason_is_named(found, what, words):
    wait, = found(what)
    assert wait["detail"] == what, wait
    assert words in wait["title"]
    assert any("num_workers=" in e["text"] for e in wait["evidence"]), wait["evidence"]


def test_workers_that_wait_for_the_disk(found, tmp_path):
    path = tmp_path / "data"
    path.write_bytes(os.urandom(1 << 20) * 32)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError as e:
        pytest.skip(f"reading past the page cache: {e}")
    wait, = found("io", str(path))
    assert wait["detail"] == "io", wait


@pytest.mark.healthy
def test_a_loader_that_keeps_up(found):
    late = [f for f in found("none") if f["severity"] in ("medium", "high")]
    assert not late, [(f["title"], f["lost_share"], f["excess_share"], f["evidence"]) for f in late]


# What a program with a device tells of itself, by hand: here is none.
PINNED = """
import sys, time
import laggard
from laggard import _ring
for i in range(150):
    with laggard.stage("forward"):
        time.sleep(0.01)
    with laggard.stage("h2d"):
        time.sleep(0.002)
    laggard.step()
    if not i:
        for key, value in (("model.0.parameters", "float32=10"), ("model.0.device", "cuda"), ("loader.pin_memory", sys.argv[1])):
            _ring.meta(key, value)
"""


@pytest.mark.parametrize("pinned", (False, True))
def test_batches_that_are_not_pinned_and_copied(laggard, torch_python, can_record, tmp_path, pinned):
    done = laggard("record", "-o", tmp_path / "run.lag", "--", torch_python, "-c", PINNED, str(pinned))
    assert done.returncode == 0, done.stderr
    found = json.loads(laggard("explain", tmp_path / "run.lag", "--json").stdout)["findings"]
    told = [f for f in found if f["id"] == "data.pageable_copy"]
    assert [(f["detail"], f["severity"]) for f in told] == ([] if pinned else [("pin_memory", "low")])
