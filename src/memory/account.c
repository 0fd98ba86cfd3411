/* SPDX-License-Identifier: Apache-2.0 */
/* account.c - see memory.h: which devices there are, and what they hold. */
#include <string.h>

#include "base/alloc.h"
#include "memory/parts.h"

#define BYTES_MAX 9e18 /* of a counter that can be one of bytes */

enum lg_memory_row lg_memory_row(struct lg_memory_work *w, uint32_t row)
{
	static const struct {
		const char *name;
		uint8_t row;
	} names[] = {
		{ "alloc", LG_MEM_ALLOC },
		{ "segment", LG_MEM_SEGMENT },
		{ "block.inactive", LG_MEM_IDLE },
		{ "block.active_allocated", LG_MEM_HELD },
		{ "block.active_pending_free", LG_MEM_PENDING },
		{ "segment_alloc", LG_MEM_SEGMENT_ALLOC },
		{ "segment_free", LG_MEM_SEGMENT_FREE },
		{ "segment_map", LG_MEM_SEGMENT_MAP },
		{ "segment_unmap", LG_MEM_SEGMENT_UNMAP },
		{ "oom", LG_MEM_OOM },
	};
	const struct lg_trace *t = w->t;
	lg_str name = t->span.name[row];

	if (t->track.kind[t->span.track[row]] != LG_TRACK_MEMORY)
		return LG_MEM_NONE;
	if (!w->row_of_name[name]) {
		w->row_of_name[name] = 1;
		for (size_t i = 0; i < sizeof names / sizeof *names; i++)
			if (!strcmp(lg_string(t, name), names[i].name))
				w->row_of_name[name] = names[i].row + 1;
	}
	return w->row_of_name[name] - 1;
}

static int find_devices(struct lg_memory_work *w, struct lg_memory *m)
{
	const struct lg_trace *t = w->t;
	LG_AUTOFREE uint32_t *of_track = lg_calloc(t->track.n + 1, sizeof *of_track);
	LG_AUTOFREE size_t *n = lg_calloc(t->track.n + 1, sizeof *n);

	if (!of_track || !n)
		return LG_E_NOMEM;
	for (size_t i = 0; i < t->span.n; i++)
		n[t->span.track[i]]++;
	for (lg_trk k = 1; k < t->track.n; k++) {
		struct lg_memory_device *d;

		if (t->track.kind[k] != LG_TRACK_MEMORY)
			continue;
		m->device = lg_arena_room(w->a, m->device, m->n_devices, sizeof *m->device);
		if (!m->device)
			return LG_E_NOMEM;
		d = &m->device[m->n_devices++];
		*d = (struct lg_memory_device){ .track = k,
						.index = t->track.index[k],
						.rank = t->process.rank[t->track.prc[k]] };
		d->rows = lg_arena_alloc(w->a, n[k] + 1, sizeof *d->rows);
		if (!d->rows)
			return LG_E_NOMEM;
		of_track[k] = (uint32_t)m->n_devices;
	}
	for (uint32_t i = 0; m->n_devices && i < t->span.n; i++) {
		uint32_t at = of_track[t->span.track[i]];

		if (at)
			m->device[at - 1].rows[m->device[at - 1].n_rows++] = i;
	}
	return 0;
}

static void count_idle(struct lg_memory_device *d, uint64_t bytes)
{
	d->free += bytes;
	d->largest_free = bytes > d->largest_free ? bytes : d->largest_free;
}

static void add_up(struct lg_memory_work *w, struct lg_memory_device *d)
{
	const struct lg_span_tab *s = &w->t->span;

	d->first = INT64_MAX;
	d->last = INT64_MIN;
	for (size_t i = 0; i < d->n_rows; i++) {
		uint32_t row = d->rows[i];
		uint64_t bytes = s->bytes[row];

		d->first = s->ts[row] < d->first ? s->ts[row] : d->first;
		d->last = s->ts[row] > d->last ? s->ts[row] : d->last;
		switch (lg_memory_row(w, row)) {
		case LG_MEM_SEGMENT:
			d->segments++;
			d->reserved += bytes;
			break;
		case LG_MEM_HELD:
			d->allocated += bytes;
			d->active += bytes;
			d->requested += s->seq[row] > 0 ? (uint64_t)s->seq[row] : 0;
			d->has_blocks = true;
			break;
		case LG_MEM_PENDING:
			d->active += bytes;
			d->has_blocks = true;
			break;
		case LG_MEM_IDLE:
			count_idle(d, bytes);
			d->has_blocks = true;
			break;
		case LG_MEM_ALLOC:
			d->has_history |= !s->args[row] || s->dur[row] >= 0;
			break;
		default:
			break;
		}
	}
}

/* The counters of the device, whose values are in the order of the file. */
static void find_peaks(const struct lg_memory_work *w, struct lg_memory_device *d)
{
	const struct lg_trace *t = w->t;
	lg_trk gpu = t->track.parent[d->track];

	d->peak.ts = d->peak_reserved_ts = d->first; /* where no counter is above 0 */
	for (size_t i = 0; i < t->counter.n; i++) {
		lg_trk k = t->counter.track[i];
		const char *name = lg_string(t, t->track.name[k]);
		uint64_t v;

		if (t->track.parent[k] != gpu ||
		    !(t->counter.value[i] > 0 && t->counter.value[i] < BYTES_MAX))
			continue;
		v = (uint64_t)t->counter.value[i];
		if (!strcmp(name, "memory reserved") && v > d->peak_reserved) {
			d->peak_reserved = v;
			d->peak_reserved_ts = t->counter.ts[i];
		} else if (!strcmp(name, "memory allocated") && v > d->peak.bytes) {
			d->peak.bytes = v;
			d->peak.ts = t->counter.ts[i];
		}
	}
}

static int account(struct lg_memory_work *w, struct lg_memory_device *d)
{
	int64_t later;
	int rc;

	add_up(w, d);
	find_peaks(w, d);
	later = d->peak_reserved_ts > d->peak.ts ? d->peak_reserved_ts : d->peak.ts;
	rc = lg_memory_held_at(w, d, d->peak.ts, &d->peak) ?: lg_memory_held_now(w, d, &d->now) ?:
	     lg_memory_pieces_at(w, d, INT64_MAX, 0, &d->pieces) ?:
	     lg_memory_pieces_at(w, d, later, 0, &d->at_most) ?: lg_memory_find_points(w, d) ?:
	     lg_memory_find_leak(w, d) ?: lg_memory_find_ooms(w, d);
	if (!rc)
		lg_memory_find_churn(w, d);
	return rc;
}

static bool is_watched(const struct lg_memory *m, const struct lg_trace *t, lg_trk k)
{
	static const char *const names[] = { "gpu.mem_used", "memory allocated", "memory reserved",
					     "memory allocated peak", "memory reserved peak", "memory inactive",
					     "mem.available", "process.rss", "process.anon", "process.private" };
	static const char group[] = "cgroup.memory ";
	bool is = !strncmp(lg_string(t, t->track.name[k]), group, sizeof group - 1);

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		is |= !strcmp(lg_string(t, t->track.name[k]), names[i]);
	for (size_t i = 0; i < m->n_devices && is; i++)
		is = t->track.parent[m->device[i].track] != t->track.parent[k];
	return is && t->track.kind[k] == LG_TRACK_COUNTER;
}

static void watch(struct lg_memory_series *s, int64_t ts, double v)
{
	if (!s->n) {
		s->first = s->peak_ts = s->least_ts = ts;
		s->first_bytes = s->peak_bytes = s->least_bytes = v;
	}
	if (v > s->peak_bytes) {
		s->peak_bytes = v;
		s->peak_ts = ts;
	}
	if (v < s->least_bytes) {
		s->least_bytes = v;
		s->least_ts = ts;
	}
	s->last = ts;
	s->last_bytes = v;
	s->n++;
}

static int find_series(const struct lg_memory_work *w, struct lg_memory *m)
{
	const struct lg_trace *t = w->t;
	LG_AUTOFREE uint32_t *of_track = lg_calloc(t->track.n + 1, sizeof *of_track);

	for (lg_trk k = 1; of_track && k < t->track.n; k++) {
		if (!is_watched(m, t, k))
			continue;
		m->series = lg_arena_room(w->a, m->series, m->n_series, sizeof *m->series);
		if (!m->series)
			return LG_E_NOMEM;
		m->series[m->n_series++] = (struct lg_memory_series){ .track = k };
		of_track[k] = (uint32_t)m->n_series;
	}
	for (size_t i = 0; of_track && m->n_series && i < t->counter.n; i++)
		if (of_track[t->counter.track[i]] && t->counter.value[i] >= 0 &&
		    t->counter.value[i] < BYTES_MAX)
			watch(&m->series[of_track[t->counter.track[i]] - 1], t->counter.ts[i],
			      t->counter.value[i]);
	return of_track ? 0 : LG_E_NOMEM;
}

int lg_memory_account(const struct lg_trace *t, struct lg_arena *a, const struct lg_memory **ret)
{
	LG_AUTOFREE uint8_t *row_of_name = lg_calloc(t->n_str + 1, 1);
	struct lg_memory_work w = { .t = t, .a = a, .row_of_name = row_of_name };
	struct lg_memory *m = lg_arena_alloc(a, 1, sizeof *m);
	int rc = m && row_of_name ? find_devices(&w, m) : LG_E_NOMEM;

	*ret = NULL;
	if (!rc && m->n_devices)
		rc = lg_memory_places(&w);
	for (size_t i = 0; !rc && i < m->n_devices; i++)
		rc = account(&w, &m->device[i]);
	if (!rc)
		rc = find_series(&w, m);
	if (!rc && (m->n_devices || m->n_series))
		*ret = m;
	return rc;
}
