# SPDX-License-Identifier: Apache-2.0
"""What the eBPF recorder costs: by the kernel's account, and as time taken from a switching load.

    measure.py BUILD_DIRECTORY [ROUND_TRIPS_PER_SECOND_AND_CPU] [PAIRS]

Recorder off and on alternate within one run; off-off pairs of the same run give the noise. The
load (switch_load) makes two switches and two wake-ups a round trip.
"""
import json
import re
import statistics
import subprocess
import sys


def load(build, seconds, rate):
    text = subprocess.run([f"{build}/bench/bpf_cost/switch_load", str(seconds), str(rate)], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return float(re.search(r"([\d.]+) switches/s", text)[1]), float(re.search(r"([\d.]+) ns a round", text)[1])


def main():
    build = sys.argv[1]
    rate = float(sys.argv[2]) if len(sys.argv) > 2 else 0
    pairs = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    off, on, programs, switches, lost = [], [], {}, 0, 0
    for _ in range(pairs):
        off.append(load(build, 1, rate)[1])
        off.append(load(build, 1, rate)[1])
        rec = subprocess.Popen([f"{build}/tests/e2e/bpf_dump", "2", "-q"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        assert rec.stderr.readline() == "recording\n"
        per_second, ns = load(build, 1, rate)
        on.append(ns)
        switches += per_second
        for line in rec.communicate()[0].splitlines():
            row = json.loads(line)
            if row["table"] == "meta" and row["key"].startswith("record.cost.bpf."):
                runs, _, cost, _ = row["value"].split()
                old = programs.get(row["key"][16:], (0, 0))
                programs[row["key"][16:]] = (old[0] + int(runs), old[1] + int(cost))
            if row["table"] == "diag" and row["id"] == 1:
                lost += row["count"]
    print(f"{'program':20} {'runs':>10} {'ns a run':>9}")
    for name, (runs, cost) in sorted(programs.items(), key=lambda p: -p[1][1]):
        if runs:
            print(f"{name:20} {runs:10} {cost / runs:9.0f}")
    n = programs["switch"][0]
    print(f"all programs: {sum(c for _, c in programs.values()) / n:.0f} ns a switch, "
          f"{switches / pairs:.0f} switches/s of the load, {lost} lost")
    if not rate:
        noise = [abs(a - b) / 2 for a, b in zip(off[::2], off[1::2])]
        print(f"a switch takes {(statistics.median(on) - statistics.median(off)) / 2:.0f} ns longer "
              f"(median of {pairs} pairs; between two runs without recording: {statistics.median(noise):.0f} ns)")


if __name__ == "__main__":
    main()
