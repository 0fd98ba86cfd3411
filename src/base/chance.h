/* SPDX-License-Identifier: Apache-2.0 */
/* chance.h - how many ways there are, and how often blind draws do as well. */
#ifndef LG_BASE_CHANCE_H
#define LG_BASE_CHANCE_H
#include <math.h>
#include <stddef.h>

/* The logarithm of how many ways there are to choose k of n; k <= n. */
static inline double lg_ln_choose(size_t n, size_t k)
{
	return lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1);
}

/* That k and more of n independent draws hit, each with probability p: the binomial distribution's tail. */
static inline double lg_binomial_tail(size_t n, size_t k, double p)
{
	double sum = 0;

	for (; k <= n; k++)
		sum += exp(lg_ln_choose(n, k) + (double)k * log(p) + (double)(n - k) * log1p(-p));
	return sum;
}

/* That of `drawn` of n things, drawn without looking, k and more are of those `marked`: the hypergeometric
 * distribution's tail. */
static inline double lg_hypergeometric_tail(size_t n, size_t marked, size_t drawn, size_t k)
{
	double sum = 0;

	for (; k <= drawn && k <= marked; k++)
		if (drawn - k <= n - marked)
			sum += exp(lg_ln_choose(marked, k) + lg_ln_choose(n - marked, drawn - k) -
				   lg_ln_choose(n, drawn));
	return fmin(sum, 1);
}

#endif /* LG_BASE_CHANCE_H */
