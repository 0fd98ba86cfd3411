/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_spaces.h - which file lies where in each recorded process.
 *
 * Built from MMAP, FORK, EXEC and EXIT records only; nothing of the machine is looked at. A
 * forked process shares its parent's list until one of them changes.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_SPACES_H
#define LG_IMPORT_PERFDATA_PERF_SPACES_H
#include <stdbool.h>

#include "base/map.h"
#include "store/trace.h"

struct lg_pd_map {
	uint64_t start, end, pgoff;
	lg_str name, build_id;
	uint32_t inode; /* its number in lg_pd_here; 0 = not told, or not needed */
	uint32_t dso; /* index + 1 in lg_pd_code; 0 = no frame in it yet */
};

struct lg_pd_layers { /* a list that several spaces may share */
	uint32_t refs;
	size_t n, cap, last;   /* last: index of what was found last, a hint */
	struct lg_pd_map *map; /* sorted by start, disjoint */
};

struct lg_pd_space {
	int32_t pid;
	int32_t live;          /* threads in it */
	uint32_t version;      /* changes with every change of the list */
	bool mapped;           /* something was in the list once */
	struct lg_pd_layers *l; /* NULL = empty */
};

struct lg_pd_spaces {
	struct lg_pd_space *space;
	size_t n, cap;
	struct lg_map by_pid;  /* pid -> index + 1 */
	uint32_t versions;
	int failed;
};

/* Index of pid's space; it is made when there is none. */
uint32_t lg_pd_space_of(struct lg_pd_spaces *s, int32_t pid);
void lg_pd_space_map(struct lg_pd_spaces *s, int32_t pid, const struct lg_pd_map *m);
void lg_pd_space_fork(struct lg_pd_spaces *s, int32_t parent, int32_t pid);
/* Whether a process of that number ever had anything mapped. */
bool lg_pd_space_was_mapped(const struct lg_pd_spaces *s, int32_t pid);
/* Exec or exit: nothing is mapped any more. */
void lg_pd_space_clear(struct lg_pd_spaces *s, int32_t pid);
void lg_pd_spaces_done(struct lg_pd_spaces *s);

/* The mapping of addr, NULL = none. Valid until the next change. */
static inline struct lg_pd_map *lg_pd_space_find(const struct lg_pd_spaces *s, uint32_t i, uint64_t addr)
{
	struct lg_pd_layers *l = s->space[i].l;
	size_t lo = 0, hi = l ? l->n : 0;

	/* Callers and callees mostly lie in the same file. */
	if (l && l->last < l->n && l->map[l->last].start <= addr && addr < l->map[l->last].end)
		return &l->map[l->last];
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (l->map[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!l || lo >= l->n || l->map[lo].start > addr)
		return NULL;
	l->last = lo;
	return &l->map[lo];
}

/* Everything lies below 4 GB: a 32-bit program. (A 64-bit one has its stack, if nothing else, above.) */
static inline bool lg_pd_space_is_32(const struct lg_pd_spaces *s, uint32_t i)
{
	const struct lg_pd_layers *l = s->space[i].l;

	return l && l->n && l->map[l->n - 1].end <= (uint64_t)UINT32_MAX + 1;
}

#endif /* LG_IMPORT_PERFDATA_PERF_SPACES_H */
