/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_fleet_batch.c - a batch of rows that another machine sent, or that lay in a spool. */
#include <stddef.h>
#include <stdint.h>

#include "fleet/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int see(void *arg, const struct lg_fleet_value *v, struct lg_error *err)
{
	(void)err;
	*(uint64_t *)arg += v[0].n + (v[0].text && v[0].n ? (uint8_t)v[0].text[v[0].n - 1] : 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct lg_fleet_part p;
	uint64_t sum = 0;
	size_t at = 0;

	while (lg_fleet_batch_next(data, size, &at, &p, NULL) > 0)
		if (lg_fleet_part_rows(&p, see, &sum, NULL))
			break;
	return 0;
}
