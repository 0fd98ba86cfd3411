# SPDX-License-Identifier: Apache-2.0
"""Patch torch when the program imports it, and only then.

A finder at the head of sys.meta_path lets the ordinary finders find the module, and replaces
exec_module on that one loader instance: after the module has run, our patch runs. Nothing of it
stays behind on the module: __spec__, __loader__ and the file are the ones Python chose.
"""
import sys

from laggard import _leave

# Module to the function in this package that patches it.
_TARGETS = {
    "torch": ("laggard._torch", "patch"),
    "torch.utils.tensorboard.writer": ("laggard._torch", "patch_tensorboard"),
    "tensorboardX.writer": ("laggard._torch", "patch_tensorboard"),
}


def _patch(name, module):
    try:
        from importlib import import_module
        where, function = _TARGETS[name]
        getattr(import_module(where), function)(module)
    except Exception as e:
        from laggard import _ring
        _ring.disable("patching %s: %s: %s" % (name, type(e).__name__, e))


class _Finder:
    def __init__(self):
        self.busy = set()

    def find_spec(self, name, path=None, target=None):
        if name not in _TARGETS or name in self.busy or _leave.over():
            return None
        self.busy.add(name)
        try:
            spec = None
            for finder in list(sys.meta_path):
                find = None if finder is self else getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find else None
                if spec is not None:
                    break
        finally:
            self.busy.discard(name)
        if spec is None or spec.loader is None:
            return spec
        loader = spec.loader
        run = getattr(loader, "exec_module", None)
        if run is None:
            return spec

        def exec_module(module):
            try:
                del loader.exec_module
            except AttributeError:
                pass
            run(module)
            _patch(name, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            from laggard import _ring
            _ring.disable("the loader of %s takes no attributes" % name)
        return spec


def arm():
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
