# SPDX-License-Identifier: Apache-2.0
# Found first on PYTHONPATH by every Python that `laggard record -- CMD` starts. It arms an import
# hook for torch and then runs the sitecustomize that it hides (Debian ships one). It must not fail
# or be slow, whatever Python reads it: no syntax newer than Python 2.7, no imports beyond sys, os.
import os
import sys


def _arm():
    where = os.environ.get("LAGGARD_MARKS")
    if not where or sys.version_info < (3, 8):
        return
    try:
        # So that the recorder can tell "Python never reached the hook" (-I, -E, -S) from
        # "Python ran without importing torch".
        os.close(os.open(os.path.join(where, "reached"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        pass
    try:
        from laggard import _inject, _leave
        if not _leave.watch():
            _inject.arm()
    except Exception as e:
        try:
            sys.stderr.write("laggard: hook disabled: %s: %s\n" % (type(e).__name__, e))
        except Exception:
            pass


def _chain():
    # Same name, same module dictionary, next place on the path: what site.py would have run.
    # One recording may run inside another: each has such a file on the path, and each is passed once.
    passed = getattr(sys, "_laggard_passed", [])
    sys._laggard_passed = passed + [os.path.dirname(os.path.abspath(__file__))]
    path = [p for p in sys.path if os.path.abspath(p or ".") not in sys._laggard_passed]
    if sys.version_info < (3, 8):
        import imp
        found = imp.find_module("sitecustomize", path)
        imp.load_module("sitecustomize", *found)
        return
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        # site.py takes exactly this to mean "there is none", which was the truth without us.
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_arm()
_chain()
