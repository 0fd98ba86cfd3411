/* SPDX-License-Identifier: Apache-2.0 */
#include "base/median.h"

#include <stdlib.h>

int lg_cmp_i64(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

int lg_cmp_f64(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int64_t lg_median_i64(int64_t *v, size_t n)
{
	if (!n)
		return 0;
	qsort(v, n, sizeof *v, lg_cmp_i64);
	return v[n / 2];
}
