# SPDX-License-Identifier: Apache-2.0
"""A few steps of torch.profiler in the training process itself, where `record --profiler K` wants them.

It begins and ends where a step does: once by itself, or each time the recorder asks for it, which touches the file
`profiler` beside the rings (looked for 20 times a second at most). Devices are seen by the framework's own means (CUPTI,
roctracer, XPU). The trace is written beside the recording, for this user alone, and is on the wall clock, so that
laggard can lay it over the recording.

What it costs is marked: starting, and stopping and writing, as side work of the step they fall into. It refuses where
somebody else profiles, and makes room as soon as the program wants to.
"""
import os
import time

from laggard import _ring
from laggard._ring import BEGIN, K_STAGE, S_SIDE, begin, end, intern, mark

_now = time.monotonic_ns
_LOOK_NS = 50_000_000
_MOST = 100            # traces of one process
_NAME = "torch.profiler"  # read by analyse/host/cause_rules.c

_torch = None
_k = 0                 # steps
_by_itself = 0         # after so many steps; 0 = only when asked
_prefix = ""
_steps = 0
_next_look = 0
_asked = 0
_written = 0
_running = None
_left = 0
_label = None
_room = None           # what the program's own profiler calls first, put back when ours is over
_cost = 0


def start(torch):
    """Where --profiler is asked for."""
    global _torch, _k, _by_itself, _prefix, _asked
    try:
        k, after, prefix = os.environ["LAGGARD_PROFILER"].split(" ", 2)
        if _torch is None:
            _torch, _k, _by_itself, _prefix = torch, int(k), int(after), prefix
            _asked = _request()
    except (KeyError, ValueError):
        pass


def _request():
    try:
        return os.stat(os.path.join(os.environ["LAGGARD_MARKS"], "profiler")).st_mtime_ns
    except (KeyError, OSError):
        return 0


def step(number):
    """After step `number`."""
    global _steps, _next_look, _asked, _by_itself
    if _torch is None:
        return
    _steps += 1
    if _running is not None:
        _go_on(number)
        return
    wanted = 0 < _by_itself <= _steps
    if not wanted and not _by_itself and _now() >= _next_look:
        _next_look = _now() + _LOOK_NS
        when = _request()
        wanted, _asked = when > _asked, max(when, _asked)
    if wanted:
        _by_itself = 0
        _begin(number + 1)


def _why_not():
    if not hasattr(_torch, "profiler"):
        return "this torch has no torch.profiler"
    if _written >= _MOST:
        return "%d traces are enough" % _MOST
    if getattr(_torch.autograd, "_profiler_enabled", lambda: False)():
        return "another profiler runs in this process"
    for name in ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH"):
        if os.environ.get(name):
            return "another profiler of devices is set up (%s)" % name
    return None


def _begin(number):
    global _running, _left, _cost
    why = _why_not()
    if why:
        mark("profiler.refused", number, why)
        return
    began = _now()
    token = begin(BEGIN | K_STAGE | S_SIDE, intern(_NAME))
    try:
        profiler = _torch.profiler
        running = profiler.profile(activities=list(profiler.supported_activities()))
        running.start()
        _running, _left = running, _k
        _make_room()
        mark("profiler.began", number, "%d steps" % _k)
        _next_label(number)
    except Exception as e:
        _over()
        mark("profiler.refused", number, "%s: %s" % (type(e).__name__, e))
    finally:
        end(token)
    _cost = _now() - began


def _next_label(number):
    global _label
    if _label is not None:
        _label.__exit__(None, None, None)
        _label = None
    if number:
        _label = _torch.profiler.record_function("ProfilerStep#%d" % number)
        _label.__enter__()


def _go_on(number):
    global _left
    try:
        _left -= 1
        _next_label(number + 1 if _left else 0)
        if not _left:
            _finish(number)
    except Exception as e:
        _over()
        mark("profiler.failed", number, "%s: %s" % (type(e).__name__, e))


def _finish(number):
    global _written
    began = _now()
    token = begin(BEGIN | K_STAGE | S_SIDE, intern(_NAME))
    try:
        running = _running
        running.stop()
        _over()
        rank = os.environ.get("RANK", "")
        _written += 1
        path = "%s-%s%d-profile-%d.json" % (_prefix, "rank%s-" % rank if rank.isdigit() else "", os.getpid(), _written)
        # Made first, and then written into by its name: so it is this user's alone from the beginning.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        running.export_chrome_trace(path)
        mark("profiler.trace", _cost + _now() - began, path)
    finally:
        end(token)


def _over():
    global _running, _label, _room
    _running = _label = None
    if _room is not None:
        cls, original = _room
        _room = None
        cls._prepare_trace = original


def _make_room():
    """The program's own profiler would fail beside ours: then ours is given up first."""
    global _room
    cls = _torch.autograd.profiler.profile
    original = cls._prepare_trace

    def _prepare_trace(self, *args, **kwargs):
        _give_up("the program began to profile itself")
        return original(self, *args, **kwargs)

    cls._prepare_trace = _prepare_trace
    _room = cls, original


def _give_up(why):
    running = _running
    if running is None:
        return
    try:
        _next_label(0)
        running.stop()
    except Exception:
        pass
    _over()
    mark("profiler.refused", 0, why)


def at_exit():
    """The program ends before the steps do: what there is, is dropped."""
    _give_up("the program ended before the steps did")


def _after_fork():
    global _torch, _running, _label, _room
    _torch = _running = _label = _room = None


_ring._forked.append(_after_fork)
