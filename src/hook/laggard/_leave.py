# SPDX-License-Identifier: Apache-2.0
"""Leave alone what this process starts once its recorder is gone.

The recorder holds a lock as long as it lives, and takes its folder with it when it ends in order. It is asked
where a program is about to be started, which costs three system calls, and nowhere else. From then on neither
this process nor what it starts looks into that folder or leaves marks.
"""
import functools
import os
import sys

_code = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # on PYTHONPATH
_lock = os.path.join(os.path.dirname(_code), "lock")
_watching = False


def gone():
    """No recorder holds the lock. Without a lock to begin with (marks by hand) this is never asked."""
    try:
        fd = os.open(_lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # not to be told, as this user
    try:
        import fcntl
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def over():
    """True once the recorder is gone; this process has left then."""
    global _watching
    if not _watching or not gone():
        return False
    for key, value in _left(os.environ).items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
    sys.path[:] = [p for p in sys.path if p != _code]
    return True


def _left(env):
    """What changes in env: new values, None for what goes."""
    changes = {}
    path = env.get("PYTHONPATH", "").split(os.pathsep)
    if _code in path:
        changes["PYTHONPATH"] = os.pathsep.join(p for p in path if p != _code) or None
    if env.get("LAGGARD_MARKS", "") == _marks:
        changes.update(LAGGARD_MARKS=None, LAGGARD_SESSION=None)
    return changes


def _cleaned(env):
    """A copy of env without us: of a mapping, or of the list of b"KEY=VALUE" that subprocess makes."""
    if isinstance(env, (list, tuple)):
        pairs = dict(map(os.fsdecode, e.split(b"=", 1)) for e in env)
        changes = _left(pairs)
        kept = [e for e in env if os.fsdecode(e.split(b"=", 1)[0]) not in changes]
        return kept + [os.fsencode("%s=%s" % p) for p in changes.items() if p[1] is not None]
    copy = dict(env)
    for key, value in _left(copy).items():
        copy.pop(key, None)
        if value is not None:
            copy[key] = value
    return copy


def _wrap(module, name, env_at):
    original = getattr(module, name, None)
    if original is None:
        return None

    @functools.wraps(original)
    def start(*args, **kwargs):
        try:
            if over():
                if env_at is not None and len(args) > env_at and args[env_at] is not None:
                    args = args[:env_at] + (_cleaned(args[env_at]),) + args[env_at + 1:]
        except Exception:
            pass  # an environment that we do not understand is passed on as it is
        return original(*args, **kwargs)

    start.__module__ = module.__name__  # where pickle finds it
    setattr(module, name, start)
    return start


def watch():
    """Called once, as Python starts under a recorder. True when that is gone already."""
    global _watching, _marks
    _marks = os.environ.get("LAGGARD_MARKS")
    if _watching or not os.path.exists(_lock):
        return False
    _watching = True
    if over():
        return True
    for name, env_at in (("execv", None), ("execve", 2), ("posix_spawn", 2), ("posix_spawnp", 2),
                         ("system", None)):
        _wrap(os, name, env_at)
    import _posixsubprocess  # below subprocess and multiprocessing
    start = _wrap(_posixsubprocess, "fork_exec", 5)
    early = sys.modules.get("subprocess")
    if start is not None and hasattr(early, "_fork_exec"):  # Python 3.11 keeps a reference
        early._fork_exec = start
    return False


_marks = None
