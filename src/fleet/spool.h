/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spool.h - batches that wait to be sent, one file each, in a folder that is bounded.
 *
 *	SEQ-ROWS.batch	(16 digits, 8 digits) made whole under another name, written out, then renamed
 *
 * One process writes, one sends. The sender holds a file's lock (flock) while it sends: then it is neither
 * dropped nor counted as such. Where there is no room the oldest that nobody holds goes, and its rows are
 *counted.
 */
#ifndef LG_FLEET_SPOOL_H
#define LG_FLEET_SPOOL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct lg_spool {
	int dir;
	uint64_t most_bytes;
	uint64_t bytes, files, rows;         /* that wait; lg_spool_look() */
	uint64_t dropped_rows, dropped_files; /* by this process */
};

/* path: a folder of this user alone, made where it is not there (0700). */
int lg_spool_open(struct lg_spool *s, const char *path, uint64_t most_bytes,
		  struct lg_error *err) LG_MUST_CHECK;
void lg_spool_close(struct lg_spool *s);
/* Count what waits; *ret_last: the greatest number there, 0 = none. What was never finished is removed. */
int lg_spool_look(struct lg_spool *s, uint64_t *ret_last, struct lg_error *err) LG_MUST_CHECK;
/* seq: greater than all before. LG_E_LIMIT: there is no room even now, and it counts as dropped. */
int lg_spool_add(struct lg_spool *s, uint64_t seq, uint32_t rows, const void *bytes, size_t n,
		 struct lg_error *err) LG_MUST_CHECK;

struct lg_spooled {
	uint64_t seq;
	uint32_t rows;
	int fd; /* locked; lg_spool_done() closes it */
	char *bytes; /* lg_free()d by lg_spool_done() */
	size_t n;
};

/* The oldest. 1 = there is one, 0 = none waits. */
int lg_spool_oldest(struct lg_spool *s, struct lg_spooled *ret, struct lg_error *err);
/* sent: remove it; else it stays. */
void lg_spool_done(struct lg_spool *s, struct lg_spooled *one, bool sent);

#endif /* LG_FLEET_SPOOL_H */
