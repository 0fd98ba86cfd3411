# SPDX-License-Identifier: Apache-2.0
"""launch.py --nproc N [--pin] SCRIPT ARGS...: start N ranks with torchrun's environment.

Debian 12's torchrun (torch 1.13 on Python 3.11) fails on start, so scenarios bring their own
launcher.  It does what torchrun does for one node and nothing more: rank variables, a free port,
every rank killed when one fails, the first failing status returned.
"""
import argparse
import os
import signal
import socket
import subprocess
import sys
import time

STOP_LIMIT_S = 20


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_rank(args, rank, port, cpus):
    env = dict(os.environ)
    env.update(
        RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", ROLE_RANK=str(rank),
        WORLD_SIZE=str(args.nproc), LOCAL_WORLD_SIZE=str(args.nproc), ROLE_WORLD_SIZE=str(args.nproc),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
        TORCHELASTIC_RUN_ID="none", TORCHELASTIC_RESTART_COUNT="0", TORCHELASTIC_MAX_RESTARTS="0",
        OMP_NUM_THREADS=env.get("OMP_NUM_THREADS", "1"),
        USE_LIBUV=env.get("USE_LIBUV", "0"),  # Debian's torch 2 asks for it and is built without it
        GLOO_SOCKET_IFNAME=env.get("GLOO_SOCKET_IFNAME", "lo"))  # no look-up of the host name
    cpu = cpus[rank % len(cpus)]
    return subprocess.Popen(
        [sys.executable, args.script, *args.args], env=env,
        preexec_fn=(lambda: os.sched_setaffinity(0, {cpu})) if args.pin else None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--pin", action="store_true", help="rank i runs on the i-th allowed CPU only")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    args = parser.parse_args()

    cpus = sorted(os.sched_getaffinity(0))
    port = free_port()
    ranks = [start_rank(args, rank, port, cpus) for rank in range(args.nproc)]

    deadline = [float("inf")]

    def stop(signum, _frame):
        deadline[0] = min(deadline[0], time.monotonic() + STOP_LIMIT_S)
        for p in ranks:
            if p.poll() is None:
                p.send_signal(signum)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)

    status = 0
    while any(p.poll() is None for p in ranks):
        failed = [p for p in ranks if p.poll() not in (None, 0)]
        if failed and status == 0:
            status = failed[0].returncode
            stop(signal.SIGTERM, None)  # a rank alone would wait for its peers for ever
        if time.monotonic() > deadline[0]:
            for p in ranks:
                p.kill()  # in a collective that never ends, Python runs no signal handler
        time.sleep(0.05)
    status = status or next((p.returncode for p in ranks if p.returncode), 0)
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main())
