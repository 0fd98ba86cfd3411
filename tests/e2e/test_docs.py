# SPDX-License-Identifier: Apache-2.0
"""The commands of doc/tutorial.md and of the pages of doc/questions do what these say, and print what they show.

Each line of a ```sh block that needs no living job is run; of the others the options must exist. The ```text block
behind it must stand in what was printed, line by line: "..." within a line, or alone, stands for what was left out. A
```text recorded block is of a recording that is not in the repository. A comment "# exit N" is the status to expect.
"""
import re
import shlex

import pytest
from conftest import ROOT

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
            told = laggard(words[1], "--help")
            assert told.returncode == 0, line
            for option in options(words):
                assert re.search(rf"(?<![\w-]){option}(?![\w-])", told.stdout), f"{words[1]} has no {option}"
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


def commands(text):
    """Each command line of laggard that a page names: in blocks, in `code`, after .Dl of a manual page."""
    found = [line for kind, content in blocks(text) if kind == "sh" for line in content.replace("\\\n", "").splitlines()]
    found += re.findall(r"`((?:sudo )?(?:build/)?laggard [^`]*)`", text) + re.findall(r"^\.Dl (.*)$", text, re.M)
    found = [part.strip() for line in found for part in re.split(r"&&|\||;", line.replace("\\-", "-"))]
    found = [re.sub(r"^(sudo )?(build/)?laggard ", "laggard ", part) for part in found]
    return [shlex.split(part.split(" #")[0]) for part in found if re.match(r"laggard [a-z]", part) and part.count("'") % 2 == 0 and part.count('"') % 2 == 0]


@pytest.mark.parametrize("page", ["README.md", "doc/ci-gate.md", "doc/contract.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "doc/man").glob("*.[157]"))])
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


def test_commands_of_the_readme_run(laggard, root, tmp_path):
    """Those that read files: the reader's own are ours here."""
    ran = set()
    for name, path in {**OWN, "before.json": OWN["before.lag"], "after.json": OWN["after.lag"], "rank*.json.gz": OWN["run.lag"],
                       "train.log": "tests/data/torchlog/job.log", "gpu.csv": "tests/data/smi/dmon.txt"}.items():
        (tmp_path / name).symlink_to(root / path)
    for words in commands((root / "README.md").read_text(encoding="utf-8")):
        files = [w for w in words[2:] if (tmp_path / w).is_symlink()]
        if words[1] in ("explain", "diff", "convert", "steps") and files and "--fail-on" not in words:
            done = laggard(*words[1:], cwd=tmp_path, env={"LC_ALL": "C.UTF-8"})
            assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
            ran.add(words[1])
    assert ran == {"explain", "diff", "convert", "steps"}


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
