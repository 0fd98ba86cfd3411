# SPDX-License-Identifier: Apache-2.0
"""The commands of the documents run, do what these say, and print what they show.

Of doc/tutorial.md and the pages of doc/questions, the ```text block behind a ```sh block must stand in what was printed,
line by line: "..." within a line, or alone, stands for what was left out. A ```text recorded block is of a recording that
is not in the repository. A comment "# exit N" is the status to expect. Each command of any document, and of the examples
of the manual pages, is run in the order of its page (each commit runs every second page: turn()), on a real job where it needs one: INSTEAD says what is put in place
of the reader's own, NOT_RUN what no test can run.
"""
import contextlib
import os
import re
import shlex
import signal
import subprocess
import time

import pytest
from conftest import PYTHON, ROOT

PAGES = ["tutorial.md", *sorted(f"questions/{p.name}" for p in (ROOT / "doc/questions").glob("*.md"))]
TRACES = "tests/data/cases/pytorch+kineto/resnet50_num_workers_"
OWN = {"run.lag": TRACES + "0", "before.lag": TRACES + "0", "after.lag": TRACES + "4"}  # the reader's own, by name
LIVE = {"record", "trigger", "env", "doctor", "roofline"}
OTHERS = {"make", "install", "nvidia-smi"}


def blocks(text):
    """(language, content) of each fenced block."""
    return re.findall(r"^```(.*)\n((?:.*\n)*?)```$", text, re.M)


def parts(text):
    """(number, lines of a sh block, text block behind it or None, whether that is recorded)"""
    found = [b for b in blocks(text) if b[0].split()[:1] in (["sh"], ["text"])]
    for i, (kind, content) in enumerate(found):
        after = found[i + 1] if i + 1 < len(found) else ("", "")
        if kind == "sh":
            shown = after[1] if after[0].startswith("text") else None
            yield i, content.replace("\\\n", "").splitlines(), shown, after[0] == "text recorded"
        else:
            assert kind in ("text", "text recorded") and i and found[i - 1][0] == "sh", f"output of nothing: {content}"


def like(shown, printed):
    pieces = [re.escape(p.strip(" ") if i else p.rstrip(" ")) for i, p in enumerate(shown.rstrip().split("..."))]
    return re.fullmatch(r".*".join(pieces), printed.rstrip()) is not None


def first_missing(shown, printed):
    """The first line of a text block that was not printed behind those before it; None if all were."""
    rest, gap = printed.splitlines(), True
    for line in shown.splitlines():
        if line.strip() == "...":
            gap = True
            continue
        at = next((i for i, p in enumerate(rest) if like(line, p)), None)
        if at is None or at and not gap:
            return line
        rest, gap = rest[at + 1:], False
    return None


def is_live(words):
    return words[1] in LIVE or words[1] == "hang" and any(w in ("-p", "--pid", "--job") for w in words)


def options(words):
    words = words[:words.index("--")] if "--" in words else words
    return [w for w in words[2:] if re.fullmatch(r"-\w|--[a-z-]+", w)]


CASES = [pytest.param(*part[1:], id=f"{page}-{part[0]}")
         for page in PAGES for part in parts((ROOT / "doc" / page).read_text(encoding="utf-8"))]


@pytest.mark.parametrize("lines, shown, recorded", CASES)
def test_what_a_page_shows(laggard, tmp_path, lines, shown, recorded):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    for name, path in OWN.items():
        (tmp_path / name).symlink_to(ROOT / path)
    printed, ran = "", 0
    for line in lines:
        words = shlex.split(line.removeprefix("sudo "), comments=True)
        if words[0] in OTHERS:
            continue
        assert words[0] == "laggard", line
        if is_live(words):
            continue
        done = laggard(*words[1:], cwd=tmp_path, env={"LC_ALL": "C.UTF-8"})
        status = re.search(r"# exit (\d+)$", line)
        assert done.returncode == (int(status[1]) if status else 0), f"{line}\n{done.stderr}"
        printed, ran = printed + done.stdout, ran + any(w.startswith("tests/data/") for w in words)
    if shown is not None and not recorded:
        assert ran, "what is shown here is checked by nothing"
        missing = first_missing(shown, printed)
        assert missing is None, f"not printed here: {missing}\n{printed}"
    if recorded:
        assert not ran, "this can be checked: it need not be marked as recorded"


@pytest.mark.parametrize("page", PAGES)
def test_findings_that_a_page_names_exist(laggard, page):
    known = set(re.findall(r"^([a-z]+\.[a-z_0-9]+)\b", laggard("rules").stdout, re.M))
    kinds = "|".join(sorted({rule.split(".")[0] for rule in known}))
    text = (ROOT / "doc" / page).read_text(encoding="utf-8")
    assert known and set(re.findall(rf"(?<![\w./-])(?:{kinds})\.[a-z_]+\b", text)) <= known


def test_the_pages_are_found(root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    asked = (root / "doc/questions.md").read_text(encoding="utf-8")
    assert "](doc/tutorial.md)" in readme and "](doc/questions.md)" in readme and len(PAGES) >= 9
    for page in PAGES[1:]:
        title = (root / "doc" / page).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        assert f"- [{title}]({page})" in asked.splitlines()


def lines_of(text):
    """Each command line that a document names: in blocks, in `code`, after .Dl of a manual page."""
    found = [line for kind, content in blocks(text) if kind == "sh" for line in content.replace("\\\n", "").splitlines()]
    found += re.findall(r"`((?:sudo )?(?:build/)?laggard [^`]*)`", text) + re.findall(r"^\.Dl (.*)$", text, re.M)
    return [line.replace("\\-", "-").replace("\\(dq", '"') for line in found]


def commands(text):
    """The words of each command of laggard among these, in the order of the page."""
    found = []
    for line in lines_of(text):
        found += [part.strip() for part in re.split(r"&&|\|\|?|;", re.sub(r"'[^']*'", lambda m: m[0].replace(";", " "), line))]
        found += re.findall(r"\$\((laggard [^()]*)\)", line)
    found = [re.sub(r"^(sudo )?(build/)?laggard ", "laggard ", part) for part in found]
    return [shlex.split(part.split(" #")[0]) for part in found
            if re.match(r"laggard [a-z]", part) and part.count("'") % 2 == 0 and part.count('"') % 2 == 0]


DOCUMENTS = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in [*(ROOT / "doc").rglob("*.md"), *(ROOT / "doc/man").glob("*.[1357]")])]
DOCUMENTS = [d for d in DOCUMENTS if commands((ROOT / d).read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", DOCUMENTS)
def test_options_that_a_page_names_exist(laggard, root, page):
    told = {}
    for words in commands((root / page).read_text(encoding="utf-8")):
        if words[1] not in told:
            told[words[1]] = laggard(words[1], "--help")
            assert told[words[1]].returncode == 0, words
        for option in options(words):
            name = option if option.startswith("--") else option[:2]
            assert re.search(rf"(?<![\w-]){name}(?![\w-])", told[words[1]].stdout), f"{' '.join(words)}: no {name}"
    assert page != "README.md" or len(told) >= 15


# The reader's job: train.py, which is started as the document says it. It ends by itself, after so many seconds.
TRAIN = """
import os, time, torch
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.full((8,), i / 64)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Module()
        self.encoder.layers = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)])
    def forward(self, x):
        return self.encoder.layers(x)
torch.manual_seed(1)
torch.set_num_threads(1)
model, end = Model(), time.monotonic() + float(os.environ["JOB_S"])
optimizer, left = torch.optim.SGD(model.parameters(), 1e-3), int(os.environ.get("JOB_STEPS", "1000000"))
while left > 0 and time.monotonic() < end:
    for batch in torch.utils.data.DataLoader(Rows(), batch_size=4):
        left -= 1
        if left < 0 or time.monotonic() > end:
            break
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
C_JOB = """
#include <unistd.h>
static const int64_t steps = 20, batch = 10000;
static void forward(int64_t us) { usleep((unsigned)us); }
int main(void)
{
%s
}
"""  # around the example of laggard-mark(3)
JOB_S = 4
SNAPSHOT = "tests/data/cases/Yiyi-philosophy+LLM-inference/1.3b_snapshot.a228b8e3.pickle.zst"
# The reader's files, where no command of the page makes them: of the repository.
FILES = {**OWN, "b.lag": OWN["run.lag"], "BEFORE": OWN["before.lag"], "AFTER": OWN["after.lag"], "before.json": OWN["before.lag"],
         "after.json": OWN["after.lag"], "rank*.json.gz": OWN["run.lag"], "train.log": "tests/data/torchlog/job.log",
         "gpu.csv": "tests/data/smi/dmon.txt", "job-1-*.lag": OWN["run.lag"], "snapshot.pickle": SNAPSHOT}
# (pattern, what stands in its place) in the words of a command, one after the other. {pid} is a job that runs: train.py,
# with SLURM_JOB_ID=4711. torchrun and python3 are found on a PATH of ours: both start train.py once, with Debian's Python.
INSTEAD = [
    (r"4711,4712|PID,…|4711", "{pid}"),                         # processes
    (r"slurm:\{pid\}", "slurm:4711"),
    (r"CMD", "python3 train.py"),
    (r"(--for) \S+", r"\1 2s"),                                 # less than minutes
    (r"^(laggard roofline.* --for) 2s", r"\1 15s"),               # four windows of each kind
    (r"(--last) \S+", r"\1 2s"),
    (r"(--at) /\S+", r"\1 /1s"),
    (r"~/laggard|/shared/laggard", "{home}/hook"),
    (r"laggard env$", "laggard env --dir {home}/hook"),
    (r"SQL$", "'SELECT count(*) FROM step'"),
    (r"^laggard rules ID$", "laggard rules host.lock_held"),
    (r"^(laggard roofline)", r"\1 --window 5 --keep 4"),        # which are short
    (r"^(laggard record(?!.*--for)(?!.* -- ).*?)( &)?$", r"\1 --for 2s"),  # until Ctrl-C
    (r"^(laggard top (?!.*-n ).*)$", r"\1 --batch -n 1 --last 2s --every 1s"),
    (r"^laggard agent$", "laggard agent --state {home}/agent --store sqlite:{home}/fleet.db"),
]
UNTIL_CTRL_C = {"agent": 3, "view": 1}  # seconds
# Exit status that is no failure of a command: diff --fail-over judges what the machine did.
ALSO = {"diff": {3}, "determinism": {3}}
# What is not run, and why. A line of another program by its first word, one of laggard by its words.
NAMED = "names the command in a sentence: without a file it is wrong usage"
NOT_RUN = {
    "laggard explain": NAMED,
    "laggard diff": NAMED,
    "laggard explain --html": NAMED,
    "make": "builds and tests this very program",
    "install": "writes to /usr/local",
    "nvidia-smi": "needs a GPU",
    "git": "bisects the reader's own repository; the commands of its script are run",
    "ray": "needs a cluster of Ray",
    "eval": "srun needs a cluster of Slurm; laggard env in it is run",
    '{"env_vars":': "is what is printed",
}


@contextlib.contextmanager
def reader(laggard_path, own_folder):
    """(folder, environment, pid of a job that runs): what the commands of a document are run in."""
    bin_ = own_folder / "bin"
    for d in (bin_, own_folder / "agent"):
        d.mkdir(mode=0o700)
    (own_folder / "train.py").write_text(TRAIN, encoding="utf-8")
    for name in ("torchrun", "python3"):
        (bin_ / name).write_text(f"#!/bin/sh\nexec {PYTHON} train.py\n", encoding="ascii")
        (bin_ / name).chmod(0o755)
    (own_folder / "tests").symlink_to(ROOT / "tests")
    example = re.search(r"^\.Bd -literal\n(#include <laggard/mark\.h>\n.*?)^\.Ed", (ROOT / "doc/man/laggard-mark.3").read_text(encoding="utf-8"), re.M | re.S)[1]
    head, loop = example.split("\n", 1)
    (own_folder / "train.c").write_text(head + C_JOB % loop, encoding="utf-8")
    subprocess.run(["cc", "-std=gnu11", "-I", ROOT / "include", "train.c", "-o", "train"], cwd=own_folder, check=True, timeout=60)
    env = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "JOB_S": str(JOB_S), "HOME": str(own_folder),
           "LAGGARD_STORE": f"sqlite:{own_folder}/fleet.db"}
    subprocess.run([laggard_path, "fleet", "init"], env=env, check=True, timeout=60, stdout=subprocess.DEVNULL)
    with subprocess.Popen([PYTHON, "train.py"], cwd=own_folder, env={**env, "JOB_S": "600", "SLURM_JOB_ID": "4711"}) as job:
        try:
            yield own_folder, env, job.pid
        finally:
            job.kill()


def instead(words, home, pid):
    line = shlex.join(words) if "SELECT" in words[-1] else " ".join(f"'{w}'" if re.search(r"[ *>$]", w) else w for w in words)
    for pattern, by in INSTEAD:
        line = re.sub(pattern, by, line)
    return shlex.split(line.replace("{home}", str(home)).replace("{pid}", str(pid)))


def perform(laggard_path, words, folder, env):
    """(exit status, what it said)"""
    ring = None
    if words[1] == "trigger":
        ring = subprocess.Popen([laggard_path, "record", "-q", "-o", "last.lag", "--ring", "60s"], cwd=folder, env=env)
        time.sleep(2)
    if words[1] == "roofline":
        env = {**env, "JOB_S": "15"}
    if words[1] == "determinism":
        env = {**env, "JOB_S": "60", "JOB_STEPS": "20"}
    with subprocess.Popen([laggard_path, *words[1:]], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as run:
        try:
            if words[1] in UNTIL_CTRL_C:
                time.sleep(UNTIL_CTRL_C[words[1]])
                assert run.poll() is None, f"{shlex.join(words)}: {run.stdout.read()}"
                run.send_signal(signal.SIGINT)
            said = run.communicate(timeout=120)[0]
        finally:
            run.kill()
            if ring:
                ring.send_signal(signal.SIGINT)
                ring.wait(30)
    return run.returncode, said


def turn():
    """The pages whose turn it is: README and tutorial always, of the others every second one, the other half with the next
    commit (all take 200 s); all of them with LG_DOCS=all, or where there is no history."""
    counted = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, check=False, capture_output=True, text=True)
    always = [d for d in DOCUMENTS if d.endswith(("README.md", "tutorial.md"))]
    others = [d for d in DOCUMENTS if d not in always]
    if os.environ.get("LG_DOCS") == "all" or not counted.stdout.strip():
        return DOCUMENTS
    return always + others[int(counted.stdout) % 2::2]


@pytest.mark.live
@pytest.mark.parametrize("page", turn())
def test_commands_run(laggard_path, page, own_folder, torch_python, can_record):  # pylint: disable=unused-argument
    done = set()
    with reader(laggard_path, own_folder) as (folder, env, pid):
        for words in commands((ROOT / page).read_text(encoding="utf-8")):
            line = " ".join(words)
            if line in NOT_RUN or line in done:
                continue
            done.add(line)
            for name, path in FILES.items():
                if name in words and not (folder / name).exists():
                    (folder / name).symlink_to(ROOT / path)
            output = words[words.index("-o") + 1] if "-o" in words[:-1] else ""
            if (folder / output).is_symlink():
                (folder / output).unlink()
            run = instead(words, folder, pid)
            status, said = perform(laggard_path, run, folder, env)
            expected = {0} | (ALSO.get(words[1], set()) if "--fail-over" in words or words[1] == "determinism" else set())
            assert status in expected, f"{line}\nas {shlex.join(run)}: exit status {status}\n{said}"
            assert said or words[1] in ("record", "trigger", "convert", "mcp", "agent", "explain"), line
            assert not output or (folder / output).exists() or "--ring" in words, f"{line}: no {output}"


def test_what_is_not_run_is_still_written(laggard):
    """And nothing else is left out: each line of a document begins with laggard, or is among these."""
    left, known = set(), set(NOT_RUN)
    for page in DOCUMENTS:
        text = (ROOT / page).read_text(encoding="utf-8")
        left |= {" ".join(words) for words in commands(text)} & known
        for line in lines_of(text):
            first = line.strip().removeprefix("sudo ").split()[:1]
            left |= set(first) if first and re.fullmatch(r"[a-z{].*", first[0]) and first[0] != "build/laggard" else set()
    others = left - known - {"laggard", "case", "cc"}  # a line of a script; how reader() makes train
    assert left >= known and not others, (known - left, others)
    for line, why in NOT_RUN.items():
        assert why != NAMED or laggard(*line.split()[1:]).returncode == 2, line


@pytest.mark.parametrize("shown, missing", [
    ("one two\nthree", None),
    ("one ...\n...\nfour", None),
    ("... two\nthree", None),
    ("one ... two", None),
    ("one\n", "one"),
    ("one two\nfour", "four"),  # what lies between is not shown
    ("three\n...\none two", "one two"),
    ("one ... three", "one ... three"),
    ("one two\nthree\n...\nfive", "five"),
])
def test_a_line_that_was_not_printed_is_missed(shown, missing):
    assert first_missing(shown, "one two\nthree\nthirteen\nfour\n") == missing


def test_a_page_is_read_as_it_is_written():
    text = "```sh\nlaggard a \\\n  b\n```\n\n```text\nx\n```\n\n```python\np\n```\n\n```sh\nc\n```\n```text recorded\ny\n```\n"
    assert list(parts(text)) == [(0, ["laggard a   b"], "x\n", False), (2, ["c"], "y\n", True)]
    with pytest.raises(AssertionError):
        list(parts("```text\nx\n```\n"))
    assert options(shlex.split("laggard record -o f --for 60s -- x --y")) == ["-o", "--for"]
