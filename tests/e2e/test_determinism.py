# SPDX-License-Identifier: Apache-2.0
"""laggard determinism, live: a program that computes the same each time, but for one cause from a step on that is drawn.

The program knows what it did: the first step and tensor that differ must be these, and its healthy twin must be equal.
`python3 tests/e2e/test_determinism.py LAGGARD DRAWS` draws more of them, and counts.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

JOB = str(pathlib.Path(__file__).parent / "determinism_job.py")
PYTHON = "/usr/bin/python3"
STEPS = 10
# cause: (ranks, kind, tensor, rank) that must be told
CAUSES = {
    "dropout": (1, "rng", "torch.cpu", None),
    "workers": (1, "input", "batch[0]", None),
    "forward": (1, "loss", "loss", None),
    "scatter": (1, "grad", "table", None),
    "threads": (1, "loss", "loss", None),
    "rank": (2, "param", "head.bias", 1),
    "rank_data": (2, "param", "body.0.weight", 1),
}


def twice(laggard, folder, cause, step, steps, *options):
    """(exit status, the verdict) of two runs."""
    done = subprocess.run([laggard, "determinism", "--json", *options, "--", PYTHON, JOB, cause, str(step), str(steps),
                           str(CAUSES.get(cause, (1,))[0])],
                          check=False, timeout=300, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "JOB_SEEN": str(pathlib.Path(folder) / f"seen-{cause}-{step}"),
                               "PYTHONDONTWRITEBYTECODE": "1"})
    if not done.stdout:
        raise AssertionError(done.stderr)
    return done.returncode, json.loads(done.stdout)


def is_right(cause, step, status, verdict):
    _, kind, tensor, rank = CAUSES[cause]
    d = verdict["determinism"]
    return status == 3 and not d["equal"] and [f["id"] for f in verdict["findings"]] == ["det.diverged"] and \
        {k: d["first"][k] for k in ("step", "kind", "tensor", "rank")} == \
        {"step": step, "kind": kind, "tensor": tensor, "rank": rank}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        draw, right = random.Random(20261127), 0
        for n in range(int(sys.argv[2])):
            what, when = sorted(CAUSES)[n % len(CAUSES)], draw.randint(2, STEPS - 1)
            (pathlib.Path(where) / str(n)).mkdir()
            rc, v = twice(sys.argv[1], pathlib.Path(where) / str(n), what, when, STEPS * CAUSES[what][0])
            right += is_right(what, when, rc, v)
            print(n, what, when, "right" if is_right(what, when, rc, v) else v["determinism"], flush=True)
        print(f"{right} of {sys.argv[2]}")
    sys.exit(0)

import pytest  # noqa: E402

pytestmark = pytest.mark.live


@pytest.mark.parametrize("cause", sorted(CAUSES))
def test_the_first_step_and_tensor_that_differ_are_named(laggard_path, torch_python, tmp_path, cause):
    step = random.randint(2, STEPS - 1)
    status, verdict = twice(laggard_path, tmp_path, cause, step, STEPS * CAUSES[cause][0])
    assert is_right(cause, step, status, verdict), (step, verdict["determinism"], verdict["findings"])
    if cause == "threads":
        assert {"key": "det.threads", "before": "1", "after": "2"} in verdict["determinism"]["differ"]
    if cause == "workers":
        assert "DataLoader(worker_init_fn)" in verdict["determinism"]["flags_off"]


@pytest.mark.healthy
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_healthy_program_is_equal_over_all_its_steps(laggard_path, torch_python, tmp_path, monkeypatch, ranks):
    monkeypatch.setitem(CAUSES, "healthy", (ranks,))
    status, verdict = twice(laggard_path, tmp_path, "healthy", 5, 200 * ranks)
    d = verdict["determinism"]
    assert (status, d["equal"], d["first"], d["steps_compared"]) == (0, True, None, 200), d
    assert not verdict["findings"] and d["basis"] == "fingerprints"


def test_a_recording_tells_of_ranks_that_part(laggard, laggard_path, torch_python, tmp_path):
    """Without a second run; and the recordings can be compared again, and gate a job of CI."""
    twice(laggard_path, tmp_path, "rank", 4, STEPS * 2, "-o", str(tmp_path / "run"))
    one, two = tmp_path / "run-1.lag", tmp_path / "run-2.lag"
    found = [f for f in json.loads(laggard("explain", one, "--json").stdout)["findings"] if f["id"] == "det.diverged"]
    assert len(found) == 1 and found[0]["culprit"]["rank"] == 1 and "from step 4 on the parameter head.bias" in found[0]["title"]
    assert laggard("explain", one, "--fail-on", "det.diverged").returncode == 3
    assert laggard("determinism", one, two).returncode == 3
    assert laggard("diff", one, two, "--fail-on", "det.diverged").returncode == 3


def test_every_nth_step_says_between_which_it_lies(laggard_path, torch_python, tmp_path):
    status, verdict = twice(laggard_path, tmp_path, "forward", 4, 12, "--every", "5")
    first = verdict["determinism"]["first"]
    assert status == 3 and first["step"] == 6 and first["equal_at"] == 1 and first["kind"] == "param", first


def test_two_logs_part_where_their_losses_do(laggard, torch_python, tmp_path):
    for name, cause in ("a", "healthy"), ("b", "healthy"), ("c", "forward"):
        with open(tmp_path / f"{name}.log", "wb") as log:
            subprocess.run([PYTHON, JOB, cause, "7", "12"], check=True, stdout=log)
    log = [tmp_path / f"{n}.log" for n in "abc"]
    assert laggard("determinism", log[0], log[1]).returncode == 0
    parted = laggard("determinism", log[0], log[2], "--json")
    first = json.loads(parted.stdout)["determinism"]["first"]
    assert parted.returncode == 3 and (first["step"], first["equal_at"], first["kind"]) == (7, 6, "loss")
    # diff does not call that no change, and calls nothing so that is none
    assert "part in step 7" in laggard("diff", log[0], log[2]).stdout
    assert laggard("diff", log[0], log[2], "--fail-on", "det.diverged").returncode == 3
    assert laggard("diff", log[0], log[1], "--fail-on", "det.diverged").returncode == 0


ELSEWHERE = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from laggard import _det
_det._torch, _det.CHUNK = torch, 1000
g = torch.Generator().manual_seed(3)
tensors = [torch.randn(7, 3, generator=g), torch.randn(2500, generator=g), torch.zeros(0), torch.tensor([True, False]),
           torch.randn(5, generator=g).bfloat16(), torch.randint(0, 9, (4,), generator=g),
           torch.randn(3, dtype=torch.complex64, generator=g), torch.randn(40, 50, generator=g).t()]

def prints(ts):
    fetched = {}
    return [later.now(fetched) for later in _det._elsewhere(ts)]

before = prints(tensors)
assert len(set(before)) == len(before) and prints([t.clone() for t in tensors]) == before
torch.set_num_threads(2)
assert prints(tensors) == before
for places, values in ([2400], [0.25]), ([5, 6], tensors[1][[6, 5]]):
    changed = [t.clone() for t in tensors]
    changed[1][places] = torch.as_tensor(values)
    assert [a == b for a, b in zip(prints(changed), before)] == [i != 1 for i in range(len(before))]
"""


def test_tensors_of_devices_are_added_up_there(torch_python, root):
    """The path of other devices, on tensors of the CPU: whole chunks, pieces, kinds, and places that change."""
    subprocess.run([torch_python, "-c", ELSEWHERE, str(root / "src/hook")], check=True, timeout=100)


def test_what_cannot_be_compared_is_said(laggard, torch_python, tmp_path):
    (tmp_path / "none.log").write_text("no step here\nand no loss\n")
    assert laggard("determinism").returncode == 2
    assert laggard("determinism", "--every", "0", "--", "true").returncode == 2
    assert laggard("determinism", "--flags", "a", "b").returncode == 2
    nothing = laggard("determinism", tmp_path / "none.log", tmp_path / "none.log")
    assert nothing.returncode == 1 and nothing.stdout == "" and "laggard: " in nothing.stderr
    failed = laggard("determinism", "--", "sh", "-c", "exit 7")
    assert failed.returncode == 1 and "status 7 in run 1" in failed.stderr
    no_torch = laggard("determinism", "--", PYTHON, "-c", "print('out')")
    assert no_torch.returncode == 1 and no_torch.stdout == "" and "no training step" in no_torch.stderr
