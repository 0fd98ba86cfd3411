/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight_groups.c - which group a number of pg_status is.
 *
 * torch keeps the last numbers of a group under pg_id, which counts the groups of one process, and its ranks
 * under its name (FlightRecorder.hpp, dump_collective_trace). Entries say both. Of a group without an entry
 * (the ring forgot it, or the rank hangs before its first) only the order tells: both count upwards as
 * groups are made, where names are numbers, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "import/flightrec/flight_groups.h"

struct numbered {
	int64_t number;
	uint32_t at; /* in its dictionary */
};

static int cmp_number(const void *a, const void *b)
{
	const struct numbered *x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

/* The keys of a dictionary as numbers, ascending; NULL = not all are, or no memory. */
static struct numbered *by_number(const struct lg_doc *d, uint32_t dict)
{
	uint32_t n = lg_value_count(d, dict);
	struct numbered *v = lg_calloc(n, sizeof *v);

	for (uint32_t i = 0; v && i < n; i++) {
		const char *key = lg_value_key(d, dict, i);
		char *end;

		v[i] = (struct numbered){ strtoll(key, &end, 10), i };
		if (!*key || *end) {
			lg_free(v);
			return NULL;
		}
	}
	if (v)
		qsort(v, n, sizeof *v, cmp_number);
	return v;
}

/* pg_id -> value of the name that its entries give + 1. */
static int names_of_entries(const struct lg_doc *d, struct lg_map *ret)
{
	uint32_t entries = lg_value_get(d, d->root, "entries");

	for (uint32_t i = 0; i < lg_value_count(d, entries); i++) {
		uint32_t e = lg_value_at(d, entries, i);
		int64_t id = lg_value_int(d, lg_value_get(d, e, "pg_id"), -1);
		uint32_t name = lg_value_at(d, lg_value_get(d, e, "process_group"), 0);

		if (id < 0 || !lg_value_is(d, name, LG_TEXT) || lg_map_get(ret, (uint64_t)id + 1))
			continue;
		if (lg_map_set(ret, (uint64_t)id + 1, name + 1))
			return LG_E_NOMEM;
	}
	return 0;
}

static const char *said(const struct lg_doc *d, const struct lg_map *names, int64_t id)
{
	uint32_t v = id >= 0 ? lg_map_get(names, (uint64_t)id + 1) : 0;

	return v ? lg_value_text(d, v - 1) : NULL;
}

int lg_flight_groups(struct lg_builder *b, lg_prc prc, const struct lg_doc *d)
{
	static const char *const of[] = { "last_enqueued_collective", "last_started_collective",
					  "last_completed_collective" };
	uint32_t status = lg_value_get(d, d->root, "pg_status"), groups = lg_value_get(d, d->root, "pg_config");
	uint32_t n = lg_value_count(d, status);
	struct numbered *id = by_number(d, status), *name = NULL;
	struct lg_map names = { 0 };
	int rc = names_of_entries(d, &names);

	if (id && n == lg_value_count(d, groups))
		name = by_number(d, groups);
	/* What entries say refutes the order? */
	for (uint32_t i = 0; name && i < n; i++) {
		const char *own = said(d, &names, id[i].number);

		if (own && strcmp(own, lg_value_key(d, groups, name[i].at))) {
			lg_free(name);
			name = NULL;
		}
	}
	for (uint32_t i = 0; id && !rc && i < n; i++) {
		const char *own = said(d, &names, id[i].number);
		uint32_t one = lg_value_item(d, status, id[i].at);
		char key[128];

		if (!own && name)
			own = lg_value_key(d, groups, name[i].at);
		if (!own)
			continue;
		snprintf(key, sizeof key, "flight.last.%.64s", own);
		lg_meta_setf(b, prc, key, "%lld %lld %lld", (long long)lg_value_int(d, lg_value_get(d, one, of[0]), -1),
			     (long long)lg_value_int(d, lg_value_get(d, one, of[1]), -1),
			     (long long)lg_value_int(d, lg_value_get(d, one, of[2]), -1));
	}
	lg_free(id);
	lg_free(name);
	lg_map_done(&names);
	return rc;
}
