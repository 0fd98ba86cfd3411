/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.h - whose names, stacks and lives fill the memory of a recording.
 *
 * Dictionary rows stay in memory until the end, and every user of the machine makes some: a thread's
 * name changed in a loop is a string a time. So each user has an account, the job one of its own, all users
 * beside the job one together. What an account has taken is an upper estimate in bytes; nothing is given back
 * but where it says so.
 */
#ifndef LG_STORE_BUDGET_H
#define LG_STORE_BUDGET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

struct lg_budget_limits {
	size_t job, user, users; /* bytes: of the job, of one user, of all users but the job */
};

struct lg_account {
	uint32_t uid;
	bool job;
	size_t used;
	uint64_t denied;      /* how often there was nothing left */
	uint32_t prc, thr;    /* rows that stand for the lives beyond the budget; 0 = not made yet */
	uint64_t told;        /* of denied, in a diag row already */
};

struct lg_budget {
	struct lg_budget_limits limits; /* all 0: nothing is counted */
	struct lg_account *all;
	size_t n, cap, used_by_users;
	struct lg_map by_uid;
};

enum { LG_JOB_ACCOUNT = 0 };

/* The account's index; memory exhausted: the job's. */
uint32_t lg_budget_account(struct lg_budget *g, bool job, uint32_t uid);
/* May the account have so many bytes more? If so it has them. */
bool lg_budget_take(struct lg_budget *g, uint32_t account, size_t bytes);
void lg_budget_give_back(struct lg_budget *g, uint32_t account, size_t bytes);
void lg_budget_done(struct lg_budget *g);

static inline bool lg_budget_counts(const struct lg_budget *g)
{
	return g->limits.job != 0;
}

#endif /* LG_STORE_BUDGET_H */
