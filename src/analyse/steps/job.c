/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c - whose child a process is, and which processes are the training job: what
 * one of them does for another is the job's own business, what any other does is
 * somebody's.
 */
#include "analyse/steps/steps.h"
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

bool lg_is_worker(const struct lg_case *c, lg_prc p)
{
	uint32_t role = c->t->process.role[p];

	return c->t->process.rank[p] >= 0 || role == LG_ROLE_RANK || role == LG_ROLE_LOADER;
}

static bool is_member(const struct lg_case *c, lg_prc i)
{
	if (c->rank_of_prc[i] || lg_is_worker(c, i) || c->t->process.role[i] == LG_ROLE_JOB)
		return true;
	for (size_t r = 0; r < c->n_ranks; r++)
		if (is_sibling(c->t, i, c->ranks[r].prc) || lg_are_of_one_job(c, i, c->ranks[r].prc))
			return true;
	return false;
}

static int find_parents(struct lg_case *c)
{
	const struct lg_process_tab *p = &c->t->process;
	LG_AUTOFREE lg_prc *same_pid = lg_calloc(p->n, sizeof *same_pid);
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

bool lg_descends(struct lg_case *c, lg_prc p, lg_prc from)
{
	for (int depth = 0; depth < DEPTH_MAX && p; depth++) {
		p = lg_parent_of(c, p);
		if (p == from)
			return true;
	}
	return false;
}

uint32_t lg_rank_above(struct lg_case *c, lg_prc p, int generations)
{
	for (int i = 0; i < generations && p; i++, p = lg_parent_of(c, p))
		if (c->rank_of_prc[p])
			return c->rank_of_prc[p] - 1;
	return UINT32_MAX;
}

bool lg_has_numbered_parent(struct lg_case *c, lg_prc p)
{
	int depth = 0;

	do
		p = lg_parent_of(c, p);
	while (p && c->t->process.rank[p] < 0 && ++depth < DEPTH_MAX);
	return p && c->t->process.rank[p] >= 0;
}

/* What is known of processes one by one; what they started belongs where they do. */
enum belongs { NOT_TOLD, TO_JOB, ELSEWHERE };

/* To each process of which nothing is known, what is known of its nearest ancestor; then 1 for those that
 * belong to `side`, 0 for all others. */
static void hand_down(struct lg_case *c, uint8_t *belongs, enum belongs side)
{
	size_t n = c->t->process.n;

	for (lg_prc i = 1; i < n; i++) {
		lg_prc k = i;

		for (int depth = 0; depth < DEPTH_MAX && k && !belongs[k]; depth++)
			k = lg_parent_of(c, k);
		belongs[i] = belongs[k];
	}
	for (lg_prc i = 1; i < n; i++)
		belongs[i] = belongs[i] == side;
}

/* Is p called as the first word of a recorder's command line? The kernel keeps 15 bytes of a name. */
static bool is_called_so(const struct lg_case *c, lg_prc p, const char *cmdline)
{
	enum { COMM_MAX = 15 };
	size_t n = strcspn(cmdline, " ");
	const char *comm = lg_string(c->t, c->t->process.comm[p]), *slash = memrchr(cmdline, '/', n);

	if (slash) {
		n -= (size_t)(slash + 1 - cmdline);
		cmdline = slash + 1;
	}
	n = n < COMM_MAX ? n : COMM_MAX;
	return n && strlen(comm) == n && !memcmp(comm, cmdline, n);
}

bool lg_is_recorder(struct lg_case *c, lg_prc p)
{
	const struct lg_process_tab *t = &c->t->process;
	lg_prc parent = lg_parent_of(c, p);

	if (t->role[p] == LG_ROLE_RECORDER)
		return true;
	if (parent && t->role[parent] == LG_ROLE_RECORDER && t->comm[parent] == t->comm[p])
		return true;
	/* Another run of the same tool comes and goes. */
	if (t->start[p] > c->t->first || t->end[p] < c->t->last || lg_in_job(c, p))
		return false;
	for (size_t i = 0; i < c->t->meta.n; i++)
		if (!strcmp(lg_string(c->t, c->t->meta.key[i]), "record.cmdline") &&
		    is_called_so(c, p, lg_string(c->t, c->t->meta.value[i])))
			return true;
	return false;
}

static int find_members(struct lg_case *c)
{
	const struct lg_process_tab *p = &c->t->process;
	uint8_t *belongs = lg_arena_alloc(&c->v->arena, p->n, 1);

	if (!belongs)
		return LG_E_NOMEM;
	for (lg_prc i = 1; i < p->n; i++) {
		/* The recorder is the parent of the command, not the other way round. */
		if (lg_in_other_job(c, i))
			belongs[i] = ELSEWHERE;
		else if (is_member(c, i))
			belongs[i] = TO_JOB;
		else if (p->role[i] == LG_ROLE_RECORDER)
			belongs[i] = ELSEWHERE;
	}
	hand_down(c, belongs, TO_JOB);
	c->in_job = belongs;
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

bool lg_in_other_job(const struct lg_case *c, lg_prc p)
{
	return c->other_job && c->other_job[p];
}

/* ---- several jobs in one trace ---- */

static bool same_host(const struct lg_process_tab *p, lg_prc a, lg_prc b)
{
	return p->host[a] == p->host[b];
}

static bool has_collectives(const struct lg_case *c, const struct lg_rank *r)
{
	for (size_t i = 0; i < r->n_spans; i++)
		if (c->t->span.kind[r->spans[i]] == LG_SPAN_COLLECTIVE)
			return true;
	return false;
}

/* Numbers, or collectives whose ranks nobody told: it talks to others. */
static bool is_distributed(const struct lg_case *c, const struct lg_rank *r)
{
	return r->rank >= 0 || has_collectives(c, r);
}

/*
 * Ranks of one job have numbers of their own; a process that talks to no other is a job of its own. Two
 * jobs of several ranks on one host have each number twice: then the launcher (the parent) tells.
 */
static void sort_into_jobs(const struct lg_case *c, uint32_t *job)
{
	const struct lg_process_tab *p = &c->t->process;
	bool numbers_repeat = false;

	for (size_t i = 0; i < c->n_ranks; i++)
		for (size_t k = 0; k < i; k++)
			numbers_repeat |= c->ranks[i].rank >= 0 && c->ranks[i].rank == c->ranks[k].rank &&
				 same_host(p, c->ranks[i].prc, c->ranks[k].prc);
	for (size_t i = 0; i < c->n_ranks; i++) {
		lg_prc a = c->ranks[i].prc;

		job[i] = (uint32_t)i;
		for (size_t k = 0; k < i && is_distributed(c, &c->ranks[i]); k++) {
			lg_prc b = c->ranks[k].prc;

			if (is_distributed(c, &c->ranks[k]) && p->world[a] == p->world[b] &&
			    (!numbers_repeat || !same_host(p, a, b) || p->ppid[a] == p->ppid[b])) {
				job[i] = job[k];
				break;
			}
		}
	}
}

/* What was started by a process of the job is of the job: loaders, helpers. */
static int mark_others(struct lg_case *c, const uint32_t *job, uint32_t chosen)
{
	uint8_t *belongs = lg_arena_alloc(&c->v->arena, c->t->process.n, 1);

	if (!belongs)
		return LG_E_NOMEM;
	for (size_t i = 0; i < c->n_ranks; i++)
		belongs[c->ranks[i].prc] = job[i] == chosen ? TO_JOB : ELSEWHERE;
	hand_down(c, belongs, ELSEWHERE);
	c->other_job = belongs;
	return c->failed;
}

/* "pids 5, 6, rank 2, whose pid is unknown". */
static const char *pids_text(struct lg_case *c, const uint32_t *job, uint32_t chosen, bool of_chosen)
{
	const char *text = "";
	size_t n = 0, all = 0, numbered = 0;

	for (size_t i = 0; i < c->n_ranks; i++)
		if ((job[i] == chosen) == of_chosen) {
			all++;
			numbered += c->t->process.pid[c->ranks[i].prc] >= 0;
		}
	for (size_t k = 0; k < 2 * c->n_ranks; k++) {
		const struct lg_rank *r = &c->ranks[k % c->n_ranks];
		int32_t pid = c->t->process.pid[r->prc];

		/* Those with a pid first: "pids" stands once, before them. */
		if ((job[k % c->n_ranks] == chosen) != of_chosen || (pid < 0) != (k >= c->n_ranks) ||
		    n++ >= 8)
			continue;
		if (pid >= 0)
			text = lg_text(c, "%s%s%d", text,
				       n > 1 ? ", " : numbered > 1 ? "pids " : "pid ", pid);
		else if (r->rank >= 0)
			text = lg_text(c, "%s%srank %d, whose pid is unknown", text,
				       n > 1 ? ", " : "", r->rank);
		else
			text = lg_text(c, LG_SAYS_STEPS_NO_PID, text, n > 1 ? ", " : "");
	}
	return all > 8 ? lg_text(c, "%s and %zu more", text, all - 8) : text;
}

/*
 * Ranks of files that know neither a process nor a rank (a job's log, a trace of a torch without Kineto),
 * beside processes that were recorded: the same job, told once more, and nothing to follow a wait in.
 */
static bool drop_nameless(struct lg_case *c)
{
	const struct lg_process_tab *p = &c->t->process;
	bool recorded = false;
	size_t all = c->n_ranks;

	for (size_t i = 0; i < all; i++)
		recorded |= p->pid[c->ranks[i].prc] >= 0 && c->ranks[i].n_states;
	LG_KEEP(r, c->ranks, c->n_ranks, !recorded || p->pid[r->prc] >= 0 || r->rank >= 0 || r->n_states);
	return c->n_ranks < all;
}

int lg_choose_job(struct lg_case *c, const struct lg_step *steps, bool *ret_chosen)
{
	LG_AUTOFREE uint32_t *job = lg_calloc(c->n_ranks, sizeof *job);
	uint32_t chosen = 0;
	bool nameless, several = false;
	int64_t most = -1;
	int rc = 0;

	*ret_chosen = false;
	if (!job)
		return LG_E_NOMEM;
	nameless = drop_nameless(c);
	sort_into_jobs(c, job);
	for (uint32_t i = 0; i < c->n_ranks; i++) {
		int64_t excess = lg_excess_of(&c->ranks[i], steps);

		several |= job[i] != job[0];
		if (c->ranks[i].n_steps && excess > most) {
			most = excess;
			chosen = job[i];
		}
	}
	if (several) {
		lg_say(c, LG_SAYS_STEPS_JOBS, pids_text(c, job, chosen, true),
		       pids_text(c, job, chosen, false));
		rc = mark_others(c, job, chosen);
		LG_KEEP(r, c->ranks, c->n_ranks, job[r - c->ranks] == chosen);
	}
	*ret_chosen = several || nameless;
	return rc;
}
