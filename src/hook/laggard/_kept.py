# SPDX-License-Identifier: Apache-2.0
"""The folder for rings of workers that no recorder started (`laggard env`): /dev/shm/laggard-UID/kept.

It is made by the first process that marks, for its own user alone: in a sticky folder what is ours stays ours. A
recorder that comes later finds it by LAGGARD_MARKS in our environment, and leaves it as it is. So nobody but
us takes away the rings of processes that are gone: each new one does.
"""
import os
import re
import stat
import struct

_FORM = re.compile(r"(/dev/shm/laggard-[0-9]{1,10})/kept")


def prepare(where, header):
    """Make `where`, if it is such a folder, and remove what is left in it. header: where a ring's has pid, start and
    pid namespace, and how many words it has. Raises OSError where the folder is not ours alone."""
    found = _FORM.fullmatch(where)
    if found is None:
        return
    for folder in (found.group(1), where):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass
        st = os.lstat(folder)
        if not stat.S_ISDIR(st.st_mode) or st.st_uid != os.geteuid() or st.st_mode & 0o022:
            raise PermissionError("%s is not this user's own folder" % folder)
    _sweep(where, *header)


def _sweep(where, h_pid, h_start, h_pid_ns, words):
    own = os.stat("/proc/self/ns/pid").st_ino
    for name in os.listdir(where):
        path = os.path.join(where, name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                head = os.read(fd, words * 8)
            finally:
                os.close(fd)
            if name.startswith("off."):
                os.unlink(path)  # a note for a recorder that nobody ran
            if not name.startswith("mark.") or len(head) < words * 8:
                continue
            head = struct.unpack("<%dq" % words, head)
            # Of another pid namespace: not for us to tell.
            if head[h_pid_ns] == own and not _lives(head[h_pid], head[h_start]):
                os.unlink(path)
        except OSError:
            pass  # gone meanwhile


def _lives(pid, start):
    try:
        with open("/proc/%d/stat" % pid, "rb") as f:
            return int(f.read().rpartition(b")")[2].split()[19]) == start
    except FileNotFoundError:
        return False
    except (OSError, ValueError, IndexError):
        return True
