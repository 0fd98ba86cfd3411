/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h - where output goes. A file is made beside its name, under a random name of its own and
 * readable by its owner alone, and takes its name when the caller says so: until then, and after any
 * failure, what lay there lies there still.
 *
 * Other users may write to the folder (/tmp). So nothing is opened through a symbolic link, nothing is
 * created that exists, and nothing is removed that was not made here. What is no file:
 *
 *	-, /dev/stdout, /dev/stderr, /dev/fd/N	the descriptor that the caller has there
 *	character device, FIFO			written into; a FIFO only of this user, owner or root
 *	symbolic link				replaced like the file that it leads to; refused
 *						where it leads to anything else
 *	disk, socket, folder			refused
 */
#ifndef LG_BASE_PLACE_H
#define LG_BASE_PLACE_H
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct lg_place;

/* To whom files belong that are made from now on: for root on behalf of a user (sudo). Without a
 * call: to who runs this. Not thread-safe: before the first output. */
void lg_place_owner(uid_t uid, gid_t gid);
/* LG_E_IO, LG_E_PERM, LG_E_USAGE (a kind that is refused), LG_E_NOMEM. */
int lg_place_open(struct lg_place **ret, const char *path, struct lg_error *err) LG_MUST_CHECK;
int lg_place_fd(const struct lg_place *p); /* write only; -1 once closed */
bool lg_place_is_file(const struct lg_place *p); /* made here; false: a stream that others made */
/* Close the descriptor: what could not be written is known only now on some file systems. */
int lg_place_close(struct lg_place *p, struct lg_error *err) LG_MUST_CHECK;
/* Give the file its name; writing may go on. Nothing to do for a stream, or a second time. */
int lg_place_keep(struct lg_place *p, struct lg_error *err) LG_MUST_CHECK;
/* Close and free; a file that was not kept is removed. NULL is fine. */
void lg_place_free(struct lg_place *p);

#endif /* LG_BASE_PLACE_H */
