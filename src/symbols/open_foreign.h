/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open_foreign.h - the one place that opens what others name: mapped files, perf maps, jitdumps, debug files,
 * the paths in a recording.
 *
 * What stands at such a path may be a pipe that never answers, a device that acts when it is opened, a
 * link to either, a file under a lease. So a path is first only looked at (O_PATH opens nothing), what is no
 * regular file is refused, and the very file that was looked at is opened, without waiting.
 */
#ifndef LG_SYMBOLS_OPEN_FOREIGN_H
#define LG_SYMBOLS_OPEN_FOREIGN_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* The last component must not be a link; no component may be one. */
enum { LG_FOREIGN_NO_LINK = 1, LG_FOREIGN_NO_LINKS = 2 };

/*
 * A descriptor that only stands for the regular file at path (O_PATH), and its status. root: AT_FDCWD, or the
 * folder that counts as "/" for path and its links, however many ".." they hold. -1 when there is no regular
 * file.
 */
int lg_foreign_look(int root, const char *path, unsigned flags, struct stat *ret);
/*
 * The same at a path as pid sees it, in its root folder, and for what it has mapped from start to end,
 * whatever stands at its path now. errno EAGAIN: no answer in time (base/patient.h); EXDEV: who runs that
 * process may have mounted it, and is not trusted: nothing of it is opened.
 */
int lg_foreign_look_seen(int32_t pid, const char *path, unsigned flags, bool trusted, struct stat *ret);
int lg_foreign_look_mapped(int32_t pid, uint64_t start, uint64_t end, bool trusted, struct stat *ret);
/* Read that file: closes looked, which may be -1. -1 when it may not be read. */
int lg_foreign_open(int looked);
/* Both at once, in our own namespace, and in a folder. -1 with errno, EINVAL for what is no regular file. */
int lg_foreign_open_path(const char *path, unsigned flags);
int lg_foreign_open_at(int folder, const char *name);
/*
 * The same by a path that others named and that nobody looked at while they used it, for what they run: no
 * link leads there, and it is theirs, or root's and readable by everybody. owner: (uid_t)-1 = not known, then
 * readable by everybody. Who is not root reads what he may.
 */
int lg_foreign_open_plain(const char *path, uid_t owner);

#endif /* LG_SYMBOLS_OPEN_FOREIGN_H */
