# SPDX-License-Identifier: Apache-2.0
"""explain --html: one page that needs nothing else. What stands in the file is looked at here; what a browser makes of
it, by page.js in Debian's Chromium, where that and npm are there."""
import base64
import gzip
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import PYTHON, SCENARIO_LIMIT_S
from device_trace import device_trace
from live import Disturbed

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data"
WEB = ROOT / "web"
LIMIT_CODE = 150_000
BAD_NAMES = ["</script><script>window.pwned=1</script>", "<img src=x onerror=\"window.pwned=1\">", "\"><svg onload=window.pwned=1>",
             "<!--", "\x1b]0;x\x07\x1b[2J", "a\u202eb\u2066c", "\x00nul", "__proto__", "constructor", "x" * 1_000_000,
             "javascript:window.pwned=1", "${window.pwned=1}", "\u009b31m", "\ud800", "&lt;b&gt;", "'", "]]>"]


@pytest.fixture
def page(laggard, tmp_path):
    """page(FILE..., OPTION...) -> path of the page."""
    def call(*args, name="page.html"):
        out = tmp_path / name
        done = laggard("explain", *args, "--html", out, timeout=300)
        assert done.returncode == 0, done.stderr
        return out
    return call


@pytest.fixture
def stall(laggard_path, tmp_path):
    """A made-up recording of two ranks that one process holds up every 400 ms."""
    tool = next((p / "tests/e2e/make_trace" for p in pathlib.Path(laggard_path).parents
                 if (p / "tests/e2e/make_trace").exists()), None)
    assert tool, "tests/e2e/make_trace is not built"

    def call(kind="stall"):
        out = tmp_path / f"{kind}.lag"
        subprocess.run([tool, kind, out], check=True, timeout=60)
        return out
    return call


def blocks(path):
    text = path.read_text(encoding="utf-8")
    return {int(n): gzip.decompress(base64.b64decode(data)) for n, data in re.findall(r' id="b(\d+)">([^<]*)</script>', text)}


def numbers(column):
    out, v, by = [], 0, 0
    for byte in column:
        v |= (byte & 127) << by
        by += 7
        if not byte & 128:
            out.append(v)
            v = by = 0
    return out


def columns(block):
    n = int.from_bytes(block[:4], "little")
    at, out = 4 * (n + 1), []
    for i in range(n):
        length = int.from_bytes(block[4 * (i + 1):4 * (i + 2)], "little")
        out.append(numbers(block[at:at + length]))
        at += length
    assert at == len(block)
    return out


def signed(values):
    return [v // 2 if v % 2 == 0 else -(v + 1) // 2 for v in values]


def hostile_trace(path):
    events = []
    for i, bad in enumerate(BAD_NAMES):
        events += [{"ph": "M", "name": "process_name", "pid": 100 + i, "args": {"name": bad}},
                   {"ph": "M", "name": "thread_name", "pid": 100 + i, "tid": 100 + i, "args": {"name": bad}}]
        events += [{"ph": "X", "cat": "cpu_op", "name": bad, "pid": 100 + i, "tid": 100 + i, "ts": 1000 * k, "dur": 900,
                    "args": {bad[:50]: bad[:50]}} for k in range(5)]
        events += [{"ph": "X", "cat": "cpu_op", "name": f"ProfilerStep#{k}", "pid": 100 + i, "tid": 100 + i, "ts": 1000 * k,
                    "dur": 1000} for k in range(5)]
    path.write_text(json.dumps({"traceEvents": events, "schemaVersion": 1}), encoding="utf-8")
    return path


def test_a_page_replaces_nothing_that_is_read(laggard, root, tmp_path):
    trace = tmp_path / "folder" / "train.json.gz"
    trace.parent.mkdir()
    whole = (root / "tests/data/kineto/train.json.gz").read_bytes()
    trace.write_bytes(whole)
    for read in (trace, trace.parent):
        done = laggard("explain", read, "--html", trace)
        assert done.returncode == 2 and "would replace what is to be read" in done.stderr and trace.read_bytes() == whole


def test_the_page_holds_all_and_asks_for_nothing(page, stall):
    text = page(stall()).read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)="(?!#)', text)  # every address is a moment of this page
    assert "<link" not in text and "@import" not in text and "url(" not in text
    assert " style=" not in text and not re.search(r"<[^>]* on\w+=", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    for tag in ("script", "style"):
        body = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
        assert len(body) <= LIMIT_CODE


def test_the_page_says_what_the_verdict_says(page, stall, laggard):
    trace = stall()
    verdict = json.loads(laggard("explain", trace, "--json", "--cost-per-hour", 98).stdout)
    text = re.sub(r'<dd><a href="#t=[^"]*">([^<]*)</a></dd>', r"<dd>\1</dd>", page(trace, "--cost-per-hour", 98).read_text(encoding="utf-8"))
    lead = verdict["findings"][0]
    assert lead["id"] == "host.lock_held"
    for said in (f"<dd>{lead['lost_ms']:.1f} ms</dd>", f"<dd>{lead['lost_share'] * 100:.1f} %</dd>", f"<dd>{lead['confidence']:.2f}</dd>",
                 f"<dd>{verdict['steps']['slow']} of {verdict['steps']['count']}</dd>", f"<dd>{lead['cost_per_hour']:.2f}</dd>",
                 f"<code>{lead['id']}</code>"):
        assert said in text, said
    for e in lead["evidence"]:
        if e["t_s"] is not None:
            assert f'href="#t={e["t_s"]:.6f}-' in text
    for row in verdict["stages"]:
        if row["share"]:
            assert f'<th scope="row">{row["stage"]}</th>' in text


def test_parts_of_each_step_sum_to_it(page, stall):
    got = blocks(page(stall()))
    meta = json.loads(got[0])
    steps = columns(got[meta["steps"]])
    n = len(meta["slots"])
    assert len(steps) == 8 + n + len(meta["stages"]) + 4 and len(steps[3]) == meta["n_steps"] > 700
    slots, stages = [signed(c) for c in steps[8:8 + n]], [signed(c) for c in steps[8 + n:-4]]
    for i, dur in enumerate(steps[3]):
        assert sum(c[i] for c in slots) == dur == sum(c[i] for c in stages)
    text = page(stall(), name="again.html").read_text(encoding="utf-8")
    parts = [int(v) for v in re.findall(r'data-ns="(-?\d+)"', text)]
    assert sum(parts) == int(re.search(r'data-sum-ns="(\d+)"', text)[1]) > 0
    assert sum(parts) == sum(d for d, flags in zip(steps[3], steps[5]) if flags & 1)


def test_all_levels_stand_for_the_same_marks(page):
    """Short marks are put together, never dropped: counts of a level sum to those of all."""
    got = blocks(page(DATA / "kineto/train.json.gz"))
    meta = json.loads(got[0])
    assert meta["whole"] and meta["lanes"]
    whole = {}
    for number, level, _, _, n in meta["blocks"]:
        cols = columns(got[number])
        assert len(cols) == 9 and len(cols[2]) == n
        assert all(1 <= s <= len(meta["threads"]) or s == 0 for s in [lane[3] for lane in meta["lanes"]])
        whole.setdefault(level, []).append(sum(cols[8]))
    assert sum(whole[0]) == sum(lane[6] for lane in meta["lanes"])


def test_what_lies_too_deep_to_be_drawn_is_counted(page, tmp_path):
    path = tmp_path / "deep.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [
        {"ph": "X", "pid": 7, "tid": 7, "cat": "cpu_op", "name": f"aten::op{i}", "ts": 1000 + i, "dur": 1000 - 2 * i} for i in range(60)]}))
    head = json.loads(blocks(page(path))[0])
    assert head["marks_left"] > 0 and head["marks_left"] + sum(lane[-1] for lane in head["lanes"]) == 60


def test_the_same_input_gives_the_same_bytes(page, stall):
    trace = stall()
    assert page(trace, name="a.html").read_bytes() == page(trace, name="b.html").read_bytes()


@pytest.mark.parametrize("kind", ["nasty", "random", "stacks", "threads", "empty"])
def test_any_trace_has_a_page(page, stall, kind):
    out = page(stall(kind))
    text = out.read_text(encoding="utf-8")
    assert "</html>" in text and "nan" not in re.findall(r' d="([^"]*)"', text)
    assert re.search(r"<h1[^>]*>[^<]+</h1>", text)


@pytest.mark.parametrize("path", ["perf/burn.data", "torchlog/steps.log", "kineto/rank0.json.gz"])
def test_where_there_is_no_verdict_the_page_says_what_the_file_holds(page, path):
    text = page(DATA / path).read_text(encoding="utf-8")
    assert 'id="contents"' in text and 'id="inputs"' in text
    if "perf" in path:
        assert re.search(r"Functions, by samples \(\d+\)", text) and "burn" in text


def test_names_of_others_begin_nothing(page, tmp_path):
    out = page(hostile_trace(tmp_path / "bad.json"))
    text = out.read_text(encoding="utf-8")
    outside = re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert "<script>window" not in outside and "<img" not in outside and "onload=w" not in re.sub(r"&[^;]*;[^<]*", "", outside)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", outside)
    assert len(re.findall(r"<script>", text)) == 1
    assert out.stat().st_size < 400_000  # names are cut
    for block in blocks(out).values():
        assert b"</script" not in base64.b64encode(block)


def test_memory_is_drawn_where_bytes_were_counted(page, laggard, stall, tmp_path):
    text = page(stall()).read_text(encoding="utf-8")
    assert 'id="memory"' not in text
    lines = ["timestamp, index, memory.used [MiB], utilization.gpu [%]"]
    lines += [f"2026/03/01 10:00:{i:02d}.000, 0, {1000 + 100 * i} MiB, 90 %" for i in range(40)]
    log = tmp_path / "smi.csv"
    log.write_text("\n".join(lines) + "\n")
    text = page(log).read_text(encoding="utf-8")
    section = re.search(r'<section id="memory".*?</section>', text, re.S)[0]
    assert "4.79 GiB" in section and "<td>40</td>" in section  # 4900 MiB
    drawn = re.search(r'<path class="memory"[^>]* d="M0.0 \d+([^"]*)"', section)[1]
    tops = [float(y) for y in re.findall(r"L[\d.]+ ([\d.]+)h", drawn)]
    assert len(tops) == 480 and tops == sorted(tops, reverse=True) and tops[0] > tops[-1]  # it grows
    held = next(c for c in json.loads(laggard("explain", log, "--json").stdout)["contents"]["counters"] if c["unit"] == "bytes")
    assert held["most"] == 4900 << 20


@pytest.fixture
def compared(laggard, tmp_path):
    """The page of a comparison."""
    def call(before, after, *args):
        out = tmp_path / "diff.html"
        done = laggard("diff", before, after, "--html", out, *args)
        assert done.returncode in (0, 3), done.stderr
        return out, json.loads(laggard("diff", before, after, "--json", *args).stdout)
    return call


def test_both_sides_of_a_comparison_are_on_one_scale(compared, laggard, tmp_path):
    before = device_trace(tmp_path / "before.json", steps=30)
    after = device_trace(tmp_path / "after.json", steps=20, loader_us=9000)
    out, told = compared(before, after)
    text = out.read_text(encoding="utf-8")
    assert "<script" not in text and "script-src" not in text and not re.search(r'(?:src|href)="(?!#)', text)
    assert text.count('class="median"') == 2 and "before: 30 steps" in text and "after: 20 steps" in text
    # The n-th step stands above the n-th: columns are as wide in both, though there are fewer.
    first, second = text.split("after: 20 steps")
    wide = [set(re.findall(r"M([\d.]+) ", part.split("before: 30 steps")[-1])) for part in (first, second)]
    assert wide[1] <= wide[0] and len(wide[1]) < len(wide[0])
    diff = told["diff"]
    for side in ("before", "after"):
        assert f"<dd>{diff[side]['mean_ms']:.3f} ms</dd>" in text and f"<dd>{diff[side]['median_ms']:.3f} ms</dd>" in text
    assert diff["explained"] and told["findings"]
    for share in diff["explained"]:
        assert f"{share['what']}</th><td>+{share['ms_per_step']:.3f}</td>" in text
    for row in diff["stages"]:
        assert f'<th scope="row">{row["name"]}</th><td>{row["before_ms"]:.3f}</td><td>{row["after_ms"]:.3f}</td>' in text
    assert told["findings"][0]["title"] in text
    assert "#t=" not in text  # no link to a timeline that is not there
    done = laggard("diff", before, after, "--html", before)
    assert done.returncode == 2 and "would replace" in done.stderr


def test_names_begin_nothing_in_a_comparison(compared, tmp_path):
    one = hostile_trace(tmp_path / "bad.json")
    two = device_trace(tmp_path / "two.json", steps=5)
    text = compared(one, two)[0].read_text(encoding="utf-8")
    assert "<script" not in text and "<img" not in text and not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def test_the_page_goes_to_standard_output_alone(laggard, stall):
    done = laggard("explain", stall(), "--html", "-")
    assert done.returncode == 0 and done.stdout.startswith("<!DOCTYPE html>") and done.stdout.endswith("</html>\n")


def test_a_page_that_cannot_be_written_is_an_error(laggard, stall, tmp_path):
    done = laggard("explain", stall(), "--html", tmp_path / "no/such/page.html")
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1
    assert laggard("explain", stall(), "--html").returncode == 2


# ---- with npm

@pytest.fixture(scope="session")
def modules(laggard_path):
    """The page's development tools, installed once by the lock file beside the program under test."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("the page's tools need node and npm: run tools/install-deps test")
    lock = WEB / "package-lock.json"
    home = pathlib.Path(laggard_path).parent / ("web-tools-" + hashlib.sha256(lock.read_bytes()).hexdigest()[:12])
    if not (home / "node_modules/playwright-core").exists():
        home.mkdir(exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(WEB / name, home / name)
        done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=home, check=False, capture_output=True,
                              text=True, timeout=180, stdin=subprocess.DEVNULL,
                              env={**os.environ, "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1"})
        if done.returncode:
            pytest.skip(f"npm cannot install the page's tools: {done.stderr.strip().splitlines()[:1]}")
    return home / "node_modules"


def test_what_is_built_in_is_what_web_makes(modules, tmp_path):
    home = tmp_path / "web"
    home.mkdir()
    for name in ("package.json", "package-lock.json", "tsconfig.json"):
        shutil.copy(WEB / name, home / name)
    shutil.copytree(WEB / "src", home / "src")
    (home / "node_modules").symlink_to(modules)
    for script in ("check", "build"):
        done = subprocess.run(["npm", "run", "-s", script], cwd=home, check=False, capture_output=True, text=True, timeout=180,
                              stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stdout + done.stderr
    for name in ("handoff.js", "page.js", "page.css"):
        assert (home / "dist" / name).read_bytes() == (WEB / "dist" / name).read_bytes(), f"run make web: {name} is not what it makes"


# What writes markup from text, or runs text.
MARKUP = r"\.(innerHTML|outerHTML|insertAdjacentHTML|cssText)\b|document\.write|\beval\(|new Function|DOMParser|setAttribute\(\"style"


def test_text_never_becomes_markup():
    sources = sorted((WEB / "src").glob("*.ts"))
    assert len(sources) >= 6
    for path in sources:
        assert not re.findall(MARKUP, path.read_text(encoding="utf-8")), path.name


# ---- in a browser

@pytest.fixture(scope="session")
def browse(modules):
    """browse(page, **environment) -> what page.js saw."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        pytest.skip("there is no Chromium: run tools/install-deps test")

    def call(path, *args, **env):
        done = subprocess.run(["node", pathlib.Path(__file__).with_name("page.js"), modules, path, *args], check=False,
                              capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL,
                              env={**os.environ, "LG_CHROMIUM": chromium, **env})
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)
    return call


def is_quiet(got):
    assert got["seen"] == {"requests": [], "errors": []}
    assert got["violations"] == []
    assert got.get("pwned") is None
    for scheme, found in got["axe"].items():
        assert [v for v in found if v["impact"] in ("serious", "critical")] == [], scheme
    assert got["wide"] <= 0, "the page is wider than a narrow window"


def view(state):
    a, b = re.fullmatch(r"(-?\d+)-(-?\d+)", state["view"]).groups()
    return int(a), int(b)


LOOKS = DATA / "page"


def png_size(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def test_everything_on_the_page_can_be_reached(page, stall, browse):
    """Each number and piece of evidence leads to a moment; arrows, stacks, measuring, selecting, folding, printing; what
    the page looks like is what is kept in tests/data/page, from afar (fonts differ): LG_LOOKS_WRITE=1 writes that."""
    got = browse(page(stall()), LG_LOOKS=str(LOOKS))
    is_quiet(got)
    more = got["more"]
    assert len(more["facts"]) == len(got["facts"]) and all(re.fullmatch(r"#t=[\d.]+-[\d.]+", a) for a in more["facts"])
    assert more["loose"] == [] and more["to_do"] == ["fix", "trade-off", "to confirm"]
    assert more["arrows"] == ["dashed", "solid"]  # who woke it, who held it
    assert more["stack"] >= 4
    assert re.search(r"measured [\d.]+ ms", more["measured"])
    for picture in ("#strip svg", "#heat svg"):
        a, b = (float(t) for t in re.match(r"#t=([\d.]+)-([\d.]+)", more[picture]).groups())
        assert 1.0 < a < 1.7 and 2.7 < b < 3.2, picture  # of 4.9 s, from 30 to 60 % of the picture
        x, width = more[picture + " shaded"]
        assert 240 < x < 420 and 300 < width < 480  # of 1200
    # Whoever is chosen stands below the fold, with all that it ran: the watcher holds the lock 12 times for 80 ms.
    chosen = {name: tracks.split("; ")[-1] for name, tracks in more["fold"]}
    assert len(chosen) == 4 and all(name in track for name, track in chosen.items() if name != "none")
    assert chosen["watcher (pid 4711)"] == "watcher (pid 4711): 960000000"
    # Dark on the screen is light on paper, at once, and dark again.
    for state, ground in (("before", 23), ("paper", 255), ("after", 23)):
        assert {v for v in got["print"][state] if v >= 0} == {ground}, got["print"]
    assert len(got["looks"]) == 6 and all(differs <= 0.02 for differs in got["looks"].values()), got["looks"]


# How colours look to those who see no red, no green, no blue (Machado, Oliveira and Fernandes 2009, severity 1).
VISION = {"all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
          "no red": ((.152286, 1.052583, -.204868), (.114503, .786281, .099216), (-.003882, -.048116, 1.051998)),
          "no green": ((.367322, .860646, -.227968), (.280085, .672501, .047413), (-.011820, .042940, .968881)),
          "no blue": ((1.255528, -.076749, -.178779), (-.078411, .930809, .147602), (.004733, .691367, .303900))}


def seen_as(colour, matrix):
    """CIE L*a*b* of what is seen."""
    light = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    light = [c / 12.92 if c <= .04045 else ((c + .055) / 1.055) ** 2.4 for c in light]
    r, g, b = (min(max(sum(m * c for m, c in zip(row, light)), 0), 1) for row in matrix)
    x, y, z = ((v ** (1 / 3) if v > .008856 else 7.787 * v + 16 / 116) for v in
               ((.4124 * r + .3576 * g + .1805 * b) / .95047, .2126 * r + .7152 * g + .0722 * b,
                (.0193 * r + .1192 * g + .9505 * b) / 1.08883))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_colours_differ_for_every_eye():
    source = (WEB / "src/colours.ts").read_text(encoding="utf-8")
    drawn = (ROOT / "src/report/html_pictures.c").read_text(encoding="utf-8")
    for name in ("stage", "slot"):
        colours = set(re.findall(r"#\w{6}", re.search(rf"const {name} = \[(.*?)\]", source)[1]))
        assert len(colours) >= 8 and colours <= set(re.findall(r"#\w{6}", drawn)) | {"#bbbbbb"}  # the same without a script
        for vision, matrix in VISION.items():
            apart = {(a, b): math.dist(seen_as(a, matrix), seen_as(b, matrix)) for a in colours for b in colours if a < b}
            worst = min(apart, key=apart.get)
            assert apart[worst] > 12, (name, vision, worst, apart[worst])


def test_pictures_of_the_readme_are_made_by_a_tool(laggard_path, stall, modules, tmp_path):
    done = subprocess.run([ROOT / "tools/make-pictures", "--to", tmp_path, stall()], check=False, capture_output=True, text=True, timeout=200,
                          stdin=subprocess.DEVNULL, env={**os.environ, "LAGGARD": laggard_path, "LG_WEB_MODULES": str(modules)})
    if "no Chromium" in done.stderr:
        pytest.skip("there is no Chromium: run tools/install-deps test")
    assert done.returncode == 0, done.stderr
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("timeline.png", "fold.png"):
        assert png_size(tmp_path / name)[0] > 900 and (tmp_path / name).stat().st_size > 5000
        assert f"(doc/{name})" in readme and png_size(ROOT / "doc" / name)[0] == png_size(tmp_path / name)[0]


def held_in_the_picture(path, laggard, browse, recording):
    """The verdict's evidence leads to its moment, where the holder's lane shows the hold and a rank's the wait."""
    findings = json.loads(laggard("explain", recording, "--json").stdout)["findings"]
    f = next(f for f in findings if f["id"] == "host.lock_held")
    who, proof = f["culprit"]["pid"], next(e for e in f["evidence"] if e["dur_ms"] and "holder" in e["text"])
    got = browse(path, "--evidence", LG_WHO=str(who))
    assert got["seen"] == {"requests": [], "errors": []}
    start = proof["t_s"]
    assert got["link"].startswith(f"#t={start:.6f}-") and got["at"]["hash"].startswith(got["link"])
    a, b = view(got["at"])
    assert a <= start * 1e9 and (start + proof["dur_ms"] / 1e3) * 1e9 <= b
    assert {f"rank {r}" for r in (0, 1)} <= {h.split(":")[0] for h in got["heads"]}
    assert any(h.startswith("culprit: ") and f"(pid {who})" in h for h in got["heads"]), got["heads"]
    assert any("mmap_lock" in tip and f"(pid {who})" in tip for tip in got["holds"]), got["holds"]
    assert any("mmap_lock" in tip and re.search(r"rank [01]: ", tip) for tip in got["waits"]), got["waits"]
    assert any(got["arrows"]), "no arrow from the wait to the hold"


@pytest.mark.live
def test_the_page_of_a_recording_in_a_browser(page, laggard, laggard_path, torch_python, can_record, browse, tmp_path):  # pylint: disable=unused-argument
    """Of this machine, now: two ranks of a job, and a third process that holds the mmap_lock of one after the other. What
    else the verdict says of a busy machine is test_scenarios' matter: the hold is in the picture all the same."""
    out = tmp_path / "run.lag"
    done = subprocess.run([PYTHON, ROOT / "scenarios/run.py", "agent_in_turn", "--record", out, "--laggard", laggard_path], check=False,
                          capture_output=True, text=True, timeout=SCENARIO_LIMIT_S, stdin=subprocess.DEVNULL,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    if done.returncode == 77:
        pytest.skip(done.stdout.strip().splitlines()[-1].removeprefix("skipped: "))
    if done.returncode == 75 and (not out.exists() or '"host.lock_held"' not in laggard("explain", out, "--json").stdout):
        raise Disturbed(done.stdout[-300:])
    assert done.returncode in (0, 75), done.stdout[-2000:] + done.stderr[-2000:]
    held_in_the_picture(page(out), laggard, browse, out)
    verdict = json.loads(laggard("explain", out, "--json").stdout)
    got = browse(page(out))
    is_quiet(got)
    facts = dict(got["facts"])
    if "#memory svg" in got["more"]:  # what the selection's memory was
        assert got["more"]["#memory svg"].startswith("#t=") and got["more"]["#memory svg shaded"][1] > 0
    assert verdict["steps"]["count"] > 100 and facts["slow steps"] == f"{verdict['steps']['slow']} of {verdict['steps']['count']}"
    assert facts["step median"] == f"{verdict['steps']['median_ms']:.2f} ms" and facts["p99"] == f"{verdict['steps']['p99_ms']:.2f} ms"
    assert [f["title"] for f in verdict["findings"]] == [re.sub(r"^\w+ ", "", f["title"]) for f in got["findings"]]
    assert all(t["sum"] == t["total"] for t in got["selection"]) and int(got["start"]["marks"]) > 20 and got["tip"]


def test_the_page_in_a_browser(page, stall, browse, laggard):
    trace = stall()
    verdict = json.loads(laggard("explain", trace, "--json").stdout)
    out = page(trace)
    got = browse(out, LG_FIND="all_reduce")
    is_quiet(got)
    assert got["ready"] == "1" and got["paint_ms"] < 1000
    facts = dict(got["facts"])
    assert facts["slow steps"] == f"{verdict['steps']['slow']} of {verdict['steps']['count']}"
    assert facts["lost"] == f"{verdict['findings'][0]['lost_ms']:.1f} ms"
    assert len(got["findings"]) == len(verdict["findings"])
    # It opens on a slow step, whose account sums to it.
    assert got["selection"] and all(t["sum"] == t["total"] for t in got["selection"])
    start = view(got["start"])
    assert int(got["start"]["marks"]) > 50
    keys = got["keys"]
    width = {k: view(v)[1] - view(v)[0] for k, v in keys.items()}
    assert width["w"] < width["s"] and view(keys["d"])[0] > view(keys["w"])[0] and view(keys["]"])[0] > start[0]
    assert width["f"] >= 4_900_000_000  # all of the run
    assert got["table_rows"] > 0 and got["help"] and not got["help_after"]
    t = [float(x) * 1e9 for x in re.fullmatch(r"#t=([\d.]+)-([\d.]+)", got["link"]).groups()]
    a, b = view(got["after_link"])
    assert a < t[0] and t[1] < b
    assert got["dragged"]["hash"] != got["after_link"]["hash"]
    assert got["tip"]
    assert view(got["wheeled"])[1] - view(got["wheeled"])[0] < b - a
    assert re.search(r"match 1 of \d+", got["found"])
    assert got["again"]["hash"] == got["again"]["wanted"]
    assert got["flames"]["off the CPU"] > 0
    # Without scripts: all of the verdict, and its pictures.
    for said in (verdict["findings"][0]["title"], verdict["findings"][0]["fix"][:40], "Where a step's time goes"):
        assert said in got["plain"]
    assert got["plain_svg"] >= 2 and got["pdf_bytes"] > 20_000


@pytest.mark.parametrize("path", ["kineto/train.json.gz", "perf/burn.data", "torchlog/steps.log"])
def test_pages_of_other_inputs_in_a_browser(page, browse, path):
    got = browse(page(DATA / path))
    is_quiet(got)
    assert got["ready"] == "1"
    if "kineto" in path:
        assert int(got["start"]["marks"]) > 0 and got["tip"]


def test_hostile_names_run_nothing_in_a_browser(page, browse, tmp_path):
    out = page(hostile_trace(tmp_path / "bad.json"))
    got = browse(out, LG_FIND="<img")
    is_quiet(got)
    assert int(got["start"]["marks"]) > 0


def test_a_damaged_block_leaves_the_rest(page, stall, browse):
    out = page(stall())
    text = out.read_text(encoding="utf-8")
    first = re.search(r' id="b1">([^<]{40})', text)
    out.write_text(text.replace(first[1], "A" * 40, 1), encoding="utf-8")
    got = browse(out)
    assert got["seen"] == {"requests": [], "errors": []} and got["headline"] and got["ready"] == "1"


def test_devices_of_a_selection_in_a_browser(page, browse, laggard, tmp_path):
    trace = device_trace(tmp_path / "t.json", loader_us=3000, comm_us=600, copy_us=400)
    got = browse(page(trace))
    is_quiet(got)
    # Nothing is slow and nothing selected: kernels of the whole trace.
    names = {row[0]: row for row in got["devices"][-1]}
    assert {"gemm_0", "gemm_1", "gemm_2"} <= set(names) and names["gemm_0"][3] == str(7 * 12)
    assert float(names["gemm_0"][1]) == pytest.approx(7 * 12 * 0.5, abs=0.01)
    contents = json.loads(laggard("query", trace, "SELECT sum(compute_ms) AS ms FROM step", "--json").stdout)
    assert contents[0]["ms"] > 0 and re.search(r"busy [\d.]+ %", got["busy"][0])


def test_a_comparison_in_a_browser(compared, browse, tmp_path):
    before = device_trace(tmp_path / "before.json", steps=30)
    got = browse(compared(before, device_trace(tmp_path / "after.json", steps=20, loader_us=9000))[0])
    assert got["seen"] == {"requests": [], "errors": []} and got["violations"] == [] and got["wide"] <= 0
    for scheme, found in got["axe"].items():
        assert [v for v in found if v["impact"] in ("serious", "critical")] == [], scheme
