/* SPDX-License-Identifier: Apache-2.0 */
/* unpack.h - a packed file as a plain one, for importers that go back and forth in it. */
#ifndef LG_IMPORT_UNPACK_H
#define LG_IMPORT_UNPACK_H
#include "base/error.h"

/*
 * A file of its own, gone with its descriptor: in the folder lg_import_scratch, else in memory. *ret_damage:
 * a string constant, or NULL: why it may not be whole. LG_E_LIMIT: it would take more than 256 MiB and 64
 * times its size, half of what the folder has free, or, in memory, lg_import_room.
 */
int lg_unpack(const char *name, const char *path, int *ret_fd, const char **ret_damage,
	      struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_IMPORT_UNPACK_H */
