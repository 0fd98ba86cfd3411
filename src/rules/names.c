/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/names.h"

#include <stddef.h>
#include <string.h>

static const struct {
	enum lg_named kind;
	const char *prefix;
	size_t len;
} names[] = {
#define NAMED(kind, prefix) { LG_NAMED_##kind, prefix, sizeof prefix - 1 },
#include "rules/names.def"
};

bool lg_is_named(const char *name, enum lg_named kind)
{
	/* Asked of every frame: the first letter spares most of the calls. */
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].kind == kind && *name == *names[i].prefix &&
		    !strncmp(name, names[i].prefix, names[i].len))
			return true;
	return false;
}
