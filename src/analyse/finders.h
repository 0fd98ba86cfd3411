/* SPDX-License-Identifier: Apache-2.0 */
/* finders.h - who is asked of a run, in the order of registry.c. */
#ifndef LG_ANALYSE_FINDERS_H
#define LG_ANALYSE_FINDERS_H
#include "analyse/case.h"

/* ---- steal.c ---- */
/* A limit that says how much the hypervisor took, where that is worth saying. */
int lg_say_steal(struct lg_case *c) LG_MUST_CHECK;

/* ---- foreign.c: CPU samples alone ---- */
/* No chain can be proven from samples; tells which process's bursts coincide with the gaps in the
 * job's activity, with the probability of that by chance. */
int lg_find_foreign(struct lg_case *c, struct lg_error *err) LG_MUST_CHECK;

/* ---- pending.c ---- */
/* A limit: what dumps of the Flight Recorder leave open. 0 or LG_E_NOMEM. */
int lg_say_pending(struct lg_case *c) LG_MUST_CHECK;

/* ---- python_stacks.c ---- */
/* Profiles and dumps of Python stacks, where there are no scheduler states; after all other findings. */
int lg_find_python_stacks(struct lg_case *c) LG_MUST_CHECK;

/* ---- host/cause_rules.c, hook/compile_facts.c, hook/saves.c ---- */
/* Checkpoints of the loop; after all findings. */
int lg_find_data_in_log(struct lg_case *c) LG_MUST_CHECK; /* log_data.c: waits for data that a log states */
int lg_join_saves(struct lg_case *c) LG_MUST_CHECK; /* log_saves.c: those that a job's log tells of */
int lg_find_saves(struct lg_case *c) LG_MUST_CHECK;
int lg_find_compile(struct lg_case *c) LG_MUST_CHECK;
int lg_find_oom(struct lg_case *c) LG_MUST_CHECK; /* oom.c */

/* ---- logs/log_signals.c: every kind of line that an importer keeps, by rules/signals.def ---- */
int lg_find_log_signals(struct lg_case *c) LG_MUST_CHECK;
/* That the job ended by a failure; after whatever may say why. */
int lg_find_failure(struct lg_case *c) LG_MUST_CHECK;

/* ---- logs/memory_growth.c, steps/still.c: what the verdict has to say although no rule judges it ---- */
int lg_say_memory_growth(struct lg_case *c) LG_MUST_CHECK;
int lg_say_still(struct lg_case *c) LG_MUST_CHECK;

#endif /* LG_ANALYSE_FINDERS_H */
