/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_still.c - a profiler's trace whose steps ended long before it did: one call, operator or function,
 * or one piece of the device's work, lasts for most of what follows, and hardly anything else begins
 * meanwhile. Why, such a trace cannot tell; that it is no healthy run, it can. A range of the program's own,
 * in which nothing else was traced, may be anything: that is not judged.
 */
#include "analyse/device/device_rules.h"
#include "analyse/device/finders.h"
#include "base/median.h"
#include "base/words.h"

enum { BESIDE = 8 /* rows: what orders it and waits for it */ };

/* Of that row, the part behind r's window. */
static void longer(const struct lg_gpu_run *r, int64_t ts, int64_t end, uint32_t row, struct lg_iv *best)
{
	ts = LG_MAX(ts, r->to);
	if (end - ts > best->end - best->ts)
		*best = (struct lg_iv){ ts, end, row };
}

static size_t begun_in(const struct lg_gpu_run *r, const struct lg_iv *in)
{
	size_t n = 0;

	for (size_t i = r->n_work; i-- && r->work[i].ts > in->ts && n <= BESIDE;)
		n += r->work[i].ts < in->end;
	LG_EACH(h, r->host, r->n_host)
		for (size_t i = h->n; i-- && h->seg[i].ts > in->ts && n <= BESIDE;)
			n += h->seg[i].ts < in->end;
	return n;
}

/* Saves, logging and compilation take as long as they take, and end. */
static bool may_stand(const struct lg_host_seg *s)
{
	return s->span != LG_NO_ROW && s->class != LG_HOST_SIDE && s->class != LG_HOST_LOG &&
	       s->class != LG_HOST_COMPILE;
}

/* What the run waits in behind its window, for the longest; nothing: of no length. *ret_own: set where it is
 * a range of the program's own. */
static struct lg_iv waits_in(const struct lg_gpu_run *r, bool *ret_own)
{
	struct lg_iv device = { .row = LG_NO_ROW }, host = { .row = LG_NO_ROW };
	bool note = false;

	for (size_t i = 0; i < r->n_work; i++)
		longer(r, r->work[i].ts, r->work[i].end, r->work[i].span, &device);
	LG_EACH(h, r->host, r->n_host)
		for (size_t i = h->n; i-- && h->seg[i].end > r->to;)
			if (may_stand(&h->seg[i])) {
				longer(r, h->seg[i].ts, h->seg[i].end, h->seg[i].span, &host);
				note = host.row == h->seg[i].span ? h->seg[i].note : note;
			}
	/* The host waits for the device: what that does says more. */
	if ((device.end - device.ts) * 10 >= (host.end - host.ts) * 9)
		return device;
	*ret_own = note;
	return host;
}

static void judge(struct lg_case *c, const struct lg_gpu_run *r)
{
	const int64_t long_ns = LG_N_COMMS_MISSING_RANK_LONG_S * INT64_C(1000000000);
	bool own = false;
	struct lg_iv in = waits_in(r, &own);
	char gone[LG_MS_TEXT], usual[LG_MS_TEXT];
	int64_t longest = 0, step[512];
	size_t n = LG_MIN(r->n_steps, LG_COUNT(step));
	const char *what;

	for (size_t s = 0; s < r->n_steps; s++)
		longest = LG_MAX(lg_gpu_step_ns(r, s), longest);
	for (size_t s = 0; s < n; s++)
		step[s] = lg_gpu_step_ns(r, s);
	if (in.row == LG_NO_ROW || in.end - in.ts < LG_N_ANY_STILL_S * INT64_C(1000000000) ||
	    in.end - in.ts < LG_N_COMMS_MISSING_RANK_LONGER * longest || begun_in(r, &in) > BESIDE)
		return;
	what = lg_text(c, LG_SAYS_STILL_DEVICE, r->rank >= 0 ? lg_text(c, "rank %d, ", r->rank) : "",
		       c->t->process.pid[r->prc], (double)(in.ts - c->t->first) / 1e9,
		       lg_ms_text(lg_ms(in.end - in.ts), gone), lg_span_name(c->t, in.row),
		       lg_ms_text(lg_ms(lg_median_i64(step, n)), usual));
	if (in.end - in.ts >= long_ns && !own) {
		c->v->still = what;
		lg_say(c, LG_SAYS_STILL_LIMIT, what);
	} else {
		lg_not_judged(c, lg_text(c, LG_SAYS_STILL_WHY, what), NULL);
		lg_say(c, LG_SAYS_STILL_LIMIT, what);
	}
}

int lg_say_device_still(struct lg_case *c, struct lg_gpu *g)
{
	LG_EACH_WHILE(!c->failed && !c->v->still, r, g->run, g->n)
		if (r->main && r->n_steps >= 3 && lg_gpu_traced(r))
			judge(c, r);
	return c->failed;
}
