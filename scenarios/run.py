# SPDX-License-Identifier: Apache-2.0
"""run.py NAME [--record OUT] [--attach | --no-laggard]: one scenario, live, and whether the verdict is true.

Starts the training under `laggard record`, its causes when every rank is past the warm-up, then
`laggard explain --json`, and compares with cases.py and with what really happened: the ranks' own
step times and the agents' own logs.  A scenario whose cause did not bite proves nothing and fails.
With --attach the training runs by itself, and is recorded by `record -p` from then on: no marks.

Exit: 0 as expected, 1 not, 3 somebody innocent was accused, 75 somebody else had the CPUs (the run says
nothing), 77 cannot run here (the reason is the last line).
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cases import CASES
from judge import judge, status
from neighbours import Neighbours
from truth import Truth

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PYTHON = "/usr/bin/python3"  # of the agents, and of Debian's torch; the first on PATH may have none
SKIP = 77
WARM_UP_LIMIT_S = 180


class CannotRun(Exception):
    """This machine lacks something: the reason, and the command that helps."""


def table_gb(nproc):
    """Resident table of a rank: 3 GB where there is room, at least 1 (else holds are too short)."""
    with open("/proc/meminfo", encoding="ascii") as f:
        kb = {line.split(":")[0]: int(line.split()[1]) for line in f}
    gb = min(3.0, 0.6 * kb["MemAvailable"] * 1024 / 1e9 / nproc)
    if gb < 1:
        raise CannotRun(f"needs 1 GB of memory for each of {nproc} ranks, "
                        f"{kb['MemAvailable'] // 1024} MB are available")
    return gb


def torch_python():
    """Who has torch: LG_PYTHON, the release's own, or the first on PATH (a virtual environment)."""
    finds = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    for python in (os.environ.get("LG_PYTHON"), PYTHON, shutil.which("python3")):
        if python and not subprocess.run([python, "-c", finds], check=False).returncode:
            return python
    raise CannotRun("needs PyTorch, and this release has no package python3-torch or it is not installed: "
                    "python3 -m venv V && V/bin/pip install torch --index-url https://download.pytorch.org/whl/cpu, then LG_PYTHON=V/bin/python make try")


def trixie_root():
    root = pathlib.Path(os.environ.get("LG_TRIXIE") or ROOT / "build" / "trixie")
    if not (root / "usr/bin/python3").exists():
        raise CannotRun("needs torch 2 in a Debian 13 root (LG_TRIXIE or build/trixie): "
                        "run sudo tools/make-trixie")
    if os.geteuid() != 0:
        raise CannotRun("needs root to enter the Debian 13 root")
    return str(root)


def busy_ticks():
    with open("/proc/stat", encoding="ascii") as f:
        user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, f.readline().split()[1:])
    return user + nice + system + irq + softirq


class Run:
    def __init__(self, case, work, recording, laggard, attach=False):
        self.case, self.work, self.recording, self.laggard = case, work, recording, laggard
        self.attach, self.recorder = attach, None
        self.causes, self.log, self.tenant = {}, {}, None
        self.own_cpu_s = 0.0

    def command(self):
        case = self.case
        if case.trixie:
            python, here = [str(HERE / "in_root"), trixie_root(), PYTHON], pathlib.Path("/mnt")
        else:
            python, here = [torch_python()], HERE
        gb = table_gb(case.nproc) if case.big else 0.001
        train = [str(here / "train.py"), "--out", str(self.work), "--seconds", str(case.seconds),
                 "--gb", f"{gb:.2f}", *case.train]
        command = [*python, str(here / "launch.py"), "--nproc", str(case.nproc), "--pin", *train]
        if self.laggard and not self.attach:
            # Under sudo the job stays root's: some scenarios enter another root, and all write to self.work.
            as_root = ["--user", "root"] if os.geteuid() == 0 else []
            command = [self.laggard, "record", *as_root, "-o", str(self.recording), "--", *command]
        return command

    def start_tenant(self):
        ready = self.work / "tenant.ready"
        self.tenant = subprocess.Popen([PYTHON, str(HERE / "agents/tenant.py"), "--ready", str(ready)])
        deadline = time.monotonic() + WARM_UP_LIMIT_S
        while not ready.exists():
            if self.tenant.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the tenant did not start")
            time.sleep(0.1)

    def wait_ready(self, job):
        ready = [self.work / f"ready.{rank}" for rank in range(self.case.nproc)]
        deadline = time.monotonic() + WARM_UP_LIMIT_S
        while not all(path.exists() for path in ready):
            if job.poll() is not None:
                raise RuntimeError(f"the training ended before its warm-up did: {job.returncode}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"no rank was ready after {WARM_UP_LIMIT_S} s")
            time.sleep(0.05)
        return [int(path.read_text()) for path in ready]

    def start_recorder(self, pids):
        """Returns once it records."""
        self.recorder = subprocess.Popen([self.laggard, "record", "-p", ",".join(map(str, pids)), "-o", str(self.recording)],
                                         stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.recorder.stderr:
            sys.stderr.write(line)
            if "recording with tier" in line:
                return
        raise RuntimeError("laggard record -p did not start")

    def start_causes(self, pids):
        words = {"{pids}": [str(pid) for pid in pids],
                 "{tenant}": [str(self.tenant.pid)] if self.tenant else [],
                 "{cpu0}": [str(min(os.sched_getaffinity(pids[0])))]}
        for key, (program, *args) in self.case.causes.items():
            argv = [word.replace("{work}", str(self.work))
                    for arg in args for word in words.get(arg, [arg])]
            self.log[key] = self.work / f"cause.{key}"
            self.causes[key] = subprocess.Popen(
                [PYTHON, str(HERE / "agents" / program), "--log", str(self.log[key]), *argv])

    def reap(self, process):
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.own_cpu_s += usage.ru_utime + usage.ru_stime

    def stop(self, job):
        for process in [*self.causes.values(), self.tenant, job, self.recorder]:
            if process and process.returncode is None:
                os.kill(process.pid, signal.SIGTERM)  # not reaped yet, so the pid is its own
                self.reap(process)

    def __call__(self, progress):
        job = None
        begin, ticks, neighbours = time.monotonic(), busy_ticks(), Neighbours()
        try:
            if self.case.tenant:
                self.start_tenant()
            job = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL,
                                   stdout=sys.stderr, stderr=sys.stderr)
            progress("ranks fill their memory")
            pids = self.wait_ready(job)
            if self.attach:
                self.start_recorder(pids)
            self.start_causes(pids)
            end = time.monotonic() + self.case.seconds
            while os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                progress(f"training, {max(end - time.monotonic(), 0):.0f} s left")
                neighbours.look()
                time.sleep(0.2)
            self.reap(job)
            if job.returncode != 0:
                raise RuntimeError(f"the training under record ended with status {job.returncode}")
            if self.recorder:
                self.reap(self.recorder)  # the job has ended
                if self.recorder.returncode != 0:
                    raise RuntimeError(f"laggard record -p ended with status {self.recorder.returncode}")
        finally:
            self.stop(job)
            progress(None)
        wall_s = time.monotonic() - begin
        busy_s = (busy_ticks() - ticks) / os.sysconf("SC_CLK_TCK")
        foreign = max(busy_s - self.own_cpu_s, 0) / (wall_s * os.cpu_count())
        return Truth.read(self.work, pids, self.causes, self.log, foreign,
                          neighbours.ms)


def show_progress(text):
    if not sys.stderr.isatty():
        return
    width = shutil.get_terminal_size().columns - 1
    sys.stderr.write("\r\033[K" + (text or "")[:width])
    sys.stderr.flush()


def run(name, recording=None, laggard=None, progress=show_progress, attach=False):
    """One scenario. Returns (truth, verdict or None)."""
    case = CASES[name]
    with tempfile.TemporaryDirectory(prefix="scenario-") as work:
        recording = recording or pathlib.Path(work) / "run.lag"
        truth = Run(case, pathlib.Path(work), recording, laggard, attach)(progress)
        if not laggard:
            return truth, None
        done = subprocess.run([laggard, "explain", "--json", str(recording)], check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if done.returncode != 0:
            raise RuntimeError(f"laggard explain ended with status {done.returncode}")
        return truth, json.loads(done.stdout)


def attempt(name, args):
    """(faults of one run, truth)"""
    truth, verdict = run(name, args.record, args.laggard, attach=args.attach)
    print(truth.summary())
    if verdict is None:
        return truth.faults(CASES[name]), truth
    for f in verdict["findings"][:6]:
        culprit = f.get("culprit") or {}
        print(f"  {f['severity']:6s} {f['id']} lost {f['lost_ms']} ms confidence {f['confidence']} "
              f"pid {culprit.get('pid')} {culprit.get('function')}: {f['title']}")
    if args.verdict:
        args.verdict.write_text(json.dumps(verdict, indent=1), encoding="utf-8")
    return truth.faults(CASES[name]) + judge(CASES[name], truth, verdict), truth


def main():
    # SystemExit unwinds through Run's cleanup: no rank and no agent outlives the run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("name", choices=CASES, metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--record", type=pathlib.Path, help="keep the recording here")
    parser.add_argument("--verdict", type=pathlib.Path, help="keep explain --json here")
    parser.add_argument("--laggard", default=os.environ.get("LAGGARD", str(ROOT / "build/laggard")))
    parser.add_argument("--attach", action="store_true", help="record the ranks once they run, without marks")
    parser.add_argument("--no-laggard", dest="laggard", action="store_const", const=None,
                        help="only show that the cause is real")
    args = parser.parse_args()
    try:
        faults, truth = attempt(args.name, args)
    except CannotRun as e:
        print(f"skipped: {e}")
        return SKIP
    for fault in faults:
        print(f"{fault.says}: {fault}")
    return status(faults, truth)


if __name__ == "__main__":
    sys.exit(main())
