/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_data.c - steps that waited for their batch, as the job's own log states it.
 *
 * Trainers print how much of a step was the wait for the loader ("Time 0.35 Data 0.14", "data_time: 0.14").
 * A loop that prints every tenth line and has so many workers prints the wait of one and the same worker:
 * where lines tell the mean of the epoch so far, that is what counts, and else what was printed.
 */
#include <math.h>

#include "analyse/finders.h"
#include "analyse/steps/judge.h"
#include "analyse/steps/log_steps.h"
#include "base/words.h"

enum { MIN_LINES = 8 };
#define AT_START 0.6

struct line {
	int64_t ts;
	double ms, data;
};

struct told {
	struct line *v;
	size_t n, cap, n_epochs;
	double epoch, epoch_data; /* ms, all epochs */
	double first;             /* ms: waits of the epochs' first lines */
	double sum, data;         /* ms, of the lines */
	double excess, late;      /* of slow lines, and of that beyond the usual wait for data */
	lg_prc prc;
};

static double share_of(const struct told *d)
{
	return d->n_epochs ? d->epoch_data / d->epoch : d->data / d->sum;
}

/* Lines of one process; the row of a line's step comes before that of its data. */
static int read_lines(const struct lg_trace *t, lg_trk data, struct told *ret)
{
	lg_prc prc = t->track.prc[data];
	struct line last = { .ts = INT64_MIN };

	*ret = (struct told){ .prc = prc };
	for (size_t i = 0; i < t->counter.n; i++) {
		lg_trk k = t->counter.track[i];
		const char *name = lg_string(t, t->track.name[k]);

		if (t->track.prc[k] != prc || strncmp(name, "log.", 4))
			continue;
		if (!strcmp(name, "log.step_ms") && t->track.index[k] < 0) {
			last = (struct line){ .ts = t->counter.ts[i], .ms = t->counter.value[i] };
		} else if (k == data && last.ts == t->counter.ts[i] && t->counter.value[i] <= last.ms) {
			last.data = t->counter.value[i];
			if (LG_APPEND(ret->v, ret->n, ret->cap, last))
				return LG_E_NOMEM;
			ret->sum += last.ms;
			ret->data += last.data;
			ret->first += ret->n == 1 ? last.data : 0;
		} else if (!strcmp(name, "log.epoch_ms")) {
			ret->epoch += t->counter.value[i];
			ret->n_epochs++;
		} else if (!strcmp(name, "log.epoch_data_ms")) {
			ret->epoch_data += t->counter.value[i];
		}
	}
	/* An epoch is told with the first line of the next one. */
	for (size_t i = 0, at = 0; ret->n && i < t->counter.n; i++) {
		lg_trk k = t->counter.track[i];

		if (t->track.prc[k] != prc || strcmp(lg_string(t, t->track.name[k]), "log.epoch_ms"))
			continue;
		while (at + 1 < ret->n && ret->v[at].ts < t->counter.ts[i])
			at++;
		ret->first += ret->v[at].ts == t->counter.ts[i] ? ret->v[at].data : 0;
	}
	return 0;
}

/* How much of what slow lines have too much is their wait. */
static int weigh_slow(struct told *d)
{
	LG_AUTOFREE double *ms = lg_calloc(2 * d->n, sizeof *ms);
	double *wait = ms ? ms + d->n : NULL, median, usual, limit;

	if (!ms)
		return LG_E_NOMEM;
	for (size_t i = 0; i < d->n; i++) {
		ms[i] = d->v[i].ms;
		wait[i] = d->v[i].data;
	}
	limit = lg_slow_of(ms, d->n, &median);
	(void)lg_slow_of(wait, d->n, &usual);
	for (size_t i = 0; i < d->n; i++) {
		double over = d->v[i].ms - median;

		if (d->v[i].ms <= limit)
			continue;
		d->excess += over;
		d->late += fmin(fmax(d->v[i].data - usual, 0), over);
	}
	return 0;
}

static void tell(struct lg_case *c, const struct told *d, double share)
{
	struct lg_verdict *v = c->v;
	struct lg_finding *f =
		lg_finding_about(c, LG_R_DATA_LOADER_WAIT, LG_STAGE_BATCH_WAIT, LG_RELATION_SELF, 0.85);
	const struct line *worst = d->v;
	char step[LG_MS_TEXT], wait[LG_MS_TEXT];

	for (size_t i = 0; i < d->n; i++)
		worst = d->v[i].data > worst->data ? &d->v[i] : worst;
	f->lost_ms = d->n_epochs ? d->epoch_data : d->data * lg_steps_per_line(c->t, d->prc);
	f->lost_share = share;
	f->excess_share = d->excess > 0 ? d->late / d->excess : (double)NAN;
	lg_grade_steady(f);
	f->culprit.rank = c->t->process.rank[d->prc];
	lg_title(c, f, LG_SAYS_DATA_LOADER_WAIT_LOG_TITLE, share * 100);
	lg_evidence(c, f, LG_SAYS_DATA_LOADER_WAIT_LOG_LINES, d->n,
		    lg_ms_text(d->sum / (double)d->n, step),
		    lg_ms_text(d->data / (double)d->n, wait));
	if (d->n_epochs)
		lg_evidence(c, f, LG_SAYS_DATA_LOADER_WAIT_LOG_MEANS, lg_ms_text(d->epoch, step),
			    lg_ms_text(d->epoch_data, wait));
	if (d->n_epochs > 1 && d->first >= AT_START * d->epoch_data) {
		f->detail = "respawn";
		lg_evidence(c, f, LG_SAYS_DATA_LOADER_WAIT_LOG_FIRST,
			    fmin(100 * d->first / d->epoch_data, 100), d->n_epochs);
		lg_title(c, f, LG_SAYS_DATA_LOADER_WAIT_LOG_TITLE_FIRST, share * 100);
	}
	lg_evidence_add(c, f, worst->ts, 0, LG_SAYS_DATA_LOADER_WAIT_LOG_LONGEST,
			lg_ms_text(worst->data, wait), lg_ms_text(worst->ms, step));
	lg_evidence_against(c, f, LG_SAYS_DATA_LOADER_WAIT_LOG_DATA,
			    d->n_epochs ? "" : LG_SAYS_DATA_LOADER_WAIT_LOG_SAME_WORKER);
	lg_explains_excess(v, f);
	lg_bound_by_data(c, share, lg_text(c, LG_SAYS_DATA_LOADER_WAIT_BOUND_BY_LOG, share * 100));
}

int lg_find_data_in_log(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	struct told worst = { 0 };

	if (!lg_is_log_alone(c))
		return 0;
	for (lg_trk k = 1; k < t->track.n && !c->failed; k++) {
		struct told d;

		if (strcmp(lg_string(t, t->track.name[k]), "log.data_ms"))
			continue;
		if (read_lines(t, k, &d) || (d.n >= MIN_LINES && weigh_slow(&d)))
			c->failed = LG_E_NOMEM;
		if (d.n >= MIN_LINES && d.sum > 0 && (!worst.n || share_of(&d) > share_of(&worst))) {
			struct told other = worst;

			worst = d;
			d = other;
		}
		lg_free(d.v);
	}
	if (!c->failed && worst.n && share_of(&worst) >= LG_N_DATA_LOADER_WAIT_LOG)
		tell(c, &worst, share_of(&worst));
	lg_free(worst.v);
	return c->failed;
}
