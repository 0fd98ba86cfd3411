# SPDX-License-Identifier: Apache-2.0
"""The release tarball and the Debian package: what they are made of. (Building a package takes minutes: make deb T=check.)"""
import re
import subprocess

import pytest
from conftest import ROOT


def control():
    return (ROOT / "debian/control").read_text(encoding="utf-8")


@pytest.fixture
def committed():
    done = subprocess.run(["git", "-C", ROOT, "ls-tree", "-r", "--name-only", "-z", "HEAD"], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this is no checkout of git")
    return set(done.stdout.rstrip("\0").split("\0"))


def test_a_release_is_what_is_committed(tmp_path, committed):
    """Among it what npm made, so that nobody needs npm to build it."""
    done = subprocess.run(["make", "-s", "dist", f"B={tmp_path}"], cwd=ROOT, check=True, capture_output=True, text=True)
    tarball = tmp_path / done.stdout.strip().split("/")[-1]
    top = tarball.name.removesuffix(".tar.xz")
    names = subprocess.run(["tar", "-tf", tarball], check=True, capture_output=True, text=True).stdout.splitlines()
    assert {n.removeprefix(top + "/") for n in names if not n.endswith("/")} == committed
    assert {"web/dist/page.js", "web/dist/page.css", "web/dist/handoff.js"} <= committed


def test_the_package_has_the_version_of_the_program(laggard):
    version = re.search(r"^laggard \((.*)\) ", (ROOT / "debian/changelog").read_text(encoding="utf-8"))[1]
    assert version == re.search(r"version: '([^']*)'", (ROOT / "meson.build").read_text(encoding="utf-8"))[1]
    assert version in laggard("--version").stdout


def test_the_package_is_built_with_what_the_program_is_built_with():
    """tools/install-deps and debian/control name the same packages, but for those that every build has."""
    wanted = re.search(r"^build='([^']*)'", (ROOT / "tools/install-deps").read_text(encoding="utf-8"), re.M)[1].split()
    depends = re.search(r"^Build-Depends:\n((?: .*\n)+)", control(), re.M)[1]
    named = {name for line in depends.splitlines() for name in re.findall(r"[a-z][a-z0-9.+-]+", line)}
    essential = {"gcc"}
    for names in wanted:
        choices = names.split("|")
        assert essential & set(choices) or named & set(choices), names
    # What meson brings itself.
    assert "ninja-build" in named


def test_licences_of_all_folders_are_told():
    told = (ROOT / "debian/copyright").read_text(encoding="utf-8")
    for folder in sorted((ROOT / "tests/data/cases").iterdir()):
        if (folder / "LICENSE").exists():
            assert f"Files: tests/data/cases/{folder.name}/*" in told
    texts = set(re.findall(r"^License: (\S+)\n ", told, re.M))
    for used in re.findall(r"^License: (.*)$", told, re.M):
        assert set(used.split(" or ")) <= texts, used


def test_man_pages_keep_to_one_language():
    """A page of man(7) does not know mdoc(7)'s macros: what stands in them is not shown."""
    mdoc = re.compile(r"^\.(?:Ar|Bd|Bl|Dl|Dq|Ed|El|Ev|Fl|Fn|It|Li|Nd|Nm|Op|Pp|Pq|Sh|Sx|Va|Xr)\b", re.M)
    pages = sorted((ROOT / "doc/man").glob("*.[1-9]"))
    assert len(pages) > 20
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert bool(re.search(r"^\.TH ", text, re.M)) != bool(mdoc.search(text)), page.name
