# SPDX-License-Identifier: Apache-2.0
"""Begin in a program that already runs: `laggard record --attach-hook -p PID` has its interpreter call start().

As with what `laggard env` prints, from then on: what the program starts is marked, too, and the rings stay
when the recorder ends.
"""
import functools
import gc
import os
import sys
import weakref


def start(where):
    try:
        parent = sys.modules.get("multiprocessing.process")
        if os.environ.get("LAGGARD_MARKS") or (parent and parent.parent_process()):
            return  # it is marked already, or somebody's worker
        os.environ["LAGGARD_MARKS"] = "/dev/shm/laggard-%d/kept" % os.geteuid()
        path = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = where + (os.pathsep + path if path else "")
        import laggard
        laggard._recording = True
        from laggard import _inject
        if "torch" in sys.modules:
            _late(sys.modules["torch"])
        else:
            _inject.arm()
    except Exception as e:
        sys.stderr.write("laggard: hook disabled: %s: %s\n" % (type(e).__name__, e))


def _late(torch):
    from laggard import _torch
    call = torch.nn.Module.__call__
    _torch.patch(torch)
    # Dynamo compares with what it kept as it was imported.
    for name, module in list(sys.modules.items()):
        if name.startswith("torch._dynamo"):
            for key, value in list(vars(module).items()):
                if value is call:
                    setattr(module, key, torch.nn.Module.__call__)
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.optim.Optimizer) and "step" in thing.__dict__:
            _wrap_step(_torch, thing)


def _wrap_step(marks, optimizer):
    """A scheduler of the learning rate has put a step of its own in front of the class's, with that inside."""
    original, of = optimizer.__dict__["step"], weakref.ref(optimizer)

    @functools.wraps(original)
    def step(*args, **kwargs):
        if marks._stepping or marks.compiling():
            return original(*args, **kwargs)
        token = marks._step_begin(of())
        try:
            return original(*args, **kwargs)
        finally:
            marks._step_end(token, of())

    optimizer.step = step
