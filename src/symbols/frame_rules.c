/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_rules.c - libdw runs the CFA program, this file keeps its outcome and runs expressions.
 *
 * libdw gives every rule as a DWARF expression, the usual ones as its own two or three
 * operations (elfutils, libdw/dwarf_frame_register.c); those become plain rules here.
 */
#include "symbols/frame_rules.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "symbols/elf_dwarf.h"

enum { OPS_MAX = 64, DEPTH_MAX = 32 };

static int keep_expr(struct lg_exprs *x, const Dwarf_Op *ops, size_t n, int32_t *ret)
{
	struct lg_expr_op copy[OPS_MAX] = { 0 };

	for (size_t i = 0; i < n; i++)
		copy[i] = (struct lg_expr_op){ ops[i].atom, ops[i].number, ops[i].number2 };
	for (size_t r = 0; r < x->n_range; r++)
		if (x->range[r].n == n) {
			const struct lg_expr_op *have = x->op + x->range[r].first;
			size_t i = 0;

			while (i < n && have[i].atom == copy[i].atom &&
			       have[i].number == copy[i].number && have[i].number2 == copy[i].number2)
				i++;
			if (i == n) {
				*ret = (int32_t)r;
				return 0;
			}
		}
	/* A file made to have ever new expressions shall not grow the list for ever. */
	if (x->n_range >= 4096)
		return LG_E_LIMIT;
	if (lg_grow(&x->op, &x->cap, x->n + n, sizeof *x->op) ||
	    lg_grow(&x->range, &x->range_cap, x->n_range + 1, sizeof *x->range))
		return LG_E_NOMEM;
	memcpy(x->op + x->n, copy, n * sizeof *copy);
	x->range[x->n_range].first = (uint32_t)x->n;
	x->range[x->n_range].n = (uint32_t)n;
	x->n += n;
	*ret = (int32_t)x->n_range++;
	return 0;
}

void lg_exprs_done(struct lg_exprs *x)
{
	lg_free(x->op);
	lg_free(x->range);
	*x = (struct lg_exprs){ 0 };
}

static bool small(uint64_t v)
{
	return (int64_t)v >= INT32_MIN && (int64_t)v <= INT32_MAX;
}

static bool is_breg(const Dwarf_Op *op, uint64_t *ret_reg, uint64_t *ret_off)
{
	if (op->atom == DW_OP_bregx) {
		*ret_reg = op->number;
		*ret_off = op->number2;
		return true;
	}
	if (op->atom < DW_OP_breg0 || op->atom > DW_OP_breg31)
		return false;
	*ret_reg = op->atom - DW_OP_breg0;
	*ret_off = op->number;
	return true;
}

static int cfa_rule(struct lg_rule *ret, struct lg_exprs *x, const Dwarf_Op *ops, size_t n)
{
	uint64_t reg, off;
	int rc;

	*ret = (struct lg_rule){ LG_RULE_UNDEFINED, 0, 0 };
	if (!n || n > OPS_MAX)
		return 0;
	if (n == 1 && is_breg(ops, &reg, &off) && reg < LG_UNWIND_REGS && small(off)) {
		*ret = (struct lg_rule){ LG_RULE_REGISTER, (uint8_t)reg, (int32_t)off };
		return 0;
	}
	rc = keep_expr(x, ops, n, &ret->n);
	if (!rc)
		ret->kind = LG_RULE_IS_EXPR;
	return rc == LG_E_NOMEM ? rc : 0;
}

static int reg_rule(struct lg_rule *ret, struct lg_exprs *x, const Dwarf_Op *ops, size_t n,
		    const Dwarf_Op *mem)
{
	bool is_value = n && ops[n - 1].atom == DW_OP_stack_value;
	size_t body = n - is_value;
	int rc;

	*ret = (struct lg_rule){ LG_RULE_UNDEFINED, 0, 0 };
	if (!n) {
		if (ops != mem)
			ret->kind = LG_RULE_SAME;
		return 0;
	}
	if (n > OPS_MAX)
		return 0;
	if (body && ops[0].atom == DW_OP_call_frame_cfa &&
	    (body == 1 || (body == 2 && ops[1].atom == DW_OP_plus_uconst && small(ops[1].number)))) {
		*ret = (struct lg_rule){ is_value ? LG_RULE_IS_CFA : LG_RULE_AT_CFA, 0,
					 body == 2 ? (int32_t)ops[1].number : 0 };
		return 0;
	}
	if (n == 1 && ((ops[0].atom >= DW_OP_reg0 && ops[0].atom <= DW_OP_reg31) ||
		       (ops[0].atom == DW_OP_regx && ops[0].number < LG_UNWIND_REGS))) {
		uint64_t reg = ops[0].atom == DW_OP_regx ? ops[0].number
							    : (uint64_t)(ops[0].atom - DW_OP_reg0);

		*ret = (struct lg_rule){ LG_RULE_REGISTER, (uint8_t)reg, 0 };
		return 0;
	}
	rc = keep_expr(x, ops, body, &ret->n);
	if (!rc)
		ret->kind = is_value ? LG_RULE_IS_EXPR : LG_RULE_AT_EXPR;
	return rc == LG_E_NOMEM ? rc : 0;
}

static int rules_of(struct lg_frame_rules *ret, struct lg_exprs *x, Dwarf_Frame *frame,
		    enum lg_machine machine)
{
	int n_regs = machine == LG_MACHINE_X86_64 ? 16 : 32, ra;
	Dwarf_Addr from, to;
	Dwarf_Op mem[3], *ops;
	size_t n;
	int rc;

	ra = dwarf_frame_info(frame, &from, &to, &ret->signal);
	if (ra < 0 || ra > UINT8_MAX || dwarf_frame_cfa(frame, &ops, &n))
		return 0;
	rc = cfa_rule(&ret->cfa, x, ops, n);
	for (int r = 0; r < n_regs && !rc; r++) {
		if (dwarf_frame_register(frame, r, mem, &ops, &n)) {
			ret->r[r] = (struct lg_rule){ LG_RULE_UNDEFINED, 0, 0 };
			continue;
		}
		rc = reg_rule(&ret->r[r], x, ops, n, mem);
	}
	ret->ra_reg = (uint8_t)ra;
	if (!rc && !dwarf_frame_register(frame, ra, mem, &ops, &n))
		rc = reg_rule(&ret->ra, x, ops, n, mem);
	ret->found = !rc && ret->cfa.kind != LG_RULE_UNDEFINED;
	return rc;
}

int lg_frame_rules_at(struct lg_frame_rules *ret, struct lg_exprs *x, struct lg_elf *elf,
		      uint64_t vaddr, enum lg_machine machine)
{
	Dwarf_CFI *cfi[2];
	int rc = 0;

	*ret = (struct lg_frame_rules){ .elf = elf, .vaddr = vaddr };
	lg_elf_cfi(elf, cfi);
	for (size_t i = 0; i < 2 && !rc && !ret->found; i++) {
		Dwarf_Frame *frame = NULL;

		if (!cfi[i] || dwarf_cfi_addrframe(cfi[i], vaddr, &frame))
			continue;
		rc = rules_of(ret, x, frame, machine);
		free(frame); /* libdw's own malloc() */
	}
	return rc;
}

/* -- expressions (DWARF 5, 2.5.1) -- */

struct machine {
	uint64_t s[DEPTH_MAX];
	size_t n;
	bool bad;
};

static void push(struct machine *m, uint64_t v)
{
	if (m->n < DEPTH_MAX)
		m->s[m->n++] = v;
	else
		m->bad = true;
}

static uint64_t pop(struct machine *m)
{
	if (m->n)
		return m->s[--m->n];
	m->bad = true;
	return 0;
}

static void binary(struct machine *m, uint8_t atom)
{
	uint64_t b = pop(m), a = pop(m);
	int64_t sa = (int64_t)a, sb = (int64_t)b;

	switch (atom) {
	case DW_OP_plus: push(m, a + b); break;
	case DW_OP_minus: push(m, a - b); break;
	case DW_OP_and: push(m, a & b); break;
	case DW_OP_or: push(m, a | b); break;
	case DW_OP_xor: push(m, a ^ b); break;
	case DW_OP_mul: push(m, a * b); break;
	case DW_OP_shl: push(m, b < 64 ? a << b : 0); break;
	case DW_OP_shr: push(m, b < 64 ? a >> b : 0); break;
	case DW_OP_shra: push(m, (uint64_t)(sa >> (b < 64 ? b : 63))); break;
	case DW_OP_eq: push(m, a == b); break;
	case DW_OP_ne: push(m, a != b); break;
	case DW_OP_ge: push(m, sa >= sb); break;
	case DW_OP_gt: push(m, sa > sb); break;
	case DW_OP_le: push(m, sa <= sb); break;
	case DW_OP_lt: push(m, sa < sb); break;
	case DW_OP_mod:
		if (b)
			push(m, a % b);
		else
			m->bad = true;
		break;
	case DW_OP_div:
		if (sb && !(sa == INT64_MIN && sb == -1))
			push(m, (uint64_t)(sa / sb));
		else
			m->bad = true;
		break;
	default:
		m->bad = true;
	}
}

static void load(struct machine *m, unsigned size, const struct lg_stack_copy *stack)
{
	uint64_t v = 0;

	if (size > 8 || !lg_stack_read(stack, pop(m), size, &v))
		m->bad = true;
	push(m, v);
}

static void stack_op(struct machine *m, const struct lg_expr_op *op)
{
	size_t deep = op->atom == DW_OP_pick ? op->number : op->atom == DW_OP_over ? 1 : 0;
	uint64_t a, b, c;

	switch (op->atom) {
	case DW_OP_dup:
	case DW_OP_over:
	case DW_OP_pick:
		if (deep >= m->n)
			m->bad = true;
		else
			push(m, m->s[m->n - 1 - deep]);
		break;
	case DW_OP_drop:
		(void)pop(m);
		break;
	case DW_OP_swap:
		a = pop(m);
		b = pop(m);
		push(m, a);
		push(m, b);
		break;
	default: /* DW_OP_rot: the top goes two places down */
		a = pop(m);
		b = pop(m);
		c = pop(m);
		push(m, a);
		push(m, c);
		push(m, b);
	}
}

static void step(struct machine *m, const struct lg_expr_op *op, const struct lg_unwind_regs *regs,
		 bool has_cfa, uint64_t cfa, const struct lg_stack_copy *stack)
{
	uint64_t reg = op->atom == DW_OP_bregx ? op->number : op->atom - (uint64_t)DW_OP_breg0;

	if (op->atom >= DW_OP_lit0 && op->atom <= DW_OP_lit31) {
		push(m, op->atom - DW_OP_lit0);
	} else if (op->atom == DW_OP_bregx || (op->atom >= DW_OP_breg0 && op->atom <= DW_OP_breg31)) {
		uint64_t off = op->atom == DW_OP_bregx ? op->number2 : op->number;

		/* x86-64's 16 is the return address column: the program counter of this frame. */
		if (reg == 16 && regs->machine == LG_MACHINE_X86_64)
			push(m, regs->pc + off);
		else if (reg < LG_UNWIND_REGS && regs->known >> reg & 1)
			push(m, regs->r[reg] + off);
		else
			m->bad = true;
	} else {
		switch (op->atom) {
		case DW_OP_addr: case DW_OP_const1u: case DW_OP_const1s: case DW_OP_const2u:
		case DW_OP_const2s: case DW_OP_const4u: case DW_OP_const4s: case DW_OP_const8u:
		case DW_OP_const8s: case DW_OP_constu: case DW_OP_consts:
			push(m, op->number); /* libdw extended the sign */
			break;
		case DW_OP_call_frame_cfa:
			if (has_cfa)
				push(m, cfa);
			else
				m->bad = true;
			break;
		case DW_OP_plus_uconst:
			push(m, pop(m) + op->number);
			break;
		case DW_OP_neg:
			push(m, 0 - pop(m));
			break;
		case DW_OP_not:
			push(m, ~pop(m));
			break;
		case DW_OP_deref:
			load(m, 8, stack);
			break;
		case DW_OP_deref_size:
			load(m, op->number > 8 ? 9 : (unsigned)op->number, stack);
			break;
		case DW_OP_dup: case DW_OP_over: case DW_OP_pick: case DW_OP_drop: case DW_OP_swap:
		case DW_OP_rot:
			stack_op(m, op);
			break;
		case DW_OP_nop:
			break;
		default:
			binary(m, op->atom);
		}
	}
}

bool lg_expr_value(const struct lg_exprs *x, size_t i, const struct lg_unwind_regs *regs,
		   bool has_cfa, uint64_t cfa, const struct lg_stack_copy *stack, uint64_t *ret)
{
	struct machine m = { .n = 0 };

	/* No branches: step() refuses them, so every expression ends. */
	for (size_t k = 0; k < x->range[i].n && !m.bad; k++)
		step(&m, &x->op[x->range[i].first + k], regs, has_cfa, cfa, stack);
	if (m.bad || !m.n)
		return false;
	*ret = m.s[m.n - 1];
	return true;
}
