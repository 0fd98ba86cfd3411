/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_elf.c - a file that claims to be ELF: symbols, call frame information, lines and inlined
 * functions at addresses all over it, and an unwind through it.
 *
 * Properties: names are terminated text, an offset into a symbol is smaller than the file says;
 * asking twice gives the same; no more frames than asked for.
 */
#include <stdlib.h>
#include <string.h>

#include "symbols/elf_symbols.h"
#include "symbols/file_budget.h"
#include "symbols/inlines.h"
#include "symbols/unwind.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { FRAMES = 16, PLACES = 24 };

static void check(int ok)
{
	if (!ok)
		abort();
}

struct place {
	struct lg_elf *elf;
	size_t n;
};

static bool find(void *self, uint64_t addr, struct lg_unwind_map *ret)
{
	const struct place *at = self;

	*ret = (struct lg_unwind_map){ 0, at->n, 0, at->elf };
	return addr < at->n;
}

static void look(struct lg_elf *e, uint64_t vaddr)
{
	struct lg_source_frame f[FRAMES], g[FRAMES];
	uint64_t into = 0, again = 0;
	const char *name = lg_elf_find(e, vaddr, &into);
	size_t n = lg_elf_source(e, vaddr, f, FRAMES);

	check(lg_elf_find(e, vaddr, &again) == name && again == into);
	check(n <= FRAMES && lg_elf_source(e, vaddr, g, FRAMES) == n);
	check(!name || strlen(name) < 1 << 20);
	for (size_t i = 0; i < n; i++) {
		check(f[i].line == g[i].line);
		check(!f[i].name || strlen(f[i].name) < 1 << 20);
		check(!f[i].file || strlen(f[i].file) < 1 << 20);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct lg_unwinder *u;
	struct lg_error err = { 0 };
	struct lg_elf *e;

	if (n > 1 << 20)
		return 0;
	lg_file_budget_begin();
	if (lg_elf_open_memory(&e, p, n, &err)) {
		check(err.message[0] != 0);
		return 0;
	}
	check(lg_unwinder_new(&u, NULL) == 0);
	for (uint64_t i = 0; i < PLACES; i++) {
		struct lg_unwind_regs regs = { .machine = LG_MACHINE_X86_64 + i % 3,
					       .known = UINT32_MAX, .pc = n * i / PLACES };
		struct place at = { e, n };
		uint64_t vaddr, pcs[FRAMES];
		bool whole;
		size_t k;

		for (unsigned r = 0; r < LG_UNWIND_REGS; r++)
			regs.r[r] = 0x7000 + 8 * r;
		if (lg_elf_vaddr(e, regs.pc, &vaddr))
			look(e, vaddr);
		/* The file is its own stack, too: return addresses come out of it. */
		k = lg_unwind(u, &regs, p, n, find, &at, pcs, FRAMES, &whole);
		check((k >= 1 || !regs.pc) && k <= FRAMES);
	}
	lg_unwinder_free(u);
	lg_elf_free(e);
	return 0;
}
