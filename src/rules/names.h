/* SPDX-License-Identifier: Apache-2.0 */
/* names.h - of what kind is a function or a library? By the rows of names.def. */
#ifndef LG_RULES_NAMES_H
#define LG_RULES_NAMES_H
#include <stdbool.h>

enum lg_named {
	LG_NAMED_LIBRARY, LG_NAMED_FRAMEWORK, LG_NAMED_FORK, LG_NAMED_RECLAIM, LG_NAMED_ON_WRITE,
	LG_NAMED_TAKE_DOWN, LG_NAMED_INTERRUPT, LG_NAMED_SEND
};

bool lg_is_named(const char *name, enum lg_named kind);

#endif /* LG_RULES_NAMES_H */
