/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_rules.c - the rules of an address from whichever section has them, and their expressions.
 */
#include "symbols/frame_rules.h"

#include <dwarf.h>
#include <string.h>

#include "base/alloc.h"
#include "symbols/cfi.h"
#include "symbols/elf_cfi.h"

enum { DEPTH_MAX = 32 };

int lg_exprs_keep(struct lg_exprs *x, const struct lg_expr_op *op, size_t n, int32_t *ret)
{
	for (size_t r = 0; r < x->n_range; r++)
		if (x->range[r].n == n) {
			const struct lg_expr_op *have = x->op + x->range[r].first;
			size_t i = 0;

			while (i < n && have[i].atom == op[i].atom &&
			       have[i].number == op[i].number && have[i].number2 == op[i].number2)
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
	memcpy(x->op + x->n, op, n * sizeof *op);
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

int lg_frame_rules_at(struct lg_frame_rules *ret, struct lg_exprs *x, struct lg_elf *elf,
		      uint64_t vaddr, enum lg_machine machine)
{
	int rc = 1;

	*ret = (struct lg_frame_rules){ .elf = elf, .vaddr = vaddr, .machine = (uint8_t)machine };
	for (unsigned i = 0; i < LG_ELF_CFI && rc >= 0 && !ret->found; i++) {
		struct lg_cfi *c = lg_elf_cfi(elf, i, machine);
		struct lg_cfi_fde f;

		rc = c ? lg_cfi_find(c, vaddr, &f) : 0;
		if (rc > 0)
			rc = lg_cfi_run(c, &f, vaddr, machine, x, ret);
	}
	return rc < 0 ? rc : 0;
}

/* -- expressions (DWARF 5, 2.5.1) -- */

struct machine {
	uint64_t s[DEPTH_MAX];
	size_t n;
	unsigned word; /* of an address: values are as wide */
	bool bad;
};

static uint64_t narrow(const struct machine *m, uint64_t v)
{
	return m->word == 4 ? (uint32_t)v : v;
}

static void push(struct machine *m, uint64_t v)
{
	if (m->n < DEPTH_MAX)
		m->s[m->n++] = narrow(m, v);
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
	int64_t sa = m->word == 4 ? (int32_t)a : (int64_t)a;
	int64_t sb = m->word == 4 ? (int32_t)b : (int64_t)b;

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

		/* The column of the return address is the program counter of this frame. */
		if ((reg == 16 && regs->machine == LG_MACHINE_X86_64) ||
		    (reg == 8 && regs->machine == LG_MACHINE_I386))
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
			push(m, op->number); /* its sign was extended when it was read */
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
			load(m, m->word, stack);
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
	struct machine m = { .word = lg_machine_word(regs->machine) };

	/* No branches: step() refuses them, so every expression ends. */
	for (size_t k = 0; k < x->range[i].n && !m.bad; k++)
		step(&m, &x->op[x->range[i].first + k], regs, has_cfa, cfa, stack);
	if (m.bad || !m.n)
		return false;
	*ret = m.s[m.n - 1];
	return true;
}
