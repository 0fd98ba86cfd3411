# SPDX-License-Identifier: Apache-2.0
"""registry.py --socket S: answers one line with another on a Unix socket, and now and then tidies up.

While it tidies (--busy seconds each --period) nobody gets an answer: its threads share one lock, as
those of many small services do. --busy 0: the healthy twin, which always answers at once.
"""
import argparse
import hashlib
import os
import socket
import sys
import threading
import time

import agent

BLOCK = bytes(1 << 20)
TABLE = threading.Lock()


def answer(connection):
    with connection:
        while connection.recv(256):
            with TABLE:
                connection.sendall(b"ok\n")


def serve(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path + ".new")
        s.listen()
        os.rename(path + ".new", path)  # who sees it can connect
        while True:
            threading.Thread(target=answer, args=(s.accept()[0],), daemon=True).start()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--busy", type=float, default=0.12, help="seconds each time")
    args, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    threading.Thread(target=serve, args=(args.socket,), daemon=True).start()

    def tidy(_pid):
        end = time.monotonic() + args.busy
        with TABLE:
            while time.monotonic() < end:
                hashlib.sha256(BLOCK)
    agent.run(tidy)


if __name__ == "__main__":
    main()
