/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cfi_run.c - the programs of one entry, run up to an address: rules for the CFA and the registers.
 *
 * Registers beyond those that a walk needs (vector registers, the state of AArch64's pointer
 * authentication) have no place in the tables: what is said of them is read and dropped.
 */
#include <dwarf.h>
#include <string.h>

#include "symbols/cfi.h"

enum { OPS_MAX = 64, REMEMBER_MAX = 16, COLUMNS = 33, AARCH64_NEGATE_RA_STATE = 0x2d };

_Static_assert((int)COLUMNS > (int)LG_UNWIND_REGS, "x86-64's 16 and i386's 8 are return addresses, too");

struct columns {
	struct lg_rule cfa, r[COLUMNS];
	struct lg_rule based; /* the last CFA that was no expression */
};

struct run {
	const struct lg_cfi *c;
	const struct lg_cfi_cie *cie;
	struct lg_exprs *x;
	struct columns now, initial, kept[REMEMBER_MAX];
	size_t n_kept;
	uint64_t loc, until;
	bool bad, past;
	int rc;
};

static struct lg_rule plain(enum lg_rule_kind kind, uint64_t reg, int64_t n)
{
	/* Who needs more than 2 GB from a frame's base is damaged. */
	if (reg >= LG_UNWIND_REGS || n < INT32_MIN || n > INT32_MAX)
		return (struct lg_rule){ LG_RULE_UNDEFINED, 0, 0 };
	return (struct lg_rule){ (uint8_t)kind, (uint8_t)reg, (int32_t)n };
}

static void set(struct run *u, uint64_t reg, struct lg_rule rule)
{
	if (reg < COLUMNS)
		u->now.r[reg] = rule;
}

/* One operation of an expression; false where it is none that is run here. */
static bool read_op(const struct lg_cfi *c, struct lg_cfi_cur *k, struct lg_expr_op *ret)
{
	uint8_t atom = (uint8_t)lg_cfi_uint(k, 1);

	*ret = (struct lg_expr_op){ .atom = atom };
	if (atom >= DW_OP_breg0 && atom <= DW_OP_breg31) {
		ret->number = (uint64_t)lg_cfi_sleb(k);
		return !k->bad;
	}
	switch (atom) {
	case DW_OP_addr: ret->number = lg_cfi_uint(k, c->word); break;
	case DW_OP_const1u: case DW_OP_pick: case DW_OP_deref_size:
		ret->number = lg_cfi_uint(k, 1);
		break;
	case DW_OP_const1s: ret->number = (uint64_t)lg_cfi_int(k, 1); break;
	case DW_OP_const2u: ret->number = lg_cfi_uint(k, 2); break;
	case DW_OP_const2s: ret->number = (uint64_t)lg_cfi_int(k, 2); break;
	case DW_OP_const4u: ret->number = lg_cfi_uint(k, 4); break;
	case DW_OP_const4s: ret->number = (uint64_t)lg_cfi_int(k, 4); break;
	case DW_OP_const8u: case DW_OP_const8s: ret->number = lg_cfi_uint(k, 8); break;
	case DW_OP_constu: case DW_OP_plus_uconst: ret->number = lg_cfi_uleb(k); break;
	case DW_OP_consts: ret->number = (uint64_t)lg_cfi_sleb(k); break;
	case DW_OP_bregx:
		ret->number = lg_cfi_uleb(k);
		ret->number2 = (uint64_t)lg_cfi_sleb(k);
		break;
	case DW_OP_skip: case DW_OP_bra: /* might not end */
	case DW_OP_piece: case DW_OP_regx: case DW_OP_fbreg: case DW_OP_xderef_size:
		return false;
	default:
		/* No operand up to here; what comes behind is not for frames. */
		return atom <= DW_OP_lit31 || atom == DW_OP_nop || atom == DW_OP_call_frame_cfa;
	}
	return !k->bad;
}

/* The block at the cursor as an expression. on_cfa: it starts with the CFA on its stack (6.4.2.3). */
static struct lg_rule expression(struct run *u, struct lg_cfi_cur *k, enum lg_rule_kind kind, bool on_cfa)
{
	struct lg_expr_op op[OPS_MAX];
	uint64_t n = lg_cfi_uleb(k);
	struct lg_cfi_cur block = { .p = k->p };
	struct lg_rule rule = { (uint8_t)kind, 0, 0 };
	size_t n_op = 0;
	int rc;

	if (k->bad || n > (uint64_t)(k->end - k->p)) {
		u->bad = true;
		return (struct lg_rule){ LG_RULE_UNDEFINED, 0, 0 };
	}
	block.end = k->p += n;
	if (on_cfa)
		op[n_op++] = (struct lg_expr_op){ .atom = DW_OP_call_frame_cfa };
	for (; block.p < block.end; n_op++)
		if (n_op == OPS_MAX || !read_op(u->c, &block, &op[n_op]))
			return (struct lg_rule){ LG_RULE_UNDEFINED, 0, 0 };
	if (!n_op) /* leaves no value */
		return (struct lg_rule){ LG_RULE_UNDEFINED, 0, 0 };
	rc = lg_exprs_keep(u->x, op, n_op, &rule.n);
	if (rc == LG_E_NOMEM)
		u->rc = rc;
	return rc ? (struct lg_rule){ LG_RULE_UNDEFINED, 0, 0 } : rule;
}

static void advance(struct run *u, uint64_t delta)
{
	uint64_t to = u->loc + delta * u->cie->code_align;

	u->past = to > u->until || to < u->loc;
	u->loc = to;
}

static void define_cfa(struct run *u, uint64_t reg, int64_t n)
{
	u->now.cfa = u->now.based = plain(LG_RULE_REGISTER, reg, n);
}

static void remember(struct run *u)
{
	if (u->n_kept == REMEMBER_MAX)
		u->bad = true;
	else
		u->kept[u->n_kept++] = u->now;
}

static void recall(struct run *u)
{
	if (!u->n_kept)
		u->bad = true;
	else
		u->now = u->kept[--u->n_kept];
}

static void at_cfa(struct run *u, uint64_t reg, int64_t factored)
{
	int64_t n;

	if (__builtin_mul_overflow(factored, u->cie->data_align, &n))
		u->bad = true;
	else
		set(u, reg, plain(LG_RULE_AT_CFA, 0, n));
}

static int64_t scaled(struct run *u, int64_t factored)
{
	int64_t n = 0;

	if (__builtin_mul_overflow(factored, u->cie->data_align, &n))
		u->bad = true;
	return n;
}

static void restore(struct run *u, uint64_t reg)
{
	if (reg < COLUMNS)
		u->now.r[reg] = u->initial.r[reg];
}

/* Instructions that have a register as first operand. */
static bool of_register(struct run *u, struct lg_cfi_cur *k, uint8_t op)
{
	uint64_t reg;

	switch (op) {
	case DW_CFA_offset_extended: case DW_CFA_offset_extended_sf: case DW_CFA_restore_extended:
	case DW_CFA_undefined: case DW_CFA_same_value: case DW_CFA_register: case DW_CFA_expression:
	case DW_CFA_val_expression: case DW_CFA_val_offset: case DW_CFA_val_offset_sf:
	case DW_CFA_GNU_negative_offset_extended:
		reg = lg_cfi_uleb(k);
		break;
	default:
		return false;
	}
	switch (op) {
	case DW_CFA_offset_extended: at_cfa(u, reg, (int64_t)lg_cfi_uleb(k)); break;
	case DW_CFA_offset_extended_sf: at_cfa(u, reg, lg_cfi_sleb(k)); break;
	case DW_CFA_GNU_negative_offset_extended: at_cfa(u, reg, (int64_t)(0 - lg_cfi_uleb(k))); break;
	case DW_CFA_restore_extended: restore(u, reg); break;
	case DW_CFA_undefined: set(u, reg, (struct lg_rule){ LG_RULE_UNDEFINED, 0, 0 }); break;
	case DW_CFA_same_value: set(u, reg, (struct lg_rule){ LG_RULE_SAME, 0, 0 }); break;
	case DW_CFA_register: set(u, reg, plain(LG_RULE_REGISTER, lg_cfi_uleb(k), 0)); break;
	case DW_CFA_expression: set(u, reg, expression(u, k, LG_RULE_AT_EXPR, true)); break;
	case DW_CFA_val_expression: set(u, reg, expression(u, k, LG_RULE_IS_EXPR, true)); break;
	case DW_CFA_val_offset:
		set(u, reg, plain(LG_RULE_IS_CFA, 0, scaled(u, (int64_t)lg_cfi_uleb(k))));
		break;
	default:
		set(u, reg, plain(LG_RULE_IS_CFA, 0, scaled(u, lg_cfi_sleb(k))));
		break;
	}
	return true;
}

static bool of_cfa(struct run *u, struct lg_cfi_cur *k, uint8_t op)
{
	struct lg_rule *cfa = &u->now.cfa, was;
	uint64_t reg;

	switch (op) {
	case DW_CFA_def_cfa:
		reg = lg_cfi_uleb(k);
		define_cfa(u, reg, (int64_t)lg_cfi_uleb(k));
		break;
	case DW_CFA_def_cfa_sf:
		reg = lg_cfi_uleb(k);
		define_cfa(u, reg, scaled(u, lg_cfi_sleb(k)));
		break;
	case DW_CFA_def_cfa_expression:
		*cfa = expression(u, k, LG_RULE_IS_EXPR, false);
		break;
	case DW_CFA_def_cfa_register: case DW_CFA_def_cfa_offset: case DW_CFA_def_cfa_offset_sf:
		/*
		 * Only valid after a register and an offset (6.4.2.2). Assembler of cryptographic libraries
		 * goes back from an expression to them all the same; libgcc (unwind-dw2.c,
		 * execute_cfa_program()) takes the offset from before it, and a new offset changes nothing.
		 */
		u->bad |= u->now.based.kind != LG_RULE_REGISTER;
		if (op == DW_CFA_def_cfa_register) {
			define_cfa(u, lg_cfi_uleb(k), u->now.based.n);
			break;
		}
		was = *cfa;
		define_cfa(u, u->now.based.reg, op == DW_CFA_def_cfa_offset ? (int64_t)lg_cfi_uleb(k)
									     : scaled(u, lg_cfi_sleb(k)));
		if (was.kind == LG_RULE_IS_EXPR)
			*cfa = was;
		break;
	default:
		return false;
	}
	return true;
}

static void instruction(struct run *u, struct lg_cfi_cur *k)
{
	uint8_t op = (uint8_t)lg_cfi_uint(k, 1), low = op & 0x3f;

	switch (op & 0xc0) {
	case DW_CFA_advance_loc: advance(u, low); return;
	case DW_CFA_offset: at_cfa(u, low, (int64_t)lg_cfi_uleb(k)); return;
	case DW_CFA_restore: restore(u, low); return;
	default: break;
	}
	if (of_register(u, k, op) || of_cfa(u, k, op))
		return;
	switch (op) {
	case DW_CFA_nop: case AARCH64_NEGATE_RA_STATE: break; /* signatures are cut off by who walks */
	case DW_CFA_set_loc:
		u->loc = lg_cfi_pointer(u->c, k, u->cie->pointers);
		u->past = u->loc > u->until;
		break;
	case DW_CFA_advance_loc1: advance(u, lg_cfi_uint(k, 1)); break;
	case DW_CFA_advance_loc2: advance(u, lg_cfi_uint(k, 2)); break;
	case DW_CFA_advance_loc4: advance(u, lg_cfi_uint(k, 4)); break;
	case DW_CFA_remember_state: remember(u); break;
	case DW_CFA_restore_state: recall(u); break;
	case DW_CFA_GNU_args_size: (void)lg_cfi_uleb(k); break;
	default: u->bad = true; break;
	}
}

static void program(struct run *u, struct lg_cfi_cur k)
{
	while (k.p < k.end && !u->bad && !u->past && !u->rc) {
		instruction(u, &k);
		u->bad |= k.bad;
	}
}

/* What a function keeps without saying so: the callee-saved registers of the machine's ABI. */
static void by_convention(struct columns *now, enum lg_machine machine)
{
	static const uint32_t saved[] = {
		[LG_MACHINE_X86_64] = 1u << 3 | 1u << 6 | 0xf000u,
		[LG_MACHINE_AARCH64] = 0x7ff80000u, /* x19 - x28, the frame pointer, the link register */
		[LG_MACHINE_I386] = 1u << 3 | 1u << 5 | 1u << 6 | 1u << 7,
	};

	for (unsigned r = 0; r < LG_UNWIND_REGS; r++)
		if (saved[machine] >> r & 1)
			now->r[r].kind = LG_RULE_SAME;
}

int lg_cfi_run(const struct lg_cfi *c, const struct lg_cfi_fde *f, uint64_t vaddr,
	       enum lg_machine machine, struct lg_exprs *x, struct lg_frame_rules *ret)
{
	struct run u = { .c = c, .cie = &f->cie, .x = x, .loc = f->from, .until = vaddr };

	if (machine == LG_MACHINE_NONE || f->cie.ra_reg >= COLUMNS)
		return 0;
	by_convention(&u.now, machine);
	program(&u, f->cie.program);
	u.initial = u.now;
	u.bad |= u.past; /* what holds for all of them cannot move on */
	program(&u, f->program);
	if (u.rc || u.bad || u.now.cfa.kind == LG_RULE_UNDEFINED)
		return u.rc;
	ret->cfa = u.now.cfa;
	memcpy(ret->r, u.now.r, sizeof ret->r);
	ret->ra_reg = (uint8_t)f->cie.ra_reg;
	ret->ra = u.now.r[f->cie.ra_reg];
	ret->signal = f->cie.signal;
	ret->found = true;
	return 0;
}
