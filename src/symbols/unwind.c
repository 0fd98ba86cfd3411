/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind.c - frame by frame: rules of the address, CFA, the caller's registers, return address.
 *
 * The stack only grows down: a CFA that is not above the last one is damage or the end, so the
 * walk ends in any case.
 */
#include "symbols/unwind.h"

#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "symbols/elf_symbols.h"
#include "symbols/frame_rules.h"

enum { ROWS_MAX = 1 << 15, X86_BP = 6, X86_SP = 7, ARM_FP = 29, ARM_LR = 30, ARM_SP = 31 };

struct lg_unwinder {
	struct lg_frame_rules *row;
	size_t n, cap;
	struct lg_map at; /* hash of file and address -> index + 1 */
	struct lg_exprs exprs;
};

enum lg_machine lg_machine_of(const char *arch)
{
	return !strcmp(arch, "x86_64")	? LG_MACHINE_X86_64
	       : !strcmp(arch, "aarch64") ? LG_MACHINE_AARCH64
					  : LG_MACHINE_NONE;
}

bool lg_unwind_regs_of_perf(struct lg_unwind_regs *ret, enum lg_machine machine, uint64_t mask,
			    const uint8_t *values, size_t n_values)
{
	/* enum perf_event_x86_regs (arch/x86/include/uapi/asm/perf_regs.h) -> DWARF; 16 = PC */
	static const int8_t x86[24] = { 0, 3, 2, 1, 4, 5, 6, 7, 16, -1, -1, -1,
					-1, -1, -1, -1, 8, 9, 10, 11, 12, 13, 14, 15 };
	unsigned sp = machine == LG_MACHINE_X86_64 ? X86_SP : ARM_SP;
	bool has_pc = false;
	size_t at = 0;

	*ret = (struct lg_unwind_regs){ .machine = machine };
	for (unsigned bit = 0; bit < 64 && machine != LG_MACHINE_NONE; bit++) {
		int r = machine == LG_MACHINE_X86_64 ? (bit < 24 ? x86[bit] : -1)
						     : (bit <= 32 ? (int)bit : -1);
		uint64_t v = 0;

		if (!(mask >> bit & 1))
			continue;
		if (at == n_values)
			break;
		for (unsigned i = 8; i--;)
			v = v << 8 | values[8 * at + i];
		at++;
		if (r == (machine == LG_MACHINE_X86_64 ? 16 : 32)) {
			ret->pc = v;
			has_pc = true;
		} else if (r >= 0) {
			ret->r[r] = v;
			ret->known |= 1u << r;
		}
	}
	return has_pc && ret->known >> sp & 1;
}

int lg_unwinder_new(struct lg_unwinder **ret, struct lg_error *err)
{
	*ret = lg_calloc(1, sizeof **ret);
	return *ret ? 0 : lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

void lg_unwinder_free(struct lg_unwinder *u)
{
	if (!u)
		return;
	lg_free(u->row);
	lg_map_done(&u->at);
	lg_exprs_done(&u->exprs);
	lg_free(u);
}

/* NULL when memory is exhausted. */
static const struct lg_frame_rules *rules(struct lg_unwinder *u, struct lg_elf *elf, uint64_t vaddr,
					  enum lg_machine machine)
{
	uint64_t hash = lg_mix64((uint64_t)(uintptr_t)elf ^ lg_mix64(vaddr));
	uint32_t i;

	for (; (i = lg_map_get(&u->at, hash)); hash++)
		if (u->row[i - 1].elf == elf && u->row[i - 1].vaddr == vaddr)
			return &u->row[i - 1];
	if (u->n == ROWS_MAX) {
		u->n = 0;
		lg_map_done(&u->at);
	}
	if (lg_grow(&u->row, &u->cap, u->n + 1, sizeof *u->row) ||
	    lg_frame_rules_at(&u->row[u->n], &u->exprs, elf, vaddr, machine) ||
	    lg_map_set(&u->at, hash, (uint32_t)u->n + 1))
		return NULL;
	return &u->row[u->n++];
}

struct walk {
	struct lg_unwinder *u;
	struct lg_unwind_regs regs;
	struct lg_stack_copy stack;
	uint64_t cfa;
};

static bool value(const struct walk *w, const struct lg_rule *rule, unsigned r, uint64_t cfa,
		  uint64_t *ret)
{
	uint64_t addr;

	switch (rule->kind) {
	case LG_RULE_SAME:
		*ret = r < LG_UNWIND_REGS ? w->regs.r[r] : 0;
		return r < LG_UNWIND_REGS && w->regs.known >> r & 1;
	case LG_RULE_AT_CFA:
		return lg_stack_read(&w->stack, cfa + (uint64_t)(int64_t)rule->n, 8, ret);
	case LG_RULE_IS_CFA:
		*ret = cfa + (uint64_t)(int64_t)rule->n;
		return true;
	case LG_RULE_REGISTER:
		*ret = w->regs.r[rule->reg] + (uint64_t)(int64_t)rule->n;
		return w->regs.known >> rule->reg & 1;
	case LG_RULE_AT_EXPR:
		return lg_expr_value(&w->u->exprs, (size_t)rule->n, &w->regs, true, cfa, &w->stack,
				     &addr) &&
		       lg_stack_read(&w->stack, addr, 8, ret);
	case LG_RULE_IS_EXPR:
		return lg_expr_value(&w->u->exprs, (size_t)rule->n, &w->regs, true, cfa, &w->stack,
				     ret);
	default:
		return false;
	}
}

/* The caller's registers into w->regs. False: this was the outermost frame, or it is not known. */
static bool step(struct walk *w, const struct lg_frame_rules *f, bool *ret_whole)
{
	struct lg_unwind_regs next = { .machine = w->regs.machine };
	unsigned sp = next.machine == LG_MACHINE_X86_64 ? X86_SP : ARM_SP;
	unsigned n = next.machine == LG_MACHINE_X86_64 ? 16 : 32;
	uint64_t cfa;

	if (f->cfa.kind == LG_RULE_IS_EXPR) {
		if (!lg_expr_value(&w->u->exprs, (size_t)f->cfa.n, &w->regs, false, 0, &w->stack, &cfa))
			return false;
	} else if (!value(w, &f->cfa, f->cfa.reg, 0, &cfa)) {
		return false;
	}
	if (f->ra.kind == LG_RULE_UNDEFINED) {
		*ret_whole = true; /* how _start, clone and start_thread say that nobody called them */
		return false;
	}
	if (!value(w, &f->ra, f->ra_reg, cfa, &next.pc))
		return false;
	for (unsigned r = 0; r < n; r++)
		if (value(w, &f->r[r], r, cfa, &next.r[r]))
			next.known |= 1u << r;
	/* The caller's stack pointer is the CFA, unless a signal frame says it. */
	if (f->r[sp].kind == LG_RULE_SAME || f->r[sp].kind == LG_RULE_UNDEFINED) {
		next.r[sp] = cfa;
		next.known |= 1u << sp;
	}
	/* A leaf of AArch64 has not moved the stack pointer; its caller must have. */
	if (f->signal ? next.r[sp] == w->regs.r[sp] : cfa < w->cfa || (cfa == w->cfa && w->cfa))
		return false;
	w->cfa = f->signal ? 0 : cfa; /* a signal may have had a stack of its own */
	w->regs = next;
	return true;
}

/* By the frame pointer: [fp] is the caller's, [fp + 8] the return address on both machines. */
static bool step_by_pointer(struct walk *w)
{
	bool x86 = w->regs.machine == LG_MACHINE_X86_64;
	unsigned fp = x86 ? X86_BP : ARM_FP, sp = x86 ? X86_SP : ARM_SP;
	struct lg_unwind_regs next = { .machine = w->regs.machine };
	uint64_t at = w->regs.r[fp];

	if (!(w->regs.known >> fp & 1) || at & 7 || at < w->regs.r[sp] ||
	    !lg_stack_read(&w->stack, at, 8, &next.r[fp]) ||
	    !lg_stack_read(&w->stack, at + 8, 8, &next.pc))
		return false;
	next.r[sp] = at + 16;
	next.known = 1u << fp | 1u << sp;
	if (next.r[sp] <= w->cfa)
		return false;
	w->cfa = next.r[sp];
	w->regs = next;
	return true;
}

static bool vaddr_of(const struct lg_unwind_map *m, uint64_t addr, uint64_t *ret)
{
	return m->elf && addr >= m->start && addr < m->end &&
	       lg_elf_vaddr(m->elf, addr - m->start + m->pgoff, ret);
}

size_t lg_unwind(struct lg_unwinder *u, const struct lg_unwind_regs *regs, const uint8_t *stack,
		 size_t n, lg_unwind_find_fn *find, void *self, uint64_t *ret_pcs, size_t max,
		 bool *ret_whole)
{
	unsigned sp = regs->machine == LG_MACHINE_X86_64 ? X86_SP : ARM_SP;
	struct walk w = { .u = u, .regs = *regs, .stack = { stack, regs->r[sp], n } };
	bool exact = true; /* pc is where it stopped, not where a call returns to */
	size_t k = 0;

	*ret_whole = false;
	/* The copy must not wrap round the address space. */
	if (w.stack.n > UINT64_MAX - w.stack.at)
		w.stack.n = (size_t)(UINT64_MAX - w.stack.at);
	while (k < max) {
		struct lg_unwind_map m;
		const struct lg_frame_rules *f = NULL;
		uint64_t pc = w.regs.pc, vaddr;

		/* Pointer authentication signs the upper bits of AArch64's return addresses. */
		if (regs->machine == LG_MACHINE_AARCH64 && k)
			pc = w.regs.pc &= 0x0000ffffffffffffu;
		if (!pc) {
			*ret_whole = true;
			break;
		}
		if (!find(self, pc - !exact, &m)) {
			if (!k) /* a jump to nowhere still is where it stopped */
				ret_pcs[k++] = pc;
			break;
		}
		ret_pcs[k] = pc + (exact && k);
		k++;
		if (vaddr_of(&m, pc - !exact, &vaddr)) {
			f = rules(u, m.elf, vaddr, regs->machine);
			if (!f)
				break;
		}
		exact = f && f->found && f->signal;
		if (f && f->found ? !step(&w, f, ret_whole) : !step_by_pointer(&w))
			break;
	}
	return k;
}
