# SPDX-License-Identifier: Apache-2.0
"""--job: a job that runs already, by a word for it."""
import re
import subprocess

import pytest


@pytest.mark.parametrize("command", [["record"], ["hang"]])
def test_nobody_is_of_it(laggard, tmp_path, command):
    """One line: what was looked for, and at how many. Nothing is recorded."""
    out = tmp_path / "run.lag"
    for job, words in (("slurm:987654321", "Slurm's job 987654321"), ("ray:no-such-job", "RAY_JOB_ID=no-such-job"),
                       ("container:0123456789abcdef", "container 0123456789abcdef"),
                       ("cgroup:/no.slice/such", "cgroup /no.slice/such"),
                       ("match:no[-]such[-]command", 'command line matches "no[-]such[-]command"')):
        done = laggard(*command, *(["-o", out] if command == ["record"] else []), "--job", job)
        assert done.returncode == 1 and not done.stdout and not out.exists()
        assert re.fullmatch(r"laggard: no process [^\n]*looked at \d+ process[^\n]*\n", done.stderr), done.stderr
        assert words in done.stderr


@pytest.mark.parametrize("job, says", [("4711", "want slurm:ID"), ("slurm:x", "number of a job"), ("match:(", "regular expression"),
                                       ("match:(a)\\1", "back references"), ("cgroup:/", "want a path")])
def test_no_job_at_all(laggard, job, says):
    for command in ("record", "hang"):
        done = laggard(command, "--job", job)
        assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1


def test_the_expression_in_our_own_command_line_is_nobody(laggard_path, laggard):
    """Nor is the shell that starts us."""
    done = subprocess.run(["sh", "-c", f"{laggard_path} hang --job match:only-here-47; echo $?"], capture_output=True,
                          text=True, check=True, timeout=60)
    assert done.stdout == "1\n" and "no process" in done.stderr
    assert laggard("hang", "--job", "match:a", "--job", "match:b").returncode == 2
