/* SPDX-License-Identifier: Apache-2.0 */
/* chromejson.c - events of a generic Chrome trace. */
#include "import/chromejson/chromejson.h"

#include "base/alloc.h"
#include "import/chromejson/chrome_import.h"
#include "import/kineto/kineto.h"
#include "import/source/packing.h"

/* How much of the text is looked at before it is decided that a trace is not torch.profiler's. */
enum { LOOK_BYTES = 512 << 10 };

static int sniff(const struct lg_head *h)
{
	const char *end = h->text + h->n_text, *p = lg_json_skip(h->text, end);

	/* zstd gives nothing out before a whole block is there: run() will tell. */
	if (!h->n_text)
		return lg_is_zstd(h->p, h->n) ? 2 : 0;
	if (p >= end || lg_is_xz(h->p, h->n) || (*p != '{' && *p != '['))
		return 0;
	if (p + 1 < end && !p[1]) /* UTF-16 */
		return 0;
	if (memmem(p, (size_t)(end - p), "\"traceEvents\"", 13))
		return 60;
	return memmem(p, (size_t)(end - p), "\"ph\"", 4) ? 50 : 1;
}

/* "cat=...", and for a drawing whatever else is told of it. */
static lg_str arguments(struct kineto *k, const struct lg_event *e)
{
	enum { CAT_MAX = 120 };
	const struct lg_slice *cat = &e->cat;
	uint32_t n = cat->n < CAT_MAX ? cat->n : CAT_MAX;

	k->buf_n = 0;
	if (!cat->p || !n) {
		kin_all_args(k, e);
		return k->buf_n ? lg_intern_n(k->b, k->buf, k->buf_n) : 0;
	}
	if (lg_grow(&k->buf, &k->buf_cap, CAT_MAX + 8, 1)) {
		k->failed = LG_E_NOMEM;
		return 0;
	}
	memcpy(k->buf, "cat=", 4);
	memcpy(k->buf + 4, cat->p, n);
	for (uint32_t i = 4; i < n + 4; i++)
		if ((unsigned char)k->buf[i] < 0x20)
			k->buf[i] = ' ';
	k->buf_n = n + 4;
	kin_all_args(k, e);
	return lg_intern_n(k->b, k->buf, k->buf_n);
}

static uint64_t hash(uint64_t h, const struct lg_slice *s)
{
	/* FNV-1a; ids and categories are short. */
	for (uint32_t i = 0; s->p && i < s->n; i++)
		h = (h ^ (unsigned char)s->p[i]) * 0x100000001b3u;
	return lg_mix64(h ^ s->n);
}

static lg_trk async_track(struct chrome *c, const struct lg_event *e, lg_prc prc)
{
	struct kineto *k = &c->k;
	const struct lg_slice *name = e->cat.p && e->cat.n ? &e->cat : &e->name;

	k->buf_n = 0;
	return lg_track_get(k->b, &(struct lg_track_row){ .name = kin_text(k, name),
							  .prc = prc,
							  .index = -1 });
}

static void half(struct chrome *c, const struct lg_event *e)
{
	struct kineto *k = &c->k;
	struct chrome_half h = { .ph = e->ph, .order = (uint32_t)c->n_halves };
	struct kin_key *t;
	int64_t dur;

	if (!kin_times(k, e, &h.ts, &dur))
		return;
	t = kin_thread(k, e, KIN_UNKNOWN);
	if (!t)
		return;
	h.thr = t->id;
	h.name = kin_text(k, &e->name);
	h.args = arguments(k, e);
	if (e->ph == 'B' || e->ph == 'E') {
		h.key = h.thr; /* below 2^32; hashes are made larger */
	} else {
		bool arrow = e->ph == 's' || e->ph == 't' || e->ph == 'f';

		h.key = hash(hash(hash(arrow, &e->cat), &e->id), &e->scope);
		/* id2.local means "in this process". */
		if (e->id.kind == '{' && memmem(e->id.p, e->id.n, "local", 5))
			h.key = lg_mix64(h.key + (uint64_t)t->pid);
		if (arrow)
			h.key = hash(h.key, &e->name);
		else
			h.track = async_track(c, e, lg_thread_process(k->b, h.thr));
		h.key |= 1ull << 63;
	}
	if (c->n_halves >= UINT32_MAX - 1 ||
	    lg_grow(&c->halves, &c->cap, c->n_halves + 1, sizeof h)) {
		k->failed = LG_E_NOMEM;
		return;
	}
	c->halves[c->n_halves++] = h;
}

static void complete(struct chrome *c, const struct lg_event *e)
{
	struct kineto *k = &c->k;
	struct lg_span_row r = { .kind = LG_SPAN_OTHER };
	struct kin_key *t;

	if (!kin_times(k, e, &r.ts, &r.dur))
		return;
	t = kin_thread(k, e, KIN_UNKNOWN);
	r.thr = t ? t->id : 0;
	r.name = kin_text(k, &e->name);
	r.args = arguments(k, e);
	lg_add_span(k->b, &r);
}

static void instant(struct chrome *c, const struct lg_event *e)
{
	struct lg_mark_row r = { 0 };
	struct kin_key *t;
	int64_t dur;

	if (!kin_times(&c->k, e, &r.ts, &dur))
		return;
	t = kin_thread(&c->k, e, KIN_UNKNOWN);
	r.thr = t ? t->id : 0;
	r.name = kin_text(&c->k, &e->name);
	lg_add_mark(c->k.b, &r);
}

static void event(struct chrome *c, const struct lg_event *e)
{
	c->k.n_events++;
	c->k.buf_n = 0;
	switch (e->ph) {
	case 'X':
		complete(c, e);
		break;
	case 'B': case 'E': case 'b': case 'e': case 'S': case 'F': case 's': case 't': case 'f':
		half(c, e);
		break;
	case 'i': case 'I': case 'R': case 'n': case 'T':
		instant(c, e);
		break;
	case 'C':
		kin_counters(&c->k, e);
		break;
	case 'M':
		c->n_metadata++;
		kin_metadata(&c->k, e);
		break;
	default:
		c->n_odd++;
	}
}

static void keep(struct chrome *c, char **text, uint32_t *n, const struct lg_slice *v)
{
	if (*text)
		return;
	*text = lg_calloc(v->n + LG_JSON_PAD, 1);
	if (!*text) {
		c->k.failed = LG_E_NOMEM;
		return;
	}
	memcpy(*text, v->p, v->n);
	*n = v->n;
}

static void field(struct chrome *c, const struct lg_slice *key, const struct lg_slice *v)
{
	if (LG_SLICE_IS(key, "samples") && v->kind == '[')
		keep(c, &c->samples, &c->n_samples, v);
	else if (LG_SLICE_IS(key, "stackFrames") && v->kind == '{')
		keep(c, &c->frames, &c->n_frames, v);
	else
		kin_field(&c->k, key, v);
}

static int finish(struct chrome *c, struct lg_events *r, struct lg_error *err)
{
	struct kineto *k = &c->k;

	chrome_samples(c);
	if (k->failed || lg_builder_failed(k->b) || chrome_pair(c) || lg_builder_failed(k->b))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	kin_clocks(k);
	kin_names(k);
	kin_diag(k);
	lg_meta_set(k->b, 0, "trace.format", "chrome");
	if (c->n_open)
		lg_add_diag_now(k->b, LG_DIAG_PARTIAL, k->last_ts, c->n_open,
				"%s: %llu begun spans never end", k->path,
				(unsigned long long)c->n_open);
	if (c->n_unmatched)
		lg_add_diag_now(k->b, LG_DIAG_PARTIAL, k->last_ts, c->n_unmatched,
				"%s: %llu ends have no beginning", k->path,
				(unsigned long long)c->n_unmatched);
	if (c->n_odd)
		lg_add_diag_now(k->b, LG_DIAG_NOT_UNDERSTOOD, k->last_ts, c->n_odd,
				"%s: events of phases that say nothing about time", k->path);
	lg_events_diag(r, k->b, k->last_ts);
	return 0;
}

static uint64_t rows_of(struct lg_builder *b)
{
	const struct lg_trace *t = lg_builder_trace(b);

	return t->span.n + t->mark.n + t->counter.n + t->sample.n + t->flow.n;
}

/* JSON of some other tool, whose records or whose "samples" are none of a trace. */
static int nothing_read(const struct chrome *c, const struct lg_events *r, struct lg_error *err)
{
	if (!c->k.n_events)
		return lg_events_none(r, err);
	return lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET,
		       "%s: JSON, but no trace: none of its %llu records is an event that tells a time",
		       r->path, (unsigned long long)c->k.n_events);
}

int lg_chromejson_read(struct lg_events *r, struct lg_builder *b, struct lg_error *err)
{
	struct chrome c = { .k = { .b = b, .err = err, .path = r->path, .rank = -1,
				   .last_ts = INT64_MIN } };
	uint64_t before = rows_of(b);
	struct lg_event e;
	int rc;

	while ((rc = lg_events_next(r, &e, err)) > 0) {
		if (rc == LG_ITEM_EVENT)
			event(&c, &e);
		else
			field(&c, &e.name, &e.args);
		if (c.k.failed || lg_builder_failed(b)) {
			rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
			break;
		}
	}
	if (!rc && !c.k.n_events && !c.samples)
		rc = lg_events_none(r, err);
	if (!rc)
		rc = finish(&c, r, err);
	if (!rc && !c.n_metadata && rows_of(b) == before)
		rc = nothing_read(&c, r, err);
	lg_free(c.halves);
	lg_free(c.samples);
	lg_free(c.frames);
	kin_done(&c.k);
	return rc;
}

/* Enough of the start to tell whose trace it is; the window stays where it is. */
static int look(struct lg_events *r, int *ret_kineto, struct lg_error *err)
{
	int rc;

	do /* what is kept may move, also when nothing comes */
		rc = lg_json_source_more(r->src, r->p, &r->p, &r->end, err);
	while (rc > 0 && r->end - r->p < LOOK_BYTES);
	if (rc < 0)
		return rc;
	*ret_kineto = r->p && lg_kineto_sniff_text(r->p, (size_t)(r->end - r->p));
	return 0;
}

static int run(const char *path, struct lg_builder *b, struct lg_error *err)
{
	struct lg_events r;
	int kineto = 0, rc = lg_events_open(&r, path, err);

	if (rc)
		return rc;
	rc = look(&r, &kineto, err);
	if (!rc)
		rc = kineto ? lg_kineto_read(&r, b, err) : lg_chromejson_read(&r, b, err);
	lg_events_close(&r);
	return rc;
}

const struct lg_importer lg_import_chromejson = {
	.name = "chrome",
	.summary = "Chrome traces (Trace Event Format; .json, .json.gz, .json.zst)",
	.sniff = sniff,
	.run = run,
};
