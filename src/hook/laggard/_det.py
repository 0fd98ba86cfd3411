# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of a run, for `laggard determinism`: only where LAGGARD_DETERMINISM=N asks for every Nth step.

A fingerprint is a whole number that depends on each bit of a tensor and on its place: its bytes as 64-bit words,
times fixed odd weights, added up modulo 2^64 (CRC-32 for small ones). Whole numbers add up to the same in any
order, on any number of threads: what differs is the tensor. They become marks of this process's ring, in the order in
which a step makes things:

    det.step    value = the number of the step that the following are of
    det.rng     state of a generator: before a batch is fetched, and before the forward pass
    det.input   a tensor of the batch, or of what the root module is given
    det.param   before the first forward pass, and where what is left of a step is looked at: after the optimizer
    det.outside a parameter that changed between the optimizer's step and the next forward pass
    det.loss    the bits of the number (a double) that the backward pass starts from; a tensor's fingerprint
    det.grad    as the optimizer gets it, in the order in which the first backward pass made them
    det.end     of them, there are so many: a step of which the ring lost some is none
    det.op      a kind of node of the graph of that backward pass; value = how many

A step is written when the next one has begun, or at exit: who changes a parameter after the optimizer did it in the
step that is over. Results of other devices than the CPU are fetched then, too: nothing waits for them before.
"""
import functools
import os
import struct
import sys
import zlib

from laggard import _ring
from laggard._ring import mark, meta

SMALL = 2048    # bytes: below, zlib is quicker than NumPy begins
ROW = 8192      # words of weights, so that they stay in the cache
CHUNK = 1 << 22 # elements of other devices that are added up at once
LEAVES = 64     # tensors of a batch
NODES = 20000   # of a graph
OPS_STEPS = 3   # steps whose graphs are looked at

_torch = None
_np = None
_einsum = None
_every = 0
_step = 1         # the number of the step in progress
_on = False       # it is fingerprinted
_queue = []       # (kind, name, value) of it; a value may be a tensor of another device
_done = None      # (step, queue) of the one before, until the next begins
_written = []     # such, complete but for numbers that other devices may still compute
_after = {}       # id of a parameter: what it was after the optimizer
_versions = {}    # the same: torch's count of its changes
_known = {}       # id of a parameter: (name, parameter)
_views = {}       # id of a parameter: (address, shape, the pieces of its bytes)
_learned = set()  # ids of root modules whose parameters are known by name
_order = None     # ids of parameters as the first backward pass came to them
_watched = []     # handles of the hooks that tell it
_batch = set()    # addresses of the batch's tensors: not looked at again when the model gets them
_weights = {}     # by device; by number of words
_seen = 0         # forward passes in this step
_fetched = False  # a loader gave this step's batch


def start(torch):
    global _torch, _every, _on, _np, _einsum
    _every = max(1, int(os.environ.get("LAGGARD_DETERMINISM") or 0))
    _torch = torch
    _on = True
    try:
        import numpy
        _np = numpy
        _einsum = getattr(numpy, "_core", getattr(numpy, "core", None)).multiarray.c_einsum
    except Exception:
        _np = None
    meta("det.every", _every)
    if os.environ.get("LAGGARD_DETERMINISM_FLAGS"):
        _ask_for_determinism(torch)
    rng(True)


def _ask_for_determinism(torch):
    """What laggard determinism --flags tries: first without warn_only, under which attention stays as it is; with it
    an operator that has no such implementation warns, and is named."""
    import warnings
    torch.use_deterministic_algorithms(True, warn_only=os.environ["LAGGARD_DETERMINISM_FLAGS"] == "warn")
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    show = warnings._showwarnmsg  # what C code calls, too

    def _showwarnmsg(msg):
        try:
            text = str(msg.message)
            for words in (" does not have a deterministic implementation", " Attention defaults to a non-deterministic"):
                if words in text:
                    mark("det.warned", 1, text.split(words)[0].split()[-1] + (" attention" if "Attention" in words else ""))
                    return
        except Exception:
            pass
        show(msg)

    warnings._showwarnmsg = _showwarnmsg


# --- one tensor ---------------------------------------------------------------------------------

def _words_of(n):
    """n fixed odd numbers: splitmix64 of the place."""
    x = _np.arange(1, n + 1, dtype=_np.uint64) * _np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> _np.uint64(30))) * _np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _np.uint64(27))) * _np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> _np.uint64(31))) | _np.uint64(1)).view(_np.int64)


def _host_words(t):
    """The bytes of a tensor of the CPU, in its logical order, without a copy where they lie so."""
    t = t.detach()
    if t.layout is not _torch.strided:
        t = t.to_dense()
    if not t.is_contiguous():
        t = t.contiguous()
    if t.dtype is _torch.bfloat16:
        t = t.view(_torch.int16)
    return t.numpy().reshape(-1).view(_np.uint8)


def _pieces(b):
    """How the bytes are added up: rows of words, words behind them, bytes behind those. Views, made once."""
    n = b.size
    if n <= SMALL:
        return b, None, None, None
    words = b[:n & ~7].view(_np.int64)
    rows = words.size // ROW
    return (b[n & ~7:] if n & 7 else None, words[:rows * ROW].reshape(rows, ROW) if rows else None,
            words[rows * ROW:] if words.size % ROW else None, _weights_here(words.size % ROW))


def _weights_here(n):
    w = _weights.get(n)
    if w is None:
        whole = _weights.get(ROW)
        if whole is None:
            whole = _weights[ROW] = _words_of(ROW)
        w = whole[:n]
        if len(_weights) < 4096:
            _weights[n] = w
    return w


def _host(pieces):
    rest, rows, words, weights = pieces
    h = 0 if rest is None else zlib.crc32(rest)
    if words is not None:
        h = h * 31 + int(_einsum("i,i", words, weights))
    if rows is not None:
        sums = _einsum("ij,j->i", rows, _weights_here(ROW))
        for at in range(0, len(sums), ROW):
            part = sums[at:at + ROW]
            # The weights once more: equal rows that change places do not cancel.
            h = h * 31 + int(_einsum("i,i", part, _weights_here(part.size)))
    return h


class _Later:
    """Of a tensor that is elsewhere: its fingerprint, in pieces that lie there until somebody asks."""
    __slots__ = ("pieces",)

    def __init__(self):
        self.pieces = []  # (tensor of numbers, which of them)

    def now(self, fetched):
        h = 0
        for t, i in self.pieces:
            numbers = fetched.get(id(t))
            if numbers is None:
                numbers = fetched[id(t)] = t.tolist()
            h = h * 31 + numbers[i]
        return h


def _flat(t):
    torch = _torch
    t = t.detach()
    if t.layout is not torch.strided:
        t = t.to_dense()
    t = t.contiguous()
    if t.is_complex():
        t = torch.view_as_real(t)
    if t.dtype is torch.bool:
        t = t.to(torch.int8)
    return t.reshape(-1).view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()])


def _weights_at(device):
    w = _weights.get(device)
    if w is None:
        torch = _torch
        w = torch.arange(1, CHUNK + 1, dtype=torch.int64, device=device) * -0x61C8864680B583EB
        w = (w ^ (w >> 30 & (1 << 34) - 1)) * -0x40A7B892E31B1A47
        w = _weights[device] = (w ^ (w >> 27 & (1 << 37) - 1)) | 1
    return w


def _elsewhere(tensors):
    """Of tensors of another device, in operators of torch: laid end to end, weighted, added up once for all of them.
    A few kernels for each CHUNK of elements, however many tensors they are of. (Sums of whole numbers that wrap.)"""
    torch = _torch
    later = [_Later() for _ in tensors]
    groups = {}
    for i, t in enumerate(tensors):
        t = _flat(t)
        for piece in t.split(CHUNK) if t.numel() else ():
            group = groups.setdefault((t.device, t.dtype), [[]])
            if sum(p.numel() for _, p in group[-1]) + piece.numel() > CHUNK:
                group.append([])
            group[-1].append((i, piece))
    for (device, _), chunks in groups.items():
        for chunk in chunks:
            flat = torch.cat([p for _, p in chunk]) if len(chunk) > 1 else chunk[0][1]
            sums = (flat * _weights_at(device)[:flat.numel()]).cumsum(0)
            if len(chunk) > 1:
                ends, at = [], 0
                for _, p in chunk:
                    at += p.numel()
                    ends.append(at - 1)
                sums = sums[torch.tensor(ends, device=device)]
                sums = torch.cat((sums[:1], sums[1:] - sums[:-1]))
            else:
                sums = sums[-1:]
            for k, (i, _) in enumerate(chunk):
                later[i].pieces.append((sums, k))
    return later


def _print_of(t):
    return _prints([t])[0]


def _prints(tensors):
    """Of each: a number, or a _Later."""
    found = [None] * len(tensors)
    far = []
    for i, t in enumerate(tensors):
        if t.device.type == "cpu" and _np is not None:
            found[i] = _host(_pieces(_host_words(t)))
        else:
            far.append(i)
    if far:
        for i, later in zip(far, _elsewhere([tensors[i] for i in far])):
            found[i] = later
    return found


def _params(params):
    """Of parameters: they stay where they are, so that the words of those of the CPU need be found once."""
    found = {}
    far = []
    for p in params:
        kept = _views.get(id(p))
        if kept is None or kept[0] != p.data_ptr() or kept[1] != p.shape:
            if p.device.type != "cpu" or _np is None or p.layout is not _torch.strided or not p.is_contiguous():
                far.append(p)
                continue
            kept = _views[id(p)] = (p.data_ptr(), p.shape, _pieces(_host_words(p)))
        found[id(p)] = _host(kept[2])
    found.update(zip(map(id, far), _prints(far)))
    return found


def _put(kind, name, value):
    _queue.append((kind, name, value))


# --- what a step is made of -------------------------------------------------------------------

def rng(all_of_them):
    """States of the generators of this process. Those of CUDA are kept on the host: nothing waits."""
    try:
        _put("det.rng", "torch.cpu", zlib.crc32(_torch.get_rng_state().numpy()) if _np is not None else
             zlib.crc32(bytes(_torch.get_rng_state().tolist())))
        cuda = sys.modules.get("torch.cuda")
        if cuda is not None and cuda.is_initialized():
            for i, g in enumerate(cuda.default_generators):
                _put("det.rng", "torch.cuda:%d" % i, zlib.crc32(bytes(g.get_state().tolist())))
        if not all_of_them:
            return
        python = sys.modules.get("random")
        if python is not None:
            _put("det.rng", "random", hash(python.getstate()[1]))  # whole numbers: the same in each process
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is not None:
            s = numpy_random.get_state()
            _put("det.rng", "numpy", zlib.crc32(s[1], s[2]))
    except Exception as e:
        _fail("generators", e)


def fetch():
    """Before a batch is taken: whatever comes belongs to the next step, if this one is over."""
    global _fetched
    if not _on:
        return
    try:
        if not _fetched and _done is not None:
            _changed([i for i in _after if _known[i][1]._version != _versions.get(i)], True)
        _fetched = True
        rng(False)
    except Exception as e:
        _fail("batch", e)


def with_batch(take):
    @functools.wraps(take)
    def __next__(self):
        fetch()
        data = take(self)
        if _on:
            batch(data)
        return data
    return __next__


def batch(data):
    try:
        _batch.clear()
        _leaves(data, "batch", [LEAVES])
    except Exception as e:
        _fail("batch", e)


def loader(dl):
    """Before the iterator of a loader is made: it draws the seeds of workers and of the order."""
    try:
        meta("det.loader.workers", dl.num_workers)
        meta("det.loader.worker_init_fn", int(dl.worker_init_fn is not None))
        meta("det.loader.generator", int(dl.generator is not None))
        fetch()
    except Exception as e:
        _fail("loader", e)


def _leaves(x, name, room):
    if room[0] <= 0:
        return
    if isinstance(x, _torch.Tensor):
        room[0] -= 1
        at = x.data_ptr() if x.layout is _torch.strided else 0
        if at and at in _batch:
            return
        _batch.add(at)
        _put("det.input", name, _print_of(x))
    elif isinstance(x, dict):
        for k in x:
            _leaves(x[k], "%s[%r]" % (name, k), room)
    elif isinstance(x, (list, tuple)):
        for i, v in enumerate(x):
            _leaves(v, "%s[%d]" % (name, i), room)
    elif isinstance(x, (str, bytes, int, float, bool)):
        room[0] -= 1
        _put("det.input", name, zlib.crc32(repr(x).encode("utf-8", "replace")))
    elif hasattr(x, "__dict__") and not isinstance(x, type):
        _leaves({k: v for k, v in vars(x).items() if not k.startswith("_")}, name, room)


def forward(module, args, kwargs):
    """Before a root module runs."""
    global _seen
    if not _on and _done is None:
        return
    try:
        if not _seen:
            _settle()
        if not _on:
            return
        _seen += 1
        if _seen > 16:
            return
        if _seen == 1 and _step <= 2:
            _setting()
        meta("det.threads", _torch.get_num_threads())
        _learn(module)
        rng(True)
        if _seen == 1 and (_step == 1 or _every > 1):
            now = _params([p for _, p in _known.values()])
            for i, h in now.items():
                _put("det.param", _known[i][0], h)
        _leaves(list(args), "forward", [LEAVES])
        for k in kwargs:
            _leaves(kwargs[k], "forward[%r]" % k, [LEAVES])
    except Exception as e:
        _fail("forward pass", e)


def _setting():
    """What decides whether operators compute the same again, once."""
    torch = _torch
    cuda = torch.cuda.is_initialized()
    meta("det.seed", torch.initial_seed())
    meta("det.deterministic_algorithms", int(torch.are_deterministic_algorithms_enabled()))
    meta("det.cuda", int(cuda))
    meta("det.cudnn.deterministic", int(torch.backends.cudnn.deterministic))
    meta("det.cudnn.benchmark", int(torch.backends.cudnn.benchmark))
    meta("det.cudnn.allow_tf32", int(torch.backends.cudnn.allow_tf32))
    meta("det.matmul.allow_tf32", int(torch.backends.cuda.matmul.allow_tf32))
    meta("det.interop_threads", torch.get_num_interop_threads())
    if cuda:
        meta("det.device", torch.cuda.get_device_name())


def _learn(module):
    if id(module) in _learned and _step > 3:
        return
    _learned.add(id(module))
    for name, p in module.named_parameters():
        if id(p) not in _known:
            if name.startswith("module.") and hasattr(module, "module"):
                name = name[7:]  # DistributedDataParallel, DataParallel
            _known[id(p)] = (name.replace("_orig_mod.", ""), p)


def backward(args, kwargs):
    """Before a backward pass, with its arguments: where it starts from is the loss."""
    global _order
    if not _on:
        return
    try:
        roots = args[0] if args else kwargs.get("tensors", ())
        roots = list(roots) if isinstance(roots, (list, tuple)) else [roots]
        for i, t in enumerate(roots[:16]):
            name = "loss" if len(roots) == 1 else "loss[%d]" % i
            if t.numel() == 1 and t.device.type == "cpu" and not t.is_complex():
                _put("det.loss", name, struct.unpack("<q", struct.pack("<d", float(t)))[0])
            elif t.numel() == 1 and not t.is_complex():
                later = _Later()
                later.pieces.append((t.detach().double().reshape(1).view(_torch.int64), 0))
                _put("det.loss", name, later)
            else:
                _put("det.tensor_loss", name, _print_of(t))
        if _step <= OPS_STEPS:
            _graph(roots)
        if _order is None:
            _order = []
            for _, p in _known.values():
                if p.requires_grad:
                    _watched.append(p.register_hook(lambda g, i=id(p): _order.append(i)))
    except Exception as e:
        _fail("backward pass", e)


def _graph(roots):
    """Kinds of operators between these tensors and the parameters, as autograd keeps them."""
    count, seen = {}, set()
    todo = [t.grad_fn for t in roots if t.grad_fn is not None]
    while todo and len(seen) < NODES:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        name = node.name() if hasattr(node, "name") else type(node).__name__
        count[name] = count.get(name, 0) + 1
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                todo.append(following)
    for name in sorted(count)[:256]:
        _put("det.op", name, count[name])


def _of(opt):
    params = [p for g in opt.param_groups for p in g["params"]]
    for i, p in enumerate(params):
        if id(p) not in _known:
            _known[id(p)] = ("%s.%d" % (type(opt).__name__, i), p)
    return params


def grads(opt):
    """Before the optimizer's step."""
    global _watched
    if not _on:
        return
    try:
        for h in _watched:
            h.remove()
        _watched = []
        params = [p for p in _of(opt) if p.grad is not None]
        place = {}
        for i in _order or ():
            place.setdefault(i, len(place))
        params.sort(key=lambda p: place.get(id(p), 1 << 30))
        for p, h in zip(params, _prints([p.grad for p in params])):
            _put("det.grad", _known[id(p)][0], h)
    except Exception as e:
        _fail("gradients", e)


def params(opt):
    """After it."""
    if not _on:
        return
    try:
        for i, h in _params(_of(opt)).items():
            _after[i] = h
            _versions[i] = _known[i][1]._version
            _put("det.param", _known[i][0], h)
    except Exception as e:
        _fail("parameters", e)


def boundary():
    """The step is over; what its loop does yet is seen when the next one begins."""
    global _step, _on, _queue, _done, _seen, _fetched
    if _on:
        _done = (_step, _queue)
        _queue = []
    _step += 1
    _on = _every > 0 and (_step - 1) % _every == 0
    _seen = 0
    _fetched = False
    _batch.clear()


def _changed(ids, before):
    """Parameters that are not what the optimizer left, and whether the step that is over did it."""
    for i, now in _params([_known[i][1] for i in ids]).items():
        was, (name, p) = _after[i], _known[i]
        queue = _done[1] if before or p._version == _versions.get(i) else _queue
        if type(now) is int and type(was) is int:
            if now != was:
                queue.append(("det.outside", name, now))
        else:
            queue.append(("det.outside", name, (was, now)))
        _after[i] = now
        _versions[i] = p._version


def _settle():
    """Before the first forward pass of a step: what became of the parameters since the optimizer left them. Where torch
    counted a change after the batch was fetched it is of this step, else of the one before: p.data.add_() is not counted."""
    global _done
    if _done is None:
        return
    _changed(list(_after), not _fetched)
    _after.clear()
    _written.append(_done)
    _done = None
    _write(1)


def _write(keep):
    """Into the ring. Numbers that are elsewhere have another step's time to be ready."""
    while _written and (len(_written) > keep or all(type(v) is int for _, _, v in _written[0][1])):
        step, queue = _written.pop(0)
        fetched, n = {}, 0
        mark("det.step", step)
        for kind, name, value in queue:
            if type(value) is tuple:
                before, value = (v if type(v) is int else v.now(fetched) for v in value)
                if before == value:
                    continue
            elif type(value) is not int:
                value = value.now(fetched)
            value &= (1 << 64) - 1
            mark(kind, value - (1 << 64) if value >> 63 else value, name)
            n += 1
        mark("det.end", n)


def _fail(what, e):
    global _every, _on
    _every, _on = 0, False
    _ring.disable("determinism: %s: %s: %s" % (what, type(e).__name__, e))


def at_exit():
    """The last step, whole or not."""
    try:
        rng(True)
        _settle()
        if _queue and _every:
            _written.append((_step, _queue))
        _write(0)
    except Exception as e:
        _fail("end", e)


def off():
    """A loader's worker: it has no steps."""
    global _every, _on
    _every, _on = 0, False


def after_fork():
    global _queue, _done, _order, _step, _on, _seen, _fetched
    _queue, _done, _order, _watched[:] = [], None, None, []
    _step, _on, _seen, _fetched = 1, _every > 0, 0, False
    del _written[:]
    for d in (_after, _versions, _known, _learned, _views, _batch):
        d.clear()
