# SPDX-License-Identifier: Apache-2.0
"""What every end-to-end test may use: the program under test, and what this machine permits."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"  # Debian's, with torch; the first on PATH may be another


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def laggard_path():
    path = pathlib.Path(os.environ.get("LAGGARD", ROOT / "build/laggard")).resolve()
    assert path.exists(), f"{path} is not built: run make"
    return str(path)


@pytest.fixture
def laggard(laggard_path):
    """laggard("explain", ...) -> CompletedProcess with text stdout and stderr."""
    def call(*args, timeout=120, env=None, text=True, **more):
        return subprocess.run([laggard_path, *map(str, args)], check=False, timeout=timeout,
                              stdin=more.pop("stdin", subprocess.DEVNULL),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=text,
                              env={**os.environ, **(env or {})}, **more)
    return call


@pytest.fixture(scope="session")
def torch_python():
    """An interpreter that has torch, or a skip with the command that installs one."""
    done = subprocess.run([PYTHON, "-c", "import torch, torch.distributed"], check=False,
                          stderr=subprocess.DEVNULL)
    if done.returncode:
        pytest.skip("python3-torch is missing: run tools/install-deps test")
    return PYTHON


@pytest.fixture(scope="session")
def can_record():
    """Recording the whole machine needs root here; skips with the reason otherwise."""
    if os.geteuid() != 0:
        pytest.skip("recording the whole machine needs root")
