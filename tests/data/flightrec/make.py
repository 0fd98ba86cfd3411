# SPDX-License-Identifier: Apache-2.0
"""Write _dump_0.pickle, _dump_1.pickle (protocol 2, as torch's own pickler) and dump.json beside this file."""
import json
import os
import pickle

HERE = os.path.dirname(os.path.abspath(__file__))
T0 = 1758581237526848193


def entry(i, state, done):
    return {"record_id": i, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": i,
            "p2p_seq_id": 0, "op_id": i, "profiling_name": "nccl:all_reduce", "time_created_ns": T0 + i * 1000000,
            "input_sizes": [[4, 5]], "input_dtypes": ["BFloat16"], "output_sizes": [[4, 5]],
            "output_dtypes": ["BFloat16"], "state": state, "time_discovered_started_ns": None,
            "time_discovered_completed_ns": T0 + i * 1000000 + 500000 if done else None, "retired": done,
            "timeout_ms": 600000, "is_p2p": False,
            "frames": [{"name": "all_reduce", "filename": "distributed_c10d.py", "line": 2500},
                       {"name": "<module>", "filename": "train.py", "line": 30}]}


def dump(last):
    return {"version": "2.4", "nccl_version": "2.21.5",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
            "pg_status": {"0": {"last_enqueued_collective": last, "last_started_collective": -1,
                                "last_completed_collective": 2}},
            "entries": [entry(i, "completed" if i <= 2 else "scheduled", i <= 2) for i in range(1, last + 1)]}


for rank, last in ((0, 4), (1, 2)):
    with open(os.path.join(HERE, f"_dump_{rank}.pickle"), "wb") as f:
        pickle.dump(dump(last), f, protocol=2)
with open(os.path.join(HERE, "dump.json"), "w") as f:
    json.dump(dump(3), f)
