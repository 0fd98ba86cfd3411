# SPDX-License-Identifier: Apache-2.0
"""Batches that were kept, in place of the DataLoader's: what `laggard roofline` calls "without the loader".

The program asks a stand-in for its batches. In a real window that one asks the program's own iterator; in a cached
one it hands out what was kept, and the loader's time stands still:
  - the main process asks for nothing, so no worker is given an index;
  - a worker begins no batch, and the one that it was at is delivered as much later as the loader stood still
    meanwhile (_Clock). So a real window begins with the queue that the last one ended with: what a loader does ahead
    in a cached window would make it look faster than it is. Only workers that a stand-in started do so, and never
    while the program waits for one of them.
An epoch has as many batches as without laggard: those that are handed out count, wherever they are from. The
program's own iterator goes on where it was, over several such epochs, and is made anew after as many of its batches
as an epoch has, so workers are started as often for each real batch as in reality.
"""
import collections
import copy
import functools
import mmap
import os
import struct
import sys
import time
import weakref

from laggard import _ring

_now = time.monotonic_ns
_SIGNATURES = 4      # times `keep`: so many batches at most, however many shapes there are
_PROBED = 4          # batches of which it is seen whether the program writes to them
_BYTES_MAX = 2 << 30
_PLAIN = (str, bytes, int, float, bool, complex)
_HELD = "LAGGARD_ROOFLINE_HELD"  # set where a stand-in starts workers

serving = False      # a window of kept batches
seen = 0             # loaders that batches come from
_torch = None
_keep = 0
_bytes_left = 0
_recent = 0
_states = weakref.WeakKeyDictionary()
_iterate = None
_clock = None
_inherited = []


# --- the loader's clock ------------------------------------------------------------------------

class _Clock:
    """Two words that the training process writes and its workers read: since when the loader stands still (0: it
    does not), and how long it did in all."""

    WORDS = struct.Struct("<qq")

    def __init__(self, path, make):
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if make else 0)
        fd = os.open(path, flags, 0o600)
        try:
            if make:
                os.posix_fallocate(fd, 0, mmap.PAGESIZE)
            self.map = mmap.mmap(fd, mmap.PAGESIZE)
        finally:
            os.close(fd)

    def stop(self):
        _, total = self.WORDS.unpack_from(self.map)
        self.WORDS.pack_into(self.map, 0, _now(), total)

    def go(self):
        since, total = self.WORDS.unpack_from(self.map)
        if since:
            total += _now() - since
            self.WORDS.pack_into(self.map, 0, since, total)  # who reads in between waits a moment longer
            self.WORDS.pack_into(self.map, 0, 0, total)

    def stands(self):
        return self.WORDS.unpack_from(self.map)[0] != 0

    def time(self):
        since, total = self.WORDS.unpack_from(self.map)
        now = _now()
        return now - total - (max(now - since, 0) if since else 0)

    def wait(self, until, parent):
        """Until the loader's own time is that, or its process is gone."""
        while os.getppid() == parent:
            left = until - self.time()
            stands = self.stands()
            if left <= 0 and not stands:
                return
            time.sleep(0.002 if stands else min(left * 1e-9, 0.05))


def _clock_path(pid):
    return "%s/clock.%d" % (os.environ["LAGGARD_MARKS"], pid)


class _Going:
    """While the program waits for the loader itself, its time goes on."""

    def __enter__(self):
        self.stood = _clock is not None and _clock.stands()
        if self.stood:
            _clock.go()

    def __exit__(self, *exc):
        if self.stood and serving:
            _clock.stop()
        return False


def in_worker(fetchers):
    """In a loader's worker, of each class that makes batches."""
    import multiprocessing
    parent = os.getppid()
    if not os.environ.get(_HELD) or multiprocessing.parent_process().pid != parent:
        return  # started for an evaluation, or by a server that starts processes for others
    clock = _Clock(_clock_path(parent), False)

    def held(original):
        @functools.wraps(original)
        def fetch(self, *args, **kwargs):
            clock.wait(0, parent)
            began, at = clock.time(), _now()
            out = original(self, *args, **kwargs)
            clock.wait(began + (_now() - at), parent)
            return out
        return fetch

    for cls in fetchers:
        cls.fetch = held(cls.fetch)


# --- batches that are kept -----------------------------------------------------------------------

def rebuild(x, leaf, depth=0):
    """The same containers with other tensors: who pops a key of a batch, or moves it, takes it from nobody else."""
    if isinstance(x, _torch.Tensor):
        return leaf(x)
    if x is None or isinstance(x, _PLAIN) or depth > 8:
        return x
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(rebuild(v, leaf, depth + 1) for v in x))
    if type(x) in (list, tuple):
        if x and isinstance(x[0], _PLAIN):
            return type(x)(x)  # a thousand lines of text, for one
        return type(x)(rebuild(v, leaf, depth + 1) for v in x)
    try:
        out = copy.copy(x)
        if isinstance(x, collections.abc.MutableMapping):
            for key in list(out):
                out[key] = rebuild(out[key], leaf, depth + 1)
        return out
    except Exception:
        return x  # of another make: handed out as it is


def signature(x):
    """Shapes and types of a batch's tensors; and how many numbers they hold."""
    found, numbers = [], [0]

    def leaf(t):
        if len(found) < 64:
            found.append((tuple(t.shape), t.dtype))
        numbers[0] += t.numel()
        return t
    rebuild(x, leaf)
    return tuple(found), numbers[0]


def _version(t):
    try:
        return t._version
    except Exception:
        return 0  # an inference tensor has none


def _own(t):
    """A copy that shares no memory with a worker, pinned where the original is."""
    try:
        if t.is_pinned():
            return _torch.empty_like(t, pin_memory=True).copy_(t)
    except Exception:
        pass
    return t.detach().clone()


class _State:
    """Of one loader."""

    def __init__(self, length):
        self.epoch = length            # batches of one; None = not known yet
        self.real, self.drawn = None, 0
        self.last = None               # the newest stand-in
        self.kept, self.n, self.turn = {}, 0, {}
        self.sizes = {}                # numbers in a batch, by signature
        self.recent = collections.deque(maxlen=_recent)  # signatures of real batches, in order
        self.at = 0
        self.written = False           # the program writes to its batches: each time it gets a copy
        self.probes, self.probed = [], 0

    def keep(self, batch):
        global _bytes_left
        shape, numbers = signature(batch)
        self.recent.append(shape)
        self._probe(batch)
        if not (self.n < _keep or (shape not in self.kept and self.n < _SIGNATURES * _keep)):
            return
        size = [0]

        def leaf(t):
            size[0] += t.numel() * t.element_size()
            return t
        rebuild(batch, leaf)
        if size[0] > _bytes_left and self.n:
            return
        _bytes_left -= size[0]
        self.kept.setdefault(shape, []).append(rebuild(batch, _own))
        self.sizes[shape] = numbers
        self.n += 1
        _ring.meta("roofline.kept", "%d batches of %d shapes" % (self.n, len(self.kept)))

    def _probe(self, batch):
        if self.written or self.probed > 2 * _PROBED:
            self.probes = []
            return
        self.probed += 1
        self.written = any(_version(t) != v for t, v in self.probes)
        if self.probed <= _PROBED:
            rebuild(batch, lambda t: self.probes.append((t, _version(t))))

    def next(self):
        """A kept batch, of the shape that the real one in this place had."""
        shape = self.recent[self.at % len(self.recent)] if self.recent else None
        self.at += 1
        if shape not in self.kept:
            size = self.sizes.get(shape, 0)
            shape = min(self.kept, key=lambda s: abs(self.sizes[s] - size))
        i = self.turn[shape] = self.turn.get(shape, -1) + 1
        return rebuild(self.kept[shape][i % len(self.kept[shape])], self._out)

    def _out(self, t):
        was = getattr(t, "_laggard_version", None)
        if was is not None and was != _version(t):
            self.written = True
        if self.written:
            return _own(t)
        out = t.detach()  # a tensor of its own on the same memory; it counts who writes there
        t._laggard_version = _version(t)
        out._laggard_kept = t
        return out


class _Stand:
    """The iterator that the program gets."""

    def __init__(self, loader, state):
        self._loader, self._state = loader, state
        self._left, self._given = state.epoch, 0

    def __iter__(self):
        return self

    def __len__(self):
        return len(self._loader)

    def __getattr__(self, name):
        if name[:2] == "__" or self._state.real is None:
            raise AttributeError(name)
        return getattr(self._state.real, name)

    def __next__(self):
        if self._left == 0:
            raise StopIteration
        batch = self._state.next() if serving and self._state.n else self._draw()
        self._given += 1
        if self._left is not None:
            self._left -= 1
        return batch

    next = __next__

    def _draw(self):
        with _Going():
            return self._drawn()

    def _drawn(self):
        st = self._state
        if st.epoch is not None and st.drawn >= st.epoch:
            st.real = None
        while True:
            if st.real is None:
                st.drawn = 0
                os.environ[_HELD] = "1"
                try:
                    st.real = _iterate(self._loader)
                finally:
                    del os.environ[_HELD]
            try:
                batch = next(st.real)
            except StopIteration:
                drawn, st.real = st.drawn, None
                if self._left is None:
                    st.epoch = drawn
                    raise
                if not drawn:
                    raise
                continue
            st.drawn += 1
            st.keep(batch)
            return batch


def _length(loader):
    try:
        from torch.utils.data import dataloader
        return len(loader) if loader._dataset_kind == dataloader._DatasetKind.Map else None
    except Exception:
        return None  # a sampler without an end


def stand(loader):
    global seen, _clock
    if _clock is None:
        try:
            _clock = _Clock(_clock_path(os.getpid()), True)
        except FileExistsError:
            pass  # of another pid namespace: workers do ahead what they can
    st = _states.get(loader)
    if st is None:
        st = _states[loader] = _State(_length(loader))
        seen += 1
        _ring.meta("roofline.loader", "%s with %s workers" % (type(loader).__name__, loader.num_workers))
    last = st.last() if st.last is not None else None
    if last is not None and last._left and last._given:
        st.epoch = last._given  # the program leaves its epochs there
    out = _Stand(loader, st)
    st.last = weakref.ref(out)
    return out


# --- windows ---------------------------------------------------------------------------------------

def serve(on):
    global serving
    serving = on
    if _clock is not None:
        _clock.stop() if on else _clock.go()
    if not on:
        return
    for st in list(_states.values()):
        st.at = 0


def _alone(loader):
    """It iterates for itself, with workers that a stand-in may have started."""
    st = _states.get(loader)
    if st is not None and getattr(loader, "persistent_workers", False):
        st.real = None  # the same iterator, begun anew
        _go()


def _after_fork():
    global _clock, serving, seen, _states
    _clock, serving, seen = None, False, 0
    # An iterator that went here would end its workers, which are the parent's: it stays, as any other in a fork does.
    _inherited.append((_states, list(_states.values())))
    _states = weakref.WeakKeyDictionary()


def _go():
    if _clock is not None and serving:
        _clock.go()


def over():
    """Nobody is to wait for a process that ends, nor to outlive it."""
    _go()
    for st in list(_states.values()):
        st.real = None


def _available():
    try:
        with open("/proc/meminfo") as f:
            for line in f:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return 1 << 30


def _patch_device(torch, compiling):
    """A kept batch is copied to a device once, where half of its free memory has room for it."""
    def wrap(name):
        original = getattr(torch.Tensor, name)

        @functools.wraps(original)
        def copied(self, *args, **kwargs):
            kept = None if compiling() else self.__dict__.get("_laggard_kept")
            if kept is None:
                return original(self, *args, **kwargs)
            key = (name, str(args), str(kwargs))
            there = kept.__dict__.get("_laggard_there")
            if there is not None and there[0] == key and there[2] == _version(there[1]):
                return there[1].detach()
            out = original(self, *args, **kwargs)
            if out is not self and out.device.type != "cpu" and _fits(torch, out):
                kept._laggard_there = (key, out, _version(out))
                _ring.meta("roofline.kept_on", out.device.type)
                return out.detach()
            return out
        setattr(torch.Tensor, name, copied)

    for name in ("to", "cuda"):
        wrap(name)


def _fits(torch, t):
    if t.device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(t.device)
    return t.numel() * t.element_size() * 2 * _keep < free // 2


def start(torch, keep, recent, is_evaluation, compiling):
    """In the training process. is_evaluation() is asked where an iteration begins: that loader is left alone."""
    global _torch, _keep, _recent, _bytes_left, _iterate
    _torch, _keep, _recent = torch, keep, recent
    ranks = max(1, _ring._env_int("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
    _bytes_left = min(_BYTES_MAX, _available() // 8) // ranks
    loader = torch.utils.data.DataLoader
    _iterate = loader.__iter__

    @functools.wraps(_iterate)
    def __iter__(self):
        if is_evaluation():
            _alone(self)
            return _iterate(self)
        return stand(self)

    loader.__iter__ = __iter__
    if any(getattr(torch.version, v, None) for v in ("cuda", "hip", "xpu")) or "LAGGARD_COPIES" in os.environ:
        _patch_device(torch, compiling)
    shut = sys.modules["torch.utils.data.dataloader"]._MultiProcessingDataLoaderIter
    shut_down = shut._shutdown_workers

    @functools.wraps(shut_down)
    def _shutdown_workers(self):
        _go()  # they are waited for
        return shut_down(self)

    shut._shutdown_workers = _shutdown_workers
