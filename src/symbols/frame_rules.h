/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_rules.h - what call frame information says at one address, in compact form.
 */
#ifndef LG_SYMBOLS_FRAME_RULES_H
#define LG_SYMBOLS_FRAME_RULES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "symbols/unwind.h"

enum lg_rule_kind {
	LG_RULE_UNDEFINED, /* gone */
	LG_RULE_SAME,
	LG_RULE_AT_CFA,    /* in memory at CFA + n */
	LG_RULE_IS_CFA,    /* CFA + n */
	LG_RULE_REGISTER,  /* register reg + n (the CFA's own rule too) */
	LG_RULE_AT_EXPR,   /* in memory at what expression n gives */
	LG_RULE_IS_EXPR    /* what expression n gives */
};

struct lg_rule {
	uint8_t kind, reg;
	int32_t n;
};

struct lg_frame_rules {
	const void *elf;
	uint64_t vaddr;
	struct lg_rule cfa, r[LG_UNWIND_REGS], ra;
	uint8_t ra_reg, machine;
	bool found, signal;
};

struct lg_expr_op {
	uint8_t atom;
	uint64_t number, number2;
};

/* Expressions are rare (PLT entries, signal frames) and repeat: kept once, as index ranges. */
struct lg_exprs {
	struct lg_expr_op *op;
	size_t n, cap;
	struct { uint32_t first, n; } *range;
	size_t n_range, range_cap;
};

/* Memory that an expression or rule may read. */
struct lg_stack_copy {
	const uint8_t *p;
	uint64_t at; /* address of p[0] */
	size_t n;
};

static inline bool lg_stack_read(const struct lg_stack_copy *s, uint64_t addr, unsigned size,
				 uint64_t *ret)
{
	uint64_t v = 0;

	if (addr < s->at || addr - s->at > s->n || s->n - (addr - s->at) < size)
		return false;
	for (unsigned i = size; i--;)
		v = v << 8 | s->p[addr - s->at + i];
	*ret = v;
	return true;
}

/* 0 or LG_E_NOMEM; ret->found tells whether there is anything. */
int lg_frame_rules_at(struct lg_frame_rules *ret, struct lg_exprs *x, struct lg_elf *elf,
		      uint64_t vaddr, enum lg_machine machine) LG_MUST_CHECK;
/* False when it uses something that is not known. */
bool lg_expr_value(const struct lg_exprs *x, size_t i, const struct lg_unwind_regs *regs,
		   bool has_cfa, uint64_t cfa, const struct lg_stack_copy *stack, uint64_t *ret);
/* n > 0. *ret: the expression's place in x; LG_E_NOMEM, or LG_E_LIMIT where there are too many. */
int lg_exprs_keep(struct lg_exprs *x, const struct lg_expr_op *op, size_t n, int32_t *ret) LG_MUST_CHECK;
void lg_exprs_done(struct lg_exprs *x);

#endif /* LG_SYMBOLS_FRAME_RULES_H */
