/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_spaces.h"

#include <string.h>

#include "base/alloc.h"

static void layers_drop(struct lg_pd_layers *l)
{
	if (!l || --l->refs)
		return;
	lg_free(l->map);
	lg_free(l);
}

uint32_t lg_pd_space_of(struct lg_pd_spaces *s, int32_t pid)
{
	uint32_t i = lg_map_get(&s->by_pid, (uint32_t)pid);

	if (i)
		return i - 1;
	if (lg_grow(&s->space, &s->cap, s->n + 1, sizeof *s->space) ||
	    lg_map_set(&s->by_pid, (uint32_t)pid, (uint32_t)s->n + 1)) {
		s->failed = LG_E_NOMEM;
		return 0;
	}
	s->space[s->n] = (struct lg_pd_space){ .pid = pid, .version = ++s->versions };
	return (uint32_t)s->n++;
}

/* A list of its own that can be changed, with room for two more. */
static struct lg_pd_layers *own(struct lg_pd_spaces *s, struct lg_pd_space *p)
{
	struct lg_pd_layers *l = p->l;

	p->version = ++s->versions;
	if (!l || l->refs > 1) {
		struct lg_pd_layers *copy = lg_calloc(1, sizeof *copy);

		if (!copy) {
			s->failed = LG_E_NOMEM;
			return NULL;
		}
		copy->refs = 1;
		if (l && l->n) {
			if (lg_grow(&copy->map, &copy->cap, l->n + 2, sizeof *copy->map)) {
				lg_free(copy);
				s->failed = LG_E_NOMEM;
				return NULL;
			}
			memcpy(copy->map, l->map, l->n * sizeof *l->map);
			copy->n = l->n;
		}
		layers_drop(l);
		p->l = l = copy;
	}
	if (lg_grow(&l->map, &l->cap, l->n + 2, sizeof *l->map)) {
		s->failed = LG_E_NOMEM;
		return NULL;
	}
	return l;
}

static void insert(struct lg_pd_layers *l, size_t at, const struct lg_pd_map *m)
{
	memmove(l->map + at + 1, l->map + at, (l->n - at) * sizeof *l->map);
	l->map[at] = *m;
	l->n++;
}

/* A new mapping replaces what it covers; what sticks out on either side stays. */
void lg_pd_space_map(struct lg_pd_spaces *s, int32_t pid, const struct lg_pd_map *m)
{
	uint32_t index = lg_pd_space_of(s, pid);
	struct lg_pd_layers *l;
	size_t i = 0, hi, end;

	if (s->failed || m->end <= m->start || !(l = own(s, &s->space[index])))
		return;
	s->space[index].mapped = true;
	for (hi = l->n; i < hi;) {
		size_t mid = i + (hi - i) / 2;

		if (l->map[mid].end <= m->start)
			i = mid + 1;
		else
			hi = mid;
	}
	if (i < l->n && l->map[i].start < m->start) {
		struct lg_pd_map right = l->map[i];

		l->map[i].end = m->start;
		i++;
		if (right.end > m->end) {
			right.pgoff += m->end - right.start;
			right.start = m->end;
			insert(l, i, &right);
		}
	}
	for (end = i; end < l->n && l->map[end].end <= m->end; end++)
		;
	if (end < l->n && l->map[end].start < m->end) {
		l->map[end].pgoff += m->end - l->map[end].start;
		l->map[end].start = m->end;
	}
	memmove(l->map + i, l->map + end, (l->n - end) * sizeof *l->map);
	l->n -= end - i;
	insert(l, i, m);
}

void lg_pd_space_fork(struct lg_pd_spaces *s, int32_t parent, int32_t pid)
{
	uint32_t from, to;

	if (pid == parent)
		return;
	from = lg_pd_space_of(s, parent);
	to = lg_pd_space_of(s, pid);
	if (s->failed)
		return;
	layers_drop(s->space[to].l);
	s->space[to].l = s->space[from].l;
	if (s->space[to].l)
		s->space[to].l->refs++;
	s->space[to].mapped |= s->space[from].mapped;
	s->space[to].version = ++s->versions;
}

bool lg_pd_space_was_mapped(const struct lg_pd_spaces *s, int32_t pid)
{
	uint32_t i = lg_map_get(&s->by_pid, (uint32_t)pid);

	return i && s->space[i - 1].mapped;
}

void lg_pd_space_clear(struct lg_pd_spaces *s, int32_t pid)
{
	uint32_t i = lg_map_get(&s->by_pid, (uint32_t)pid);

	if (!i)
		return;
	layers_drop(s->space[i - 1].l);
	s->space[i - 1].l = NULL;
	s->space[i - 1].version = ++s->versions;
}

void lg_pd_spaces_done(struct lg_pd_spaces *s)
{
	for (size_t i = 0; i < s->n; i++)
		layers_drop(s->space[i].l);
	lg_free(s->space);
	lg_map_done(&s->by_pid);
	s->space = NULL;
	s->n = s->cap = 0;
}
