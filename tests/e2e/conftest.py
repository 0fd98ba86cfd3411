# SPDX-License-Identifier: Apache-2.0
"""What every end-to-end test may use: the program under test, and what this machine permits."""
import itertools
import json
import os
import pathlib
import subprocess

import pytest
from live import (Accused, Disturbed, pytest_configure, pytest_runtest_makereport,  # noqa: F401
                  pytest_runtest_protocol)

VERDICTS = itertools.count()
ROOT = pathlib.Path(__file__).resolve().parents[2]
SCENARIO_LIMIT_S = 420  # with a slow first touch of memory
# Under sudo a recorded command would run as who ran it, for whom pytest's folders are closed.
for name in ("SUDO_UID", "SUDO_GID"):
    os.environ.pop(name, None)

PYTHON = "/usr/bin/python3"  # Debian's, with torch; the first on PATH may be another


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def laggard_path():
    path = pathlib.Path(os.environ.get("LAGGARD", ROOT / "build/laggard")).resolve()
    assert path.exists(), f"{path} is not built: run make"
    return str(path)


def log_findings(text):
    """What a test was told, as tests/unit/findings_log.h writes it."""
    try:
        findings = json.loads(text)["findings"]
    except (ValueError, TypeError, KeyError):
        return
    test = os.environ["PYTEST_CURRENT_TEST"].split("/")[-1].split(" ")[0].split("[")[0].replace(".py::", ":")
    with open(os.environ["LG_FINDINGS_LOG"], "a", encoding="utf-8") as log:
        verdict = next(VERDICTS)
        log.writelines(f"{test} {verdict} {f['id']} {f['severity']}\n" for f in findings or [{"id": "-", "severity": "-"}])


@pytest.fixture
def laggard(laggard_path):
    """laggard("explain", "-v", ...) -> CompletedProcess with text stdout and stderr."""
    def call(*args, timeout=120, env=None, text=True, **more):
        done = subprocess.run([laggard_path, *map(str, args)], check=False, timeout=timeout,
                              stdin=more.pop("stdin", subprocess.DEVNULL),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=text,
                              env={**os.environ, **(env or {})}, **more)
        if os.environ.get("LG_FINDINGS_LOG"):
            log_findings(done.stdout)
        return done
    return call


@pytest.fixture(scope="session")
def cpu_taken():
    """cpu_taken() -> ns that irq, softirq and the hypervisor took from all CPUs so far. A thread's CPU time is of
    rq_clock_task(), which leaves them out where the kernel accounts for them (kernel/sched/core.c,
    update_rq_clock_task()); between two switches they are running."""
    def call():
        ticks = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()
        return sum(map(int, ticks[6:9])) * 10**9 // os.sysconf("SC_CLK_TCK")
    return call


@pytest.fixture(scope="session")
def torch_python():
    """An interpreter that has torch, or a skip with the command that installs one."""
    done = subprocess.run([PYTHON, "-c", "import torch, torch.distributed"], check=False,
                          stderr=subprocess.DEVNULL)
    if done.returncode:
        pytest.skip("python3-torch is missing: run tools/install-deps test")
    return PYTHON


@pytest.fixture
def scenario(laggard_path):
    """scenario("run.py", NAME, ...): a program of scenarios/, its exit status as a test's outcome."""
    def call(program, *args):
        done = subprocess.run([PYTHON, str(ROOT / "scenarios" / program), *args, "--laggard", laggard_path], check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=SCENARIO_LIMIT_S, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        print(done.stdout)
        said = [line for line in done.stdout.splitlines() if line.startswith(("NOT AS EXPECTED", "ACCUSED", "DISTURBED"))]
        text = f"{args[0]}: " + ("; ".join(said) or f"{program} ended with status {done.returncode}, see its output")
        if done.returncode == 77:
            pytest.skip(done.stdout.strip().splitlines()[-1].removeprefix("skipped: "))
        if done.returncode in (3, 75):
            raise {3: Accused, 75: Disturbed}[done.returncode](text)
        if done.returncode:
            pytest.fail(text, pytrace=False)
    return call


@pytest.fixture(scope="session")
def can_record():
    """Recording the whole machine needs root here; skips with the reason otherwise."""
    if os.geteuid() != 0:
        pytest.skip("recording the whole machine needs root")


@pytest.fixture
def own_folder():
    """A folder that nobody else can write to on the way down: pytest's own lie in /tmp."""
    home = pathlib.Path.home()
    for part in (home, *home.parents):
        st = part.stat()
        if st.st_uid not in (0, os.geteuid()) or st.st_mode & 0o022:
            pytest.skip(f"others may write to {part}")
    folder = home / f".laggard-test-{os.getpid()}"
    folder.mkdir(mode=0o700)
    yield folder
    subprocess.run(["rm", "-r", folder], check=True)


@pytest.fixture
def job_env(laggard, own_folder):
    done = laggard("env", "--json", "--dir", own_folder)
    assert done.returncode == 0, done.stderr
    return {**os.environ, **json.loads(done.stdout)["env_vars"]}
