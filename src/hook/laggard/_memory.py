# SPDX-License-Identifier: Apache-2.0
"""Readings of memory that only the process itself can take without harm.

A loader worker reads what it alone holds, in its own smaps_rollup: whoever else reads that keeps the worker's memory
map locked meanwhile; the worker itself does nothing else then. It takes care that this is a thousandth of its time (a
hundredth under `record --memory`).

Under `record --memory` the process also looks which of its lists, dictionaries and sets grow, now and then, and by how
many bytes a step: that is what keeps memory, which who asked for it need not be. A look takes some 20 ms, and
after the first four a hundredth of the time at most. Where there is CUDA (or ROCm), the allocator keeps its history, its
statistics are told every tenth step, and a snapshot is written where a request fails, or where somebody asks for one.
"""
import collections
import gc
import os
import pickle
import sys
import threading
import time

from laggard import _ring
from laggard._ring import mark

_now = time.monotonic_ns
_cpu = time.thread_time_ns
_EVERY = 10            # steps
_LOOK_SHARE = 100      # the same of looks at containers
_SHARE = 1000          # of the time that readings may take: one in so many
_AT_ONCE = 1 << 29     # bytes in memory: of more a reading takes too long to be taken unasked
_ENTRIES = 100_000     # of the history
_SNAPSHOTS = 8         # of one process
_prefix = os.environ.get("LAGGARD_MEMORY")  # under --memory: of the snapshots' names

_torch = None
_steps = 0
_next = 0              # when the next reading may be taken
_asked = 0.0           # when the last request from outside was made
_written = 0
_history = False


def _resident():
    with open("/proc/self/statm", "rb") as f:
        return int(f.read().split()[1]) * 4096


def _private(text):
    """Bytes that nobody shares with this process, of a text of smaps_rollup."""
    sum_, found = 0, False
    for line in text.splitlines():
        if line.startswith((b"Private_Clean:", b"Private_Dirty:")):
            sum_ += int(line.split()[1]) * 1024
            found = True
    return sum_ if found else None


def worker():
    """In a loader worker, after each batch."""
    global _next
    began = _now()
    if began < _next:
        return
    spent = _cpu()
    try:
        if not _prefix and _resident() > _AT_ONCE:
            _next = began + 10_000_000_000
            return
        with open("/proc/self/smaps_rollup", "rb") as f:
            private = _private(f.read())
        if private is not None:
            mark("process.private", private)
        _next = began + max(1_000_000_000, (_LOOK_SHARE if _prefix else _SHARE) * (_cpu() - spent))
    except Exception:
        _next = 1 << 62  # no such file, or no such right: not again


# --- what keeps memory in the process ----------------------------------------------------------------

_KINDS = (list, dict, set, collections.deque, collections.OrderedDict)
_LEAST = 16            # items
_TOLD = 4              # containers of a look
_GRAPH = ", whose items keep their graphs"  # read by analyse/host/host_memory.c
_NODES = 512           # of a graph that are looked at
_seen = {}             # id of a container -> its items and the step, at the look before
_looks = 0
_look_at = 0           # when the next one may be


def _look(steps):
    """Tell of containers that have grown since the look before: bytes a step, by the size of the newest item."""
    global _seen, _looks, _look_at
    if _now() < _look_at:
        return
    spent = _cpu()
    now, grown = {}, []
    for o in gc.get_objects():
        if type(o) in _KINDS and len(o) >= _LEAST:
            n, was = len(o), _seen.get(id(o))
            now[id(o)] = n, steps
            if was is not None and n - was[0] >= (steps - was[1]) / 2 > 0:
                grown.append(((n - was[0]) / (steps - was[1]), o))
    seen, _seen = _seen, now
    told = sorted(((int(_bytes(o) * a_step), o) for a_step, o in grown if o is not seen), key=lambda t: -t[0])
    for nbytes, o in told[:_TOLD]:
        if nbytes > 0:
            mark("memory.container", nbytes, _name(o) + (_GRAPH if _has_graph(_last(o)) else ""))
    _looks += 1  # the first few soon: a short run shall have some
    spent = _cpu() - spent
    _look_at = _now() + (1_000_000_000 if _looks < 4 else max(1_000_000_000, _LOOK_SHARE * spent))


def _last(o):
    """The newest item: of a set any one."""
    try:
        return o[-1] if isinstance(o, (list, collections.deque)) else o[next(reversed(o))] if isinstance(o, dict) \
            else next(iter(o))
    except (IndexError, KeyError, StopIteration, RuntimeError):
        return None


def _has_graph(item):
    return getattr(item, "grad_fn", None) is not None


def _storage(t, found):
    try:
        s = t.storage() if not hasattr(t, "untyped_storage") else t.untyped_storage()
        found[s.data_ptr()] = s.nbytes()
    except Exception:
        pass  # no tensor, or one without storage


def _bytes(o):
    """Of the newest item: its tensors, and what its graph has saved for the backward pass and no other has."""
    item, found = _last(o), {}
    parts = item if isinstance(item, (tuple, list)) and len(item) <= 64 else \
        list(item.values()) if isinstance(item, dict) and len(item) <= 64 else [item]
    other = 0
    for part in parts:
        if hasattr(part, "data_ptr"):
            _storage(part, found)
            _graph(part, found)
        else:
            other += getattr(part, "nbytes", None) or sys.getsizeof(part, 0)
    return sum(found.values()) + other


def _graph(item, found):
    todo, seen = [item.grad_fn] if _has_graph(item) else [], set()
    leaves = set()
    while todo and len(seen) < _NODES:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            leaves.add(leaf.data_ptr())
            continue
        for key in dir(node):
            if key.startswith("_saved_"):
                try:
                    value = getattr(node, key)
                except Exception:
                    continue  # given back after the backward pass
                for t in value if isinstance(value, (tuple, list)) else (value,):
                    if hasattr(t, "data_ptr") and not (t.is_leaf and t.requires_grad):
                        _storage(t, found)
        todo.extend(n for n, _ in node.next_functions)
    for p in leaves:
        found.pop(p, None)


def _name(o):
    """"list kept of __main__", by who refers to it."""
    kind = type(o).__name__
    for holder in gc.get_referrers(o):
        if type(holder) is dict:
            key = next((k for k, v in list(holder.items()) if v is o and isinstance(k, str)), None)
            if key is None or key == "o":
                continue
            if "__name__" in holder and "__builtins__" in holder:
                return "%s %s of %s" % (kind, key, holder["__name__"])
            owner = next((r for r in gc.get_referrers(holder) if getattr(r, "__dict__", None) is holder), None)
            if owner is not None:
                return "%s %s.%s" % (kind, type(owner).__qualname__, key)
        elif hasattr(holder, "__wrapped__"):
            return "%s of %s's cache" % (kind, getattr(holder.__wrapped__, "__qualname__", "a function"))
        else:  # since Python 3.11 an object may have no dictionary
            names = getattr(holder, "__dict__", None)
            key = next((k for k, v in list(names.items()) if v is o), None) if isinstance(names, dict) else None
            if key is not None:
                return "%s %s.%s" % (kind, type(holder).__qualname__, key)
    return "%s without a name" % kind


# --- the allocator of devices ----------------------------------------------------------------------

_STATS = (
    ("memory allocated", "allocated_bytes.all.current"),
    ("memory allocated peak", "allocated_bytes.all.peak"),
    ("memory reserved", "reserved_bytes.all.current"),
    ("memory reserved peak", "reserved_bytes.all.peak"),
    ("memory inactive", "inactive_split_bytes.all.current"),
    ("memory inactive peak", "inactive_split_bytes.all.peak"),
    ("memory retries", "num_alloc_retries"),
    ("memory ooms", "num_ooms"),
)


def start(torch):
    """When the process turns out to train. Without --memory nothing ever happens."""
    global _torch, _next
    if _prefix and _torch is None:
        _torch, _next = torch, 0


def step():
    """After each step."""
    global _steps
    if _torch is None:
        return
    _steps += 1
    if _steps % _EVERY:
        return
    try:
        _look(_steps)
        _device()
    except Exception as e:
        _give_up(e)


def _device():
    global _next
    began, spent = _now(), _cpu()
    if began < _next or not _torch.cuda.is_initialized():
        return
    if not _history:
        _keep_history()
    device = _torch.cuda.current_device()
    stats = _torch.cuda.memory_stats(device)
    for name, key in _STATS:
        if key in stats:
            mark(name, stats[key], str(device))
    _look_for_request()
    _next = began + _SHARE * (_cpu() - spent)


def _give_up(e):
    global _torch
    _torch = None
    mark("memory.off", 0, "%s: %s" % (type(e).__name__, e))


def _keep_history():
    global _history
    _history = True
    memory = _torch.cuda.memory
    record = getattr(memory, "_record_memory_history", None)
    if record is None:
        return
    try:
        record(enabled="all", context="all", stacks="python", max_entries=_ENTRIES)
    except TypeError:  # before torch 2.1
        record(True, trace_alloc_max_entries=_ENTRIES, trace_alloc_record_context=True)
    attach = getattr(_torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is not None:
        attach(_failed)


def _failed(device, asked, most, device_free):
    """A request has failed; the exception comes later. In the words of its message, which analyse/logs/oom.c reads."""
    text = "Tried to allocate %d bytes. GPU %d has" % (asked, device)
    try:
        cuda = _torch.cuda
        total = cuda.get_device_properties(device).total_memory
        if most < total:  # what set_per_process_memory_fraction() leaves it
            text += " %d bytes allowed;" % most
        stats = cuda.memory_stats(device)
        used = stats["allocated_bytes.all.current"]
        text += " a total capacity of %d bytes of which %d bytes is free. Of the allocated memory %d bytes is allocated by " \
            "PyTorch, and %d bytes is reserved by PyTorch but unallocated." % (
                total, device_free, used, stats["reserved_bytes.all.current"] - used)
        # The backward pass asks in a thread without Python: then it is where the main thread is.
        frame = _program(sys._getframe(1)) or _program(sys._current_frames().get(threading.main_thread().ident))
        if frame is not None:
            text += " (in %s:%d)" % (frame.f_code.co_filename, frame.f_lineno)
    except Exception:
        text += " %d bytes free" % device_free
    mark("memory.oom", asked, text)
    snapshot("oom")


def _program(frame):
    """The innermost frame that is neither torch's nor ours."""
    others = tuple(os.path.dirname(os.path.abspath(f)) + os.sep for f in (_torch.__file__, __file__))
    while frame is not None and frame.f_code.co_filename.startswith(others + ("<",)):
        frame = frame.f_back
    return frame


def _look_for_request():
    """Somebody touches the file `memory` beside the rings (laggard trigger)."""
    global _asked
    try:
        when = os.stat(os.path.join(os.environ["LAGGARD_MARKS"], "memory")).st_mtime
    except (KeyError, OSError):
        return
    if when > _asked:
        _asked = when
        snapshot("asked")


def snapshot(why):
    """Write what the allocator holds and its history, as torch.cuda.memory._dump_snapshot() does. Returns the path."""
    global _written
    if _torch is None or not _prefix or _written >= _SNAPSHOTS:
        return None
    _written += 1
    rank = os.environ.get("RANK", "")
    path = "%s-%s%d-%s-%d.pickle" % (_prefix, "rank%s-" % rank if rank.isdigit() else "", os.getpid(), why, _written)
    try:
        held = _torch.cuda.memory._snapshot()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as f:
            pickle.dump(held, f)
        mark("memory.snapshot", 0, path)
        return path
    except Exception as e:
        mark("memory.snapshot_failed", 0, "%s: %s: %s" % (path, type(e).__name__, e))
        return None


def _after_fork():
    global _torch, _next, _steps, _history, _written
    global _looks, _look_at
    _torch, _next, _steps, _history, _written, _looks, _look_at = None, 0, 0, False, 0, 0, 0
    _seen.clear()


_ring._forked.append(_after_fork)
