# SPDX-License-Identifier: Apache-2.0
"""How often a test runs: once, unless it watches real processes.

@pytest.mark.live     watches real processes, on a machine that others use too. One that fails runs again, and
                      must then be right in 2 of 3 attempts.
@pytest.mark.alone    measures the machine, or what is left on it: runs with nothing beside it, once.
@pytest.mark.healthy  a live test of a run in which nobody is to blame: its first failure is final.
Accused               raised where somebody innocent is named, in whichever test: final as well.
Broken                raised where what no load of a machine excuses went wrong (memory, a file that is not to be
                      opened, a crash): final as well.
Disturbed             raised where the kernel's own account shows that somebody else really had the CPUs: that
                      was no attempt. Nor is one of a test that is not healthy, neither Accused nor Broken, if it went wrong while
                      the hypervisor took a fiftieth of the CPUs. A test is begun anew twice for that; then this machine cannot judge it,
                      which is a skip with that reason, unless an attempt was wrong.

Every attempt is told to tools/run-tests, as properties of the test's JUnit entry.
"""
import pathlib
import time

import pytest
from _pytest.runner import runtestprotocol

DISTURBED_MAX = 2
QUIET_S = 0.3          # as long as this
QUIET_SHARE = 0.10     # less than this of all CPUs is used
TAKEN_SHARE = 0.02     # of all CPUs, by the hypervisor
QUIET_LIMIT_S = 30     # after this the test runs anyway: what others take meanwhile is measured by those who mind


class Accused(AssertionError):
    """Somebody is named who did nothing."""


class Broken(AssertionError):
    """What is no matter of time, and of nobody else's CPU time."""


def unbroken(holds, said):
    """An assertion that no load of this machine excuses."""
    if not holds:
        raise Broken(said)


class Disturbed(Exception):
    """Somebody else had the CPUs, by the kernel's own account: this run says nothing."""


def pytest_configure(config):
    config.addinivalue_line("markers", "live: watches real processes; may be repeated (see tests/e2e/live.py)")
    config.addinivalue_line("markers", "alone: runs with nothing beside it (see tests/e2e/live.py)")
    config.addinivalue_line("markers", "cases: reads files with known answers; part of the sweep (see case_files.py)")
    config.addinivalue_line("markers", "healthy: nobody is to blame; never repeated (see tests/e2e/live.py)")


def cpu_ticks():
    """(used, all) ticks of all CPUs so far."""
    ticks = list(map(int, pathlib.Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]))
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def steal_ticks():
    """What the hypervisor took of all CPUs so far (proc_stat(5), steal)."""
    return int(pathlib.Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[8])


def wait_for_quiet():
    deadline = time.monotonic() + QUIET_LIMIT_S
    while True:
        used, total = cpu_ticks()
        time.sleep(QUIET_S)
        used2, total2 = cpu_ticks()
        if used2 - used <= QUIET_SHARE * max(total2 - total, 1) or time.monotonic() > deadline:
            return


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().raised = call.excinfo.type if call.excinfo else None


def first_line(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash else str(report.longrepr)).strip().split("\n")[0][:300]


class Attempts:
    """What the attempts of one test came to so far."""

    def __init__(self, healthy):
        self.healthy, self.right, self.wrong, self.disturbed, self.said = healthy, 0, 0, 0, []

    def add(self, bad, taken=0.0):
        """bad: the report that failed, or None; taken: by the hypervisor meanwhile, of all CPUs. Whether the test is
        decided."""
        if bad is None:
            self.right += 1
            return self.right > min(self.wrong, 1)
        final = bool(bad.raised and issubclass(bad.raised, (Accused, Broken)))
        stolen = taken > TAKEN_SHARE and not self.healthy and not final
        self.said.append(f"the hypervisor took {100 * taken:.0f} %: " * stolen + first_line(bad))
        if stolen or (bad.raised and issubclass(bad.raised, Disturbed)):
            self.disturbed += 1
            return self.disturbed > DISTURBED_MAX
        self.wrong += 1
        return self.healthy or self.wrong == 2 or final

    def properties(self):
        return [("live", f"{self.right} of {self.right + self.wrong}"), ("disturbed", str(self.disturbed)),
                *(("attempt", text) for text in self.said)]


def pytest_runtest_protocol(item, nextitem):
    if not item.get_closest_marker("live"):
        return None
    healthy = item.get_closest_marker("healthy") is not None
    attempts = Attempts(healthy)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    failed = None
    while True:
        if healthy or attempts.said:
            wait_for_quiet()
        steal, (_, begin) = steal_ticks(), cpu_ticks()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        skipped = any(r.skipped for r in reports)
        bad = next((r for r in reports if r.failed), None)
        if bad is None and skipped and attempts.said:
            reports = failed  # a skip does not take back what went wrong
            break
        failed = reports if bad else failed
        taken = (steal_ticks() - steal) / max(cpu_ticks()[1] - begin, 1)
        if skipped and bad is None or attempts.add(bad, taken):
            break
    if attempts.disturbed > DISTURBED_MAX and not attempts.wrong:
        for report in (r for r in reports if r.failed):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"Skipped: disturbed {attempts.disturbed} times: {attempts.said[-1]}")
    if attempts.right or attempts.said:
        reports[-1].user_properties.extend(attempts.properties())
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
