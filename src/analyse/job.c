/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c - whose child a process is, and which processes are the training job: what
 * one of them does for another is the job's own business, what any other does is
 * somebody's.
 */
#include <string.h>

#include "analyse/case.h"
#include "base/alloc.h"
#include "base/map.h"

enum { DEPTH_MAX = 16 };

/* The same program, started beside a rank: interpreter and script are equal. */
static bool is_sibling(const struct lg_trace *t, lg_prc p, lg_prc rank)
{
	const char *a = lg_string(t, t->process.cmdline[p]), *b = lg_string(t, t->process.cmdline[rank]);
	int words = 0;

	if (t->process.ppid[p] != t->process.ppid[rank] || !*a)
		return false;
	for (; *a == *b && *a && words < 2; a++, b++)
		words += *a == ' ';
	return words == 2 || *a == *b;
}

static bool is_member(const struct lg_case *c, lg_prc i)
{
	const struct lg_process_tab *p = &c->t->process;

	if (c->rank_of_prc[i] || p->rank[i] >= 0 || p->role[i] == LG_ROLE_RANK ||
	    p->role[i] == LG_ROLE_JOB || p->role[i] == LG_ROLE_LOADER)
		return true;
	for (size_t r = 0; r < c->n_ranks; r++)
		if (is_sibling(c->t, i, c->ranks[r].prc))
			return true;
	return false;
}

static int find_parents(struct lg_case *c)
{
	const struct lg_process_tab *p = &c->t->process;
	lg_prc *same_pid = lg_calloc(p->n, sizeof *same_pid);
	lg_prc *parent = lg_arena_alloc(&c->v->arena, p->n, sizeof *parent);
	struct lg_map newest = { 0 };
	int rc = same_pid && parent ? 0 : LG_E_NOMEM;

	for (lg_prc i = 1; i < p->n && !rc; i++) {
		same_pid[i] = lg_map_get(&newest, (uint32_t)p->pid[i]);
		rc = lg_map_set(&newest, (uint32_t)p->pid[i], i);
	}
	for (lg_prc i = 1; i < p->n && !rc; i++) {
		int64_t born = p->start[i] == INT64_MIN ? c->t->first : p->start[i];
		lg_prc k = lg_map_get(&newest, (uint32_t)p->ppid[i]);

		/* A pid may have had several lives. */
		while (k && !(p->start[k] <= born && born <= p->end[k]))
			k = same_pid[k];
		parent[i] = k == i ? 0 : k;
	}
	lg_map_done(&newest);
	lg_free(same_pid);
	if (!rc)
		c->parent = parent;
	return rc;
}

lg_prc lg_parent_of(struct lg_case *c, lg_prc p)
{
	if (!c->parent && find_parents(c)) {
		c->failed = LG_E_NOMEM;
		return 0;
	}
	return c->parent[p];
}

static int find_members(struct lg_case *c)
{
	const struct lg_process_tab *p = &c->t->process;
	uint8_t *member = lg_arena_alloc(&c->v->arena, p->n, 1);

	if (!member)
		return LG_E_NOMEM;
	for (lg_prc i = 1; i < p->n; i++)
		member[i] = is_member(c, i);
	for (lg_prc i = 1; i < p->n; i++) {
		lg_prc k = i;

		/* The recorder is the parent of the command, not the other way round. */
		for (int depth = 0; depth < DEPTH_MAX && k && !member[k]; depth++)
			k = p->role[k] == LG_ROLE_RECORDER ? 0 : lg_parent_of(c, k);
		if (k && member[k])
			member[i] = 1;
	}
	c->in_job = member;
	return 0;
}

bool lg_in_job(struct lg_case *c, lg_prc prc)
{
	if (!c->in_job && find_members(c)) {
		c->failed = LG_E_NOMEM;
		return true;
	}
	return c->in_job[prc];
}
