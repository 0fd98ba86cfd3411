#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hta.py FOLDER: what HolisticTraceAnalysis takes for loading the traces in FOLDER and its analyses that
answer what `laggard explain` answers of one rank. HTA_PATH names a checkout of it; exit 77 says why
it cannot run."""
import os
import sys

SKIP = 77


def main():
    path = os.environ.get("HTA_PATH")
    if not path:
        print("HTA_PATH does not name a checkout of HolisticTraceAnalysis")
        return SKIP
    sys.path.insert(0, path)
    try:
        from hta.trace_analysis import TraceAnalysis
    except ImportError as why:
        print(f"HolisticTraceAnalysis cannot be loaded: {why}")
        return SKIP
    analysis = TraceAnalysis(trace_dir=sys.argv[1])
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(ranks=list(analysis.t.traces), visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    analysis.get_comm_comp_overlap(visualize=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
