/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbol_answer.h - answers of the process that reads symbols, checked as a stranger's.
 *
 * Whoever made it run code of his may send anything. Every packet is whole or refused, addresses are
 * answered in order and once, names are bounded and have no NUL, a debug file is a name and not a path.
 */
#ifndef LG_SYMBOLS_SYMBOL_ANSWER_H
#define LG_SYMBOLS_SYMBOL_ANSWER_H
#include <stdbool.h>
#include <stddef.h>

#include "symbols/symbol_wire.h"

struct lg_answer {
	size_t n_pcs, next; /* addresses asked for; the first that may still be named */
	size_t bytes_left;  /* of names that are still taken */
	bool cut;           /* that was not enough */
};

typedef void lg_named_fn(void *self, size_t first, size_t count, const char *name);

/* The head of a packet of n bytes; false: refused. */
bool lg_answer_head(const void *packet, size_t n, struct lg_say *ret);
/* The build id behind OPENED's head: hex or "". False: refused. */
bool lg_answer_id(const void *packet, size_t n, char ret_hex[LG_BUILD_ID_HEX]);
/* EXPORTS: any numbers. */
bool lg_answer_exports(const void *packet, size_t n, struct lg_say_exports *ret);
/* NAMES: call named for each record; false, with what came before it taken: refused. */
bool lg_answer_names(struct lg_answer *a, const void *packet, size_t n, lg_named_fn *named, void *self);
/* WANT_DEBUG. */
bool lg_answer_debug(const void *packet, size_t n, struct lg_debug_names *ret);

#endif /* LG_SYMBOLS_SYMBOL_ANSWER_H */
