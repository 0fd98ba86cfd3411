# SPDX-License-Identifier: Apache-2.0
"""Facts about the program: versions, flags, allowed environment, dispatch modes, Dynamo."""
import os
import sys
import time

from laggard import _ring
from laggard._ring import mark, meta

# Only these leave the process; an environment is full of secrets.
_ENV = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK",
        "OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES",
        "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "KMP_AFFINITY", "KMP_BLOCKTIME",
        "CUBLAS_WORKSPACE_CONFIG", "PYTHONHASHSEED",
        "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS",
        "PYTORCH_CUDA_ALLOC_CONF", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_",
        "MALLOC_TRIM_THRESHOLD_", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
        "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_CPUS_PER_TASK", "SLURM_NNODES")
_ENV_PREFIX = ("TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "NCCL_", "GLOO_")
_SECRET = ("KEY", "TOKEN", "SECRET", "PASS", "CRED", "AUTH")

_torch = None
_modes = None          # module torch.utils._python_dispatch
_entered = {}          # id of a mode: where the program entered it
_roots = {}            # id of a root module whose make is told: True
_shapes = set()        # of the tensors that root modules were given
_compiles = 0


def start(torch):
    global _torch, _modes
    _torch = torch
    _modes = sys.modules.get("torch.utils._python_dispatch")
    meta("python.version", ".".join(map(str, sys.version_info[:3])))
    meta("python.executable", sys.executable)
    meta("torch.version", torch.__version__)
    meta("torch.cuda", getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None)
         or "none")
    for key, value in sorted(os.environ.items()):
        if key in _ENV or (key.startswith(_ENV_PREFIX) and not any(s in key for s in _SECRET)):
            meta("env." + key, value[:256])
    meta("cpu.affinity", len(os.sched_getaffinity(0)))
    meta("cpu.count", os.cpu_count())
    quota = _quota()
    meta("cpu.quota", "none" if quota is None else "%.3f" % quota)
    if _ring.is_child():
        meta("process.multiprocessing_child", 1)


def _read(path):
    try:
        with open(path) as f:
            return f.read().split()
    except OSError:
        return []


def _quota():
    """CPUs that the cgroup may use, the tightest on the way up; None without a limit."""
    best = None
    try:
        with open("/proc/self/cgroup") as f:
            lines = [line.rstrip("\n").split(":", 2) for line in f]
    except OSError:
        return None
    for _, controllers, path in lines:
        v2 = controllers == ""
        if not v2 and "cpu" not in controllers.split(","):
            continue
        base = "/sys/fs/cgroup" if v2 else "/sys/fs/cgroup/" + controllers
        for depth in range(64):
            here = base + path.rstrip("/")
            if v2:
                words = _read(here + "/cpu.max")
            else:
                words = _read(here + "/cpu.cfs_quota_us") + _read(here + "/cpu.cfs_period_us")
            if len(words) == 2 and words[0] not in ("max", "-1") and int(words[1]):
                cpus = int(words[0]) / int(words[1])
                best = cpus if best is None else min(best, cpus)
            if path in ("", "/"):
                break
            path = os.path.dirname(path)
    return best


def training():
    """Once, when the process turns out to train: what is known only after its set-up."""
    try:
        meta("torch.num_threads", _torch.get_num_threads())
        meta("cpu.affinity", len(os.sched_getaffinity(0)))
        for name in ("deepspeed", "apex", "megatron"):  # they scale losses and shard on their own
            if name in sys.modules:
                meta("module." + name, 1)
    except Exception as e:
        _ring.disable("facts: %s" % e)


def optimizer(opt):
    try:
        meta("optimizer.class", type(opt).__module__ + "." + type(opt).__qualname__)
        for key in ("foreach", "fused", "capturable"):
            if key in opt.defaults:
                meta("optimizer." + key, opt.defaults[key])
    except Exception:
        pass  # an optimizer of another make: fewer facts


def loader(dl):
    try:
        workers = dl.num_workers
        meta("loader.num_workers", workers)
        meta("loader.persistent_workers", bool(getattr(dl, "persistent_workers", False)))
        meta("loader.pin_memory", bool(dl.pin_memory))
        meta("loader.prefetch_factor", dl.prefetch_factor)
        meta("loader.batch_size", dl.batch_size)
        meta("loader.start_method", getattr(dl.multiprocessing_context, "_name", None) or "default")
        respawn = workers > 0 and not (dl.persistent_workers and dl._iterator is not None)
        mark("loader.spawn" if respawn else "loader.epoch", workers)
    except Exception:
        pass


def ddp(number, module):
    hook = getattr(module, "_comm_hooks", None)
    if hook:
        meta("ddp.%d.comm_hook" % number, getattr(hook[0][0], "__qualname__", "callable"))
    for key in ("find_unused_parameters", "static_graph", "gradient_as_bucket_view",
                "broadcast_buffers"):
        value = getattr(module, key, None)
        if value is not None:
            meta("ddp.%d.%s" % (number, key), value)
    cap = getattr(module, "bucket_bytes_cap", None)
    if cap is not None:
        meta("ddp.%d.bucket_cap_mb" % number, cap // (1 << 20))


def fsdp(number, module):
    """Flags of FullyShardedDataParallel (torch.distributed.fsdp), where they are attributes."""
    for key in ("forward_prefetch", "backward_prefetch", "limit_all_gathers", "sharding_strategy"):
        if hasattr(module, key):
            value = getattr(module, key)
            meta("fsdp.%d.%s" % (number, key), getattr(value, "name", value))


def root(module):
    """Once for each of the first root modules: what it is made of, as far as speed depends on it."""
    if id(module) in _roots or len(_roots) >= 8:
        return
    _roots[id(module)] = True
    number = len(_roots) - 1
    dtypes, convs, tensors = {}, 0, 0
    try:
        for p in module.parameters():
            if p.requires_grad:
                tensors += 1
                key = str(p.dtype).replace("torch.", "")
                dtypes[key] = dtypes.get(key, 0) + p.numel()
        for m in module.modules():
            convs += isinstance(m, _torch.nn.modules.conv._ConvNd)
        if not dtypes:
            return
        meta("model.%d.parameters" % number, ",".join("%s=%d" % i for i in sorted(dtypes.items())))
        meta("model.%d.tensors" % number, tensors)
        meta("model.%d.convolutions" % number, convs)
        device = next(module.parameters()).device
        meta("model.%d.device" % number, device.type)
        if device.type == "cuda":
            meta("device.capability", "%d.%d" % _torch.cuda.get_device_capability(device))
        if "FullyShardedDataParallel" in (c.__name__ for c in type(module).__mro__):
            fsdp(number, module)
    except Exception:
        pass  # parameters that have no size yet, a class that hides them: fewer facts


def scaler(s):
    try:
        meta("amp.grad_scaler", int(s.is_enabled()))
    except Exception:
        pass  # of another make


def during_backward():
    """At the start of a backward pass, every seventh time."""
    try:
        t = _torch
        meta("torch.autocast_backward", int(t.is_autocast_enabled() or t.is_autocast_cpu_enabled()))
    except Exception as e:
        _ring.disable("backward samples: %s: %s" % (type(e).__name__, e))


def compile_requested(args, kwargs):
    global _compiles
    try:
        _compiles += 1
        backend = kwargs.get("backend", "inductor")
        backend = backend if isinstance(backend, str) else getattr(backend, "__name__", "callable")
        meta("compile.requested", backend)
        for key in ("mode", "fullgraph", "dynamic", "disable"):
            if kwargs.get(key) is not None:
                meta("compile." + key, kwargs[key])
        mark("compile.requested", _compiles, backend)
    except Exception:
        pass


# --- samples -----------------------------------------------------------------------------------

def patch_modes(torch):
    """Note where a dispatch mode is entered; entering is rare, so this may look at frames."""
    if _modes is None:
        return
    from laggard import _torch as hook
    cls = _modes.TorchDispatchMode
    original = cls.__enter__
    compiling = hook.compiling

    def __enter__(self, *args, **kwargs):
        if not compiling():
            _note(self)
        return original(self, *args, **kwargs)

    cls.__enter__ = hook.dress(__enter__, original)


_inside = None


def _note(mode):
    global _inside
    try:
        if _inside is None:
            _inside = (os.path.dirname(_torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep)
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(_inside):
            frame = frame.f_back
        if frame is None:
            return
        if len(_entered) > 256:
            _entered.clear()
        _entered[id(mode)] = "%s:%d" % (frame.f_code.co_filename, frame.f_lineno)
    except Exception:
        pass


def _traced():
    """Does the interpreter call a debugger's or a coverage tool's function? These are ids 0 and 1 of PEP 669."""
    monitoring = getattr(sys, "monitoring", None)
    return sys.gettrace() is not None or (monitoring is not None and any(monitoring.get_events(i) for i in (0, 1)
                                                                         if monitoring.get_tool(i)))


def _shape(a):
    shape = getattr(a, "shape", None)
    return tuple(shape) if shape is not None else None


# Facts that the C++ side answers in a few ns each.
_FLAGS = (("torch.matmul_precision", "_get_float32_matmul_precision"), ("cudnn.allow_tf32", "_get_cudnn_allow_tf32"),
          ("cudnn.deterministic", "_get_cudnn_deterministic"), ("sdpa.flash", "_get_flash_sdp_enabled"),
          ("sdpa.mem_efficient", "_get_mem_efficient_sdp_enabled"), ("sdpa.math", "_get_math_sdp_enabled"),
          ("sdpa.cudnn", "_get_cudnn_sdp_enabled"))


def during_forward(n, module, args):
    """At the start of a root forward, every tenth time at most (n counts them): a few C calls, all without effect."""
    try:
        if _modes is not None:
            for i in range(_modes._len_torch_dispatch_stack()):
                mode = _modes._get_dispatch_stack_at(i)
                cls = type(mode)
                where = _entered.get(id(mode), "")
                text = "%s.%s" % (cls.__module__, cls.__qualname__)
                mark("dispatch_mode", i, text + (" " + where if where else ""))
        t = _torch
        meta("debug.anomaly", int(t.is_anomaly_enabled()))
        meta("debug.profiler", int(t.autograd._profiler_enabled()))
        meta("debug.trace_function", int(_traced()))
        meta("torch.grad_enabled", int(t.is_grad_enabled()))
        meta("torch.autocast", int(t.is_autocast_enabled()))
        meta("torch.autocast_cpu", int(t.is_autocast_cpu_enabled()))
        meta("cudnn.benchmark", int(t._C._get_cudnn_benchmark()))
        for key, name in _FLAGS:
            read = getattr(t._C, name, None)  # not in every version
            if read is not None:
                value = read()
                meta(key, value if isinstance(value, str) else int(value))
        root(module)
        if len(_shapes) < 64:
            _shapes.add((id(module), tuple(_shape(a) for a in args[:8])))
            meta("input.shapes", len(_shapes) - len({m for m, _ in _shapes}) + 1)
        if n <= 3 or n % 5 == 0:
            dynamo(False)
    except Exception as e:
        _ring.disable("samples: %s: %s" % (type(e).__name__, e))


_last = {}
_sampled = 0


def dynamo(final):
    """torch._dynamo's counters, those that changed; nothing is imported for it."""
    global _sampled
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None)
    if counters is None:
        return
    try:
        seen = {"compile.used": 1}
        for group in ("frames", "stats"):
            for key, value in list(counters.get(group, {}).items()):
                seen["dynamo.%s.%s" % (group, key)] = int(value)
        skips = counters.get("inductor", {}).get("cudagraph_skips", 0)
        if skips:
            meta("compile.cudagraph_skips", skips)
        breaks = counters.get("graph_break", {})
        seen["dynamo.graph_breaks"] = sum(breaks.values())
        failures = getattr(utils, "guard_failures", {})
        seen["dynamo.recompiles"] = sum(len(v) for v in list(failures.values()))
        for key, value in seen.items():
            if final or _last.get(key) != value:
                _last[key] = value
                mark(key, value)
        for reason, n in list(breaks.items())[:64]:
            key = "graph_break " + str(reason)[:300]
            if _last.get(key) != n:
                _last[key] = n
                mark("dynamo.graph_break", n, str(reason)[:300])
        for code, reasons in list(failures.items())[:64]:
            key = "recompile %s:%d" % (code.co_filename, code.co_firstlineno)
            if reasons and _last.get(key) != len(reasons):
                _last[key] = len(reasons)
                mark("dynamo.recompile", len(reasons), "%s %s:%d: %s" % (
                    code.co_name, code.co_filename, code.co_firstlineno, str(reasons[-1])[:300]))
        _sampled = time.monotonic_ns()
    except Exception:
        pass  # counters of another torch: fewer facts
