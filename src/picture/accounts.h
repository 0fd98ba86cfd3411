/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accounts.h - what a picture adds up of the account of steps (contract.md#exact-account): each
 * step's time by whom it went to, by stage, and the rank's own part of it; slow steps against
 * typical ones.
 *
 * The slots of a step sum to its duration to the nanosecond, whatever the account holds.
 */
#ifndef LG_PICTURE_ACCOUNTS_H
#define LG_PICTURE_ACCOUNTS_H
#include "analyse/verdict.h"

enum { LG_ACCOUNT_SLOTS = 10, LG_ACCOUNT_NAME = 160 };

struct lg_account_slot {
	char name[LG_ACCOUNT_NAME]; /* as it may be shown (base/printable.h) */
	uint8_t kind;		    /* enum lg_part_kind */
	uint32_t cause;		    /* of the verdict; 0 = all others of that kind */
	int64_t slow_ns, typical_ns;
};

struct lg_accounts {
	struct lg_account_slot slot[LG_ACCOUNT_SLOTS];
	size_t n_slots;
	size_t n_slow, n_typical;    /* steps; warm-up is neither */
	int64_t slow_ns, typical_ns; /* the sums of their durations, and of their slots */
	int64_t *ns;		     /* [step * n_slots + slot] */
	int64_t *stage_ns;	     /* [step * LG_STAGE_MAX + stage]; no stage counts as other */
	int64_t *own_ns;	     /* [step]: without what the thread waited in collectives */
	int64_t
	    *late_ns; /* [step]: own_ns beyond the median of its rank's own_ns; may be negative */
};

int lg_accounts_make(struct lg_accounts *ret, const struct lg_verdict *v,
		     struct lg_error *err) LG_MUST_CHECK;
void lg_accounts_done(struct lg_accounts *a);

#endif /* LG_PICTURE_ACCOUNTS_H */
