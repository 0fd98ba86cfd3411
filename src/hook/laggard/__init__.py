# SPDX-License-Identifier: Apache-2.0
"""Mark stages, steps and values by hand; does nothing when laggard is not recording.

    import laggard
    with laggard.stage("forward"):
        out = model(batch)
    laggard.mark("loss", 42)
    laggard.step()          # the end of one training step

A stage or step marked by hand replaces the automatic marks of the same kind from then on.
"""
import os as _os
import sys as _sys

__all__ = ["stage", "step", "mark", "recording", "memory_snapshot"]

by_hand = set()  # stages, and "step", that the program marks itself
_steps = 0
_readings = None  # the module _memory, once torch is patched
_recording = bool(_os.environ.get("LAGGARD_MARKS"))


def recording():
    """True when a recorder asked for marks."""
    return _recording


class stage:
    """Context manager and decorator for one stage, or for any other named piece of work."""

    __slots__ = ("name", "tokens")

    def __init__(self, name):
        self.name = str(name)
        self.tokens = []

    def __enter__(self):
        if _recording:
            ring = _open()
            if self.name in ring.STAGES[1:]:
                by_hand.add(self.name)
                word = ring.K_STAGE | ring.STAGES.index(self.name) << 48
            else:
                word = ring.K_OTHER
            self.tokens.append(ring.begin(ring.BEGIN | ring.F_HAND | word, ring.intern(self.name)))
        return self

    def __exit__(self, *exc):
        if self.tokens:
            from laggard import _ring
            _ring.end(self.tokens.pop())
        return False

    def __call__(self, function):
        import functools

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            with stage(self.name):
                return function(*args, **kwargs)
        return wrapper


def step():
    """One training step ends here."""
    global _steps
    if _recording:
        ring = _open()
        by_hand.add("step")
        _steps += 1
        ring.step(_steps, ring.STEP | ring.F_HAND)
        if _readings is not None:
            _readings.step()
        profiler = _sys.modules.get("laggard._profiler")
        if profiler is not None:
            profiler.step(_steps)
        det = _sys.modules.get("laggard._det")
        if det is not None:
            det.boundary()


def memory_snapshot():
    """Write a snapshot of the device's memory now; its path. None without `record --memory`, or without a device."""
    if not _recording or _readings is None:
        return None
    return _readings.snapshot("asked")


def mark(name, value=0, text=""):
    """An instant with a whole number and, if wanted, a short text."""
    if _recording:
        _open().mark(str(name), value, str(text))


def _open():
    from laggard import _ring
    if not _ring.active():
        _ring.open_ring()
    return _ring
