# SPDX-License-Identifier: Apache-2.0
"""show.py: what `make try` runs. A training with a known culprit, its verdict, its timeline."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from cases import CASES
from run import PYTHON, ROOT, CannotRun, show_progress
from run import run as run_case

NAME = "agent_in_turn"


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    laggard = os.environ.get("LAGGARD", str(ROOT / "build/laggard"))
    out = ROOT / "build/try"
    out.mkdir(parents=True, exist_ok=True)
    recording = out / "run.lag"
    case = CASES[NAME]
    print(f"Two ranks train for {case.seconds:.0f} s; {case.what}.\n"
          "laggard does not know that. First the ranks fill their memory (10-30 s).", flush=True)
    plain = {"at": 0.0}

    def progress(text):
        if sys.stderr.isatty():
            show_progress(text)
        elif text and time.monotonic() - plain["at"] > 10:  # a log gets a line now and then
            plain["at"] = time.monotonic()
            print(f"  {text}", file=sys.stderr, flush=True)

    try:
        # The verdict is printed by explain itself below; this run only makes the recording.
        truth, _ = run_case(NAME, recording, laggard, progress)
    except CannotRun as e:
        print(f"cannot run here: {e}")
        return 1
    except RuntimeError as e:
        print(f"failed: {e}\nWhat this machine permits: build/laggard doctor")
        return 1
    print()
    if subprocess.run([laggard, "explain", str(recording)], check=False).returncode:
        return 1
    print("\nWhat was really done, by the agent's own log:")
    for key, acts in truth.acts.items():
        if acts:
            print(f"  pid {truth.cause_pids[key]} read /proc/PID/smaps_rollup {len(acts)} times, "
                  f"{sum(d for _, d, _ in acts) / len(acts) / 1e6:.0f} ms each")
    page = out / "run.html"
    if subprocess.run([laggard, "explain", str(recording), "--html", str(page)], stdout=subprocess.DEVNULL, check=False).returncode:
        return 1
    print(f"\nThe picture, in any browser: {shown(page)} ({page.stat().st_size / 1e6:.1f} MB); it opens at a late step.\n"
          "\nThe timeline for others:")
    for name, where in (("run.pftrace", "open https://ui.perfetto.dev and drop the file on it"),
                        ("run.json.gz", "chrome://tracing, Load; or ui.perfetto.dev")):
        path = out / name
        done = subprocess.run([laggard, "convert", str(recording), "-o", str(path)], check=False)
        if done.returncode:
            return 1
        size = path.stat().st_size / 1e6
        print(f"  {shown(path)} ({size:.1f} MB): {where}")
    print(f"  {shown(recording)}: the recording; build/laggard explain {shown(recording)} --json")
    return 0


def shown(path):
    return os.path.relpath(path)


if __name__ == "__main__":
    if not shutil.which(PYTHON):
        sys.exit(f"{PYTHON} is missing: run tools/install-deps test")
    sys.exit(main())
