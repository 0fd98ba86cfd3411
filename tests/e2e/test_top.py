# SPDX-License-Identifier: Apache-2.0
"""laggard top: what it shows of a recording and of a job that runs, its keys in a terminal, and what it leaves behind."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest


@pytest.fixture
def made(laggard_path, tmp_path):
    tool = next(p / "tests/e2e/make_trace" for p in pathlib.Path(laggard_path).parents if (p / "tests/e2e/make_trace").exists())

    def call(kind):
        out = tmp_path / f"{kind}.lag"
        subprocess.run([tool, kind, out], check=True, timeout=60)
        return out
    return call


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, *args, rows=24, columns=80):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.was = termios.tcgetattr(slave)
        self.slave, self.seen = slave, ""
        self.process = subprocess.Popen(args, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"})

    def wait_for(self, text, seconds=30):
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, (text, self.seen[-3000:])
            if select.select([self.master], [], [], 0.2)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")

    def press(self, keys):
        self.seen = ""
        os.write(self.master, keys)

    def rows(self):
        """The last picture's lines, without colours."""
        picture = self.seen.rsplit("\x1b[H", 1)[1].split("\x1b[J")[0]
        return [re.sub(r"\x1b\[[0-9;]*[mK]", "", row) for row in picture.replace("\r", "").rstrip("\n").split("\n")]

    def end(self):
        code = self.process.wait(timeout=20)
        while select.select([self.master], [], [], 0.2)[0]:
            self.seen += os.read(self.master, 65536).decode(errors="replace")
        assert termios.tcgetattr(self.slave) == self.was
        assert self.seen.rstrip("\r\n").endswith("\x1b[?25h\x1b[?1049l")  # the first screen, and the cursor, are back
        return code


@pytest.fixture
def terminal(laggard_path):
    running = []

    def call(*args, **size):
        running.append(Terminal(laggard_path, "top", *args, **size))
        return running[-1]
    yield call
    for t in running:
        t.process.kill()
        t.process.wait()
        os.close(t.master)
        os.close(t.slave)


def test_a_recording_says_what_explain_says(laggard, made):
    trace = made("stall")
    verdict = json.loads(laggard("explain", "--json", trace).stdout)
    done = laggard("top", "--batch", "--last", "1m", trace)
    assert (done.returncode, done.stderr) == (0, "")
    lead = verdict["findings"][0]
    assert f"{lead['lost_ms']:.1f}" in done.stdout and lead["culprit"]["comm"] in done.stdout
    assert f"steps: {verdict['steps']['count']}," in done.stdout
    for rank in (0, 1):
        row = re.search(rf"^ *{rank} +(\d+) +[\d.]+ +([\d.]+) .* +(\d+) . \[(\w+)\]$", done.stdout, re.M)
        steps = [s for s in json.loads(laggard("steps", "--json", trace).stdout)["steps"] if s["rank"] == rank]
        assert int(row[3]) == sum(s["slow"] for s in steps) and float(row[2]) == pytest.approx(verdict["steps"]["median_ms"], abs=0.2)
        assert set(row[4]) <= set("whfbgos") and len(row[4]) == 20
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "\x1b" not in done.stdout


def test_a_healthy_recording_accuses_nobody(laggard, made):
    said = laggard("top", "--batch", "--last", "1m", made("healthy")).stdout
    assert "WHO WAITS" not in said and "^" not in said and re.search(r"^ *0 ", said, re.M)


def test_windows_follow_each_other(laggard, made):
    trace = made("stall")
    said = laggard("top", "--batch", "--last", "2s", "--every", "1s", trace).stdout
    heads = [tuple(map(float, m)) for m in re.findall(r"([\d.]+) to ([\d.]+) s of", said)]
    assert heads[0] == (0, 2) and heads[-1][1] == pytest.approx(4.9, abs=0.2) and len(heads) == 4
    assert all(b - a <= 2.01 for a, b in heads)
    assert len(re.findall("laggard top", laggard("top", "--batch", "-n", "2", "--last", "2s", "--every", "1s", trace).stdout)) == 2


def test_loader_cpus_and_devices_have_lines(laggard, made, tmp_path):
    trace = made("stall")
    said = laggard("top", "--batch", "--last", "1m", trace).stdout
    share, = re.findall(r"^loader +([\d.]+) % of the steps' time waits for a batch$", said, re.M)
    stages = {s["stage"]: s["share"] for s in json.loads(laggard("explain", "--json", trace).stdout)["stages"]}
    assert float(share) == pytest.approx(100 * stages["batch_wait"], abs=1)
    busy, one, other = map(float, re.search(r"^CPUs +([\d.]+) busy: pid 900 ([\d.]+), pid 901 ([\d.]+)", said, re.M).groups())
    assert busy == pytest.approx(one + other, abs=0.02) and one > 0.5 and "device" not in said
    lines = ["timestamp, index, memory.used [MiB], utilization.gpu [%], power.draw [W]"]
    lines += [f"2026/03/01 10:00:{i:02d}.000, {k}, 2048 MiB, {90 - 30 * k} %, 300.00 W" for i in range(40) for k in range(2)]
    log = tmp_path / "smi.csv"
    log.write_text("\n".join(lines) + "\n")
    said = laggard("top", "--batch", "--last", "1m", log).stdout
    assert "device  0 util 90 % 300 W 2.00 GiB" in said and "device  1 util 60 % 300 W 2.00 GiB" in said


def test_the_mouse_moves_in_a_recording(terminal, made):
    t = terminal("--last", "2s", "--every", "1s", made("stall"))
    t.wait_for("\x1b[J")
    assert "\x1b[?1000h\x1b[?1006h" in t.seen
    t.press(b"\x1b[<0;10;5M")  # a click stops it
    t.wait_for("paused")
    t.press(b"\x1b[<0;10;5m\x1b[<65;10;5M")  # let go, and the wheel down: later
    t.wait_for("1.0 to 3.0 s")
    t.press(b"\x1b[<64;10;5M")
    t.wait_for("0.0 to 2.0 s")
    t.press(b"q")
    assert t.end() == 0 and "\x1b[?1006l\x1b[?1000l" in t.seen


@pytest.mark.parametrize("rows, columns", [(24, 80), (10, 40), (70, 250)])
def test_a_picture_fits_the_screen(terminal, made, rows, columns):
    t = terminal("--last", "1m", made("stall"), rows=rows, columns=columns)
    t.wait_for("\x1b[J")
    shown = t.rows()
    assert len(shown) <= rows and all(len(row) <= columns for row in shown)
    assert ("more below" in shown[-1]) == (rows == 10)
    t.press(b"q")
    assert t.end() == 0


def test_what_does_not_fit_is_scrolled_to_and_keys_are_listed(terminal, made, laggard):
    """As in htop. Every line of the picture comes into view, below its first."""
    trace = made("stall")
    whole = [line[:40].rstrip() for line in laggard("top", "--batch", "--last", "1m", trace).stdout.splitlines()[1:] if line.strip()]
    t = terminal("--last", "1m", trace, rows=10, columns=80)
    t.wait_for("more below, 0 above")
    seen = [row[:40].rstrip() for row in t.rows()]
    for key in (b"\x1b[B", b"\x1b[6~", b"\x1b[6~", b"\x1b[6~", b"\x1b[6~"):
        t.press(key)
        t.wait_for("\x1b[J")
        assert t.rows()[0].startswith("laggard top") and len(t.rows()) <= 10
        seen += [row[:40].rstrip() for row in t.rows()]
    assert "0 more below" in t.rows()[-1] and all(line in seen for line in whole)
    t.press(b"\x1b[A")
    t.wait_for("1 more below")
    t.press(b"\x1b[H")
    t.wait_for(", 0 above")
    for key in (b"h", b"?", b"\x1bOP"):
        t.press(key)
        t.wait_for("keys\x1b[K")
        t.wait_for("q F10 Ctrl-C")
        assert all(key in t.seen for key in ("/ F3", "\\ F4", "F6 > < I"))
        t.press(b"x ")  # the first key that there is leads back
        t.wait_for(", 0 above")
    t.press(b"\x1b[21~")
    assert t.end() == 0


def test_keys_move_in_a_recording(terminal, made):
    t = terminal("--last", "1s", "--every", "1s", made("stall"))
    t.wait_for("0.0 to 1.0 s")
    t.press(b" ")
    t.wait_for("paused")
    for keys, at in ((b"\x1b[C", "1.0 to 2.0 s"), (b"]", "2.0 to 3.0 s"), (b"\x1bOD", "1.0 to 2.0 s"), (b"[", "0.0 to 1.0 s")):
        t.press(keys)
        t.wait_for(at)
    t.press(b"x\x1b[A")
    t.press(b"\x04")
    assert t.end() == 0


def ranks_shown(t):
    return [int(row.split()[0]) for row in t.rows() if re.match(r" *\d+ +\d+ +[\d.]+ ", row)]


def test_ranks_are_sorted(terminal, made):
    """By each column in turn, what costs first; the other way round; and as drawn again."""
    t = terminal("--last", "1m", made("stall"))
    t.wait_for("\x1b[J")
    drawn, columns = ranks_shown(t), ("RANK", "PID", "STEPS/S", "MEDIAN", "P99", "MAX", "OWN", "SLOW")
    assert drawn == [0, 1]
    for i, column in enumerate(columns):
        t.press(b"\x1b[17~" if i % 2 else b">")
        t.wait_for(f"sort: {column} ")
        t.wait_for("\x1b[J")
        cells = [float(row.split()[i]) for row in t.rows() if re.match(r" *\d+ +\d+ +[\d.]+ ", row)]
        assert cells == sorted(cells, reverse=i >= 2)
        t.press(b"I")
        t.wait_for("turned")
        t.wait_for("\x1b[J")
        cells = [float(row.split()[i]) for row in t.rows() if re.match(r" *\d+ +\d+ +[\d.]+ ", row)]
        assert len(cells) == 2 and cells == sorted(cells, reverse=i < 2)
        t.press(b"I")
        t.wait_for("\x1b[J")
    t.press(b".")
    t.wait_for("\x1b[J")
    assert "sort:" not in t.seen and ranks_shown(t) == drawn
    t.press(b"<")
    t.wait_for("sort: SLOW")
    t.press(b"q")
    assert t.end() == 0


def test_ranks_and_waits_are_filtered(terminal, made):
    t = terminal("--last", "1m", made("stall"))
    t.wait_for("\x1b[J")
    assert ranks_shown(t) == [0, 1] and any("<-" in row for row in t.rows()[2:])
    t.press(b"\\90")
    t.wait_for("filter: 90_")
    t.press(b"1\r")
    t.wait_for("filter: 901  ")
    t.wait_for("\x1b[J")
    assert ranks_shown(t) == [1] and t.rows()[0].startswith("laggard top") and any(row.startswith("RANK") for row in t.rows())
    t.press(b"\x1bOS")  # F4: anew
    t.wait_for("filter: _")
    t.press(b"noBody")
    t.wait_for("\x1b[J")
    assert ranks_shown(t) == []
    t.press(b"\x7f" * 6)
    t.wait_for("\x1b[J")
    assert ranks_shown(t) == [0, 1]
    t.press(b"q\x1b")  # q is a letter here; Escape takes the text away
    t.wait_for("\x1b[J")
    assert "filter" not in t.seen and ranks_shown(t) == [0, 1] and t.process.poll() is None
    t.press(b"q")
    assert t.end() == 0


def test_a_search_leads_to_its_line(terminal, made):
    t = terminal("--last", "1m", made("stall"), rows=8)
    t.wait_for("more below, 0 above")
    t.press(b"/who WAITS")
    t.wait_for("search: who WAITS_ (1 of 1)")
    t.wait_for("\x1b[J")
    assert any("WHO WAITS" in row for row in t.rows())
    t.press(b"\x1b")
    t.wait_for("\x1b[J")
    t.press(b"/RANK\r")
    t.wait_for("search: RANK (1 of")
    t.wait_for("\x1b[J")
    hits, = set(re.findall(r"\(1 of (\d+)\)", t.seen))
    for n in range(2, int(hits) + 1):
        t.press(b"\x1bOR")
        t.wait_for(f"({n} of {hits})")
        t.wait_for("\x1b[J")
        marked, = re.findall(r"\x1b\[7m(.*?rank.*?)\x1b\[0m\x1b\[K", t.seen, re.I)
        assert marked
    t.press(b"/no such text\r")
    t.wait_for("search: no such text (0 of 0)")
    t.press(b"q")
    assert int(hits) > 1 and t.end() == 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back(terminal, made, how):
    t = terminal("--last", "1m", made("stall"))
    t.wait_for("\x1b[J")
    os.killpg(t.process.pid, how)
    assert t.end() == 0


def test_names_do_nothing_to_the_terminal(laggard, made, terminal):
    trace = made("hostile")
    said = laggard("top", "--batch", "--last", "1m", trace)
    assert said.returncode == 0 and not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", said.stdout)
    t = terminal("--last", "1m", trace)
    t.wait_for("\x1b[J")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", "\n".join(t.rows()))
    t.press(b"q")
    assert t.end() == 0


def test_what_cannot_be_shown_is_said_in_a_line(laggard, tmp_path):
    (tmp_path / "no.json").write_text("{", encoding="utf-8")
    for args, code in (((tmp_path / "no.json",), 1), (("-p", "999999999"), 2), (("-p", "x"), 2), (("--every", "1ms", "x"), 2),
                       (("-p", str(os.getpid()), "x.lag"), 2), (("-n", "0", "x.lag"), 2)):
        done = laggard("top", *args)
        assert done.returncode == code and len(done.stderr.splitlines()) == 1 and done.stdout == "", (args, done.stderr)


JOB = """
import laggard, time
for i in range(100000):
    with laggard.stage("forward"):
        end = time.thread_time() + 0.004
        while time.thread_time() < end:
            pass
    time.sleep(0.006)
    laggard.step()
"""


def processes():
    return {int(p) for p in os.listdir("/proc") if p.isdigit()}


@pytest.mark.live
def test_a_job_that_runs(laggard, laggard_path, can_record, terminal):  # pylint: disable=unused-argument
    env = json.loads(laggard("env", "--json").stdout)["env_vars"]
    job = subprocess.Popen(["/usr/bin/python3", "-c", JOB], env={**os.environ, **env}, stdin=subprocess.DEVNULL)
    try:
        t = terminal("-p", str(job.pid), "--last", "4s", "--every", "1s")
        t.wait_for("\x1b[J", 60)
        t.wait_for("steps: ", 60)
        time.sleep(4)
        t.press(b"")
        t.wait_for("\x1b[J", 60)
        row = next(r for r in t.rows() if str(job.pid) in r)
        assert float(row.split()[2]) == pytest.approx(90, rel=0.25)
        children = {int(p) for p in pathlib.Path(f"/proc/{t.process.pid}/task/{t.process.pid}/children").read_text(encoding="ascii").split()}
        opened = {os.readlink(f"/proc/{t.process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{t.process.pid}/fd")}
        folders = [f for f in opened if re.search(r"/laggard[^/]*/[0-9a-f]{16}$", f)]
        t.press(b"q")
        assert t.end() == 0
        assert children and not children & processes()
        assert len(folders) == 1 and not os.path.exists(folders[0])
        t = terminal("-p", str(job.pid), "--every", "1s")
        t.wait_for("\x1b[J", 60)
        children = {int(p) for p in pathlib.Path(f"/proc/{t.process.pid}/task/{t.process.pid}/children").read_text(encoding="ascii").split()}
        t.process.kill()
        end = time.monotonic() + 20
        while children & processes() and time.monotonic() < end:
            time.sleep(0.1)
        assert children and not children & processes()  # the recorder ends with it
    finally:
        job.kill()
        job.wait()
