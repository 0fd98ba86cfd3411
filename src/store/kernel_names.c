/* SPDX-License-Identifier: Apache-2.0 */
#include "store/kernel_names.h"

#include <stddef.h>
#include <string.h>

enum {
	RECORDED = LG_PLUMBING_RECORDED, IMPORTED = LG_PLUMBING_IMPORTED, WANTED = LG_PLUMBING_WANTED,
	PLACE = LG_PLUMBING_PLACE, CULPRIT = LG_PLUMBING_CULPRIT, SHOWN = LG_PLUMBING_SHOWN
};

static const struct {
	const char *prefix;
	size_t len;
	unsigned where;
} names[] = {
#define X(prefix, where) { prefix, sizeof prefix - 1, where },
#include "store/kernel_names.def"
};

bool lg_is_plumbing(const char *name, enum lg_plumbing_where where)
{
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].where & where && !strncmp(name, names[i].prefix, names[i].len))
			return true;
	return false;
}
