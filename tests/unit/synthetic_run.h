/* SPDX-License-Identifier: Apache-2.0 */
/*
 * synthetic_run.h - a made-up distributed run with a known cause, built row by row.
 *
 * Every rank: forward (running), backward (running, then waiting for the others: the implicit
 * collective), optimizer (running). A rank that is late makes all others wait in their collective.
 */
#ifndef LG_TESTS_SYNTHETIC_RUN_H
#define LG_TESTS_SYNTHETIC_RUN_H
#include <stdbool.h>

#include "store/builder.h"

enum stall { STALL_NONE, STALL_LOCK, STALL_CPU, STALL_RUN, STALL_FUTEX_HELPER_LOCK,
	     STALL_FILE_LOCK, STALL_SOCKET, STALL_QUOTA, STALL_SYNC, STALL_READ,
	     STALL_TCP, STALL_GIL, STALL_GC, STALL_FORK, STALL_BATCH, STALL_STOP };

struct run_plan {
	int n_ranks, n_steps;
	int64_t period_ns;     /* of the stalls; 0 = none */
	int64_t stalls_for_ns; /* none after that; 0 = to the end */
	int64_t stall_ns;
	enum stall stall;
	int only_rank;         /* -1 = in turn */
	bool all_ranks;        /* every rank at the same time */
	int steady_late_rank;  /* -1 = none */
	int64_t steady_late_ns;
	bool explicit_collective;
	bool no_hold_rows;     /* the wait's owner only */
	bool no_marks;         /* no stage and collective rows: steps must be inferred */
	uint32_t sample_flags; /* of the culprit's samples beside states */
	bool samples_only;     /* CPU samples each ms instead of states and lock rows */
	bool servants;         /* each stall is another short-lived child of the culprit's */
	const char *tier;      /* that recorded it; NULL = not told */
	const char *world;     /* how many ranks the job says it has; NULL = does not say */
	const char *recorded_by; /* record.cmdline; NULL = not told */
	const char *culprit;   /* its name; NULL = watcher */
	bool culprit_passes;   /* it was started after the recording, and ends before it */
	const char *scope;     /* record.scope; NULL = not told */
	const char *const *waker_stack; /* STALL_TCP: of the soft interrupt's waking, outermost first */
	const char *const *wait_stack; /* STALL_SOCKET: where it waits; NULL = for a Unix socket */
	const char *const *run_stack;  /* STALL_RUN: of CPU samples each ms meanwhile; NULL = none */
	const char *const *const *run_stacks; /* STALL_RUN: of each stall in turn, the last one stays; NULL */
	const char *const *child_runs; /* STALL_FORK: of the child that it waits for */
	bool helper_computes;  /* STALL_FUTEX_HELPER_LOCK: instead of waiting for the lock */
	bool by_way;           /* STALL_SOCKET: another program, RELAY_PID, waits for the culprit meanwhile */
	const char *const *relay_stack; /* where that one waits, if elsewhere */
	int n_waits;           /* STALL_SOCKET: of the stall, each ended by the culprit; 0 = 1 */
	bool own_timer;        /* the last of them ended by a timer */
	const char *helper_runs; /* STALL_GIL: file of the code that the helper thread runs meanwhile */
	bool not_by_helper;      /* STALL_GIL: an interrupt ends the last wait, too */
	bool helper_came_late;   /* STALL_GIL: it slept during the first half */
	/* STALL_GIL: the recorder tells each wait and who had the lock, who keeps it, sleeps with it, or
	 * gives it up when asked; nobody had it that is known */
	enum { GIL_UNTOLD, GIL_KEPT, GIL_SLEPT, GIL_GIVEN, GIL_NOBODYS } gil;
	bool strangers;        /* the ranks are jobs of their own: no numbers, no collectives */
	bool two_launchers;    /* two jobs of two ranks each: ranks 0 and 1 twice */
	bool of_job;           /* the culprit is a process of the job's */
	double throttled_ns;   /* STALL_QUOTA: what the cgroup's counter grows by in a second; -1 = none */
	double steal;          /* of the ranks' CPUs, all the time */
	double device_util;    /* of one device, read each 100 ms; 0 = there is none */
	double own_bytes, other_bytes; /* STALL_SYNC, _READ: of the job and of the culprit, a second */
	double disk_bytes, disk_busy;  /* what the disk moved; the share of the time that it was busy */
	bool crowded;          /* STALL_CPU: strangers have all other CPUs meanwhile */
	bool cpu_untold;       /* STALL_CPU: not for which CPU it was ready */
	bool asleep;           /* STALL_SOCKET: the culprit slept instead of computing */
	bool innocent;         /* samples_only: the culprit is as busy, but at other times */
	const char *const *facts; /* key, value ... NULL: what the hook told of every rank */
	int64_t facts_for_ns;  /* "0" from then on; 0 = never */
	int modes;             /* samples with a dispatch mode on the stack */
	int recompiles, recompiles_from; /* torch._dynamo's, one a step from that one on */
	int graph_breaks;
	int warm_steps;        /* the first ones, which take so much longer */
	int64_t warm_ns;
	int64_t batch_ns;      /* each step makes its batch itself */
	int batch_every;       /* steps: then batch_more_ns longer, and the step noise_ns for itself */
	int64_t batch_more_ns, noise_ns;
	int64_t in_turn_ns;    /* rank 0's own work is longer in every fourth step, rank 1's two later */
	bool inference;        /* no backward pass, no optimizer */
	int save_every;        /* steps; rank 0 saves save_bytes in save_ns */
	int64_t save_ns, save_bytes;
	int64_t open_ns, sync_ns; /* waits for the disk, at once before and behind the save's mark */
	bool save_unmarked;    /* there is no mark: the same without a save */
	const char *save_as;   /* NULL = torch.save */
	const char *fired;     /* the trigger that wrote it; NULL = none */
	int64_t fired_at_ns, fired_ns; /* since the run began; how long that took */
	int fired_rank;
};

enum { RELAY_PID = 5100, CULPRIT_PID = 4711, RANK_PID = 900 };

/* The sealed trace; aborts the test on failure. Free with lg_trace_free(). */
struct lg_trace *synthetic_run(const struct run_plan *p);

#endif
