# SPDX-License-Identifier: Apache-2.0
"""`laggard record --modules`: where forward and backward spend their time, by module.

Nothing is registered at modules, so what torch.compile asks of them stays as it was: calls are seen in the one
wrapper of nn.Module.__call__ that the hook has anyway, and what Dynamo compiles is one call. In the backward pass
every moment belongs to one module: from when the gradient of its output is used until another's is, or the gradient
of its input (a tensor's hook runs right before the node that uses that gradient). So the parts of a pass add up.

Told are sums since the beginning, of each module's own time, every few seconds: marks module.forward and
module.backward (ns), module.calls, module.compiled (1: compiled, 2: but parts of it run as Python), with the path as
text, and module.steps. In some steps each piece is a span as well, to be drawn. On a device's host these are the
times of its host: of the device's work what it waits for.
"""
import sys
import threading
import time
import weakref

from laggard import _ring
from laggard._ring import K_OTHER, SPAN, intern, mark, span

_now = time.monotonic_ns
_MODULES_MAX = 512
_EVERY_NS = 1_000_000_000
_WARM = 5            # steps before the first sums are told: what is before them is not counted
_DRAW_EVERY = 50     # steps
_DRAW_MAX = 4000     # spans of a step

_entries = {}        # id of a module: its entry
_by_path = {}
_roots = 0
_steps = 0
_told = 0
_drawn = _DRAW_MAX   # spans of this step
_owner = None        # backward: whose time it is
_since = 0           # backward: since when; 0 = none runs
_torch = None


class _Entry:
    __slots__ = ("path", "up", "ref", "forward", "backward", "calls", "wrapped", "parted", "told", "name")

    def __init__(self, path, up):
        self.path, self.up, self.name = path, up, 0
        self.forward = self.backward = self.calls = 0
        self.wrapped = self.parted = False
        self.told = {}

    def within(self, other):
        e = self
        while e is not None and e is not other:
            e = e.up
        return e is not None


class _Frames(threading.local):
    def __init__(self):
        self.open = []  # [entry, ns of what it called]


_frames = _Frames()


def plain(path):
    """As the program knows it: what DDP and torch.compile put around a model is not in it."""
    return ".".join(p for i, p in enumerate(path.split(".")) if p != "_orig_mod" and not (i == 0 and p == "module"))


def _is_compiled(module):
    return (type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None or
            hasattr(module.__dict__.get("forward"), "_torchdynamo_orig_callable"))


def enter(root):
    """A module that no other one calls: take down what it is made of, the first time."""
    global _roots
    known = _entries.get(id(root))
    if known is not None and known.ref() is root or _roots >= 8 or not any(True for _ in root.parameters()):
        return
    name = type(getattr(root, "_orig_mod", getattr(root, "module", root))).__name__
    if name in _by_path:
        name += "_%d" % _roots
    _roots += 1
    modules = sorted(root.named_modules(), key=lambda pm: pm[0].count("."))
    left_out = 0
    for path, module in modules:
        path = plain(path)
        full = name + "." + path if path else name
        e = _by_path.get(full)
        if e is None:
            if len(_by_path) >= _MODULES_MAX:
                left_out += 1
                continue
            up = full.rpartition(".")[0]
            while up and up not in _by_path:
                up = up.rpartition(".")[0]
            e = _by_path[full] = _Entry(full, _by_path.get(up))
            e.ref = weakref.ref(module)
        elif module is not e.ref():
            e.ref = weakref.ref(module)  # what is within a wrapper counts as the wrapper
        e.wrapped |= _is_compiled(module)
        _entries[id(module)] = e
    if left_out:
        mark("module.left_out", left_out, name)


def _draw(e, start, dur):
    global _drawn
    _drawn += 1
    e.name = e.name or intern(e.path)
    span(SPAN | K_OTHER, start, dur, e.name)


def call(original, module, args, kwargs):
    e = _entries.get(id(module))
    frames = _frames.open
    if e is None or (frames and frames[-1][0] is e):
        return original(module, *args, **kwargs)
    if _since:
        return _again(e, original, module, args, kwargs)
    frame = [e, 0]
    frames.append(frame)
    start = _now()
    try:
        out = original(module, *args, **kwargs)
    finally:
        took = _now() - start
        frames.pop()
        e.forward += took - frame[1]
        e.calls += 1
        if frames:
            frames[-1][1] += took
            if frames[-1][0].wrapped:
                frames[-1][0].parted = True
        if _drawn < _DRAW_MAX:
            _draw(e, start, took)
    try:
        if _torch.is_grad_enabled():
            _watch(e, args, kwargs, out)
    except Exception as x:
        _ring.disable("modules: %s: %s" % (type(x).__name__, x))
    return out


def _again(e, original, module, args, kwargs):
    """Within a backward pass: what checkpointing threw away is made again."""
    global _owner
    _charge()
    was, _owner = _owner, e
    try:
        return original(module, *args, **kwargs)
    finally:
        _charge()
        _owner = was


def _tensors(x, found, depth=0):
    if isinstance(x, _torch.Tensor):
        if x.requires_grad and len(found) < 16:
            found.append(x)
    elif depth < 4:
        if isinstance(x, (list, tuple)):
            for v in x[:16]:
                _tensors(v, found, depth + 1)
        elif isinstance(x, dict):
            for v in list(x.values())[:16]:
                _tensors(v, found, depth + 1)


def _watch(e, args, kwargs, out):
    outs, ins = [], []
    _tensors(out, outs)
    if not outs:
        return

    def begins(grad):
        global _owner
        # What a module returns is often what its last one returned: that one is told first, and keeps the time.
        if _since and (_owner is None or _owner is e or not _owner.within(e)):
            _charge()
            _owner = e

    def ends(grad):
        global _owner
        if _since and _owner is not None and _owner.within(e):
            _charge()
            _owner = e.up

    for t in outs:
        t.register_hook(begins)
    _tensors((args, kwargs), ins)
    for t in ins:
        if t.grad_fn is not None:  # a leaf's hook would stay
            t.register_hook(ends)


def _charge():
    global _since
    now = _now()
    if _owner is not None:
        _owner.backward += now - _since
        if _drawn < _DRAW_MAX and now - _since > 5000:
            _draw(_owner, _since, now - _since)
    _since = now


def backward_begins():
    global _since, _owner
    _owner = None
    _since = _now()


def backward_ends():
    global _since, _owner
    if _since:
        _charge()
    _since, _owner = 0, None


def step():
    global _steps, _told, _drawn
    _steps += 1
    _drawn = 0 if _steps % _DRAW_EVERY == _WARM else _DRAW_MAX
    now = _now()
    if _steps == _WARM or (_steps > _WARM and now - _told > _EVERY_NS):
        _told = now
        tell()


def tell():
    mark("module.steps", _steps)
    for e in list(_by_path.values()):
        values = {"forward": e.forward, "backward": e.backward, "calls": e.calls,
                  "compiled": (2 if e.parted else 1) if e.wrapped else 0}
        for key, value in values.items():
            if e.told.get(key, 0) != value:
                e.told[key] = value
                mark("module." + key, value, e.path)


def _after_fork():
    _entries.clear()
    _by_path.clear()
    _frames.open = []


def patch(torch):
    """Before the hook's own wrapper of modules."""
    global _torch
    hook = sys.modules["laggard._torch"]
    _torch = torch
    compiling = hook.compiling
    original = torch.nn.Module.__call__
    enter_root = hook._enter
    steps = _ring.step

    def __call__(self, *args, **kwargs):
        if compiling():
            return original(self, *args, **kwargs)
        return call(original, self, args, kwargs)

    def _enter(module, args, kwargs):
        try:
            enter(module)
        except Exception as e:
            _ring.disable("modules: %s: %s" % (type(e).__name__, e))
        return enter_root(module, args, kwargs)

    def counted(number, word=_ring.STEP):
        steps(number, word)
        step()

    torch.nn.Module.__call__ = hook.dress(__call__, original)
    hook._enter = _enter
    _ring.step = counted
    _ring._forked.append(_after_fork)
    backward = torch.autograd.backward

    def timed(*args, **kwargs):
        if compiling() or _since:
            return backward(*args, **kwargs)
        backward_begins()
        try:
            return backward(*args, **kwargs)
        finally:
            backward_ends()

    torch.autograd.backward = hook.dress(timed, backward)
