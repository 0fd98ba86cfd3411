/* SPDX-License-Identifier: Apache-2.0 */
/*
 * noise.c - how much two runs of one program differ though nothing was changed.
 *
 * The intervals of bootstrap.c know what happened inside the two runs. Every start of a program also
 * gets other pages, other cores and another clock, which stays for the whole run and shows in no
 * interval. Three runs of a baseline measure that; without them BETWEEN_SD is assumed. Own time
 * also grows when others use the machine: they share caches, memory and, on a core with two
 * hardware threads, the core itself.
 *
 * This is asked only of differences without evidence of a cause (regress.stage, .op, .step): a lost
 * compilation or a held lock is no accident of a run.
 */
#include <math.h>

#include "diff/diff.h"

/* Standard deviation of log(mean step) between starts on one machine: 1 to 2 % is common on machines
 * with several cores (doc/decisions/0012-noise-of-a-comparison.md). */
#define BETWEEN_SD 0.02
/* A thread next to a busy one on its core runs at 0.6 to 0.75 of its speed alone. */
#define LOAD_MAX 0.4

/*
 * Who is behind a hypervisor that takes time away shares the host's cores and caches as well. How busy that
 * is does not show: it counts as a whole busy CPU.
 */
#define STOLEN_MORE 0.01

static bool more_stolen(const struct lg_diff *d)
{
	return d->after->stolen_ms - d->before->stolen_ms > STOLEN_MORE * d->mean_ms[1];
}

static double others_cpu(const struct lg_side *s)
{
	double cpus = 0;

	for (size_t i = 0; i < s->n_processes; i++)
		cpus += s->processes[i].own ? 0 : s->processes[i].cpu;
	return cpus;
}

/* Interval of the mean step over what it were if steps were independent. */
static double steadiness(const struct lg_diff *d)
{
	const struct lg_series *v[2] = { &d->before->s, &d->after->s };
	double half = log(d->mean.hi / d->mean.lo) / 2 * d->mean_ms[1], var = 0;

	for (int i = 0; i < 2; i++) {
		double n = (double)v[i]->n, sum = 0;

		for (size_t k = 0; k < v[i]->n; k++)
			sum += pow(v[i]->step[k] - d->mean_ms[i], 2);
		var += n > 1 ? sum / (n - 1) / n : 0;
	}
	return var > 0 && isfinite(half) ? fmax(1, half / (1.96 * sqrt(var))) : 1;
}

void lg_diff_noise(struct lg_diff *d)
{
	double k = (double)d->before->n_runs, sd = BETWEEN_SD * M_SQRT2, t = 1.96, more;

	if (!isnan(d->noise)) {
		sd = d->noise * sqrt(1 + 1 / k);
		t = lg_student95(k - 1);
	}
	more = d->before->n_processes && d->after->n_processes
		? others_cpu(d->after) - others_cpu(d->before) : 0;
	if (more_stolen(d))
		more = fmax(more, 0) + 1;
	d->load = LOAD_MAX * fmin(1, fmax(0, more));
	d->between = t * sd + d->load;
	d->steadiness = steadiness(d);
}
