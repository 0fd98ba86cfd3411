/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test unwinds itself from a copy of its own stack and must agree with the C library's
 * backtrace(), which walks the living one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#include "symbols/elf_symbols.h"
#include "symbols/frame_rules.h"
#include "symbols/inlines.h"
#include "symbols/unwind.h"

enum { MAPS_MAX = 256, FRAMES_MAX = 128, STACK_MAX = 65536 };

struct here {
	struct lg_unwind_map map[MAPS_MAX];
	size_t n;
};

static void read_maps(struct here *h)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[4200], last[4200] = "";

	h->n = 0;
	assert_non_null(f);
	while (fgets(line, sizeof line, f) && h->n < MAPS_MAX) {
		struct lg_unwind_map *m = &h->map[h->n];
		unsigned long from, to, off;
		char perm[8], path[4097] = "";
		struct lg_error err;

		if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %4096s", &from, &to, perm, &off, path) < 4 ||
		    perm[2] != 'x' || path[0] != '/')
			continue;
		*m = (struct lg_unwind_map){ from, to, off, NULL };
		if (strcmp(path, last)) {
			int fd = open(path, O_RDONLY | O_CLOEXEC);

			assert_true(fd >= 0);
			assert_int_equal(lg_elf_open(&m->elf, fd, NULL, &err), 0);
			close(fd);
		}
		h->n++;
		strcpy(last, path);
	}
	fclose(f);
}

static void free_maps(struct here *h)
{
	for (size_t i = 0; i < h->n; i++)
		lg_elf_free(h->map[i].elf);
}

static bool find(void *self, uint64_t addr, struct lg_unwind_map *ret)
{
	const struct here *h = self;

	for (size_t i = 0; i < h->n; i++)
		if (addr >= h->map[i].start && addr < h->map[i].end) {
			*ret = h->map[i];
			return true;
		}
	return false;
}

/* What perf would have sampled. */
static struct lg_unwind_regs regs_of(const ucontext_t *uc)
{
	struct lg_unwind_regs r = { 0 };

#if defined __x86_64__
	static const int dwarf[16] = { REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP,
				       REG_RSP, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13,
				       REG_R14, REG_R15 };

	r.machine = LG_MACHINE_X86_64;
	for (int i = 0; i < 16; i++)
		r.r[i] = (uint64_t)uc->uc_mcontext.gregs[dwarf[i]];
	r.known = 0xffff;
	r.pc = (uint64_t)uc->uc_mcontext.gregs[REG_RIP];
#elif defined __aarch64__
	r.machine = LG_MACHINE_AARCH64;
	for (int i = 0; i < 31; i++)
		r.r[i] = uc->uc_mcontext.regs[i];
	r.r[31] = uc->uc_mcontext.sp;
	r.known = UINT32_MAX;
	r.pc = uc->uc_mcontext.pc;
#endif
	return r;
}

struct shot {
	struct lg_unwind_regs regs;
	uint8_t *stack;
	size_t n;
	void *want[FRAMES_MAX];
	int n_want;
};

static struct shot shot;
static uint64_t stack_end; /* of this thread: nothing is mapped behind it */
static volatile int sink;

/* Reads across the frames of its callers, as the kernel does: no business of AddressSanitizer, whose
 * memcpy() would look at them all the same. */
static __attribute__((no_sanitize("address"))) void copy_stack(const ucontext_t *uc)
{
	const volatile uint64_t *from;
	unsigned sp;

	shot.regs = regs_of(uc);
	sp = shot.regs.machine == LG_MACHINE_X86_64 ? 7 : 31;
	shot.n = stack_end - shot.regs.r[sp] < STACK_MAX ? stack_end - shot.regs.r[sp] : STACK_MAX;
	from = (const volatile uint64_t *)(uintptr_t)shot.regs.r[sp];
	for (size_t i = 0; i < shot.n / 8; i++)
		((volatile uint64_t *)(void *)shot.stack)[i] = from[i];
}

/* ASan's runtime puts frames of its own between a function and its caller, which backtrace() and the
 * copied stack see at different moments. */
static void needs_a_plain_stack(void)
{
#if defined(__SANITIZE_ADDRESS__)
	print_message("AddressSanitizer adds frames of its own\n");
	skip();
#endif
}

static __attribute__((noinline)) void take(void)
{
	ucontext_t uc;

	shot.n_want = backtrace(shot.want, FRAMES_MAX);
	getcontext(&uc);
	copy_stack(&uc);
	sink++;
}

static __attribute__((noinline)) int deep(int n, void (*at_the_end)(void))
{
	/* Frames that need more than a constant offset. */
	volatile char *room = __builtin_alloca(16 + 16 * (size_t)(n % 3));

	room[0] = (char)n;
	if (n)
		sink += deep(n - 1, at_the_end);
	else
		at_the_end();
	return room[0] + 1;
}

static int by_qsort(const void *a, const void *b)
{
	static int once;

	if (!once++)
		deep(5, take);
	return *(const int *)a - *(const int *)b;
}

static size_t unwind(struct here *h, struct lg_unwinder *u, size_t n, uint64_t pcs[FRAMES_MAX],
		     bool *whole)
{
	return lg_unwind(u, &shot.regs, shot.stack, n, find, h, pcs, FRAMES_MAX, whole);
}

static void agrees_with_backtrace(void **state)
{
	int v[] = { 3, 1, 2 };
	struct lg_unwinder *u;
	struct here h;
	uint64_t pcs[FRAMES_MAX];
	bool whole;
	size_t n;

	needs_a_plain_stack();
	(void)state;
	shot.stack = malloc(STACK_MAX);
	/* Through a function of the C library and back. */
	qsort(v, 3, sizeof *v, by_qsort);
	read_maps(&h);
	assert_int_equal(lg_unwinder_new(&u, NULL), 0);
	for (int again = 0; again < 2; again++) {
		n = unwind(&h, u, shot.n, pcs, &whole);
		assert_true(whole);
		assert_int_equal(n, shot.n_want);
		assert_true(n > 10);
		for (size_t i = 1; i < n; i++)
			assert_int_equal(pcs[i], (uintptr_t)shot.want[i]);
	}
	lg_unwinder_free(u);
	free_maps(&h);
}

/* Every length of the copy: a prefix of the whole answer, and never a step beyond the copy. */
static void short_copies_give_fewer_frames(void **state)
{
	struct lg_unwinder *u;
	struct here h;
	uint64_t pcs[FRAMES_MAX], full[FRAMES_MAX];
	size_t n, n_full, last = 0;
	bool whole;

	needs_a_plain_stack();
	(void)state;
	read_maps(&h);
	assert_int_equal(lg_unwinder_new(&u, NULL), 0);
	n_full = unwind(&h, u, shot.n, full, &whole);
	for (size_t size = 0; size <= 4096 && size <= shot.n; size++) {
		uint8_t *exact = malloc(size ? size : 1), *all = shot.stack;

		memcpy(exact, all, size);
		shot.stack = exact;
		n = unwind(&h, u, size, pcs, &whole);
		shot.stack = all;
		free(exact);
		assert_true(n >= 1 && n >= last && n <= n_full);
		assert_memory_equal(pcs, full, n * sizeof *pcs);
		last = n;
	}
	assert_true(last > 5);
	lg_unwinder_free(u);
	free_maps(&h);
}

static void on_signal(int sig, siginfo_t *info, void *uc)
{
	(void)sig;
	(void)info;
	(void)uc;
	take();
}

static __attribute__((noinline)) void raise_it(void)
{
	raise(SIGUSR1);
	sink++;
}

static void passes_a_signal_frame(void **state)
{
	struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	struct lg_unwinder *u;
	struct here h;
	uint64_t pcs[FRAMES_MAX];
	size_t n, same = 0;
	bool whole;

	needs_a_plain_stack();
	(void)state;
	sigaction(SIGUSR1, &sa, NULL);
	deep(3, raise_it);
	read_maps(&h);
	assert_int_equal(lg_unwinder_new(&u, NULL), 0);
	n = unwind(&h, u, shot.n, pcs, &whole);
	assert_true(whole);
	assert_int_equal(n, shot.n_want);
	/* The interrupted address is given plus one. */
	for (size_t i = 1; i < n; i++) {
		assert_true(pcs[i] - (uintptr_t)shot.want[i] <= 1);
		same += pcs[i] == (uintptr_t)shot.want[i];
	}
	assert_int_equal(same, n - 2);
	lg_unwinder_free(u);
	free_maps(&h);
}

/* -- the other machine: tests/data/unwind/aarch64.c tells how its program was made -- */

static void put_u64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

/* A program of tests/data/unwind. */
static struct lg_elf *open_elf(const char *name)
{
	const char *data = getenv("LG_TEST_DATA");
	struct lg_elf *e = NULL;
	char path[4096];
	int fd;

	snprintf(path, sizeof path, "%s/unwind/%s", data ? data : "tests/data", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(lg_elf_open(&e, fd, NULL, NULL), 0);
	close(fd);
	return e;
}

static bool find_aarch64(void *self, uint64_t addr, struct lg_unwind_map *ret)
{
	*ret = (struct lg_unwind_map){ 0x210000, 0x220000, 0, self };
	return addr >= ret->start && addr < ret->end;
}

static void walks_aarch64_with_signed_addresses(void **state)
{
	const uint64_t sp = 0x7ffff000, sign = 0x0035000000000000;
	const uint64_t want[] = { 0x2102e4, 0x21030c, 0x210334, 0x210354 };
	uint8_t stack[64] = { 0 }, values[33 * 8] = { 0 };
	struct lg_elf *e = open_elf("aarch64.elf");
	struct lg_unwind_regs regs;
	struct lg_unwinder *u;
	uint64_t pcs[8];
	bool whole;

	(void)state;
	put_u64(stack, sign | want[2]);      /* middle() keeps its return address at the bottom */
	put_u64(stack + 32, sign | want[3]); /* so does outer() */
	put_u64(values + 8 * 30, sign | want[1]);
	put_u64(values + 8 * 31, sp);
	put_u64(values + 8 * 32, want[0]);
	assert_int_equal(lg_machine_of("aarch64"), LG_MACHINE_AARCH64);
	assert_true(lg_unwind_regs_of_perf(&regs, LG_MACHINE_AARCH64, 0x1ffffffff, values, 33));
	assert_int_equal(lg_unwinder_new(&u, NULL), 0);
	assert_int_equal(lg_unwind(u, &regs, stack, sizeof stack, find_aarch64, e, pcs, 8, &whole), 4);
	assert_true(whole);
	assert_memory_equal(pcs, want, sizeof want);
	assert_int_equal(lg_unwind(u, &regs, stack, 39, find_aarch64, e, pcs, 8, &whole), 3);
	assert_false(whole);
	/* Without a stack pointer there is nothing to go by. */
	assert_false(lg_unwind_regs_of_perf(&regs, LG_MACHINE_AARCH64, 0x17fffffff, values, 32));
	assert_false(lg_unwind_regs_of_perf(&regs, LG_MACHINE_NONE, 0x1ffffffff, values, 33));
	lg_unwinder_free(u);
	lg_elf_free(e);
}

static void put_u32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static bool find_i386(void *self, uint64_t addr, struct lg_unwind_map *ret)
{
	*ret = (struct lg_unwind_map){ 0x8048000, 0x8049000, 0, self };
	return addr >= ret->start && addr < ret->end;
}

/* As perf samples a 32-bit program on a 64-bit machine: in u64, whose upper half says nothing. */
static void walks_i386(void **state)
{
	const uint64_t sp = 0xffffc000, dirt = UINT64_C(0xdead) << 32;
	/* In leaf(), called by middle() (two registers saved), outer() (48 bytes of its own), _start. */
	const uint64_t want[] = { 0x8048096, 0x80480a7, 0x80480c4, 0x80480d5 };
	uint8_t stack[80] = { 0 }, values[9 * 8] = { 0 };
	struct lg_elf *e = open_elf("i386.elf");
	struct lg_unwind_regs regs;
	struct lg_unwinder *u;
	uint64_t pcs[8];
	bool whole;

	(void)state;
	put_u32(stack, (uint32_t)want[1]);
	put_u32(stack + 12, (uint32_t)want[2]);
	put_u32(stack + 16 + 48, (uint32_t)want[3]);
	put_u64(values + 8 * 7, dirt | sp);
	put_u64(values + 8 * 8, dirt | want[0]);
	assert_int_equal(lg_machine_of("i686"), LG_MACHINE_I386);
	assert_int_equal(lg_machine_of("i86"), LG_MACHINE_NONE);
	assert_int_equal(lg_machine_32(LG_MACHINE_X86_64), LG_MACHINE_I386);
	assert_int_equal(lg_machine_32(LG_MACHINE_AARCH64), LG_MACHINE_NONE);
	assert_true(lg_unwind_regs_of_perf(&regs, LG_MACHINE_I386, 0x1ff, values, 9));
	assert_int_equal(regs.r[4], sp);
	assert_int_equal(lg_unwinder_new(&u, NULL), 0);
	assert_int_equal(lg_unwind(u, &regs, stack, sizeof stack, find_i386, e, pcs, 8, &whole), 4);
	assert_true(whole);
	assert_memory_equal(pcs, want, sizeof want);
	assert_int_equal(lg_unwind(u, &regs, stack, 66, find_i386, e, pcs, 8, &whole), 3);
	assert_false(whole);
	/* A stack at the end of the address space does not go on at its start. */
	regs.r[4] = 0xfffffff0;
	assert_int_equal(lg_unwind(u, &regs, stack, sizeof stack, find_i386, e, pcs, 8, &whole), 2);
	/* What is said of this file for one machine is nothing to another. */
	regs.machine = LG_MACHINE_X86_64;
	regs.r[7] = sp;
	regs.known = 1u << 7;
	assert_int_equal(lg_unwind(u, &regs, stack, sizeof stack, find_i386, e, pcs, 8, &whole), 1);
	lg_unwinder_free(u);
	lg_elf_free(e);
}

/* -- expressions: the one of PLT entries, as linkers write it -- */

static void computes_expressions(void **state)
{
	/* rsp + 8 + ((rip & 15) >= 11) << 3 */
	struct lg_expr_op op[] = { { 0x77, 8, 0 }, { 0x80, 0, 0 }, { 0x3f, 0, 0 }, { 0x1a, 0, 0 },
				   { 0x3b, 0, 0 }, { 0x2a, 0, 0 }, { 0x33, 0, 0 }, { 0x24, 0, 0 },
				   { 0x22, 0, 0 } };
	struct lg_exprs x = { .op = op, .n = 9, .n_range = 1 };
	struct lg_unwind_regs regs = { .machine = LG_MACHINE_X86_64, .known = 1 << 7, .pc = 0x100a };
	struct lg_stack_copy stack = { 0 };
	uint64_t v;

	(void)state;
	x.range = calloc(1, sizeof *x.range);
	x.range[0].n = 9;
	regs.r[7] = 0x7000;
	assert_true(lg_expr_value(&x, 0, &regs, false, 0, &stack, &v));
	assert_int_equal(v, 0x7008);
	regs.pc = 0x100b;
	assert_true(lg_expr_value(&x, 0, &regs, false, 0, &stack, &v));
	assert_int_equal(v, 0x7010);
	op[0].atom = 0x06; /* DW_OP_deref of nothing */
	assert_false(lg_expr_value(&x, 0, &regs, false, 0, &stack, &v));
	op[0].atom = 0x28; /* DW_OP_bra: might not end */
	assert_false(lg_expr_value(&x, 0, &regs, false, 0, &stack, &v));
	free(x.range);
}

/* -- inlined functions -- */

static void *return_address;

static __attribute__((noinline)) void where(void)
{
	return_address = __builtin_return_address(0);
	sink++;
}

static inline __attribute__((always_inline)) void inner_inlined(void)
{
	where();
	sink++;
}

static inline __attribute__((always_inline)) void outer_inlined(void)
{
	inner_inlined();
	sink++;
}

enum { CALL_LINE = __LINE__ + 3 };
static __attribute__((noinline)) void has_inlined(void)
{
	outer_inlined();
	sink++;
}

static void names_inlined_functions(void **state)
{
	struct lg_source_frame f[8];
	struct lg_unwind_map m = { 0 };
	struct here h;
	uint64_t vaddr, addr;
	size_t n;

	(void)state;
	has_inlined();
	read_maps(&h);
	addr = (uintptr_t)return_address - 1;
	assert_true(find(&h, addr, &m));
	assert_true(lg_elf_vaddr(m.elf, addr - m.start + m.pgoff, &vaddr));
	n = lg_elf_source(m.elf, vaddr, f, 8);
	if (!n) {
		print_message("built without -g\n");
		skip();
	}
	assert_int_equal(n, 3);
	assert_string_equal(f[0].name, "inner_inlined");
	assert_string_equal(f[1].name, "outer_inlined");
	assert_string_equal(f[2].name, "has_inlined");
	assert_non_null(strstr(f[2].file, "test_unwind.c"));
	assert_int_equal(f[2].line, CALL_LINE);
	assert_true(f[0].line < f[1].line && f[1].line < f[2].line);
	assert_int_equal(lg_elf_source(m.elf, vaddr, f, 1), 1);
	assert_int_equal(lg_elf_source(m.elf, 3, f, 8), 0);
	free_maps(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agrees_with_backtrace),
		cmocka_unit_test(short_copies_give_fewer_frames),
		cmocka_unit_test(passes_a_signal_frame),
		cmocka_unit_test(walks_aarch64_with_signed_addresses),
		cmocka_unit_test(walks_i386),
		cmocka_unit_test(computes_expressions),
		cmocka_unit_test(names_inlined_functions),
	};

	{
		pthread_attr_t a;
		void *low;
		size_t size;

		if (pthread_getattr_np(pthread_self(), &a) || pthread_attr_getstack(&a, &low, &size))
			return 1;
		stack_end = (uintptr_t)low + size;
		pthread_attr_destroy(&a);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
