/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kallsyms.h - kernel addresses to function names, from /proc/kallsyms.
 *
 * Loaded once; modules and BPF programs that come later are added one by one. Names are
 * borrowed and live as long as the table. One thread.
 */
#ifndef LG_SYMBOLS_KALLSYMS_H
#define LG_SYMBOLS_KALLSYMS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct lg_kallsyms;

/* LG_E_PERM when the kernel hides the addresses (kernel.kptr_restrict: all are zero). */
int lg_kallsyms_load(struct lg_kallsyms **ret, const char *path, struct lg_error *err) LG_MUST_CHECK;
/*
 * The same from an open file, to its end: a copy that may have been cut off. *ret_cut: it ends inside a line;
 * then only functions are known of which the next one is, too. name: for err.
 */
int lg_kallsyms_read(struct lg_kallsyms **ret, int fd, const char *name, bool *ret_cut,
		     struct lg_error *err) LG_MUST_CHECK;
/* One without functions, to add some; NULL when memory is exhausted. */
struct lg_kallsyms *lg_kallsyms_new(void);
void lg_kallsyms_free(struct lg_kallsyms *k);
size_t lg_kallsyms_count(const struct lg_kallsyms *k);
/* Function that contains addr, NULL when none does; *ret_module is "" for the core kernel. */
const char *lg_kallsyms_find(struct lg_kallsyms *k, uint64_t addr, const char **ret_module);
/* Where the first function of this name begins; 0 = there is none. */
uint64_t lg_kallsyms_address(const struct lg_kallsyms *k, const char *name);
/* A function that appeared at run time. 0 or LG_E_NOMEM. */
int lg_kallsyms_add(struct lg_kallsyms *k, uint64_t addr, uint64_t len, const char *name) LG_MUST_CHECK;
/* Forget what was added at addr. */
void lg_kallsyms_drop(struct lg_kallsyms *k, uint64_t addr);

#endif /* LG_SYMBOLS_KALLSYMS_H */
