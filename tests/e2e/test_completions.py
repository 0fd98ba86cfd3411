# SPDX-License-Identifier: Apache-2.0
"""laggard completions: what the shells themselves offer with it, held against --help."""
import re
import shutil
import subprocess

import pytest

BASH = r"""
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_laggard
printf '%s\n' "${COMPREPLY[@]}"
"""
# zsh completes in its editor only: what the functions would offer is caught where they hand it over.
ZSH = r"""
compdef() { :; }
_files() { print FILES; }
compadd() { shift; print -l -- $@; }
_describe() { local list=${@[-1]}; print -l -- ${${(P)list}%%:*}; }
source $1; shift
words=("$@"); CURRENT=$#; PREFIX=$words[CURRENT]
_laggard
"""


def options_of(laggard, command):
    """As the help prints them: lines of two spaces, then -x, --name or several of them."""
    text = laggard(command, "--help").stdout
    heads = [re.split(r"  +", line[2:])[0] for line in text.splitlines() if line.startswith("  -")]
    return {word.split(" ")[0] for head in heads for word in head.split(", ") if word.startswith("-")}


@pytest.fixture(params=["bash", "zsh", "fish"])
def offered(request, laggard, tmp_path):
    """offered(word, ...) -> what the shell completes the last one to, without its own filtering in zsh."""
    shell = request.param
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed: run tools/install-deps test")
    script = tmp_path / "script"
    done = laggard("completions", shell)
    assert (done.returncode, done.stderr) == (0, "")
    script.write_text(done.stdout, encoding="utf-8")
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "TERM": "dumb"}

    def call(*words):
        if shell == "fish":
            command = ["fish", "--no-config", "-c", f"source {script}; complete -C '{' '.join(words)}'"]
        else:
            command = [shell, *(["-f"] if shell == "zsh" else ["--norc"]), "-c", BASH if shell == "bash" else ZSH, shell, script, *words]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path, env=home)
        assert run.stderr == ""
        return {line.split("\t")[0] for line in run.stdout.splitlines() if line}
    call.shell = shell
    return call


def commands_of(laggard):
    return set(re.findall(r"^  (\w+) ", laggard("--help").stdout.split("examples:")[0], re.M))


def test_commands_are_completed(offered, laggard):
    assert offered("laggard", "") >= commands_of(laggard) >= {"record", "explain", "completions"}
    if offered.shell != "zsh":
        assert offered("laggard", "ex") == {"explain"}


def test_options_are_those_of_the_help(offered, laggard):
    seen = 0
    for command in commands_of(laggard):
        wanted = options_of(laggard, command)
        seen += len(wanted)
        got = offered("laggard", command, "--" if offered.shell == "fish" else "-")
        if offered.shell == "fish":  # offers short ones behind one dash
            wanted = {o for o in wanted if o.startswith("--")}
            got = {o.rstrip("=") for o in got}
        assert got - {"--help"} == wanted, command
    assert seen > 60


def test_ids_of_findings_are_completed(offered, laggard):
    ids = set(re.findall(r"^([a-z]+\.\w+)", laggard("rules").stdout, re.M))
    assert len(ids) > 50 and offered("laggard", "rules", "") >= ids
    if offered.shell != "fish":
        assert offered("laggard", "explain", "run.lag", "--fail-on", "") == ids


def test_a_file_is_left_to_the_shell(offered):
    if offered.shell == "zsh":
        assert offered("laggard", "explain", "r") == {"FILES"}
    elif offered.shell == "bash":
        assert offered("laggard", "explain", "r") == set()


def test_a_shell_that_is_not_known(laggard):
    for args in ((), ("tcsh",), ("bash", "zsh")):
        done = laggard("completions", *args)
        assert done.returncode == 2 and done.stdout == "" and "bash, zsh or fish" in done.stderr
