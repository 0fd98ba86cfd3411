/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I1  space.map is sorted by start and disjoint.
 * I2  space.version changes with every change of space.map.
 */
#include "record/address_space.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/patient.h"

#define READS_MAX 4          /* of one process's maps: lost mmap records may need another look */
#define TEXT_MAX (8u << 20)  /* bytes: the 65530 mappings of vm.max_map_count; more of it is said */
#define MAPS_FREE 512        /* executable mappings of one process that count as nothing */
#define MAPS_MAX 16384       /* ... that are kept: a large training program has 2000 */
#define EXITED_MAX 512       /* address spaces of dead processes kept ... */
#define EXITED_NS 1000000000 /* ... for this long at least */

void lg_spaces_done(struct lg_spaces *a)
{
	for (size_t i = 0; i < a->n; i++)
		lg_free(a->space[i].map);
	lg_free(a->space);
	lg_map_done(&a->by_pid);
	*a = (struct lg_spaces){ 0 };
}

struct lg_space *lg_space_get(struct lg_spaces *a, int32_t pid)
{
	uint32_t i = lg_map_get(&a->by_pid, (uint32_t)pid);

	if (i)
		return &a->space[i - 1];
	if (lg_grow(&a->space, &a->cap, a->n + 1, sizeof *a->space) ||
	    lg_map_set(&a->by_pid, (uint32_t)pid, (uint32_t)a->n + 1))
		return NULL;
	a->space[a->n] = (struct lg_space){ .pid = pid, .version = ++a->versions };
	return &a->space[a->n++];
}

static void drop_maps(struct lg_spaces *a, struct lg_space *p)
{
	if (p->charged)
		lg_builder_give_back(a->b, p->account, p->charged);
	lg_free(p->map);
	p->map = NULL;
	p->n = p->cap = p->charged = 0;
}

/* May p have room for n mappings? A few are everybody's; the kernel's limit (65530) times many processes is
 * not. */
static bool may_hold(struct lg_spaces *a, struct lg_space *p, size_t n)
{
	size_t more = n * sizeof *p->map - p->charged;
	uint32_t account;

	if (n <= MAPS_FREE || n * sizeof *p->map <= p->charged)
		return true;
	if (n > MAPS_MAX || !lg_builder_charge(a->b, p->pid, more, &account))
		return false;
	if (p->charged && account != p->account) { /* it became another user's */
		lg_builder_give_back(a->b, account, more);
		return false;
	}
	p->account = account;
	p->charged += more;
	return true;
}

static void space_clear(struct lg_spaces *a, struct lg_space *p)
{
	drop_maps(a, p);
	p->parent = 0;
	p->exited = 0;
	p->user_known = false;
	p->reads = 0;
	p->whole = 0;
	p->version = ++a->versions;
}

/* First mapping that ends after addr. */
static size_t map_after(const struct lg_space *p, uint64_t addr)
{
	size_t lo = 0, hi = p->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p->map[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int map_insert(struct lg_spaces *a, struct lg_space *p, size_t at, const struct lg_mapping *m)
{
	if (p->n == p->cap && !may_hold(a, p, 2 * p->cap))
		return LG_E_LIMIT;
	if (lg_grow(&p->map, &p->cap, p->n + 1, sizeof *p->map))
		return LG_E_NOMEM;
	memmove(p->map + at + 1, p->map + at, (p->n - at) * sizeof *p->map);
	p->map[at] = *m;
	p->n++;
	return 0;
}

void lg_space_put(struct lg_spaces *a, struct lg_space *p, const struct lg_mapping *m)
{
	size_t i = map_after(p, m->start), end;

	if (i < p->n && p->map[i].start == m->start && p->map[i].end == m->end &&
	    p->map[i].name == m->name && p->map[i].pgoff == m->pgoff)
		return; /* told by /proc and by a record */
	p->version = ++a->versions;
	if (i < p->n && p->map[i].start < m->start) {
		struct lg_mapping right = p->map[i];

		p->map[i].end = m->start;
		if (right.end > m->end) {
			right.pgoff += m->end - right.start;
			right.start = m->end;
			if (map_insert(a, p, i + 1, &right))
				return;
		}
		i++;
	}
	for (end = i; end < p->n && p->map[end].end <= m->end; end++)
		;
	if (end < p->n && p->map[end].start < m->end) {
		p->map[end].pgoff += m->end - p->map[end].start;
		p->map[end].start = m->end;
	}
	if (end > i)
		memmove(p->map + i, p->map + end, (p->n - end) * sizeof *p->map);
	p->n -= end - i;
	(void)!map_insert(a, p, i, m); /* out of memory or budget: the frames stay unknown */
}

/* "7f00-7f10 r-xp 00001000 08:01 1234   /usr/lib/libc.so.6" */
static void read_line(struct lg_spaces *a, struct lg_space *p, char *line)
{
	struct lg_mapping m;
	char *s = line, *name;
	int fields = 0;

	m = (struct lg_mapping){ .start = strtoull(s, &s, 16) };
	if (*s++ != '-')
		return;
	m.end = strtoull(s, &s, 16);
	if (*s != ' ' || m.end <= m.start || strnlen(s, 5) < 5 || s[3] != 'x')
		return;
	m.pgoff = strtoull(s + 5, &s, 16);
	for (name = s; *name && fields < 3; fields++) { /* device, inode, then the name */
		name += strspn(name, " ");
		if (fields == 1)
			m.inode = strtoull(name, &name, 10);
		else if (!fields)
			name += strcspn(name, " ");
	}
	m.name = lg_intern(a->b, *name ? name : "//anon");
	lg_space_put(a, p, &m);
}

bool lg_space_read(struct lg_spaces *a, struct lg_space *p)
{
	LG_AUTOFREE char *text = NULL;
	char path[64], *line, *nl;
	ssize_t n;

	if (p->reads >= READS_MAX)
		return false;
	p->reads++;
	text = lg_calloc(1, TEXT_MAX);
	snprintf(path, sizeof path, "/proc/%d/maps", p->pid);
	n = text ? lg_patient_read(p->pid, path, text, TEXT_MAX) : 0;
	if (n <= 0)
		return false;
	if ((size_t)n + 1 >= TEXT_MAX)
		lg_add_diag_now(a->b, LG_DIAG_UNRESOLVED, INT64_MIN, 1,
				"process %d has more mappings than are read (%u MiB of its maps): code behind "
				"them has no names", p->pid, TEXT_MAX >> 20);
	for (line = text; (nl = strchr(line, '\n')); line = nl + 1) {
		*nl = 0;
		read_line(a, p, line);
	}
	return p->n > 0;
}

static int copy_maps(struct lg_spaces *a, struct lg_space *to, const struct lg_space *from)
{
	struct lg_mapping *copy = may_hold(a, to, from->n) ? lg_calloc(from->n, sizeof *copy) : NULL;

	if (!copy)
		return LG_E_NOMEM;
	if (from->n)
		memcpy(copy, from->map, from->n * sizeof *copy);
	lg_free(to->map);
	to->map = copy;
	to->n = to->cap = from->n;
	to->version = ++a->versions;
	return 0;
}

/* The mappings are needed now. */
static void fill(struct lg_spaces *a, struct lg_space *p, int depth)
{
	struct lg_space *parent;
	uint32_t i;

	p->whole = 1;
	if (lg_space_read(a, p))
		return;
	/* Gone already, and forked from a process whose mappings had not been read then. */
	i = p->parent ? lg_map_get(&a->by_pid, (uint32_t)p->parent) : 0;
	parent = i ? &a->space[i - 1] : NULL;
	if (parent && !parent->whole && depth < 8)
		fill(a, parent, depth + 1);
	if (!parent || !parent->n || copy_maps(a, p, parent))
		a->failed++;
}

void lg_space_fill(struct lg_spaces *a, struct lg_space *p)
{
	if (!p->whole)
		fill(a, p, 0);
}

struct lg_mapping *lg_space_find(const struct lg_space *p, uint64_t addr)
{
	size_t i = map_after(p, addr);

	return i < p->n && p->map[i].start <= addr ? &p->map[i] : NULL;
}

void lg_space_fork(struct lg_spaces *a, int32_t ppid, int32_t pid)
{
	struct lg_space *p, *parent;

	if (pid <= 0 || pid == ppid)
		return;
	p = lg_space_get(a, pid);
	if (!p)
		return;
	space_clear(a, p);
	p->parent = ppid;
	parent = lg_space_get(a, ppid);
	p = lg_space_get(a, pid); /* the array may have moved */
	if (parent && parent->whole && !copy_maps(a, p, parent))
		p->whole = 1;
}

void lg_space_exec(struct lg_spaces *a, int32_t pid)
{
	struct lg_space *p = pid > 0 ? lg_space_get(a, pid) : NULL;

	if (!p)
		return;
	space_clear(a, p);
	p->whole = 1; /* a record follows for everything the new image maps */
}

void lg_space_exit(struct lg_spaces *a, int64_t ts, int32_t pid)
{
	uint32_t i = lg_map_get(&a->by_pid, (uint32_t)pid);

	if (!i)
		return;
	a->space[i - 1].exited = ts;
	a->space[i - 1].whole = 1; /* there is nothing to be read any more */
	a->space[i - 1].reads = READS_MAX;
	if (++a->n_exited <= EXITED_MAX)
		return;
	a->n_exited = 0;
	for (size_t k = 0; k < a->n; k++) {
		struct lg_space *p = &a->space[k];

		if (!p->exited || !p->map)
			continue;
		if (p->exited > ts - EXITED_NS) {
			a->n_exited++;
			continue;
		}
		drop_maps(a, p);
	}
}
