# SPDX-License-Identifier: Apache-2.0
"""`laggard roofline`: windows of steps, in turn as the program is and with a part of it stood in for.

    real                  as it is
    cached                its batches are kept ones (_stand_in)
    quiet                 besides, no rank waits for another: DDP as in no_sync(), collectives as in a world of one
    without:PATH          besides, a module returns what it returned before

The windows are counted in steps, so that all ranks of a job are in the same one. Each goes through all kinds, and
every other one backwards (real cached, cached real): what drifts cancels. The first steps of a window are left out.
Marks: roofline.window, value = round, text = kind, where counting begins; roofline.end where it ends; roofline.skip
in a step that is no plain one.
"""
import functools
import os
import sys

from laggard import _ring, _stand_in
from laggard._modules import plain
from laggard._ring import mark, meta

_WARM = 5           # steps before anything is measured
_SETTLE = 3         # steps after a change that are not counted
_settings = {}
_without = []       # as given
_torch = None
_hook = None

_count = 0
_kinds = None       # None = warming up, () = nothing to compare
_kind = ""
_order = []
_round = 0
_at = _settle = 0
quiet = False       # collectives are off
_out = None         # the module that is stood in for
_watched = {}       # id of a module that will be: {signature of its arguments: what it returned}
_syncs = []         # DDP instances whose gradient synchronisation is off for now
_roots = []         # models: modules with parameters that nobody calls from within another


def _read(text):
    for line in text.split("\n"):
        key, _, value = line.partition("=")
        if key == "without":
            _without.append(value)
        elif key:
            _settings[key] = int(value)


# --- windows -----------------------------------------------------------------------------------------

def _plan():
    """What can be compared here; the same on every rank."""
    kinds = ["real"]
    if _stand_in.seen:
        kinds.append("cached")
    if _settings.get("quiet"):
        d = _torch.distributed
        if not (d.is_available() and d.is_initialized() and d.get_world_size() > 1):
            meta("roofline.cannot.collectives", "there is one rank")
        elif any("FullyShardedDataParallel" in (c.__name__ for c in type(r).__mro__) for r in _roots):
            meta("roofline.cannot.collectives", "FSDP's ranks need each other's parameters")
        else:
            kinds.append("quiet")
    modules = {}
    for root in _roots:
        for path, module in root.named_modules():
            modules.setdefault(plain(path), module)
    for path in _without:
        module = modules.get(plain(path))
        if module is None or not path:
            meta("roofline.cannot.without:" + path, "the model has no such module")
        else:
            _watched[id(module)] = {}
            kinds.append("without:" + path)
            modules[path] = module
    return tuple(kinds) if len(kinds) > 1 else (), modules


_modules = {}


def _choose(kind):
    global _kind, quiet, _out
    if _kind == "quiet" and kind != "quiet":
        for m, was in _syncs:
            m.require_backward_grad_sync = was
        _syncs.clear()
    if (kind != "real") != (_kind not in ("", "real")):
        _stand_in.serve(kind != "real")
    quiet = kind == "quiet"
    if quiet and _kind != "quiet":
        from torch.nn.parallel import DistributedDataParallel as ddp
        for m in (m for root in _roots for m in root.modules()):
            if isinstance(m, ddp):
                _syncs.append((m, m.require_backward_grad_sync))
                m.require_backward_grad_sync = False
    _out = _modules[kind[8:]] if kind.startswith("without:") else None
    _kind = kind


def _next():
    global _order, _round, _at, _settle
    if not _order:
        _round += 1
        _order = list(_kinds) if _round % 2 else list(reversed(_kinds))
    was, kind = _kind, _order.pop(0)
    _choose(kind)
    _at, _settle = 0, 0 if was == kind else _SETTLE
    if not _settle:
        _mark("roofline.window")


def _mark(name):
    cuda = getattr(_torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()  # what the host is ahead of the device belongs to the window that asked for it
    mark(name, _round, _kind)


def _on_step():
    global _count, _kinds, _at, _modules
    _count += 1
    if _kinds is None:
        if _count >= max(_WARM, _settings["keep"]):
            _kinds, _modules = _plan()
            if _kinds:
                _next()
        return
    if not _kinds:
        return
    _at += 1
    if _at == _settle:
        _mark("roofline.window")
    elif _at == _settle + _settings["window"]:
        _mark("roofline.end")
        _next()


def _evaluates():
    """Asked where an iteration over a loader begins."""
    if _torch.is_grad_enabled() or not _hook._opt_made:
        return False
    mark("roofline.skip", _count, "evaluation")
    return True


# --- collectives off -------------------------------------------------------------------------------

class _Done:
    """What an asynchronous collective returns."""

    def wait(self, *args, **kwargs):
        return True

    def is_completed(self):
        return True

    def is_success(self):
        return True

    def get_future(self):
        done = _torch.futures.Future()
        done.set_result([])
        return done


def _whole(out, tensor, *args, **kwargs):
    out.view(-1, max(1, tensor.numel())).copy_(tensor.detach().reshape(1, -1))


def _listed(tensors, tensor, *args, **kwargs):
    for t in tensors:
        t.copy_(tensor.detach())


def _part(out, tensor, *args, **kwargs):
    out.copy_(tensor.detach().reshape(-1)[:out.numel()].view_as(out))


def _first(out, tensors, *args, **kwargs):
    out.copy_(tensors[0].detach())


# As if each rank were alone: what it gets from others is what it has itself. Others are done as ever.
_ALONE = {
    "all_reduce": None, "reduce": None, "broadcast": None, "barrier": None, "all_reduce_coalesced": None,
    "all_gather": _listed, "all_gather_into_tensor": _whole, "_all_gather_base": _whole,
    "reduce_scatter": _first, "reduce_scatter_tensor": _part, "_reduce_scatter_base": _part,
    "all_to_all_single": _part,
}


def alone(fn, op):
    """A collective that is off while `quiet`. fn: what torch has."""
    if op not in _ALONE:
        return fn
    from laggard import _dist
    async_at = _dist._position(fn, "async_op")

    @functools.wraps(fn)
    def collective(*args, **kwargs):
        if not quiet:
            return fn(*args, **kwargs)
        if _ALONE[op] is not None:
            with _torch.no_grad():
                _ALONE[op](*args, **kwargs)
        return _Done() if _dist._argument(args, kwargs, "async_op", async_at) else None
    return collective


# --- a module taken out ------------------------------------------------------------------------------

def _patch_module(torch, compiling):
    original = torch.nn.Module.__call__

    class StandIn(torch.autograd.Function):
        """What was returned before; gradients of nothing go on to where they went, so the others work as ever."""

        @staticmethod
        def forward(ctx, template, *inputs):
            ctx.like = [(t.shape, t.dtype, t.device) for t in inputs]
            return template.clone()

        @staticmethod
        def backward(ctx, grad):
            return (None, *(torch.zeros((), dtype=d, device=v).expand(s) if need else None
                            for (s, d, v), need in zip(ctx.like, ctx.needs_input_grad[1:])))

    def stand_in(module, kept, args, kwargs):
        inputs = []

        def leaf(t):
            if t.requires_grad:
                inputs.append(t)
            return t
        _stand_in.rebuild((args, kwargs), leaf)
        inputs.extend(p for p in module.parameters() if p.requires_grad)

        def out(t):
            if torch.is_grad_enabled() and inputs and t.is_floating_point():
                return StandIn.apply(t, *inputs)
            return t.clone()
        return _stand_in.rebuild(kept, out)

    @functools.wraps(original)
    def __call__(self, *args, **kwargs):
        if compiling() or id(self) not in _watched:
            return original(self, *args, **kwargs)
        returned = _watched[id(self)]
        shape, _ = _stand_in.signature((args, kwargs))
        if _out is self and shape in returned:
            return stand_in(self, returned[shape], args, kwargs)
        out = original(self, *args, **kwargs)
        if shape not in returned and len(returned) < 32 and self.training:
            returned[shape] = _stand_in.rebuild(out, lambda t: t.detach().clone())
        return out

    torch.nn.Module.__call__ = _hook.dress(__call__, original)


# --- begin ---------------------------------------------------------------------------------------------

def _entered(module):
    """Every forward that no other module makes."""
    if _kinds is None and len(_roots) < 8 and not any(module is r for r in _roots):
        if any(True for _ in module.parameters()):
            _roots.append(module)


def early(torch):
    """Before the hook's own wrappers of modules and collectives."""
    global _torch, _hook
    from laggard import _dist
    _torch, _hook = torch, sys.modules["laggard._torch"]
    _read(os.environ["LAGGARD_ROOFLINE"])
    if _without:
        _patch_module(torch, _hook.compiling)
    if _settings.get("quiet"):
        _dist.inner = alone


def late(torch):
    """After its wrappers of loaders."""
    steps = _ring.step
    enter = _hook._enter
    _stand_in.start(torch, _settings["keep"], _settings["window"] + _SETTLE, _evaluates, _hook.compiling)

    def step(number, word=_ring.STEP):
        steps(number, word)
        try:
            _on_step()
        except Exception as e:
            _stand_in.serve(False)
            _ring.disable("roofline: %s: %s" % (type(e).__name__, e))

    def _enter(module, args, kwargs):
        _entered(module)
        return enter(module, args, kwargs)

    _ring.step = step
    _ring._forked.append(_after_fork)
    _hook._enter = _enter


def _after_fork():
    global _count, _kinds, _kind, _order, _round, quiet, _out
    _stand_in._after_fork()
    _count, _kinds, _kind, _order, _round, quiet, _out = 0, None, "", [], 0, False, None
    _roots.clear()
    _syncs.clear()


def over():
    _stand_in.over()
