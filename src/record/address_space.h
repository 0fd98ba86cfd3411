/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address_space.h - the executable mappings of every process, over time.
 *
 * Told by mmap records in time order; what was mapped before the recording is read from
 * /proc/PID/maps, once and only when an address of that process is looked up. One thread.
 */
#ifndef LG_RECORD_ADDRESS_SPACE_H
#define LG_RECORD_ADDRESS_SPACE_H
#include <stdbool.h>
#include <sys/types.h>

#include "base/map.h"
#include "store/builder.h"

struct lg_mapping {
	uint64_t start, end, pgoff;
	uint64_t inode; /* 0 = not known */
	lg_str name;
	uint32_t dso; /* the user's; 0 in a new mapping */
};

struct lg_space {
	int32_t pid, parent; /* parent: forked from it while its mappings were not read */
	struct lg_mapping *map;
	size_t n, cap, charged; /* charged: bytes, to account (store/budget.h) */
	uint32_t account;
	uint64_t version; /* never the same for two layouts, whatever process they belong to */
	int64_t exited;   /* 0 = alive */
	uint8_t whole;    /* nothing to be read: all mappings were seen or read */
	uint8_t reads;
	bool user_known;
	uid_t uid;        /* the real one; the user's, with user_known, which an exec forgets */
};

struct lg_spaces {
	struct lg_builder *b; /* set by the owner: names are interned there */
	struct lg_space *space;
	size_t n, cap, n_exited;
	struct lg_map by_pid;
	uint64_t versions;
	uint64_t failed; /* processes whose mappings could not be had */
};

void lg_spaces_done(struct lg_spaces *a);
/* Made when missing. Valid until the next call that makes one; NULL without memory. */
struct lg_space *lg_space_get(struct lg_spaces *a, int32_t pid);
/* A new mapping replaces what it covers; what sticks out on either side stays. */
void lg_space_put(struct lg_spaces *a, struct lg_space *p, const struct lg_mapping *m);
/* The mapping that covers addr, or NULL. */
struct lg_mapping *lg_space_find(const struct lg_space *p, uint64_t addr);
/*
 * Make p whole: read /proc/PID/maps, or take over what its parent had. Reading takes the
 * target's mmap_lock (before Linux 6.17; since then per-VMA locks where it can): never in a loop.
 */
void lg_space_fill(struct lg_spaces *a, struct lg_space *p);
bool lg_space_read(struct lg_spaces *a, struct lg_space *p);
void lg_space_fork(struct lg_spaces *a, int32_t ppid, int32_t pid);
void lg_space_exec(struct lg_spaces *a, int32_t pid);
/* The mappings stay for a moment: a process's last events come after its exit record. */
void lg_space_exit(struct lg_spaces *a, int64_t ts, int32_t pid);

#endif /* LG_RECORD_ADDRESS_SPACE_H */
