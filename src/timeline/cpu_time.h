/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_time.h - what a process does that has no device, and where in the program. */
#ifndef LG_TIMELINE_CPU_TIME_H
#define LG_TIMELINE_CPU_TIME_H
#include "timeline/cost.h"

/* What a process does that has no device: each nanosecond is of the first that any of its threads is in. */
enum lg_cpu_part {
	LG_CPU_DATA,      /* the loader */
	LG_CPU_SAVE,      /* the main thread saves, */
	LG_CPU_LOG,       /* or writes metrics and messages, */
	LG_CPU_COMPILE,   /* or compiles */
	LG_CPU_OPERATORS,
	LG_CPU_COMM,      /* collectives */
	LG_CPU_BETWEEN,   /* nothing that was traced */
	LG_CPU_PARTS
};
/* by: a row for each of the n stretches from at[i] to at[i + 1]: ns. *ret_any, which may be NULL: when
 * anything ran, disjoint, in order; ret_any->v is the caller's. */
int lg_cpu_parts(const struct lg_scene *sc, const struct lg_gpu_run *r, const int64_t *at, size_t n,
		 int64_t (*by)[LG_CPU_PARTS], struct lg_ivs *ret_any) LG_MUST_CHECK;
/* ---- cpu_places.c ---- */
struct lg_cpu_place {
	uint32_t site, call; /* rows or none: the innermost function of the program; what that calls */
	int64_t ns, longest, at;
};
/* Stretches of a class in [from, to), without what lies in busy, if that is not NULL. */
struct lg_cpu_time_of {
	enum lg_host_class class;
	int64_t from, to;
	const struct lg_ivs *busy;
};
/* Where r's main thread spends that time, the most first, at most n. */
size_t lg_cpu_places(const struct lg_scene *sc, const struct lg_gpu_run *r, const struct lg_cpu_time_of *what,
		     struct lg_cpu_place *ret, size_t n);
/* "train.py:97 flush_metrics, in <built-in function sleep>" */
const char *lg_cpu_where(const struct lg_scene *sc, const struct lg_cpu_place *p);
/* The same of the time in which nothing of r is traced but Python's stacks and the program's annotations:
 * "31.2 ms at train.py:97 ..., 4.1 ms at ..."; NULL = there are none, or they tell less than half of it. */
const char *lg_cpu_python(const struct lg_scene *sc, const struct lg_gpu_run *r, int64_t from, int64_t to);

#endif /* LG_TIMELINE_CPU_TIME_H */
