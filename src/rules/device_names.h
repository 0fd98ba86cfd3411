/* SPDX-License-Identifier: Apache-2.0 */
/* device_names.h - what a name means, by the tables of device_names.def. */
#ifndef LG_RULES_DEVICE_NAMES_H
#define LG_RULES_DEVICE_NAMES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lg_name_match { LG_MATCH_IS, LG_MATCH_STARTS, LG_MATCH_HAS, LG_MATCH_HAS_CASELESS };

struct lg_name_row {
	uint8_t how; /* enum lg_name_match */
	const char *text;
	int means;
};

/* Of the first of n rows that fits; 0 = none does. */
int lg_name_means(const struct lg_name_row *row, size_t n, const char *name);

enum lg_name_list { LG_LIST_LIBRARY, LG_LIST_SAVES_ALL, LG_LIST_SAVERS, LG_LIST_WRITES, LG_LIST_LOGS };
bool lg_on_list(enum lg_name_list list, const char *name);

#endif /* LG_RULES_DEVICE_NAMES_H */
