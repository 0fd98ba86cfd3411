/* SPDX-License-Identifier: Apache-2.0 */
/* prefix.h - does a name begin with one of a list? Lists of the kernel's and of libraries' functions do. */
#ifndef LG_BASE_PREFIX_H
#define LG_BASE_PREFIX_H
#include <stdbool.h>
#include <string.h>

/* prefixes end with NULL. */
static inline bool lg_begins_with_any(const char *name, const char *const *prefixes)
{
	for (; *prefixes; prefixes++)
		if (!strncmp(name, *prefixes, strlen(*prefixes)))
			return true;
	return false;
}

#endif /* LG_BASE_PREFIX_H */
