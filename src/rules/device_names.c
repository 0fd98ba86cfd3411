/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/device_names.h"

#include <fnmatch.h>
#include <string.h>

static bool fits(const struct lg_name_row *row, const char *name)
{
	switch (row->how) {
	case LG_MATCH_IS: return *name == *row->text && !strcmp(name, row->text);
	case LG_MATCH_STARTS: return *name == *row->text && !strncmp(name, row->text, strlen(row->text));
	case LG_MATCH_HAS: return strstr(name, row->text) != NULL;
	case LG_MATCH_STARTS_CASELESS: return !strncasecmp(name, row->text, strlen(row->text));
	case LG_MATCH_LIKE: return !fnmatch(row->text, name, 0);
	default: return strcasestr(name, row->text) != NULL;
	}
}

int lg_name_means(const struct lg_name_row *row, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (fits(&row[i], name))
			return row[i].means;
	return 0;
}

bool lg_on_list(enum lg_name_list list, const char *name)
{
	static const struct lg_name_row rows[] = {
#define LIST(name, how, text) { LG_MATCH_##how, text, LG_LIST_##name },
#include "rules/device_names.def"
	};

	size_t i = 0;

	while (i < sizeof rows / sizeof *rows && rows[i].means != (int)list)
		i++;
	for (; i < sizeof rows / sizeof *rows && rows[i].means == (int)list; i++)
		if (fits(&rows[i], name))
			return true;
	return false;
}
