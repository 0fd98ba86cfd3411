/* SPDX-License-Identifier: Apache-2.0 */
/*
 * questions.h - what a fleet is asked: which jobs, which rank is late, who costs the most.
 *
 * Every answer is counted from the rows of a store (store.h), with a floor below which nobody is named.
 * The work of a rank in a step is the step's time but for what the rank was in collectives: there the late
 * one's peers wait.
 */
#ifndef LG_FLEET_QUESTIONS_H
#define LG_FLEET_QUESTIONS_H
#include "fleet/store.h"

enum { LG_FLEET_NAME = 128, LG_FLEET_JOBS_MAX = 1000, LG_FLEET_ANSWERS_MAX = 1000 };

/* Which rows count. */
struct lg_fleet_scope {
	uint64_t since_us; /* that began then or later */
	const char *job;   /* a job's name, or its number in 16 hexadecimal digits; NULL = all */
};

struct lg_fleet_job_sum {
	uint64_t job;
	uint16_t attempt;
	char name[LG_FLEET_NAME], user[LG_FLEET_NAME], sched[LG_FLEET_NAME];
	uint32_t world, ranks;          /* ranks: that are in the store */
	uint64_t steps,
		missing; /* of all ranks; missing: steps between a rank's first and last with no row */
	uint64_t first_us, last_us;
	double median_ms, worst_ms;     /* a step */
	uint32_t worst_step;
	double rank_s;                  /* time of all ranks in steps */
	double lost_s, gpu_hours;       /* told by evidence; gpu_hours: of all ranks that waited */
};

struct lg_fleet_straggler {
	uint64_t job;
	uint16_t attempt;
	char name[LG_FLEET_NAME], node[LG_FLEET_NAME];
	uint32_t rank;
	bool persistent;                /* its own work is longer; else: evidence says that it was held up */
	double median_excess_ms, mean_excess_ms; /* over the step's median, a step */
	double share, lost_s, gpu_hours, confidence; /* share: of the job's time */
};

struct lg_fleet_culprit {
	char process[LG_FLEET_NAME], function[LG_FLEET_NAME], rule[64], object[LG_FLEET_NAME], stage[64];
	char job[LG_FLEET_NAME], node[LG_FLEET_NAME], said[512]; /* where it cost most */
	uint64_t jobs, ranks, seen;
	double lost_s, gpu_hours, confidence;
};

/* The caller frees *ret with lg_free(). At most LG_FLEET_JOBS_MAX, the last to run first. */
int lg_fleet_jobs(struct lg_fleet *f, const struct lg_fleet_scope *s, struct lg_fleet_job_sum **ret,
		  size_t *ret_n, struct lg_error *err) LG_MUST_CHECK;
/* Worst first. */
int lg_fleet_stragglers(struct lg_fleet *f, const struct lg_fleet_scope *s, struct lg_fleet_straggler **ret,
			size_t *ret_n, struct lg_error *err) LG_MUST_CHECK;
int lg_fleet_culprits(struct lg_fleet *f, const struct lg_fleet_scope *s, struct lg_fleet_culprit **ret,
		      size_t *ret_n, struct lg_error *err) LG_MUST_CHECK;

/* The number of a job in all tables: of its cluster's name and its own. */
uint64_t lg_fleet_job_number(const char *cluster, const char *name);
/* And of a node's name. */
uint32_t lg_fleet_node_number(const char *name);

#endif /* LG_FLEET_QUESTIONS_H */
