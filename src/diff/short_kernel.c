/* SPDX-License-Identifier: Apache-2.0 */
/* short_kernel.c - a kernel's name cut to what tells it from others: no return type, no namespaces. */
#include <ctype.h>
#include <string.h>

#include "diff/diff.h"
#include "diff/side.h"

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* At "(anonymous namespace)::" or "<unnamed>::": how long that is. */
static size_t unnamed(const char *p)
{
	static const char *const names[] = { "(anonymous namespace)::", "<unnamed>::", "_GLOBAL__N_::" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strncmp(p, names[i], strlen(names[i])))
			return strlen(names[i]);
	return 0;
}

const char *lg_short_kernel(const char *name, char *buf, size_t size)
{
	size_t n = 0, word = 0, skip;
	const char *p = strncmp(name, "void ", 5) ? name : name + 5;

	for (; *p && n + 1 < size; p++) {
		if ((skip = unnamed(p))) {
			p += skip - 1;
			continue;
		}
		if (p[0] == ':' && p[1] == ':' && word < n) {
			n = word; /* what stands before is a namespace or a class */
			p++;
			continue;
		}
		if (*p == '(' && n)
			break; /* parameters */
		word = is_word(*p) ? word : n + 1;
		buf[n++] = *p;
	}
	buf[n] = 0;
	if (*p && *p != '(' && size > 4)
		memcpy(buf + size - 4, "...", 4);
	return n ? buf : name;
}

const char *lg_change_name(const struct lg_change *x, char *buf, size_t size)
{
	return strcmp(x->kind, lg_item_kind_names[LG_ITEM_KERNEL]) ? x->name
								   : lg_short_kernel(x->name, buf, size);
}
