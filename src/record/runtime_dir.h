/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime_dir.h - a folder for one recording that nobody else can take over, not even once it is gone.
 *
 *	BASE/		stays; ours, writable by us alone
 *	   NAME/	flock()ed while its recorder lives; 64 random bits
 *	       lock	what is locked; anyone who knows NAME may ask
 *
 * What a recording leaves in other processes' environments outlives it: a job that goes on, or a
 * recorder that was killed. So the name must not become somebody else's afterwards. BASE is
 *
 *	root	/run/laggard, which only root can make
 *	users	$XDG_RUNTIME_DIR/laggard or ~/.cache/laggard, if that and the folder around it are the user's
 *		own and no other can write there
 *	both	/dev/shm/laggard-UID, then /tmp/laggard-UID: in a sticky folder what is ours stays ours, and
 *		BASE is never removed. Where something else empties the folder (a cleaner of /tmp, a logout
 *		with RemoveIPC=), whoever makes BASE anew has still to guess NAME, which cannot be listed.
 *
 * and refused unless it is a folder of this user that no other may write to. Where somebody else has put
 * something at one of the last two, /dev/shm/laggard-UID-RANDOM is made.
 */
#ifndef LG_RECORD_RUNTIME_DIR_H
#define LG_RECORD_RUNTIME_DIR_H
#include <stdbool.h>

#include "base/error.h"

struct lg_runtime_dir {
	char path[512];
	int fd, lock; /* fd: the folder */
	bool memory;  /* on tmpfs, with room for mark rings */
};

/*
 * Make one, and remove what dead recorders of this user left in that BASE. rings: prefer memory with
 * room, since a write to a mapped file on a disk can wait for that disk. env: HOME, XDG_RUNTIME_DIR.
 */
int lg_runtime_dir_make(struct lg_runtime_dir *ret, bool rings, char **env,
			struct lg_error *err) LG_MUST_CHECK;
/* Remove it with all that lies in it; what takes longer than a second is left to the next recorder. */
void lg_runtime_dir_remove(struct lg_runtime_dir *d);
/* Remove a folder of ours with all that lies in it, within a second. */
void lg_runtime_dir_discard(int at, const char *name);

const char *lg_env_value(char **env, const char *name); /* NULL: not there */

#endif /* LG_RECORD_RUNTIME_DIR_H */
