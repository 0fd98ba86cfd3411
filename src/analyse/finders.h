/* SPDX-License-Identifier: Apache-2.0 */
/* finders.h - who is asked of a run, in the order of registry.c. Each adds findings and limits. */
#ifndef LG_ANALYSE_FINDERS_H
#define LG_ANALYSE_FINDERS_H
#include "analyse/case.h"

/* ---- host/ ---- */
/* foreign.c: CPU samples alone. No chain can be proven from them; tells which process's bursts coincide with
 * the gaps in the job's activity, with the probability of that by chance. */
int lg_find_foreign(struct lg_case *c) LG_MUST_CHECK;
/* python_stacks.c: profiles and dumps of Python stacks, where there are no scheduler states. */
int lg_find_python_stacks(struct lg_case *c) LG_MUST_CHECK;
/* standing.c: where the ranks of a job sleep in which nothing moves. */
int lg_find_standing(struct lg_case *c) LG_MUST_CHECK;
/* host_memory.c: memory of processes that grows, and who was killed for it. */
int lg_find_host_memory(struct lg_case *c) LG_MUST_CHECK;
/* steal.c: how much the hypervisor took, where that is worth saying. */
int lg_say_steal(struct lg_case *c) LG_MUST_CHECK;

/* ---- hook/ ---- */
int lg_find_compile(struct lg_case *c) LG_MUST_CHECK; /* compile_facts.c */
int lg_find_flags(struct lg_case *c) LG_MUST_CHECK; /* flag_rules.c: settings that cost time */
int lg_find_ranks_part(struct lg_case *c) LG_MUST_CHECK; /* ranks_part.c: parameters under DDP */
int lg_find_saves(struct lg_case *c) LG_MUST_CHECK; /* saves.c: checkpoints; after all findings */
void lg_tell_profiled(struct lg_case *c); /* profiled.c: what record --profiler did, as limits */

/* ---- logs/ ---- */
/* log_signals.c: every kind of line that an importer keeps, by rules/signals.def. */
int lg_find_log_signals(struct lg_case *c) LG_MUST_CHECK;
/* log_signals.c: that the job ended by a failure; after whatever may say why. */
int lg_find_failure(struct lg_case *c) LG_MUST_CHECK;
int lg_find_data_in_log(struct lg_case *c) LG_MUST_CHECK; /* log_data.c: waits for data that a log states */
int lg_join_saves(struct lg_case *c) LG_MUST_CHECK; /* log_saves.c: checkpoints that a log tells of */
int lg_find_oom(struct lg_case *c) LG_MUST_CHECK; /* oom.c */

/* device/memory_rules.c: what snapshots of a device's memory show. */
int lg_find_memory(struct lg_case *c) LG_MUST_CHECK;

/* device/memory_stats.c: what its allocator counts; after those that know more. */
int lg_find_memory_stats(struct lg_case *c) LG_MUST_CHECK;

/* ---- what the verdict has to say although no rule judges it ---- */
int lg_say_counters(struct lg_case *c) LG_MUST_CHECK; /* logs/unread_counters.c, by rules/counters.def */
int lg_say_memory_growth(struct lg_case *c) LG_MUST_CHECK; /* the same file */
int lg_say_still(struct lg_case *c) LG_MUST_CHECK; /* steps/still.c */
int lg_say_pending(struct lg_case *c) LG_MUST_CHECK; /* flight/pending.c: what dumps leave open */

/* ---- fired.c: of a file that a trigger wrote: what fired it, and what took the time of that moment ---- */
struct lg_tally;
/* Before anything is judged: the rows of the recorder (record/session_dump.c). */
int lg_note_fired(struct lg_case *c) LG_MUST_CHECK;
/* What the chains say of those moments, however little of the run they are. */
void lg_judge_fired(struct lg_case *c, const struct lg_tally *y);
/* Findings are told and in their order: which of them is about those moments. */
void lg_fired_findings(struct lg_case *c);

#endif /* LG_ANALYSE_FINDERS_H */
