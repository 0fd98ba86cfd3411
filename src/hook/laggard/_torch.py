# SPDX-License-Identifier: Apache-2.0
"""The marks of one process: DataLoader, copies, forward, backward, optimizer, saving, GC.

What keeps torch.compile as it was (tests/e2e/test_hook.py compares its counters):
  - a wrapper that Dynamo traces through sees compiling() as a constant True and calls the
    original: same graph, no break;
  - a wrapper that runs as a frame of its own under Dynamo's callback is skipped by code object
    (skip_code), as Dynamo itself skips torch's own frames;
  - Dynamo decides by file what to trace, to inline and to leave alone, so a wrapper's code says it
    is from the file of what it wraps (dress);
  - nn.Module.__call__ is replaced before torch._dynamo is imported, so Dynamo's check for a
    module whose __call__ somebody patched (unpatched_nn_module_call) holds.
"""
import atexit
import functools
import gc
import os
import sys
import time
import types
import weakref

import laggard
from laggard import _dist, _facts, _memory, _ring
from laggard._ring import (
    BEGIN, F_START, K_COPY, K_GC, K_OTHER, K_STAGE, ROLE_LOADER, ROLE_TRAINS, S_BACKWARD,
    S_BATCH_WAIT, S_FORWARD, S_H2D, S_OPTIMIZER, S_SIDE, SPAN, STEP, begin, end, intern, mark, span)

_now = time.monotonic_ns
_FORWARD = BEGIN | K_STAGE | S_FORWARD
_BACKWARD = BEGIN | K_STAGE | S_BACKWARD
_OPTIMIZER = BEGIN | K_STAGE | S_OPTIMIZER
_by_hand = laggard.by_hand
compiling = None   # torch's own predicate, which Dynamo folds to True

_busy = False      # inside the root module or the backward pass: inner modules are not marked
_backward = False
_stepping = False
_trains = False
_steps = 0
_forwards = _backwards = 0
_sampled = _samples = 0  # when a forward was sampled last, and how many were
_sampled_backward = 0
_names = {}        # interned names of the classes of modules and optimizers that were marked
_SAMPLE_NS = 200_000_000
_first_opt = None  # weak reference: its step() ends the training step
_opt_made = False
_det = None        # fingerprints, where they are asked for
_profiler = None   # the same of torch.profiler
_root = None       # id of the module whose forward starts an inference step


def _no():
    return False


def find_compiling(torch):
    for path in ("compiler.is_dynamo_compiling", "compiler.is_compiling", "_utils.is_compiling"):
        found = torch
        for part in path.split("."):
            found = getattr(found, part, None)
        if found is not None:
            return found
    return _no


_skip = None  # skip_code() of the frame evaluator; None before patch() and without Dynamo


def dress(wrapper, original):
    """Give a wrapper the file, line and name of what it wraps.

    torch.compile(DDP(...)) for one asks whether DDP.forward is from torch's own files and traces
    another frame when it is not. Tracebacks then show a line of that file for the wrapper.
    """
    code = getattr(original, "__code__", None)
    if code is not None:
        wrapper.__code__ = wrapper.__code__.replace(
            co_filename=code.co_filename, co_firstlineno=code.co_firstlineno, co_name=code.co_name)
        if _skip is not None:
            _skip(wrapper.__code__)
    return wrapper


def find_skip():
    """Dynamo's way to say: never look at frames of this code object."""
    try:
        from torch._C._dynamo import eval_frame
    except ImportError:
        return None
    skip = getattr(eval_frame, "skip_code", None)
    strategy = getattr(eval_frame, "set_code_exec_strategy", None)
    if skip is not None or strategy is None:
        return skip
    action = eval_frame._FrameAction  # torch 2.8 replaced skip_code()
    how = eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
    return lambda code: strategy(code, how)


def skip_frames(*modules):
    """Have Dynamo leave every function of these modules alone."""
    def walk(code):
        _skip(code)
        for c in code.co_consts:
            if isinstance(c, types.CodeType):
                walk(c)

    if _skip is None:
        return
    for m in modules:
        for value in list(vars(m).values()):
            if isinstance(value, types.FunctionType) and value.__module__ == m.__name__:
                walk(value.__code__)
            elif isinstance(value, type) and value.__module__ == m.__name__:
                for f in vars(value).values():
                    if isinstance(f, types.FunctionType):
                        walk(f.__code__)


def simple(fn, word, name, stage):
    """Wrap fn so that each call is one span; nested calls nest."""
    nid = intern(name)

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        if compiling() or stage in _by_hand:
            return fn(*args, **kwargs)
        token = begin(word, nid)
        try:
            return fn(*args, **kwargs)
        finally:
            end(token)
    return dress(wrapper, fn)


def trains():
    global _trains
    _trains = True
    _ring.set_role(ROLE_TRAINS)
    _facts.training()
    _memory.start(_facts._torch)


# --- forward ---------------------------------------------------------------------------------

def _patch_module(torch):
    original = torch.nn.Module.__call__

    @functools.wraps(original)
    def __call__(self, *args, **kwargs):
        if _busy or compiling():
            return original(self, *args, **kwargs)
        token = _enter(self, args, kwargs)
        try:
            return original(self, *args, **kwargs)
        finally:
            _leave(token)

    torch.nn.Module.__call__ = dress(__call__, original)


def _name(cls, of):
    if len(_names) > 256:
        _names.clear()  # who makes classes without end shall get rid of them
    _names[cls] = intern(cls.__name__ + of)
    return _names[cls]


def _enter(module, args, kwargs):
    global _busy, _forwards, _root, _sampled, _samples, _steps
    _busy = True
    try:
        _forwards += 1
        if _forwards <= 3 or _forwards % 10 == 0 and (
                _forwards <= 200 or _now() - _sampled > _SAMPLE_NS):
            _sampled = _now()
            _samples += 1
            _facts.during_forward(_samples, module, args)
        if not _opt_made and "step" not in _by_hand:
            if _root is None and any(True for _ in module.parameters()):
                _root = id(module)
                if not _trains and not _ring.is_child():
                    trains()
            if _root == id(module):
                _steps += 1
                _ring.step(_steps, STEP | F_START)
                if _det is not None and _steps > 1:
                    _det.boundary()
        if _det is not None:
            _det.forward(module, args, kwargs)
        if "forward" in _by_hand:
            return 0
        return begin(_FORWARD, _names.get(type(module)) or _name(type(module), ""))
    except Exception as e:
        _ring.disable("forward: %s: %s" % (type(e).__name__, e))
        return 0


def _leave(token):
    global _busy
    _busy = False
    if token:
        end(token)


# --- backward --------------------------------------------------------------------------------

def _patch_backward(torch):
    original = torch.autograd.backward
    nid = intern("backward")

    @functools.wraps(original)
    def backward(*args, **kwargs):
        global _busy, _backward, _backwards, _sampled_backward
        if compiling() or _backward:
            return original(*args, **kwargs)
        was, _busy, _backward = _busy, True, True
        token, syncs = 0, ()
        try:
            if not _trains:
                trains()
            _backwards += 1
            if _backwards <= 3 or _backwards % 7 == 0 and (  # odd: a step may have two
                    _backwards <= 200 or _now() - _sampled_backward > _SAMPLE_NS):
                _sampled_backward = _now()
                _facts.during_backward()
            if _det is not None:
                _det.backward(args, kwargs)
            if "backward" not in _by_hand:
                token = begin(_BACKWARD, nid)
            if _dist.pending:
                syncs = _dist.begin_gradient_sync()
        except Exception as e:
            _ring.disable("backward: %s: %s" % (type(e).__name__, e))
        try:
            return original(*args, **kwargs)
        finally:
            _busy, _backward = was, False
            for t in syncs:
                end(t)
            if token:
                end(token)
            _dist.after_backward = True

    torch.autograd.backward = dress(backward, original)  # Tensor.backward looks it up at every call


# --- optimizer -------------------------------------------------------------------------------

def _wrap_step(cls):
    original = cls.__dict__.get("step")
    if not isinstance(original, types.FunctionType) or getattr(original, "_laggard", False):
        return

    @functools.wraps(original)
    def step(self, *args, **kwargs):
        if _stepping or compiling():
            return original(self, *args, **kwargs)
        token = _step_begin(self)
        try:
            return original(self, *args, **kwargs)
        finally:
            _step_end(token, self)

    step._laggard = True
    cls.step = dress(step, original)


def _step_begin(opt, name=0):
    global _stepping, _first_opt
    _stepping = True
    try:
        if not _trains:
            trains()
        if _first_opt is None or _first_opt() is None:
            _first_opt = weakref.ref(opt)
            _facts.optimizer(opt)
        _dist.after_backward = False
        if _det is not None:
            _det.grads(opt)
        if "optimizer" in _by_hand:
            return 0
        return begin(_OPTIMIZER, name or _names.get(type(opt)) or _name(type(opt), ".step"))
    except Exception as e:
        _ring.disable("optimizer: %s: %s" % (type(e).__name__, e))
        return 0


def _step_end(token, opt):
    global _stepping
    _stepping = False
    if token:
        end(token)
    if _det is not None:
        _det.params(opt)
    _boundary(opt)


def _boundary(opt):
    """The step of the first optimizer ends a training step."""
    global _steps
    if _first_opt is not None and _first_opt() is opt and "step" not in _by_hand:
        _steps += 1
        _ring.step(_steps)
        _memory.step()
        if _profiler is not None:
            _profiler.step(_steps)
        if _det is not None:
            _det.boundary()


def _patch_optimizer(torch):
    base = torch.optim.Optimizer

    def walk(cls):
        _wrap_step(cls)
        for sub in cls.__subclasses__():
            walk(sub)

    walk(base)
    inherited = base.__dict__.get("__init_subclass__")

    def __init_subclass__(cls, **kwargs):
        if inherited is not None:
            inherited.__get__(None, cls)(**kwargs)
        else:
            super(base, cls).__init_subclass__(**kwargs)
        try:
            _wrap_step(cls)
        except Exception as e:
            _ring.disable("optimizer %s: %s" % (cls.__name__, e))

    base.__init_subclass__ = classmethod(__init_subclass__)
    init = base.__init__

    @functools.wraps(init)
    def __init__(self, *args, **kwargs):
        global _opt_made
        _opt_made = True
        return init(self, *args, **kwargs)

    base.__init__ = dress(__init__, init)


def _patch_scaler(torch):
    cls = getattr(getattr(torch, "amp", None), "GradScaler", None)
    if cls is None:
        cls = torch.cuda.amp.GradScaler
    original = cls.step
    nid = intern("GradScaler.step")

    @functools.wraps(original)
    def step(self, optimizer, *args, **kwargs):
        if _stepping or compiling():
            return original(self, optimizer, *args, **kwargs)
        _facts.scaler(self)
        # A skipped step (inf found) never reaches optimizer.step, and is a step all the same.
        token = _step_begin(optimizer, nid)
        try:
            return original(self, optimizer, *args, **kwargs)
        finally:
            _step_end(token, optimizer)

    cls.step = dress(step, original)
    for name in ("update", "unscale_"):
        setattr(cls, name, simple(getattr(cls, name), BEGIN | K_STAGE | S_OPTIMIZER,
                                  "GradScaler." + name, "optimizer"))


# --- input -----------------------------------------------------------------------------------

def _patch_loader(torch):
    from torch.utils.data import dataloader
    base = dataloader._BaseDataLoaderIter
    original = base.__next__
    nid = intern("DataLoader.__next__")
    word = BEGIN | K_STAGE | S_BATCH_WAIT

    @functools.wraps(original)
    def __next__(self):
        if "batch_wait" in _by_hand:
            return original(self)
        token = begin(word, nid)
        try:
            return original(self)
        finally:
            end(token)

    if _det is not None:
        __next__ = _det.with_batch(__next__)
    base.__next__ = __next__
    if "next" in base.__dict__:
        base.next = __next__
    loader = dataloader.DataLoader
    iterate = loader.__iter__
    iid = intern("DataLoader.__iter__")

    @functools.wraps(iterate)
    def __iter__(self):
        _facts.loader(self)
        if _det is not None:
            _det.loader(self)
        token = begin(word, iid)
        try:
            return iterate(self)
        finally:
            end(token)

    loader.__iter__ = __iter__

    worker = torch.utils.data._utils.worker
    loop = worker._worker_loop

    @functools.wraps(loop)
    def _worker_loop(*args, **kwargs):
        _loader_process(torch)
        return loop(*args, **kwargs)

    worker._worker_loop = _worker_loop  # spawn pickles it by name and finds this one again


def _loader_process(torch):
    """In a loader worker: a small ring of its own, and one span for each batch it makes."""
    try:
        _ring.open_ring(ROLE_LOADER, slots=2048, names=1 << 16)
        _ring.set_role(ROLE_LOADER)
        _ring.set_rank(-1, 0, -1)
        if _det is not None:
            _det.off()
        fetch = torch.utils.data._utils.fetch
        nid = intern("fetch")
        for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            cls = getattr(fetch, name)
            cls.fetch = _fetch_wrapper(cls.fetch, nid)
        if os.environ.get("LAGGARD_ROOFLINE"):
            from laggard import _stand_in
            _stand_in.in_worker([fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher])
    except Exception as e:
        _ring.disable("loader worker: %s" % e)


def _fetch_wrapper(original, nid):
    @functools.wraps(original)
    def fetch(self, *args, **kwargs):
        token = begin(BEGIN | K_OTHER, nid)
        try:
            return original(self, *args, **kwargs)
        finally:
            end(token)
            _memory.worker()
    return fetch


def _patch_copies(torch):
    # Without an accelerator nothing can be copied to one; LAGGARD_COPIES is for our own tests.
    built = any(getattr(torch.version, v, None) for v in ("cuda", "hip", "xpu"))
    mps = getattr(getattr(torch.backends, "mps", None), "is_built", _no)
    if not (built or mps() or os.environ.get("LAGGARD_COPIES")):
        return

    def wrap(name):
        original = getattr(torch.Tensor, name, None)
        if original is None:
            return
        nid = intern("Tensor." + name)
        word = SPAN | K_COPY | S_H2D

        @functools.wraps(original)
        def copy(self, *args, **kwargs):
            if compiling():
                return original(self, *args, **kwargs)
            start = _now()
            out = original(self, *args, **kwargs)
            if out is not self and "h2d" not in _by_hand:
                _copied(self, out, word, start, nid)
            return out
        setattr(torch.Tensor, name, copy)

    for name in ("to", "cuda"):
        wrap(name)


def _copied(source, out, word, start, nid):
    try:
        if source.device.type == "cpu" and out.device.type != "cpu":
            span(word, start, _now() - start, nid, 0, 0, out.numel() * out.element_size())
    except Exception:
        pass  # a tensor subclass without device or size: no mark, nothing else


# --- side work, GC, torch.compile --------------------------------------------------------------

def _offset(f):
    """Where a file that is open stands; None for a path, for memory and for what cannot tell."""
    try:
        f.fileno()
        return f.tell()
    except Exception:
        return None


def _saved(f, before):
    """How much a save wrote to storage: the file's size, or how far it went on."""
    try:
        if isinstance(f, (str, os.PathLike)):
            size = os.stat(f).st_size
        elif before is not None:
            size = f.tell() - before
        else:
            return
        mark("side.saved", size)
    except Exception:
        pass  # gone already, or no file: the time is known, the bytes are not


def _patch_side(torch):
    original = torch.save
    nid = intern("torch.save")

    @functools.wraps(original)
    def save(obj, f, *args, **kwargs):
        if compiling() or "side" in _by_hand:
            return original(obj, f, *args, **kwargs)
        before = _offset(f)
        token = begin(BEGIN | K_STAGE | S_SIDE, nid)
        try:
            return original(obj, f, *args, **kwargs)
        finally:
            end(token)
            _saved(f, before)

    save = dress(save, original)
    torch.serialization.save = save  # pickled by name: both must be the same
    torch.save = save


def patch_tensorboard(module):
    cls = module.SummaryWriter
    for name, fn in list(vars(cls).items()):
        if isinstance(fn, types.FunctionType) and (name.startswith("add_") or
                                                   name in ("flush", "close")):
            setattr(cls, name, simple(fn, BEGIN | K_STAGE | S_SIDE, "SummaryWriter." + name, "side"))


_gc_start = 0
_gc_names = ()


def _gc(phase, info):
    global _gc_start
    if phase == "start":
        _gc_start = _now()
    elif _gc_start and _ring._pid == os.getpid():  # not in a child that has not detached yet
        g = info["generation"]
        span(SPAN | K_GC, _gc_start, _now() - _gc_start, _gc_names[min(g, 2)], 0, g)


def _patch_compile(torch):
    original = getattr(torch, "compile", None)
    if original is None:
        return

    @functools.wraps(original)
    def compile(*args, **kwargs):
        if not compiling():
            _facts.compile_requested(args, kwargs)
        return original(*args, **kwargs)

    torch.compile = dress(compile, original)


_ending = []       # what else is to be done then


def _at_exit():
    for f in _ending:
        f()
    _facts.dynamo(True)
    _ring.close()


def _after_fork():
    global _busy, _backward, _stepping, _trains, _root, _gc_start
    _busy = _backward = _stepping = _trains = False
    _root, _gc_start = None, 0
    _names.clear()
    if _det is not None:
        _det.after_fork()


def patch(torch):
    global compiling, _skip, _gc_names, _det, _profiler
    wanted = bool(os.environ.get("LAGGARD_DETERMINISM"))
    if not _ring.active() and not (_ring.open_ring(slots=1 << 16, names=1 << 20) if wanted else _ring.open_ring()):
        return
    if wanted:
        from laggard import _det
    compiling = find_compiling(torch)
    _skip = find_skip()
    _facts.start(torch)
    roofline = None
    if os.environ.get("LAGGARD_ROOFLINE"):
        from laggard import _roofline as roofline
        roofline.early(torch)
    if os.environ.get("LAGGARD_MODULES"):
        from laggard import _modules
        _modules.patch(torch)
        _ending.append(_modules.tell)
    if os.environ.get("LAGGARD_PROFILER"):
        from laggard import _profiler
        _profiler.start(torch)
        _ending.append(_profiler.at_exit)
    if wanted:
        _det.start(torch)
        _ending.append(_det.at_exit)
    _patch_module(torch)
    _patch_backward(torch)
    _patch_optimizer(torch)
    _patch_scaler(torch)
    _patch_loader(torch)
    _patch_copies(torch)
    _patch_side(torch)
    _patch_compile(torch)
    _facts.patch_modes(torch)
    laggard._readings = _memory
    _dist.patch(torch)
    if roofline is not None:
        roofline.late(torch)
        _ending.append(roofline.over)
    skip_frames(*(m for name, m in list(sys.modules.items()) if name.partition(".")[0] == "laggard"))
    _gc_names = tuple(intern("gc.gen%d" % g) for g in range(3))
    gc.callbacks.append(_gc)
    _ring._forked.append(_after_fork)
    if _ring.is_child():
        # multiprocessing ends its children with os._exit(), without atexit.
        from multiprocessing import util
        util.Finalize(None, _at_exit, exitpriority=0)
    else:
        atexit.register(_at_exit)
