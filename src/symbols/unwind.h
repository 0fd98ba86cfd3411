/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind.h - callers of a user-space stop, from its registers and a copy of its stack.
 *
 * By the call frame information of the files mapped there (.eh_frame, else .debug_frame); where
 * a piece of code has none (JIT), by the frame pointer. Only the copy and the registers are
 * read, nothing of any process. What one address says is kept in compact form, for every frame
 * of every sample passes the same few thousand addresses. One thread.
 */
#ifndef LG_SYMBOLS_UNWIND_H
#define LG_SYMBOLS_UNWIND_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct lg_elf;
struct lg_unwinder;

enum lg_machine { LG_MACHINE_NONE, LG_MACHINE_X86_64, LG_MACHINE_AARCH64, LG_MACHINE_I386 };
enum { LG_UNWIND_REGS = 32 };

struct lg_unwind_regs {
	enum lg_machine machine;
	uint64_t r[LG_UNWIND_REGS]; /* by DWARF number */
	uint32_t known;             /* bit i: r[i] is */
	uint64_t pc;
};

/* Where an address lies. elf NULL: in something that cannot be read here. */
struct lg_unwind_map {
	uint64_t start, end, pgoff;
	struct lg_elf *elf;
};
typedef bool lg_unwind_find_fn(void *self, uint64_t addr, struct lg_unwind_map *ret);

/* "x86_64", "aarch64", "i686" as uname -m and perf.data's header say it. */
enum lg_machine lg_machine_of(const char *arch);
/* The one whose 32-bit programs run there, too. */
enum lg_machine lg_machine_32(enum lg_machine machine);

static inline unsigned lg_machine_word(enum lg_machine machine)
{
	return machine == LG_MACHINE_I386 ? 4 : 8;
}

/*
 * Registers as perf samples them: values[] are those of the bits in mask, from the lowest, as
 * little-endian u64 (enum perf_event_x86_regs, perf_event_arm_regs). False when program counter
 * or stack pointer are not among them.
 */
bool lg_unwind_regs_of_perf(struct lg_unwind_regs *ret, enum lg_machine machine, uint64_t mask,
			    const uint8_t *values, size_t n_values);

int lg_unwinder_new(struct lg_unwinder **ret, struct lg_error *err) LG_MUST_CHECK;
void lg_unwinder_free(struct lg_unwinder *u);
/*
 * Write the program counter and the return addresses, innermost first, and return how many; the
 * stack is n bytes from the stack pointer up. *ret_whole: the outermost frame was reached
 * (otherwise the copy ended, or some code says nothing). Every address but the first is meant to
 * be taken minus one by who looks it up; the one that a signal interrupted is given plus one.
 */
size_t lg_unwind(struct lg_unwinder *u, const struct lg_unwind_regs *regs, const uint8_t *stack,
		 size_t n, lg_unwind_find_fn *find, void *self, uint64_t *ret_pcs, size_t max,
		 bool *ret_whole);

#endif /* LG_SYMBOLS_UNWIND_H */
