/* SPDX-License-Identifier: Apache-2.0 */
/* median.h - order numbers and take the middle one: the analyses' everyday statistic. */
#ifndef LG_BASE_MEDIAN_H
#define LG_BASE_MEDIAN_H
#include <stddef.h>
#include <stdint.h>

/* For qsort(), ascending. NaN does not occur in what is ordered here. */
int lg_cmp_i64(const void *a, const void *b);
int lg_cmp_f64(const void *a, const void *b);

/* Sorts v; the upper median v[n / 2], or 0 when there is none. */
int64_t lg_median_i64(int64_t *v, size_t n);
/* The same; NaN when there is none. */
double lg_median_f64(double *v, size_t n);

/*
 * The quantile q in [0, 1] of v, which is in order; NaN for n 0. Between two values it lies on the line from
 * one to the other: Hyndman and Fan 1996, type 7, the default of NumPy and R.
 */
double lg_quantile_f64(const double *v, size_t n, double q);

/* What stands at v[k] when v is in order, k < n; reorders v, in linear time on average. */
int64_t lg_select_i64(int64_t *v, size_t n, size_t k);
double lg_select_f64(double *v, size_t n, size_t k); /* without NaN */

#endif /* LG_BASE_MEDIAN_H */
