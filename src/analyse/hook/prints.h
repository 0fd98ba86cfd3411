/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prints.h - fingerprints of a run (src/hook/laggard/_det.py): what each step was made of, in the
 * order in which it came to be. Two are equal where their tensors are, but for one case in 2^32.
 */
#ifndef LG_ANALYSE_HOOK_PRINTS_H
#define LG_ANALYSE_HOOK_PRINTS_H
#include <stdbool.h>

#include "base/arena.h"
#include "store/trace.h"

/* In the order of a step; OUTSIDE is a parameter that changed after the optimizer left it, or before
 * its pass. */
enum lg_print_kind {
	LG_PRINT_RNG, LG_PRINT_INPUT, LG_PRINT_LOSS, LG_PRINT_GRAD, LG_PRINT_PARAM, LG_PRINT_OUTSIDE,
	LG_PRINT_OP, LG_PRINT_KINDS
};

struct lg_print {
	int64_t step, value;
	lg_str name;
	uint8_t kind;
	bool number; /* a loss: value is the bits of a double */
};

/* One process of a trace. */
struct lg_prints {
	const struct lg_trace *t;
	lg_prc prc;
	int32_t rank;  /* -1 = none */
	int64_t every; /* each how many steps */
	struct lg_print *v;
	size_t n;
};

/* Of each process that has some, ranks in their order. In a; LG_E_NOMEM. */
int lg_prints_of(const struct lg_trace *t, struct lg_arena *a, struct lg_prints **ret, size_t *ret_n)
	LG_MUST_CHECK;
/* Behind the last one of the step of v[i]. */
size_t lg_print_step_end(const struct lg_prints *p, size_t i);
/* As JSON says it: "rng" ... */
const char *lg_print_kind_text(uint8_t kind);
/* Last value of a fact of prc; NULL when it was never told. */
const char *lg_print_fact(const struct lg_trace *t, lg_prc prc, const char *key);

/* Where parameters of ranks part that DistributedDataParallel keeps equal. */
struct lg_ranks_part {
	bool found;
	int64_t step, equal_at; /* the last step that showed all of them equal */
	lg_str tensor;
	bool outside;           /* it changed outside of the optimizer's step */
	int32_t rank;           /* who parts from the others; -1 = of two, which one is not known */
	int32_t ranks[2];       /* two that differ */
	size_t n_ranks;
};
int lg_ranks_part(const struct lg_prints *p, size_t n, struct lg_arena *a, struct lg_ranks_part *ret)
	LG_MUST_CHECK;

#endif /* LG_ANALYSE_HOOK_PRINTS_H */
