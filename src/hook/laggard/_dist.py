# SPDX-License-Identifier: Apache-2.0
"""torch.distributed: a span for every collective, numbered per group as on every other rank.

The number counts calls of public functions on one group in program order; ranks that run the
same program agree on it. Point-to-point traffic is numbered per (group, source, target), so that
a send and its receive carry the same number. DDP's reducer works in C++ inside the backward
pass: that pass is marked as one IMPLICIT collective of group ddp:<n>.
"""
import functools
import inspect
import sys
import threading
import types
import weakref

from laggard import _facts, _ring
from laggard._ring import (
    BEGIN, F_ASYNC, F_IMPLICIT, K_COLLECTIVE, K_WAIT, S_GRAD_SYNC, begin, end, intern, meta)

_OPS = """all_reduce all_reduce_coalesced all_reduce_multigpu broadcast broadcast_multigpu reduce
reduce_multigpu all_gather all_gather_coalesced all_gather_multigpu all_gather_into_tensor
_all_gather_base all_gather_object gather gather_object scatter scatter_object_list reduce_scatter
reduce_scatter_multigpu reduce_scatter_tensor _reduce_scatter_base all_to_all all_to_all_single
barrier monitored_barrier broadcast_object_list batch_isend_irecv""".split()
_P2P = "send recv isend irecv".split()
_REDUCES = ("all_reduce", "reduce_scatter", "reduce_scatter_tensor", "_reduce_scatter_base",
            "all_reduce_coalesced", "reduce")

after_backward = False  # between backward and optimizer: a reduction here is gradient sync
inner = None            # what goes around a collective, within its mark
pending = {}            # DDP instances whose gradients the next backward will reduce
_c10d = None
_numbers = {}           # group name: last sequence number
_group_ids = {}         # id of a group: (interned name, name); ids only, a reference would keep it
_works = {}             # id of an async Work: (group, seq)
_ddp_count = 0


class _Depth(threading.local):
    inside = False


_depth = _Depth()


def _group(group):
    found = _group_ids.get(id(group))
    if found is not None:
        return found
    name = "default"
    c = _c10d
    try:
        if group is not None and group is not c.group.WORLD and group is not c._get_default_group():
            names = getattr(c, "_pg_names", None)
            if names is None:
                names = c._world.pg_names
            name = "pg:" + str(names[group])
        ranks = c.get_process_group_ranks(group if group is not None else c._get_default_group())
        meta("group.%s.ranks" % name, ",".join(map(str, ranks[:1024])))
    except Exception:
        if name == "default" and group is not None:
            name = "pg:?"
    found = (intern(name), name)
    if group is not None:
        _group_ids[id(group)] = found
    return found


def _member(group):
    if group is None:
        return True
    not_a_member = getattr(_c10d.GroupMember, "NON_GROUP_MEMBER", None)
    return group is not not_a_member and group != not_a_member


def _bytes(args, kwargs):
    """The largest of the tensors and lists of tensors given."""
    best = 0
    for a in list(args) + list(kwargs.values()):
        n = 0
        try:
            if isinstance(a, (list, tuple)):
                for t in a:
                    n += t.numel() * t.element_size()
            elif hasattr(a, "element_size"):
                n = a.numel() * a.element_size()
        except Exception:
            n = 0
        best = max(best, n)
    return best


def _position(fn, name):
    try:
        return list(inspect.signature(fn).parameters).index(name)
    except (ValueError, TypeError):
        return -1


def _argument(args, kwargs, name, at):
    if name in kwargs:
        return kwargs[name]
    return args[at] if 0 <= at < len(args) else None


def _open(op, nid, group, args, kwargs, is_async, peer):
    """Number and begin one collective; (token, group id, seq)."""
    gid, gname = _group(group)
    if peer is not None:
        gname = "%s:p2p:%s" % (gname, peer)
        gid = intern(gname)
    seq = _numbers.get(gname, -1) + 1
    _numbers[gname] = seq
    word = BEGIN | K_COLLECTIVE | (F_ASYNC if is_async else 0)
    if after_backward and op in _REDUCES:
        word |= S_GRAD_SYNC
    return begin(word, nid, gid, seq, _bytes(args, kwargs)), gid, seq


def _wrap(fn, op):
    from laggard import _torch
    compiling = _torch.compiling
    nid = intern(op)
    group_at, async_at = _position(fn, "group"), _position(fn, "async_op")
    peer_at = {"send": 1, "isend": 1, "recv": 1, "irecv": 1}.get(op, -1)
    outgoing = op in ("send", "isend")

    @functools.wraps(fn)
    def collective(*args, **kwargs):
        if compiling() or _depth.inside:
            return fn(*args, **kwargs)
        token = 0
        try:
            group = _argument(args, kwargs, "group", group_at)
            if _member(group):
                is_async = bool(_argument(args, kwargs, "async_op", async_at)) or op[0] == "i"
                peer = None
                if peer_at >= 0:
                    other = _argument(args, kwargs, "dst" if outgoing else "src", peer_at)
                    me = _c10d.get_rank()
                    peer = "%s>%s" % ((me, other) if outgoing else (other, me))
                elif op == "batch_isend_irecv":
                    peer = "batch"
                token, gid, seq = _open(op, nid, group, args, kwargs, is_async, peer)
        except Exception as e:
            _ring.disable("collective %s: %s: %s" % (op, type(e).__name__, e))
        _depth.inside = True
        try:
            work = fn(*args, **kwargs)
        finally:
            _depth.inside = False
            if token:
                end(token)
        if token and work is not None and is_async:
            if len(_works) > 4096:
                _works.clear()
            _works[id(work)] = (gid, seq)
        return work
    return _torch.dress(collective, fn)


def _wrap_wait(cls):
    original = cls.wait
    nid = intern("Work.wait")

    @functools.wraps(original)
    def wait(self, *args, **kwargs):
        if _depth.inside:
            return original(self, *args, **kwargs)
        gid, seq = _works.pop(id(self), (0, 0))
        token = begin(BEGIN | K_WAIT | (S_GRAD_SYNC if after_backward else 0), nid, gid, seq)
        try:
            return original(self, *args, **kwargs)
        finally:
            end(token)

    cls.wait = wait


def _forget(fn):
    """Groups come and go: their ids may be used again."""
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        _group_ids.clear()
        return fn(*args, **kwargs)
    return wrapper


def _wrap_init(fn):
    @functools.wraps(fn)
    def init_process_group(*args, **kwargs):
        _group_ids.clear()
        out = fn(*args, **kwargs)
        try:
            if not _ring.active():
                _ring.open_ring()
            local = _ring._env_int("LOCAL_RANK", "SLURM_LOCALID")
            _ring.set_rank(_c10d.get_rank(), _c10d.get_world_size(), local)
            meta("distributed.backend", _c10d.get_backend())
            meta("distributed.world", _c10d.get_world_size())
            from laggard import _torch
            if not _torch._trains:
                _torch.trains()  # loader workers join no group
        except Exception as e:
            _ring.disable("init_process_group: %s" % e)
        return out
    return init_process_group


# --- DistributedDataParallel -------------------------------------------------------------------

def begin_gradient_sync():
    """Called as a backward pass starts: one implicit collective for each DDP that takes part."""
    tokens = []
    for number, (gname, nbytes) in sorted(pending.items()):
        seq = _numbers.get(gname, -1) + 1
        _numbers[gname] = seq
        tokens.append(begin(BEGIN | K_COLLECTIVE | S_GRAD_SYNC | F_IMPLICIT, intern("ddp.all_reduce"),
                            intern(gname), seq, nbytes))
    pending.clear()
    return tokens[::-1]


_numbered = {}  # id of a DDP instance: (number, group, bytes); a weak dictionary costs five times as much


def _patch_ddp(torch):
    from laggard import _torch as hook
    compiling = hook.compiling
    cls = torch.nn.parallel.DistributedDataParallel
    init = cls.__init__

    @functools.wraps(init)
    def __init__(self, *args, **kwargs):
        global _ddp_count
        init(self, *args, **kwargs)
        try:
            n = _ddp_count
            _ddp_count += 1
            size = sum(p.numel() * p.element_size() for p in self.module.parameters()
                       if p.requires_grad)
            _numbered[id(self)] = (n, "ddp:%d" % n, size)
            weakref.finalize(self, _numbered.pop, id(self), None).atexit = False
            _facts.ddp(n, self)
        except Exception as e:
            _ring.disable("ddp: %s" % e)

    forward = cls.forward
    grad = torch.is_grad_enabled

    @functools.wraps(forward)
    def ddp_forward(self, *args, **kwargs):
        out = forward(self, *args, **kwargs)
        if not compiling() and grad() and getattr(self, "require_backward_grad_sync", False):
            found = _numbered.get(id(self))
            if found is not None:
                pending[found[0]] = found[1:]
        return out

    cls.__init__ = hook.dress(__init__, init)
    cls.forward = hook.dress(ddp_forward, forward)


def _after_fork():
    pending.clear()
    _numbers.clear()
    _group_ids.clear()
    _works.clear()


def patch(torch):
    global _c10d
    dist = torch.distributed
    if not dist.is_available():
        return
    from torch.distributed import distributed_c10d
    _c10d = distributed_c10d
    replaced = {}

    def replace(name, make):
        original = getattr(distributed_c10d, name, None)
        if type(original) is types.FunctionType:
            replaced[original] = make(original)

    for op in _OPS + _P2P:
        replace(op, lambda fn, op=op: _wrap(inner(fn, op) if inner else fn, op))
    replace("init_process_group", _wrap_init)
    for name in ("new_group", "destroy_process_group"):
        replace(name, _forget)
    # Everywhere in torch where a name was imported from c10d; the program comes later.
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed") and module is not None:
            for key, value in list(vars(module).items()):
                # type(), not isinstance(): c10d's deprecated reduce_op warns when looked at.
                if type(value) is types.FunctionType and value in replaced:
                    setattr(module, key, replaced[value])
    _wrap_wait(dist.Work if hasattr(dist, "Work") else distributed_c10d.Work)
    _patch_ddp(torch)
    _ring._forked.append(_after_fork)
