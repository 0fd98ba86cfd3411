/* SPDX-License-Identifier: Apache-2.0 */
#include "base/median.h"

#include <math.h>
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

double lg_median_f64(double *v, size_t n)
{
	if (n)
		qsort(v, n, sizeof *v, lg_cmp_f64);
	return n ? v[n / 2] : (double)NAN;
}

double lg_quantile_f64(const double *v, size_t n, double q)
{
	double at = n ? q * (double)(n - 1) : 0;
	size_t k = (size_t)at;

	if (!n)
		return (double)NAN;
	return k + 1 < n ? v[k] + (v[k + 1] - v[k]) * (at - (double)k) : v[n - 1];
}

/* Hoare's selection, the pivot the median of three; what makes that slow is sorted instead. */
#define SELECT(type, name, cmp)                                                                            \
	static void swap_##name(type *a, type *b)                                                          \
	{                                                                                                  \
		type was = *a;                                                                             \
                                                                                                           \
		*a = *b;                                                                                   \
		*b = was;                                                                                  \
	}                                                                                                  \
                                                                                                           \
	type lg_select_##name(type *v, size_t n, size_t k)                                                 \
	{                                                                                                  \
		ptrdiff_t lo = 0, hi = (ptrdiff_t)n - 1, at = (ptrdiff_t)k;                                \
                                                                                                           \
		for (int round = 0; lo < hi; round++) {                                                    \
			ptrdiff_t i = lo, j = hi, mid = lo + (hi - lo) / 2;                                \
			type pivot;                                                                        \
                                                                                                           \
			if (round > 64) {                                                                  \
				qsort(v + lo, (size_t)(hi - lo) + 1, sizeof *v, cmp);                      \
				break;                                                                     \
			}                                                                                  \
			if (v[mid] < v[lo])                                                                \
				swap_##name(&v[mid], &v[lo]);                                              \
			if (v[hi] < v[lo])                                                                 \
				swap_##name(&v[hi], &v[lo]);                                               \
			if (v[hi] < v[mid])                                                                \
				swap_##name(&v[hi], &v[mid]);                                              \
			pivot = v[mid];                                                                    \
			do {                                                                               \
				while (v[i] < pivot)                                                       \
					i++;                                                               \
				while (v[j] > pivot)                                                       \
					j--;                                                               \
				if (i <= j)                                                                \
					swap_##name(&v[i++], &v[j--]);                                     \
			} while (i <= j);                                                                  \
			/* v[lo..j] <= pivot <= v[i..hi], and what lies between them is the pivot. */      \
			if (at <= j)                                                                       \
				hi = j;                                                                    \
			else if (at >= i)                                                                  \
				lo = i;                                                                    \
			else                                                                               \
				break;                                                                     \
		}                                                                                          \
		return v[k];                                                                               \
	}

SELECT(int64_t, i64, lg_cmp_i64)
SELECT(double, f64, lg_cmp_f64)
