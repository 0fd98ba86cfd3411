# SPDX-License-Identifier: Apache-2.0
"""laggard view: what is served, to whom, by whom, and how it ends; handing a trace to another page, in Chromium."""
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
from device_trace import device_trace
from test_html import modules  # noqa: F401  pylint: disable=unused-import

TRACE = pathlib.Path(__file__).resolve().parents[1] / "data/kineto/train.json.gz"


class View:
    """A running `laggard view`."""

    def __init__(self, laggard_path, *args):
        self.process = subprocess.Popen([laggard_path, "view", "--no-open", *args], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = [self.process.stdout.readline() for _ in range(3)]
        match = re.fullmatch(r"report    (http://127\.0\.0\.1:(\d+)(/[0-9a-f]{32}/))\n", said[0])
        assert match, (said, self.process.stderr.read())
        self.url, self.port, self.folder = match[1], int(match[2]), match[3]
        assert said[1] == f"timeline  {self.url}perfetto\n" and "Ctrl-C" in said[2]

    def get(self, path, method="GET", **headers):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        c.request(method, path, headers=headers)
        answer = c.getresponse()
        body = answer.read()
        c.close()
        return answer, body

    def server(self):
        """Pid of the process that answers."""
        pid = self.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        assert len(children) == 1
        return int(children[0])

    def end(self, how=signal.SIGINT):
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err


@pytest.fixture
def view(laggard_path):
    running = []

    def call(*args):
        running.append(View(laggard_path, *args))
        return running[-1]
    yield call
    for v in running:
        v.process.kill()
        v.process.communicate()


def is_gone(pid):
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            if "Z" in pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]:
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_what_is_served_is_what_files_would_hold(view, laggard, tmp_path):
    v = view(TRACE)
    assert laggard("explain", TRACE, "--html", tmp_path / "page.html").returncode == 0
    assert laggard("convert", TRACE, "-o", tmp_path / "t.pftrace").returncode == 0
    answer, page = v.get(v.folder)
    assert answer.status == 200 and page == (tmp_path / "page.html").read_bytes()
    for name, value in (("Content-Type", "text/html; charset=utf-8"), ("X-Content-Type-Options", "nosniff"),
                        ("Referrer-Policy", "no-referrer"), ("Cache-Control", "no-store"), ("X-Frame-Options", "DENY")):
        assert answer.getheader(name) == value
    answer, trace = v.get(v.folder + "trace.pftrace")
    assert answer.status == 200 and trace == (tmp_path / "t.pftrace").read_bytes()
    assert v.get(v.folder, method="HEAD")[0].getheader("Content-Length") == str(len(page))
    answer, page = v.get(v.folder + "perfetto")
    assert answer.status == 200 and b'data-ui="https://ui.perfetto.dev"' in page


def test_other_runs_are_rows_of_the_report(view, laggard, tmp_path):
    runs = [device_trace(tmp_path / f"{name}.json", pid=7 + i, start_s=3600 * i) for i, name in enumerate(("one", "two"))]
    v = view(*runs)
    assert laggard("explain", *runs, "--html", tmp_path / "page.html").returncode == 0
    page = v.get(v.folder)[1]
    assert page == (tmp_path / "page.html").read_bytes() and b"two.json" in page[page.index(b'<section id="runs"'):]
    v.server()  # who judged the other run is gone


def test_who_has_not_the_word_gets_nothing(view):
    v = view(TRACE)
    word = v.folder.strip("/")
    wrong = word[:-1] + ("0" if word[-1] != "0" else "1")
    for path in ("/", "//", "/perfetto", f"/{wrong}/", f"/{word[:-1]}/", f"/{word}", f"/{word}0/", f"/{word.upper()}x/",
                 f"/{word}/../../etc/passwd", f"/{word}//etc/passwd", f"/{word}/%2e%2e/x", f"/{word}/trace.pftrace/",
                 f"/{word}/page", "/" + "a" * 9000):
        answer, body = v.get(path)
        assert answer.status in (404, 414, 431) and len(body) < 500, path
    for host in ("attacker.example", f"attacker.example:{v.port}", "127.0.0.1.attacker.example", "localhost.x", "", "127.0.0.2"):
        assert v.get(v.folder, Host=host)[0].status == 403, host
    for host in ("localhost:8080", f"127.0.0.1:{v.port}", "[::1]:8080", "LocalHost"):  # ssh -L has a port of its own
        assert v.get(v.folder, Host=host)[0].status == 200, host
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert v.get(v.folder, method=method)[0].status == 405
    # The machine's other addresses are not listened at.
    others = {"127.0.0.2"}
    with contextlib.suppress(OSError):  # no name of the machine leads anywhere in a chroot
        others |= {a[4][0] for a in socket.getaddrinfo(socket.gethostname(), v.port, socket.AF_INET)} - {"127.0.0.1"}
    for address in others:
        with socket.socket() as s:
            assert s.connect_ex((address, v.port)) != 0, address
    assert v.get(v.folder)[0].status == 200


def test_requests_are_read_without_privileges(view):
    v = view(TRACE)
    status = pathlib.Path(f"/proc/{v.server()}/status").read_text(encoding="utf-8")
    assert re.search(r"^CapEff:\s*0+$", status, re.M) and re.search(r"^NoNewPrivs:\s*1$", status, re.M)
    if os.geteuid() == 0:
        assert int(re.search(r"^Uid:\s*(\d+)", status, re.M)[1]) != 0
    # Callers that say nothing, or half, or too many of them: the next one is answered.
    idle = [socket.create_connection(("127.0.0.1", v.port)) for _ in range(8)]
    for s in idle:
        s.sendall(b"GET /" + b"x" * 100)
    assert v.get(v.folder)[0].status == 200
    for s in idle:
        s.close()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left(view, how):
    v = view(TRACE)
    server, pages, until = v.server(), [], time.monotonic() + 10
    while len(pages) < 3 and time.monotonic() < until:  # it says where it is before it has given up all that it was
        files = [os.readlink(f"/proc/{server}/fd/{fd}") for fd in os.listdir(f"/proc/{server}/fd")]
        pages = [f for f in files if f.endswith("page (deleted)")]
    assert len(pages) == 3 and not any(pathlib.Path(f.removesuffix(" (deleted)")).exists() for f in pages)
    code, out, err = v.end(how)
    assert (code, out, err) == (0 if how != signal.SIGKILL else -9, "", "")
    assert is_gone(server)
    assert not pathlib.Path(pages[0]).parent.exists()


def test_what_cannot_be_served_is_said_in_a_line(view, laggard, tmp_path):
    (tmp_path / "no.json").write_text("{", encoding="utf-8")
    taken = view(TRACE).port
    for args, code, said in (((tmp_path / "no.json",), 1, "no.json"), ((tmp_path / "absent",), 1, "absent"),
                             ((TRACE, "--port", str(taken)), 1, "Address already in use"),
                             ((TRACE, "--port", "80"), 2, "--port"), ((TRACE, "--ui", "javascript:x"), 2, "--ui"),
                             ((), 2, "no FILE")):
        done = laggard("view", "--no-open", *args)
        assert done.returncode == code and said in done.stderr and len(done.stderr.splitlines()) == 1, (args, done.stderr)
        assert done.stdout == ""


class OtherPage(http.server.BaseHTTPRequestHandler):
    """Does what Perfetto's documentation says that its interface does: answers PING, and takes one message."""

    PAGE = b"""<!DOCTYPE html><title>other</title><script>
addEventListener("message", e => {
  if (e.data === "PING") { window.pinged = (window.pinged || 0) + 1; if (window.pinged > 3) e.source.postMessage("PONG", e.origin); }
  else if (e.data && e.data.perfetto) crypto.subtle.digest("SHA-256", e.data.perfetto.buffer).then(d => {
    window.got = { title: e.data.perfetto.title, bytes: e.data.perfetto.buffer.byteLength, from: e.origin,
                   sum: Array.from(new Uint8Array(d), b => b.toString(16).padStart(2, "0")).join("") }; });
});</script>"""

    def do_GET(self):  # noqa: N802  pylint: disable=invalid-name
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.PAGE)

    def log_message(self, *args):  # pylint: disable=arguments-differ
        pass


SCRIPT = r"""
const path = require("path");
const [modules, url] = process.argv.slice(1);
const { chromium } = require(path.join(modules, "playwright-core"));
(async () => {
	const browser = await chromium.launch({ executablePath: process.env.LG_CHROMIUM, args: ["--no-sandbox"] });
	const context = await browser.newContext(), errors = [], p = await context.newPage();
	p.on("pageerror", e => errors.push(String(e.message)));
	p.on("console", m => { if (m.type() === "error" && !/postMessage|favicon/.test(m.text())) errors.push(m.text()); });
	await p.goto(url + "perfetto");
	const opened = context.waitForEvent("page", { timeout: 20000 });
	await p.click("button");
	const other = await opened;
	await other.waitForFunction(() => window.got, null, { timeout: 20000 });
	await p.waitForFunction(() => /Handed over/.test(document.querySelector("output").textContent), null, { timeout: 20000 });
	const got = await other.evaluate(() => window.got), said = await p.textContent("output");
	await p.click("text=to the report");
	console.log(JSON.stringify({ got, said, errors, report: await p.textContent("h1"), pwned: await p.evaluate(() => window.pwned) }));
	await browser.close();
})().catch(e => { console.error(e); process.exit(1); });
"""


@pytest.mark.parametrize("named", ["train", '"><script>window.pwned=1</script>'])
def test_another_page_is_given_the_trace(view, laggard, modules, tmp_path, named):  # noqa: F811  pylint: disable=redefined-outer-name
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        pytest.skip("there is no Chromium: run tools/install-deps test")
    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OtherPage)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    ui = f"http://127.0.0.1:{other.server_port}/{named}"
    try:
        v = view(TRACE, "--ui", ui)
        done = subprocess.run(["node", "-e", SCRIPT, modules, v.url], check=False, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL, env={**os.environ, "LG_CHROMIUM": chromium})
    finally:
        other.shutdown()
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout)
    trace = v.get(v.folder + "trace.pftrace")[1]
    summed = subprocess.run(["sha256sum"], input=trace, capture_output=True, check=True).stdout.split()[0].decode()
    assert seen["errors"] == [] and seen.get("pwned") is None
    assert seen["got"] == {"title": seen["report"], "bytes": len(trace), "from": v.url.split("/" + v.folder.strip("/"))[0],
                           "sum": summed}
    assert seen["said"] == f"Handed over: {len(trace)} bytes."
