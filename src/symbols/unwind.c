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

enum { ROWS_MAX = 1 << 15, NO_REG = -1, PC = -2 };

/* Registers by their DWARF numbers (psABI of each machine), and which perf samples at which bit. */
static const struct machine {
	uint8_t word, n_regs, sp, fp, n_bits;
	int8_t of_bit[33];
} machines[] = {
	/* enum perf_event_x86_regs (arch/x86/include/uapi/asm/perf_regs.h) */
	[LG_MACHINE_X86_64] = { 8, 16, 7, 6, 24,
				{ 0, 3, 2, 1, 4, 5, 6, 7, PC, NO_REG, NO_REG, NO_REG, NO_REG, NO_REG,
				  NO_REG, NO_REG, 8, 9, 10, 11, 12, 13, 14, 15 } },
	[LG_MACHINE_I386] = { 4, 8, 4, 5, 9, { 0, 3, 1, 2, 6, 7, 5, 4, PC } },
	/* enum perf_event_arm_regs (arch/arm64/include/uapi/asm/perf_regs.h) */
	[LG_MACHINE_AARCH64] = { 8, 32, 31, 29, 33,
				 { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
				   21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, PC } },
};

struct lg_unwinder {
	struct lg_frame_rules *row;
	size_t n, cap;
	struct lg_map at; /* hash of file and address -> index + 1 */
	struct lg_exprs exprs;
};

enum lg_machine lg_machine_of(const char *arch)
{
	if (!strcmp(arch, "x86_64"))
		return LG_MACHINE_X86_64;
	if (!strcmp(arch, "aarch64"))
		return LG_MACHINE_AARCH64;
	return arch[0] == 'i' && arch[1] && !strcmp(arch + 2, "86") ? LG_MACHINE_I386 : LG_MACHINE_NONE;
}

enum lg_machine lg_machine_32(enum lg_machine machine)
{
	return machine == LG_MACHINE_X86_64 || machine == LG_MACHINE_I386 ? LG_MACHINE_I386
									   : LG_MACHINE_NONE;
}

bool lg_unwind_regs_of_perf(struct lg_unwind_regs *ret, enum lg_machine machine, uint64_t mask,
			    const uint8_t *values, size_t n_values)
{
	const struct machine *m = &machines[machine];
	bool has_pc = false;
	size_t at = 0;

	*ret = (struct lg_unwind_regs){ .machine = machine };
	for (unsigned bit = 0; bit < 64 && machine != LG_MACHINE_NONE; bit++) {
		int r = bit < m->n_bits ? m->of_bit[bit] : NO_REG;
		uint64_t v = 0;

		if (!(mask >> bit & 1))
			continue;
		if (at == n_values)
			break;
		for (unsigned i = m->word; i--;)
			v = v << 8 | values[8 * at + i];
		at++;
		if (r == PC) {
			ret->pc = v;
			has_pc = true;
		} else if (r >= 0) {
			ret->r[r] = v;
			ret->known |= 1u << r;
		}
	}
	return has_pc && ret->known >> m->sp & 1;
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
	uint64_t hash = lg_mix64((uint64_t)(uintptr_t)elf ^ lg_mix64(vaddr + machine));
	uint32_t i;

	for (; (i = lg_map_get(&u->at, hash)); hash++)
		if (u->row[i - 1].elf == elf && u->row[i - 1].vaddr == vaddr &&
		    u->row[i - 1].machine == machine)
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
	const struct machine *m;
	struct lg_unwind_regs regs;
	struct lg_stack_copy stack;
	uint64_t cfa;
};

/* Addresses of a 32-bit program wrap round at 4 GB. */
static uint64_t plus(const struct walk *w, uint64_t a, int32_t n)
{
	uint64_t v = a + (uint64_t)(int64_t)n;

	return w->m->word == 4 ? (uint32_t)v : v;
}

static bool value(const struct walk *w, const struct lg_rule *rule, unsigned r, uint64_t cfa,
		  uint64_t *ret)
{
	uint64_t addr;

	switch (rule->kind) {
	case LG_RULE_SAME:
		*ret = r < LG_UNWIND_REGS ? w->regs.r[r] : 0;
		return r < LG_UNWIND_REGS && w->regs.known >> r & 1;
	case LG_RULE_AT_CFA:
		return lg_stack_read(&w->stack, plus(w, cfa, rule->n), w->m->word, ret);
	case LG_RULE_IS_CFA:
		*ret = plus(w, cfa, rule->n);
		return true;
	case LG_RULE_REGISTER:
		*ret = plus(w, w->regs.r[rule->reg], rule->n);
		return w->regs.known >> rule->reg & 1;
	case LG_RULE_AT_EXPR:
		return lg_expr_value(&w->u->exprs, (size_t)rule->n, &w->regs, true, cfa, &w->stack,
				     &addr) &&
		       lg_stack_read(&w->stack, addr, w->m->word, ret);
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
	unsigned sp = w->m->sp, n = w->m->n_regs;
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

/* By the frame pointer: [fp] is the caller's, the word above it the return address on all machines. */
static bool step_by_pointer(struct walk *w)
{
	unsigned fp = w->m->fp, sp = w->m->sp, word = w->m->word;
	struct lg_unwind_regs next = { .machine = w->regs.machine };
	uint64_t at = w->regs.r[fp];

	if (!(w->regs.known >> fp & 1) || at & (word - 1) || at < w->regs.r[sp] ||
	    !lg_stack_read(&w->stack, at, word, &next.r[fp]) ||
	    !lg_stack_read(&w->stack, at + word, word, &next.pc))
		return false;
	next.r[sp] = at + (uint64_t)2 * word;
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
	const struct machine *machine = &machines[regs->machine];
	struct walk w = { .u = u, .m = machine, .regs = *regs, .stack = { stack, regs->r[machine->sp], n } };
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
