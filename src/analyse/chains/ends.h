/* SPDX-License-Identifier: Apache-2.0 */
/* ends.h - what the end of a chain is, and what follows from that: the table of ends.def. */
#ifndef LG_ANALYSE_CHAINS_ENDS_H
#define LG_ANALYSE_CHAINS_ENDS_H
#include <stdbool.h>

#include "rules/rules.h"

enum lg_end_kind {
#define X(name, ...) LG_END_##name,
#include "rules/ends.def"
#undef X
	LG_END_MAX
};

enum lg_end_cause { LG_IS_PLAIN, LG_IS_CAUSE, LG_IS_OWN };
enum lg_end_place {
	LG_PLACE_RUN, LG_PLACE_STALL, LG_PLACE_DATA, LG_PLACE_COMMS, LG_PLACE_ASLEEP, LG_PLACE_UNSEEN,
	LG_PLACES
};
enum lg_end_charged { LG_CHARGED_PROCESS, LG_CHARGED_MASTER, LG_CHARGED_PATRON, LG_CHARGED_JOB };
enum lg_end_did { LG_DID_NOTHING, LG_DID_HOLD, LG_DID_TIME, LG_DID_SAMPLES, LG_DID_DISK, LG_DID_LOADER,
		  LG_DID_GIL };
enum lg_end_pool { LG_POOL_STAGE, LG_POOL_HOST };
enum lg_end_restaged { LG_RESTAGED_KEEP, LG_RESTAGED_SIDE, LG_RESTAGED_LOADER };
enum lg_end_stepless { LG_STEPLESS_NEVER, LG_STEPLESS_OWNER, LG_STEPLESS_RUNNER, LG_STEPLESS_SURE };

/* The columns of ends.def. */
struct lg_end {
	enum lg_end_cause is;
	enum lg_end_place place;
	int part; /* enum lg_cause_kind */
	enum lg_rule_id rule, own_rule;
	enum lg_end_charged charged;
	enum lg_end_did did;
	enum lg_end_pool pool;
	enum lg_end_restaged in_side, in_batch;
	enum lg_end_stepless stepless;
};

const struct lg_end *lg_end(enum lg_end_kind end);
/* Is such an end a stall that something caused, and not ordinary work or waiting? */
static inline bool lg_is_cause(enum lg_end_kind end)
{
	return lg_end(end)->is == LG_IS_CAUSE;
}
/* A late rank's own: it computed, or slept of its own will. */
static inline bool lg_is_own_doing(enum lg_end_kind end)
{
	return lg_end(end)->is == LG_IS_OWN;
}
/* Does a finding of that rule tell of time that the host took from the job? */
bool lg_is_taken_by_host(enum lg_rule_id rule);

#endif /* LG_ANALYSE_CHAINS_ENDS_H */
