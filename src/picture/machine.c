/* SPDX-License-Identifier: Apache-2.0 */
#include "picture/machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/each.h"
#include "base/order.h"
#include "picture/contents.h"
#include "picture/lanes.h"
#include "store/merge.h"

static int processes(struct lg_machine *m, const struct lg_verdict *v)
{
	const struct lg_trace *t = v->trace;
	int64_t *ran LG_AUTOFREE = NULL;

	if (lg_running_ns(v, &ran, NULL))
		return LG_E_NOMEM;
	for (lg_prc p = 1; p < t->process.n && m->seconds > 0; p++) {
		double cpus = (double)ran[p] / 1e9 / m->seconds;
		size_t k = m->n_busiest;

		m->cpus_busy += cpus;
		if (t->process.role[p] == LG_ROLE_LOADER) {
			m->workers++;
			m->workers_cpus += cpus;
		}
		for (; k && m->busiest[k - 1].cpus < cpus; k--)
			if (k < LG_MACHINE_BUSIEST)
				m->busiest[k] = m->busiest[k - 1];
		if (k == LG_MACHINE_BUSIEST || cpus < 0.005)
			continue;
		m->busiest[k] = (struct lg_machine_process){ p, cpus };
		m->n_busiest = LG_MIN(m->n_busiest + 1, (size_t)LG_MACHINE_BUSIEST);
	}
	return 0;
}

static void loader(struct lg_machine *m, const struct lg_verdict *v, const struct lg_accounts *a)
{
	double all = 0, waits = 0;

	for (size_t i = 0; i < v->n_steps; i++) {
		all += (double)v->steps[i].dur;
		waits += (double)a->stage_ns[i * LG_STAGE_MAX + LG_STAGE_BATCH_WAIT];
	}
	m->batch_wait = all > 0 ? waits / all : (double)NAN;
}

static struct lg_machine_device *device(struct lg_machine *m, int32_t index)
{
	LG_EACH(d, m->device, m->n_devices)
		if (d->index == index)
			return d;
	if (m->n_devices == LG_MACHINE_DEVICES) {
		m->devices_left++;
		return NULL;
	}
	m->device[m->n_devices] = (struct lg_machine_device){ index, NAN, NAN, NAN, NAN };
	return &m->device[m->n_devices++];
}

/* Which of a device's numbers a track has; -1: none that is shown. */
static int reading_of(const struct lg_trace *t, lg_trk k)
{
	static const char *const names[] = { "gpu.util", "gpu.power", "gpu.mem_used" };
	const char *name = lg_string(t, t->track.name[k]);

	if (t->track.kind[k] != LG_TRACK_COUNTER || t->track.index[k] < 0)
		return -1;
	for (int i = 0; i < 3; i++)
		if (!strcmp(name, names[i]))
			return i;
	return -1;
}

static int readings(struct lg_machine *m, const struct lg_trace *t)
{
	struct mean {
		double sum;
		size_t n;
	} *of LG_AUTOFREE = lg_calloc(t->track.n + 1, sizeof *of);

	if (!of)
		return LG_E_NOMEM;
	for (size_t i = 0; i < t->counter.n; i++)
		if (isfinite(t->counter.value[i])) {
			of[t->counter.track[i]].sum += t->counter.value[i];
			of[t->counter.track[i]].n++;
		}
	for (lg_trk k = 1; k < t->track.n; k++) {
		int which = reading_of(t, k);
		struct lg_machine_device *d = which < 0 || !of[k].n ? NULL : device(m, t->track.index[k]);
		double mean = d ? of[k].sum / (double)of[k].n : 0;

		if (d)
			*(which == 0 ? &d->util : which == 1 ? &d->watts : &d->bytes) = mean;
	}
	return 0;
}

int lg_machine_make(struct lg_machine *ret, const struct lg_verdict *v, const struct lg_accounts *a,
		    struct lg_error *err)
{
	const struct lg_trace *t = v->trace;
	struct lg_machine m = { .batch_wait = NAN };
	struct lg_contents c;

	if (t && t->first <= t->last) {
		m.seconds = (double)(t->last - t->first) / 1e9;
		m.cpus = strtod(lg_meta_get(t, "host.cpus"), NULL);
		if (processes(&m, v) || readings(&m, t) || lg_contents_make(&c, v, err))
			return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		loader(&m, v, a);
		LG_EACH(x, c.device, c.n_devices) {
			struct lg_machine_device *d = device(&m, t->track.index[x->track]);

			if (d && m.seconds > 0)
				d->busy = (double)x->busy / 1e9 / m.seconds;
		}
	}
	*ret = m;
	return 0;
}
