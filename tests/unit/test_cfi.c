/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call frame information: programs written here byte by byte, and those of real libraries, about which
 * libdw must say the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "symbols/cfi.h"
#include "symbols/elf_cfi.h"
#include "symbols/elf_symbols.h"

/* -- damage -- */

static long peak_kb(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_maxrss;
}

/* Its program names register 134217472 by eight bytes: a table up to there takes 2 GB. */
static void a_huge_register_number_costs_nothing(void **state)
{
	const char *data = getenv("LG_TEST_DATA");
	long before = peak_kb();
	struct lg_frame_rules f;
	struct lg_exprs x = { 0 };
	struct lg_elf *e;
	char path[4096];
	uint64_t vaddr;
	int fd;

	(void)state;
	snprintf(path, sizeof path, "%s/../fuzz/corpus/elf/huge-register", data ? data : "tests/data");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(lg_elf_open(&e, fd, NULL, NULL), 0);
	close(fd);
	assert_true(lg_elf_vaddr(e, 0x18, &vaddr));
	assert_int_equal(lg_frame_rules_at(&f, &x, e, vaddr, LG_MACHINE_X86_64), 0);
	assert_true(f.found);
	assert_int_equal(f.cfa.kind, LG_RULE_REGISTER);
	assert_int_equal(f.cfa.reg, 7);
	assert_int_equal(f.cfa.n, 16);
	assert_int_equal(f.r[6].kind, LG_RULE_AT_CFA);
	assert_int_equal(f.r[6].n, -16);
	assert_int_equal(f.ra.n, -8);
	assert_true(peak_kb() - before < 64 << 10);
	lg_exprs_done(&x);
	lg_elf_free(e);
}

/* -- programs -- */

struct section {
	uint8_t p[1024];
	size_t n;
};

static void put(struct section *s, const void *bytes, size_t n)
{
	memcpy(s->p + s->n, bytes, n);
	s->n += n;
}

static void put32(struct section *s, uint32_t v)
{
	put(s, &v, 4);
}

static void put64(struct section *s, uint64_t v)
{
	put(s, &v, 8);
}

/* .debug_frame, version 4: code in units of 4, data in units of -8; CFA = rsp + 8, return address there. */
static void put_cie(struct section *s)
{
	static const uint8_t body[] = { 4, 0, 8, 0, 4, 0x78, 16,
					DW_CFA_def_cfa, 7, 8, DW_CFA_offset | 16, 1 };

	put32(s, 4 + sizeof body);
	put32(s, UINT32_MAX);
	put(s, body, sizeof body);
}

static void put_fde(struct section *s, uint64_t from, uint64_t n, const void *program, size_t n_program)
{
	put32(s, (uint32_t)(4 + 16 + n_program));
	put32(s, 0);
	put64(s, from);
	put64(s, n);
	put(s, program, n_program);
}

/* What the program says at 0x1000 + at. */
static struct lg_frame_rules run(const void *program, size_t n, uint64_t at, struct lg_exprs *x)
{
	struct lg_frame_rules ret = { .found = false };
	struct section s = { .n = 0 };
	struct lg_cfi c = { .word = 8 };
	struct lg_cfi_fde f;

	put_cie(&s);
	put_fde(&s, 0x1000, 0x100, program, n);
	c.p = memcpy(malloc(s.n), s.p, s.n); /* as long as it is, for AddressSanitizer */
	c.n = s.n;
	if (lg_cfi_find(&c, 0x1000 + at, &f) == 1)
		assert_int_equal(lg_cfi_run(&c, &f, 0x1000 + at, LG_MACHINE_X86_64, x, &ret), 0);
	free((void *)(uintptr_t)c.p);
	lg_cfi_done(&c);
	return ret;
}

#define RUN(at, ...) run((const uint8_t[]){ __VA_ARGS__ }, sizeof(const uint8_t[]){ __VA_ARGS__ }, at, &x)

static void rows_begin_where_they_say(void **state)
{
	static const uint8_t program[] = {
		DW_CFA_advance_loc | 1, DW_CFA_def_cfa_offset, 16, DW_CFA_offset | 6, 2,  /* 4 */
		DW_CFA_advance_loc1, 2, DW_CFA_def_cfa_register, 6,                       /* 12 */
		DW_CFA_advance_loc2, 4, 0, DW_CFA_remember_state, DW_CFA_undefined, 16,   /* 28 */
		DW_CFA_restore | 6,
		DW_CFA_advance_loc4, 1, 0, 0, 0, DW_CFA_restore_state,                    /* 32 */
		DW_CFA_set_loc, 0x40, 0x10, 0, 0, 0, 0, 0, 0, DW_CFA_val_offset, 3, 4,    /* 64 */
		DW_CFA_register, 12, 13, DW_CFA_GNU_args_size, 0x80, 1, DW_CFA_same_value, 6,
	};
	struct lg_exprs x = { 0 };
	struct lg_frame_rules f = run(program, sizeof program, 3, &x);

	(void)state;
	assert_true(f.found);
	assert_int_equal(f.cfa.n, 8);
	assert_int_equal(f.r[6].kind, LG_RULE_SAME); /* callee-saved by the ABI */
	assert_int_equal(f.r[0].kind, LG_RULE_UNDEFINED);
	f = run(program, sizeof program, 4, &x);
	assert_int_equal(f.cfa.n, 16);
	assert_int_equal(f.r[6].n, -16);
	f = run(program, sizeof program, 27, &x);
	assert_int_equal(f.cfa.reg, 6);
	assert_int_equal(f.cfa.n, 16);
	f = run(program, sizeof program, 28, &x);
	assert_int_equal(f.ra.kind, LG_RULE_UNDEFINED);
	assert_int_equal(f.r[6].kind, LG_RULE_SAME); /* what the CIE left it at */
	f = run(program, sizeof program, 63, &x);
	assert_int_equal(f.ra.kind, LG_RULE_AT_CFA);
	assert_int_equal(f.r[6].kind, LG_RULE_AT_CFA);
	f = run(program, sizeof program, 64, &x);
	assert_int_equal(f.r[3].kind, LG_RULE_IS_CFA);
	assert_int_equal(f.r[3].n, -32);
	assert_int_equal(f.r[12].kind, LG_RULE_REGISTER);
	assert_int_equal(f.r[12].reg, 13);
	assert_int_equal(f.r[6].kind, LG_RULE_SAME);
	/* Every shorter program: what it says before its end, or nothing. */
	for (size_t n = 0; n < sizeof program; n++)
		for (uint64_t at = 0; at < 72; at += 4)
			if ((f = run(program, n, at, &x)).found)
				assert_true(f.cfa.kind == LG_RULE_REGISTER);
	lg_exprs_done(&x);
}

static void nonsense_has_no_rules(void **state)
{
	struct lg_exprs x = { 0 };
	uint8_t many[20];

	(void)state;
	assert_true(RUN(0, DW_CFA_nop).found);
	assert_false(RUN(0, 0x3f).found);                                  /* no such instruction */
	assert_false(RUN(0, DW_CFA_restore_state).found);                  /* nothing was remembered */
	assert_false(RUN(0, DW_CFA_offset | 3).found);                     /* ends inside */
	assert_false(RUN(0, DW_CFA_def_cfa, 0xff, 0xff, 0x7f, 8).found);   /* no such register */
	assert_false(RUN(0, DW_CFA_def_cfa_expression, 9, DW_OP_breg0).found);
	assert_false(RUN(0, DW_CFA_def_cfa_expression, 0).found);
	assert_false(RUN(0, DW_CFA_def_cfa_expression, 3, DW_OP_bra, 0, 0).found);
	memset(many, DW_CFA_remember_state, sizeof many);
	assert_false(run(many, sizeof many, 0, &x).found);
	assert_true(run(many, 16, 0, &x).found);
	/* An offset of 2^63 does not come out as another one. */
	assert_false(RUN(0, DW_CFA_offset_extended, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
			 0x7f).found);
	lg_exprs_done(&x);
}

static void expressions_start_with_the_cfa(void **state)
{
	struct lg_exprs x = { 0 };
	struct lg_frame_rules f = RUN(0, DW_CFA_expression, 3, 2, DW_OP_plus_uconst, 24,
				      DW_CFA_val_expression, 12, 1, DW_OP_lit5,
				      DW_CFA_def_cfa_expression, 2, DW_OP_breg7, 0x70);
	struct lg_unwind_regs regs = { .machine = LG_MACHINE_X86_64, .known = 1 << 7 };
	struct lg_stack_copy stack = { 0 };
	uint64_t v;

	(void)state;
	regs.r[7] = 0x7000;
	assert_true(f.found);
	assert_int_equal(f.cfa.kind, LG_RULE_IS_EXPR);
	assert_true(lg_expr_value(&x, (size_t)f.cfa.n, &regs, false, 0, &stack, &v));
	assert_int_equal(v, 0x7000 - 16);
	assert_int_equal(f.r[3].kind, LG_RULE_AT_EXPR);
	assert_true(lg_expr_value(&x, (size_t)f.r[3].n, &regs, true, 0x8000, &stack, &v));
	assert_int_equal(v, 0x8018);
	assert_int_equal(f.r[12].kind, LG_RULE_IS_EXPR);
	assert_true(lg_expr_value(&x, (size_t)f.r[12].n, &regs, true, 0x8000, &stack, &v));
	assert_int_equal(v, 5);
	lg_exprs_done(&x);
}

/* Not what the standard permits, but what libgcrypt's assembler writes and libgcc understands. */
static void goes_back_from_an_expression_to_a_register(void **state)
{
	struct lg_exprs x = { 0 };
	struct lg_frame_rules f;

	(void)state;
	f = RUN(0, DW_CFA_def_cfa_offset, 56, DW_CFA_def_cfa_expression, 2, DW_OP_breg7, 8,
		DW_CFA_def_cfa_register, 7);
	assert_true(f.found);
	assert_int_equal(f.cfa.kind, LG_RULE_REGISTER);
	assert_int_equal(f.cfa.n, 56);
	f = RUN(0, DW_CFA_def_cfa_expression, 2, DW_OP_breg7, 8, DW_CFA_def_cfa_offset, 48);
	assert_int_equal(f.cfa.kind, LG_RULE_IS_EXPR);
	f = RUN(0, DW_CFA_def_cfa_expression, 2, DW_OP_breg7, 8, DW_CFA_def_cfa_offset, 48,
		DW_CFA_def_cfa_register, 6);
	assert_int_equal(f.cfa.reg, 6);
	assert_int_equal(f.cfa.n, 48);
	lg_exprs_done(&x);
}

/* -- which entry -- */

static void finds_entries_that_nobody_sorted(void **state)
{
	static const uint8_t nop[1] = { DW_CFA_nop };
	struct section s = { .n = 0 };
	struct lg_cfi c = { .word = 8 };
	struct lg_cfi_fde f;

	(void)state;
	put_cie(&s);
	put_fde(&s, 0x3000, 0x10, nop, 1);
	put_fde(&s, 0, 0x2000, nop, 1);     /* thrown away by the linker: covers nothing */
	put32(&s, 0);                       /* the end of one list, another follows */
	put_fde(&s, 0x1000, 0x20, nop, 1);
	put_fde(&s, 0x5000, 0, nop, 1);
	put_fde(&s, 0x6000, UINT64_MAX, nop, 1);
	c.p = s.p;
	c.n = s.n;
	assert_int_equal(lg_cfi_find(&c, 0x300f, &f), 1);
	assert_int_equal(f.from, 0x3000);
	assert_int_equal(lg_cfi_find(&c, 0x1000, &f), 1);
	assert_int_equal(f.to, 0x1020);
	assert_int_equal(lg_cfi_find(&c, 0x1020, &f), 0);
	assert_int_equal(lg_cfi_find(&c, 0x800, &f), 0);
	assert_int_equal(lg_cfi_find(&c, 0x5000, &f), 0);
	assert_int_equal(lg_cfi_find(&c, 0x6000, &f), 0);
	lg_cfi_done(&c);
	/* Cut anywhere: no entry that is not whole. */
	for (size_t n = 0; n < s.n; n++) {
		c = (struct lg_cfi){ .word = 8, .p = memcpy(malloc(n ? n : 1), s.p, n), .n = n };
		assert_in_range(lg_cfi_find(&c, 0x300f, &f), 0, 1);
		assert_in_range(lg_cfi_find(&c, 0x1000, &f), 0, 1);
		free((void *)(uintptr_t)c.p);
		lg_cfi_done(&c);
	}
	/* Memory may be exhausted at each allocation. */
	for (uint64_t k = 1; k < 3; k++) {
		c = (struct lg_cfi){ .word = 8, .p = s.p, .n = s.n };
		lg_alloc_fail_at(k);
		assert_true(lg_cfi_find(&c, 0x300f, &f) != 0);
		lg_alloc_fail_at(0);
		lg_cfi_done(&c);
	}
}

/* -- the libraries of this process: libdw is the reference -- */

static bool is_breg(const Dwarf_Op *op, uint64_t *ret_reg, int64_t *ret_off)
{
	if (op->atom == DW_OP_bregx) {
		*ret_reg = op->number;
		*ret_off = (int64_t)op->number2;
		return true;
	}
	*ret_reg = op->atom - (uint64_t)DW_OP_breg0;
	*ret_off = (int64_t)op->number;
	return op->atom >= DW_OP_breg0 && op->atom <= DW_OP_breg31;
}

static void same_register(const struct lg_rule *have, Dwarf_Frame *frame, int r, uint64_t vaddr)
{
	Dwarf_Op mem[3], *ops;
	size_t n, body;
	bool is_value;

	assert_int_equal(dwarf_frame_register(frame, r, mem, &ops, &n), 0);
	is_value = n && ops[n - 1].atom == DW_OP_stack_value;
	body = n - is_value;
	if (!n && ops == mem) {
		/* The ABI's table of callee-saved registers differs: ours is of what a walk needs. */
		assert_true(have->kind == LG_RULE_UNDEFINED || have->kind == LG_RULE_SAME);
	} else if (!n) {
		assert_true(have->kind == LG_RULE_SAME || have->kind == LG_RULE_UNDEFINED);
	} else if (ops[0].atom == DW_OP_call_frame_cfa && body <= 2 &&
		   (body == 1 || ops[1].atom == DW_OP_plus_uconst)) {
		int64_t off = body == 2 ? (int64_t)ops[1].number : 0;

		/* libdw knows by itself that the caller's stack pointer is the CFA. */
		if (is_value && !off && have->kind == LG_RULE_UNDEFINED)
			return;
		if (have->kind == (is_value ? LG_RULE_IS_EXPR : LG_RULE_AT_EXPR))
			return; /* written as an expression, which libdw simplified */
		if (have->kind != (is_value ? LG_RULE_IS_CFA : LG_RULE_AT_CFA) || have->n != off)
			fail_msg("%#llx: register %d is %d %d", (unsigned long long)vaddr, r, have->kind, have->n);
	} else if (n == 1 && (ops[0].atom == DW_OP_regx ||
			      (ops[0].atom >= DW_OP_reg0 && ops[0].atom <= DW_OP_reg31))) {
		assert_int_equal(have->kind, LG_RULE_REGISTER);
		assert_int_equal(have->reg, ops[0].atom == DW_OP_regx ? ops[0].number
								      : ops[0].atom - (uint64_t)DW_OP_reg0);
	} else {
		assert_int_equal(have->kind, is_value ? LG_RULE_IS_EXPR : LG_RULE_AT_EXPR);
	}
}

struct seen {
	const char *path;
	size_t rows, none, files;
};

static void same_rules(struct seen *seen, struct lg_elf *e, Dwarf_CFI *cfi, uint64_t vaddr,
		       struct lg_exprs *x, enum lg_machine machine)
{
	int n_regs = machine == LG_MACHINE_X86_64 ? 16 : 31, ra;
	Dwarf_Frame *frame = NULL;
	struct lg_frame_rules f;
	Dwarf_Addr from, to;
	Dwarf_Op *ops;
	uint64_t reg;
	int64_t off;
	bool signal;
	size_t n;

	assert_int_equal(lg_frame_rules_at(&f, x, e, vaddr, machine), 0);
	if (dwarf_cfi_addrframe(cfi, vaddr, &frame)) {
		assert_false(f.found);
		seen->none++;
		return;
	}
	if (dwarf_frame_cfa(frame, &ops, &n)) {
		free(frame); /* goes_back_from_an_expression_to_a_register(): too strict for libgcrypt */
		return;
	}
	if (!f.found)
		fail_msg("%s: %#llx has rules", seen->path, (unsigned long long)vaddr);
	ra = dwarf_frame_info(frame, &from, &to, &signal);
	assert_int_equal(f.ra_reg, ra);
	assert_int_equal(f.signal, signal);
	if (n == 1 && is_breg(ops, &reg, &off)) {
		if (f.cfa.kind == LG_RULE_REGISTER) {
			assert_int_equal(f.cfa.reg, reg);
			assert_int_equal(f.cfa.n, off);
		} else {
			assert_int_equal(f.cfa.kind, LG_RULE_IS_EXPR);
		}
	} else {
		assert_int_equal(f.cfa.kind, LG_RULE_IS_EXPR);
		assert_int_equal(x->range[f.cfa.n].n, n);
		for (size_t i = 0; i < n; i++) {
			assert_int_equal(x->op[x->range[f.cfa.n].first + i].atom, ops[i].atom);
			assert_int_equal(x->op[x->range[f.cfa.n].first + i].number, ops[i].number);
		}
	}
	for (int r = 0; r < n_regs; r++)
		same_register(&f.r[r], frame, r, vaddr);
	same_register(&f.ra, frame, ra, vaddr);
	free(frame);
	seen->rows++;
}

static int one_library(struct dl_phdr_info *info, size_t size, void *self)
{
	const char *path = *info->dlpi_name ? info->dlpi_name : "/proc/self/exe";
	enum lg_machine machine;
	struct seen *seen = self;
	struct lg_exprs x = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct lg_elf *e;
	Dwarf_CFI *cfi;
	Elf *elf;

	(void)size;
	if (fd < 0)
		return 0; /* the vdso */
	seen->path = path;
#if defined __x86_64__
	machine = LG_MACHINE_X86_64;
#elif defined __aarch64__
	machine = LG_MACHINE_AARCH64;
#else
	machine = LG_MACHINE_NONE;
#endif
	assert_int_equal(lg_elf_open(&e, fd, NULL, NULL), 0);
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	cfi = dwarf_getcfi_elf(elf);
	assert_non_null(cfi);
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		/* A step that hits all places inside of functions over time; at most 30000 a file. */
		for (uint64_t at = 0, step = p->p_memsz / 30000 + 13; at < p->p_memsz; at += step)
			same_rules(seen, e, cfi, p->p_vaddr + at, &x, machine);
	}
	seen->files++;
	dwarf_cfi_end(cfi);
	elf_end(elf);
	lg_exprs_done(&x);
	lg_elf_free(e);
	close(fd);
	return 0;
}

static void says_what_libdw_says(void **state)
{
	struct seen seen = { 0 };

	(void)state;
	dl_iterate_phdr(one_library, &seen);
	print_message("%zu addresses with rules and %zu without, in %zu files\n", seen.rows, seen.none,
		      seen.files);
	assert_true(seen.files >= 3 && seen.rows > 20000 && seen.none > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_huge_register_number_costs_nothing),
		cmocka_unit_test(rows_begin_where_they_say),
		cmocka_unit_test(nonsense_has_no_rules),
		cmocka_unit_test(expressions_start_with_the_cfa),
		cmocka_unit_test(goes_back_from_an_expression_to_a_register),
		cmocka_unit_test(finds_entries_that_nobody_sorted),
		cmocka_unit_test(says_what_libdw_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
