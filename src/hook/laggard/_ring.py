# SPDX-License-Identifier: Apache-2.0
"""The mark ring: a shared file that this process writes and the recorder reads.

Layout and meaning are those of include/laggard/mark.h; all words are little-endian u64.

    page 0     header (words below)
    64 B slots  [index, ts_ns, word, name|group<<32, seq, bytes, token, index]
    names      {u32 length, bytes}, 8-aligned; id of a name = its offset / 8 + 1

A mark is one struct.pack_into(), which stores the eight words in order: the reader takes a slot
when first and last word are the index it expects, and looks at the first word again after
copying, so a slot that is being overwritten is noticed. Without a ring the same code writes into
a private slot: the hot path has no branch for "off".
"""
import itertools
import mmap
import os
import struct
import sys
import threading
import time

from laggard import _kept, _leave

MAGIC = 0x314B52414D47414C  # "LAGMARK1"
VERSION = 1
HEADER = 4096
H_MAGIC, H_VERSION, H_SIZE, H_PID, H_START, H_SLOTS, H_SLOTS_OFF, H_NAMES_OFF, H_NAMES_CAP, \
    H_NEXT, H_NAMES_USED, H_ROLE, H_RANK, H_WORLD, H_LOCAL_RANK, H_FLAGS, H_PID_NS, H_CREATED, \
    H_NAMES_LOST = range(19)
ROLE_UNKNOWN, ROLE_TRAINS, ROLE_LOADER, ROLE_WORKER = range(4)
FLAG_OFF, FLAG_CLOSED = 1, 2

BEGIN, END, SPAN, MARK, META, STEP, OFF = (n << 32 for n in range(1, 8))
# As in src/store/trace.h.
K_STAGE, K_COPY, K_COLLECTIVE, K_GC, K_OTHER, K_WAIT = (n << 40 for n in (2, 5, 6, 11, 0, 16))
STAGES = ("none", "batch_wait", "h2d", "forward", "backward", "grad_sync", "optimizer", "side",
          "other")
S_BATCH_WAIT, S_H2D, S_FORWARD, S_BACKWARD, S_GRAD_SYNC, S_OPTIMIZER, S_SIDE, S_OTHER = (
    n << 48 for n in range(1, 9))
F_ASYNC, F_HAND, F_IMPLICIT, F_START = (n << 56 for n in (1, 2, 4, 8))

_now = time.monotonic_ns
_pack = struct.Struct("<QqQQqQQQ").pack_into
_pack_begin = struct.Struct("<QqQQ24xQ").pack_into  # the same, where what is left out is 0
_pack_end = struct.Struct("<QqQ24xQQ").pack_into
_pack_word = struct.Struct("<q").pack_into
_I64 = 1 << 63


class _Thread(threading.local):
    """gettid() once a thread: the kernel call costs as much as the rest of a mark."""

    def __init__(self):
        self.tid = threading.get_native_id()


_local = _Thread()
_buf = bytearray(64)  # slot area: the ring's, or one private slot
_mask = 0
_next = itertools.count(1).__next__
_map = None           # the whole ring file
_pid = 0              # whose ring it is
_wanted = False       # a forked child gets its ring at its first mark
_dead = False         # disabled for good
_ids = {}
_used = 0             # bytes of the name area, also while there is no ring
_cap = 0
_lost = 0
_lock = threading.RLock()
_meta = {}


def begin(word, name=0, group=0, seq=0, nbytes=0):
    """Start a span; returns the token that end() takes."""
    try:
        if _wanted:
            open_ring()
        i = _next()
        if group or seq or nbytes:
            _pack(_buf, (i & _mask) << 6, i, _now(), word | _local.tid, name | group << 32, seq,
                  nbytes, 0, i)
        else:
            _pack_begin(_buf, (i & _mask) << 6, i, _now(), word | _local.tid, name, i)
        return i
    except Exception as e:
        _fail(e)
        return 0


def end(token):
    try:
        i = _next()
        _pack_end(_buf, (i & _mask) << 6, i, _now(), END | _local.tid, token, i)
    except Exception as e:
        _fail(e)


def span(word, start, dur, name=0, group=0, seq=0, nbytes=0):
    """A whole span in one slot, written when it is over."""
    try:
        i = _next()
        _pack(_buf, (i & _mask) << 6, i, start, word | _local.tid, name | group << 32, seq,
              nbytes, dur, i)
    except Exception as e:
        _fail(e)


def mark(name, value=0, text="", word=MARK):
    try:
        if _wanted:
            open_ring()
        value = int(value)
        if not -_I64 <= value < _I64:
            value = _I64 - 1 if value > 0 else -_I64
        i = _next()
        _pack(_buf, (i & _mask) << 6, i, _now(), word | _local.tid,
              intern(name) | (intern(text) << 32 if text else 0), value, 0, 0, i)
    except Exception as e:
        _fail(e)


def step(number, word=STEP):
    try:
        if _wanted:
            open_ring()
        i = _next()
        _pack(_buf, (i & _mask) << 6, i, _now(), word | _local.tid, 0, number, 0, 0, i)
    except Exception as e:
        _fail(e)


def meta(key, value):
    """A fact, written again only when it changes."""
    value = str(value)
    if _meta.get(key) != value:
        _meta[key] = value
        mark(key, 0, value, META)


def active():
    return _map is not None


def intern(s):
    i = _ids.get(s)
    return _add(s) if i is None else i


def _add(s):
    global _used, _lost
    with _lock:
        if s in _ids:
            return _ids[s]
        data = s.encode("utf-8", "replace")[:4096]
        at = _used
        if _map is not None and at + 4 + len(data) > _cap:
            _lost += 1
            _word(H_NAMES_LOST, _lost)
            return 0
        if _map is None and at > 1 << 20:
            return 0
        _used = (at + 4 + len(data) + 7) & ~7
        _ids[s] = at // 8 + 1
        if _map is not None:
            _store(at, data)
            _word(H_NAMES_USED, _used)
        return _ids[s]


def _store(at, data):
    off = len(_map) - _cap + at
    _map[off:off + 4 + len(data)] = len(data).to_bytes(4, "little") + data


def _word(index, value):
    if _map is not None:
        _pack_word(_map, index * 8, value)


def _start_time():
    with open("/proc/self/stat", "rb") as f:
        return int(f.read().rpartition(b")")[2].split()[19])


def _env_int(*names):
    for n in names:
        try:
            return int(os.environ[n])
        except (KeyError, ValueError):
            pass
    return -1


def is_child():
    """Started by multiprocessing: it inherits RANK without being that rank."""
    m = sys.modules.get("multiprocessing.process")
    if m is None:
        return False
    # A spawned child imports the main module, and torch with it, before it knows its parent;
    # until then it is "inheriting".
    return (getattr(m, "parent_process", lambda: None)() is not None or
            getattr(m.current_process(), "_inheriting", False))


def open_ring(role=ROLE_UNKNOWN, slots=16384, names=1 << 18):
    """Make this process's ring. Quietly does nothing when there is no recorder."""
    global _map, _buf, _mask, _next, _pid, _wanted, _cap, _used, _lost
    _wanted = False
    where = os.environ.get("LAGGARD_MARKS")
    if not where or _dead or (_map is not None and _pid == os.getpid()):
        return _map is not None
    pid = os.getpid()
    temporary = None
    try:
        _kept.prepare(where, (H_PID, H_START, H_PID_NS, H_NAMES_LOST + 1))
        size = HEADER + slots * 64 + names
        temporary = "%s/.new.%d.%x" % (where, pid, _now())
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Pages are reserved now: a full /dev/shm must be an error here, not SIGBUS later.
            os.posix_fallocate(fd, 0, size)
            flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
            ring = mmap.mmap(fd, size, flags=flags)
        finally:
            os.close(fd)
        child = role == ROLE_LOADER or is_child()
        if child and role == ROLE_UNKNOWN:
            role = ROLE_WORKER
        rank = -1 if child else _env_int("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
        world = 0 if child else max(0, _env_int("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE",
                                                "PMI_SIZE"))
        local = -1 if child else _env_int("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
        head = [0] * 19
        head[H_MAGIC], head[H_VERSION], head[H_SIZE] = MAGIC, VERSION, size
        head[H_PID], head[H_START] = pid, _start_time()
        head[H_SLOTS], head[H_SLOTS_OFF] = slots, HEADER
        head[H_NAMES_OFF], head[H_NAMES_CAP] = HEADER + slots * 64, names
        head[H_ROLE], head[H_RANK], head[H_WORLD], head[H_LOCAL_RANK] = role, rank, world, local
        head[H_PID_NS] = os.stat("/proc/self/ns/pid").st_ino
        head[H_CREATED] = _now()
        struct.pack_into("<19q", ring, 0, *head)
        with _lock:
            _map, _pid, _cap, _lost = ring, pid, names, 0
            # Ids are offsets, so writing the same names again keeps ids that others hold.
            for s, i in list(_ids.items()):
                data = s.encode("utf-8", "replace")[:4096]
                if (i - 1) * 8 + 4 + len(data) <= names:
                    _store((i - 1) * 8, data)
                else:
                    del _ids[s]
            _used = min(_used, names)
            _word(H_NAMES_USED, _used)
        _mask = slots - 1
        _next = itertools.count(1).__next__
        _buf = memoryview(ring)[HEADER:HEADER + slots * 64]
        n = 0
        while True:
            path = "%s/mark.%d.%d" % (where, pid, n)
            try:
                os.link(temporary, path)  # never replaces: another pid namespace may use this pid
                break
            except FileExistsError:
                n += 1
        os.unlink(temporary)
        return True
    except Exception as e:
        if temporary:
            try:
                os.unlink(temporary)
            except OSError:
                pass
        disable("no mark ring: %s: %s" % (type(e).__name__, e))
        return False


def set_role(role):
    _word(H_ROLE, role)


def set_rank(rank, world, local):
    _word(H_RANK, rank)
    _word(H_WORLD, world)
    _word(H_LOCAL_RANK, local)


def close():
    _word(H_FLAGS, FLAG_CLOSED)


def _detach():
    global _buf, _mask, _map
    _buf, _mask, _map = bytearray(64), 0, None


def disable(why):
    """Turn the hook off for the rest of this process and say so once."""
    global _dead, _wanted
    if _dead:
        return
    _dead = True
    _wanted = False
    try:
        if _map is not None:
            mark("hook.disabled", 0, why, OFF)
            _word(H_FLAGS, FLAG_OFF)
        elif os.environ.get("LAGGARD_MARKS"):
            # No ring to say it in: leave a note for the recorder.
            fd = os.open("%s/off.%d" % (os.environ["LAGGARD_MARKS"], os.getpid()),
                         os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(fd, why.encode("utf-8", "replace")[:400])
            os.close(fd)
    except Exception:
        pass
    _detach()
    try:
        if _leave.over():
            return  # nobody is left to miss a mark
        sys.stderr.write("laggard: hook disabled: %s\n" % " ".join(why.split()))
    except Exception:
        pass


def _fail(e):
    disable("%s: %s" % (type(e).__name__, e))


_forked = []  # what else a forked child must forget


def _after_fork():
    global _local, _lock, _wanted
    _detach()
    _local = _Thread()
    _lock = threading.RLock()
    _meta.clear()
    _wanted = not _dead and bool(os.environ.get("LAGGARD_MARKS"))
    for f in _forked:
        f()


os.register_at_fork(after_in_child=_after_fork)
