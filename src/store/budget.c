/* SPDX-License-Identifier: Apache-2.0 */
#include "store/budget.h"

#include "base/alloc.h"

static uint32_t add(struct lg_budget *g, bool job, uint32_t uid)
{
	if (lg_grow(&g->all, &g->cap, g->n + 1, sizeof *g->all))
		return LG_JOB_ACCOUNT;
	g->all[g->n] = (struct lg_account){ .job = job, .uid = uid };
	return (uint32_t)g->n++;
}

uint32_t lg_budget_account(struct lg_budget *g, bool job, uint32_t uid)
{
	uint32_t i;

	if (!g->n)
		(void)add(g, true, 0);
	if (job)
		return LG_JOB_ACCOUNT;
	i = lg_map_get(&g->by_uid, uid);
	if (!i) {
		i = add(g, false, uid);
		/* Not found again, it would be made anew each time: it is the job's, which has a limit. */
		if (i && lg_map_set(&g->by_uid, uid, i)) {
			g->n--;
			i = LG_JOB_ACCOUNT;
		}
	}
	return i;
}

bool lg_budget_take(struct lg_budget *g, uint32_t account, size_t bytes)
{
	struct lg_account *a = account < g->n ? &g->all[account] : NULL;

	if (!a)
		return account == LG_JOB_ACCOUNT; /* no memory for accounts */
	if (a->job ? a->used + bytes > g->limits.job
		   : a->used + bytes > g->limits.user || g->used_by_users + bytes > g->limits.users) {
		a->denied++;
		return false;
	}
	a->used += bytes;
	if (!a->job)
		g->used_by_users += bytes;
	return true;
}

void lg_budget_give_back(struct lg_budget *g, uint32_t account, size_t bytes)
{
	struct lg_account *a = account < g->n ? &g->all[account] : NULL;

	if (!a)
		return;
	bytes = bytes < a->used ? bytes : a->used;
	a->used -= bytes;
	if (!a->job)
		g->used_by_users -= bytes < g->used_by_users ? bytes : g->used_by_users;
}

void lg_budget_done(struct lg_budget *g)
{
	lg_free(g->all);
	lg_map_done(&g->by_uid);
	*g = (struct lg_budget){ 0 };
}
