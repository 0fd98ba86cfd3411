/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perfdata.c - the import from end to end: bytes to records to order to rows, and the notes on
 * what was lost.
 */
#include "import/perfdata/perfdata.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "base/alloc.h"
#include "import/perfdata/perf_import.h"
#include "import/source/stamp.h"

enum {
	HEAD_BYTES = PD_FILE_HEADER,
	/* Records that wait for order when no round ends: 2 buffers of 256 CPUs at perf's default
	 * size would be 256 MB, but those have rounds. */
	WINDOW_BYTES = 32 << 20,
	/* pairs of clock readings are two calls one after the other, the first in microseconds
	 * (record__init_clock() in tools/perf/builtin-record.c) */
	CLOCK_PAIR_ERROR_NS = 50000,
	/* the wall clock is slewed by at most one part in so many (MAXFREQ in include/linux/timex.h) */
	SLEW = 2000
};

enum { SEEKABLE = 1, CLOSED = 2 };

static int nomem(struct lg_error *err)
{
	return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

/* Events have been described: give them names, and the trace its clock. */
static int settle(struct lg_pd *p, struct lg_error *err)
{
	const struct lg_pd_header *h = &p->h;
	bool timed = false;

	if (p->settled)
		return 0;
	p->settled = true;
	lg_pd_header_settle(&p->h);
	p->tasks.exact_callers = h->simpleperf;
	for (size_t i = 0; i < h->attrs.n; i++)
		timed |= h->attrs.attr[i].at.time >= 0;
	p->timeless_file = !timed;
	return lg_pd_events_new(p, err);
}

/* How far the wall clock may have run away from another one between ref and the ends of the file. */
static int64_t slewed(const struct lg_pd *p, int64_t ref)
{
	int64_t a = p->first_ts < ref ? ref - p->first_ts : p->first_ts - ref;
	int64_t z = p->last_ts < ref ? ref - p->last_ts : p->last_ts - ref;

	return p->first_ts == INT64_MIN ? 0 : (a > z ? a : z) / SLEW;
}

/*
 * Which clock the times are on, and what the wall clock showed on it: by that they are joined with other
 * files. CLOCK_MONOTONIC and BOOTTIME keep their distance from the wall clock while nobody sets it;
 * MONOTONIC_RAW is not slewed with it.
 */
static void say_clock(struct lg_pd *p)
{
	static const char *const names[] = { [CLOCK_REALTIME] = "CLOCK_REALTIME",
					     [CLOCK_MONOTONIC] = "CLOCK_MONOTONIC",
					     [CLOCK_MONOTONIC_RAW] = "CLOCK_MONOTONIC_RAW",
					     [CLOCK_BOOTTIME] = "CLOCK_BOOTTIME",
					     [CLOCK_TAI] = "CLOCK_TAI" };
	const struct lg_pd_header *h = &p->h;
	int32_t clock = h->attrs.n ? h->attrs.attr[0].clockid : -1;
	struct lg_clock_row row = { .clock = CLOCK_REALTIME, .error = CLOCK_PAIR_ERROR_NS };

	if (p->timeless_file) {
		lg_time_base(p->b, LG_TIME_NONE, 0, 0, "");
		return;
	}
	if (h->simpleperf)
		clock = CLOCK_MONOTONIC; /* its only choice for a whole system (-clockid perf aside) */
	if (clock >= 0 && (size_t)clock < sizeof names / sizeof *names && names[clock])
		lg_meta_set(p->b, 0, "clock.source", names[clock]);
	else
		lg_meta_set(p->b, 0, "clock.source",
			    "perf's own (sched_clock): not CLOCK_MONOTONIC; record with -k "
			    "CLOCK_MONOTONIC to join it with other sources");
	if (clock == CLOCK_REALTIME && p->first_ts != INT64_MIN) {
		row.ts = row.value = p->first_ts;
		row.error = 0;
		row.source = lg_intern(p->b, "perf -k CLOCK_REALTIME");
	} else if (h->has_clock_data && clock == (int32_t)h->clockid) {
		row.ts = (int64_t)(h->clock_ns & INT64_MAX);
		row.value = (int64_t)(h->wall_ns & INT64_MAX);
		row.error += clock == CLOCK_MONOTONIC_RAW ? slewed(p, row.ts) : 0;
		row.source = lg_intern(p->b, "perf CLOCK_DATA");
	} else {
		return;
	}
	lg_add_clock(p->b, &row);
}

/* A sample's chain gets its number here: this thread read the bytes a moment ago. */
static void look_at_sample(struct lg_pd *p, struct lg_pd_handed *h)
{
	const uint8_t *rec = h->entry.rec, *chain;
	bool swap = p->timing.swap;
	uint16_t size = pd_u16(rec + 6, swap);
	struct lg_pd_attr *a = lg_pd_attr_of(&p->timing, rec, size, true);
	struct lg_pd_sample s;
	size_t n = 0;

	if (!a || size < a->at.fixed)
		return;
	chain = lg_pd_sample_chain(a, rec, size, swap, &n);
	if (chain) {
		lg_pd_sample_fixed(&s, a, rec, swap);
	} else { /* behind what a group of counters read */
		(void)lg_pd_sample_read(&s, a, rec, size, swap);
		chain = s.chain;
		n = s.n_chain;
	}
	if (!chain || !n)
		return;
	if (!p->memo)
		p->memo = lg_pd_memo_new();
	/* A dying thread's pid is -1: it is not known here whose addresses these are. */
	if (p->memo && s.pid >= 0)
		lg_pd_memo_ask(p->memo, chain, n, swap, s.pid, pd_u16(rec + 4, swap), &h->seen);
	if (lg_pd_sample_is_plain(a) && n == pd_u64(chain - 8, swap)) {
		h->plain = a;
		h->period = s.period;
		h->pid = s.pid;
		h->tid = s.tid;
		h->cpu = s.cpu;
		h->misc = pd_u16(rec + 4, swap);
	}
}

/* Chains that were seen before may mean something else from here on. */
static void look_at_change(struct lg_pd *p, const uint8_t *rec, uint32_t type)
{
	uint16_t misc = pd_u16(rec + 4, p->timing.swap), size = pd_u16(rec + 6, p->timing.swap);

	if (!p->memo)
		return;
	if (type == PD_KSYMBOL)
		lg_pd_memo_kernel_changed(p->memo);
	else if (size >= PD_RECORD_HEADER + 4 &&
		 (((type == PD_MMAP || type == PD_MMAP2) && !(misc & PDM_MMAP_DATA)) ||
		  (type == PD_COMM && misc & PDM_COMM_EXEC) || type == PD_FORK || type == PD_EXIT))
		lg_pd_memo_changed(p->memo, (int32_t)pd_u32(rec + PD_RECORD_HEADER, p->timing.swap));
}

static int hand_over(struct lg_pd *p, const struct lg_pd_entry *e)
{
	uint32_t type = pd_u32(e->rec, p->timing.swap);
	struct lg_pd_handed *h;
	int rc = lg_pd_handover_add(p->handover, e, &h);

	if (rc)
		return rc;
	if (type == PD_SAMPLE)
		look_at_sample(p, h);
	else
		look_at_change(p, e->rec, type);
	return 0;
}

static void complete(void *self)
{
	struct lg_pd *p = self;

	if (p->memo)
		lg_pd_memo_settle(p->memo);
}

static int deliver(void *self, const struct lg_pd_entry *e)
{
	struct lg_pd *p = self;

	return hand_over(p, e);
}

static int work(void *self, const struct lg_pd_handed *e)
{
	return lg_pd_record_in_order(self, e);
}

/* The record was read by another CPU: its first lines, if they will be looked at, and where its chain may
 * be known. */
static void ahead(void *self, const struct lg_pd_handed *e)
{
	struct lg_pd *p = self;

	if (!e->plain || e->seen.fresh) {
		__builtin_prefetch(e->entry.rec);
		__builtin_prefetch(e->entry.rec + 64);
	}
	lg_pd_known_ahead(&p->tasks, &e->seen);
}

/* Before what the file says about itself changes: the records so far are read by what it said. */
static int before_change(struct lg_pd *p, struct lg_error *err)
{
	int rc = lg_pd_handover_wait(p->handover);

	return rc == LG_E_NOMEM ? nomem(err) : rc;
}

static void after_change(struct lg_pd *p)
{
	/* The same list of events, with a memory of its own for the last one that was asked for. */
	p->timing = p->h.attrs;
}

static uint64_t time_of(struct lg_pd *p, const struct lg_pd_record *r)
{
	const struct lg_pd_attr *a = lg_pd_attr_of(&p->timing, r->p, r->size, r->type == PD_SAMPLE);

	if (!a)
		return LG_PD_NO_TIME;
	if (r->type == PD_SAMPLE)
		return lg_pd_sample_time(a, r->p, r->size, p->timing.swap);
	if ((r->type == PD_FORK || r->type == PD_EXIT) && r->size >= 32)
		return pd_u64(r->p + 24, p->timing.swap);
	if (a->at.back_time > 0 && r->size >= PD_RECORD_HEADER + a->at.trailer)
		return pd_u64(r->p + r->size - a->at.back_time, p->timing.swap);
	return LG_PD_NO_TIME;
}

static int kernel_record(struct lg_pd *p, const struct lg_pd_record *r, struct lg_error *err)
{
	uint64_t ts;
	int rc = 0;

	if (__builtin_expect(!p->settled, 0)) {
		rc = settle(p, err);
		if (rc)
			return rc;
		after_change(p);
	}
	ts = time_of(p, r);
	/* Without a time, or about what was there before: as soon as it is read, like perf. */
	if (ts == 0 || ts == LG_PD_NO_TIME)
		rc = hand_over(p, &(struct lg_pd_entry){ ts, r->p, r->block, r->offset });
	else
		rc = lg_pd_order_add(&p->order, r, ts);
	return rc == LG_E_NOMEM ? nomem(err) : rc;
}

static int any_record(struct lg_pd *p, const struct lg_pd_record *r, struct lg_error *err);

static int drain(struct lg_pd *p, uint64_t offset, struct lg_error *err)
{
	struct lg_pd_record r;
	int rc;

	while ((rc = lg_pd_stream_next(&p->zin, &r)) > 0) {
		/* One compressed inside another is damage; it must not lead us round in circles. */
		if (r.type == PD_COMPRESSED || r.type == PD_COMPRESSED2)
			continue;
		r.offset = offset;
		rc = any_record(p, &r, err);
		if (rc)
			return rc;
	}
	return rc < 0 ? nomem(err) : 0;
}

/* One zstd stream runs through all compressed records; records may begin in one, end in the next. */
static int compressed_record(struct lg_pd *p, const struct lg_pd_record *r, struct lg_error *err)
{
	size_t head = r->type == PD_COMPRESSED2 ? 16 : 8;
	ZSTD_inBuffer in = { .src = r->p + head };
	size_t before;
	int rc = 0;

	if (!p->zstd) {
		p->zstd = ZSTD_createDStream();
		if (!p->zstd)
			return nomem(err);
	}
	if (r->size < head)
		return 0;
	in.size = r->size - head;
	if (r->type == PD_COMPRESSED2) {
		uint64_t n = pd_u64(r->p + 8, p->h.swap);

		in.size = n < in.size ? (size_t)n : in.size; /* the rest is padding */
	}
	do {
		ZSTD_outBuffer out = { 0 };
		size_t k;

		out.dst = lg_pd_stream_room(&p->zin, 1 << 16, &out.size);
		if (!out.dst)
			return nomem(err);
		before = in.pos;
		k = ZSTD_decompressStream(p->zstd, &out, &in);
		lg_pd_stream_filled(&p->zin, out.pos);
		if (ZSTD_isError(k)) {
			/* What follows in the stream refers to what is lost. */
			if (!p->zstd_failed++)
				p->zstd_failed_at = r->offset;
			ZSTD_DCtx_reset(p->zstd, ZSTD_reset_session_only);
			p->zin.at = p->zin.end;
			break;
		}
		if (out.pos)
			rc = drain(p, r->offset, err);
		if (!out.pos && in.pos == before)
			break;
	} while (!rc);
	return rc;
}

/* What follows a record without being one. */
static int payload_record(struct lg_pd *p, const struct lg_pd_record *r, struct lg_error *err)
{
	uint64_t n = 0;
	int rc;

	if (r->type == PD_AUXTRACE && r->size >= 16) {
		n = pd_u64(r->p + 8, p->h.swap);
	} else if (r->type == PD_HEADER_TRACING_DATA && r->size >= 12) {
		n = pd_u32(r->p + 8, p->h.swap);
		n = (n + 7) & ~7ull;
		if (n > 64 << 20)
			return lg_fail(err, LG_E_LIMIT, r->offset, "tracing data of %llu bytes",
				       (unsigned long long)n);
		rc = lg_pd_stream_ensure(&p->in, (size_t)n);
		if (rc < 0)
			return nomem(err);
		if (rc) {
			rc = before_change(p, err);
			if (rc)
				return rc;
			rc = lg_pd_header_feature(&p->h, PDH_TRACING_DATA,
						  p->in.block->bytes + p->in.at, (size_t)n, err);
			if (rc == LG_E_NOMEM)
				return rc;
			p->h.features_damaged += rc != 0;
			after_change(p);
		}
	}
	if (n && lg_pd_stream_skip(&p->in, n) < n)
		p->cut_payload = true;
	return p->in.nomem ? nomem(err) : 0;
}

static int any_record(struct lg_pd *p, const struct lg_pd_record *r, struct lg_error *err)
{
	int rc = 0;

	p->records++;
	if (__builtin_expect(r->type <= PD_KERNEL_MAX, 1)) {
		if (r->type > PD_CALLCHAIN_DEFERRED && !p->unknown_type++) {
			p->unknown_kind = r->type;
			p->unknown_at = r->offset;
		}
		p->deferred += r->type == PD_CALLCHAIN_DEFERRED;
		return kernel_record(p, r, err);
	}
	switch (r->type) {
	case PD_FINISHED_ROUND:
		rc = lg_pd_order_round(&p->order);
		break;
	case PD_COMPRESSED:
	case PD_COMPRESSED2:
		return compressed_record(p, r, err);
	case PD_HEADER_ATTR:
	case PD_HEADER_BUILD_ID:
	case PD_HEADER_FEATURE:
	case PD_EVENT_UPDATE:
		rc = before_change(p, err);
		if (rc)
			return rc;
		rc = lg_pd_header_record(&p->h, r->type, r->p, r->size, err);
		if (rc && rc != LG_E_NOMEM) {
			p->h.features_damaged++;
			p->h.damaged_at = r->offset;
			rc = 0;
		}
		after_change(p);
		return rc;
	case PD_AUXTRACE:
	case PD_HEADER_TRACING_DATA:
		return payload_record(p, r, err);
	default:
		if (r->type > PD_SCHEDSTAT_DOMAIN && r->type < PD_SIMPLE_FIRST && !p->unknown_type++) {
			p->unknown_kind = r->type;
			p->unknown_at = r->offset;
		}
		break;
	}
	return rc == LG_E_NOMEM ? nomem(err) : rc;
}

/* -- closing notes -- */

static void note(struct lg_pd *p, enum lg_diag_id id, uint64_t n, const char *fmt, ...) LG_PRINTF(4, 5);
static void note(struct lg_pd *p, enum lg_diag_id id, uint64_t n, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	if (!n)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	lg_add_diag_now(p->b, id, p->first_ts == INT64_MIN ? INT64_MIN : p->last_ts, n, "%s", text);
}

static void note_end(struct lg_pd *p)
{
	const struct lg_pd_stream *in = &p->in;
	size_t left = in->end - in->at;
	unsigned long long at = in->pos, want = p->h.data_at + p->h.data_size;

	if (in->read_errno)
		note(p, LG_DIAG_FILE_TRUNCATED, 1, "reading stopped at byte %llu: %s", at,
		     strerror(in->read_errno));
	else if (left || p->cut_payload)
		note(p, LG_DIAG_FILE_TRUNCATED, 1, "the file ends inside a record at byte %llu", at);
	else if (!p->h.pipe && p->h.data_size && at < want)
		note(p, LG_DIAG_FILE_TRUNCATED, 1,
		     "the file ends at byte %llu, its records were to go on to byte %llu", at, want);
	else if (!p->h.pipe && !p->h.data_size)
		note(p, LG_DIAG_FILE_TRUNCATED, 1,
		     "perf record did not close the file: read to its end at byte %llu", at);
	if (p->zin.end > p->zin.at)
		note(p, LG_DIAG_FILE_TRUNCATED, 1, "the compressed part ends inside a record at byte %llu",
		     at);
}

/* The file does not say where it was made: whose names these are. */
static void note_proof(struct lg_pd *p, const struct lg_pd_code *c)
{
	const char *core = c->core_only ? " (its kernel modules have none)" : "";

	if (c->home.proof == LG_PD_BY_KERNEL)
		note(p, LG_DIAG_TRUSTED, 1, "the file does not say where it was recorded; the kernel was at the "
		     "same random address, with a text of the same length%s", core);
	else if (c->home.proof == LG_PD_BY_PROCESS)
		note(p, LG_DIAG_TRUSTED, 1, "the file does not say where it was recorded; process %d of it still "
		     "runs here, at the same random addresses", c->home.pid);
	else if (c->home.proof == LG_PD_BY_FILE)
		note(p, LG_DIAG_TRUSTED, 1, "the file does not say where it was recorded; it maps %.80s, made since "
		     "this machine started", lg_string(lg_builder_trace(p->b), c->home.name));
	note(p, LG_DIAG_UNRESOLVED, c->home.refused, "files of that name here, which nothing shows to be those "
	     "recorded, unchanged since: %zu (the file does not say where it was recorded)", c->home.refused);
}

static void notes(struct lg_pd *p)
{
	note_end(p);
	note(p, LG_DIAG_FILE_DAMAGED, p->damaged, "%llu places are not records, the first at byte %llu; "
	     "%llu bytes were skipped", (unsigned long long)p->damaged,
	     (unsigned long long)p->damaged_at, (unsigned long long)p->damaged_bytes);
	note(p, LG_DIAG_FILE_DAMAGED, p->zstd_failed, "%llu compressed records cannot be unpacked, the "
	     "first at byte %llu", (unsigned long long)p->zstd_failed,
	     (unsigned long long)p->zstd_failed_at);
	note(p, LG_DIAG_FILE_DAMAGED, p->short_records, "%llu records are shorter than their content, "
	     "the first at byte %llu", (unsigned long long)p->short_records,
	     (unsigned long long)p->short_at);
	note(p, LG_DIAG_FILE_DAMAGED, p->h.features_damaged, "%llu parts of the file's description "
	     "cannot be read, the last at byte %llu", (unsigned long long)p->h.features_damaged,
	     (unsigned long long)p->h.damaged_at);
	note(p, p->h.joined ? LG_DIAG_PARTIAL : LG_DIAG_NOT_UNDERSTOOD, p->h.behind != 0,
	     p->h.joined ? "another perf.data file begins at byte %llu: it and what may follow, %llu bytes, "
			   "were not read; give each file by itself"
			 : "from byte %llu on, behind the last part of the file, %llu bytes were not read",
	     (unsigned long long)p->h.behind_at, (unsigned long long)p->h.behind);
	note(p, LG_DIAG_LOST_EVENTS, p->lost_by_event > p->lost ? p->lost_by_event - p->lost : 0,
	     "perf's buffer was full; when is not told: only perf's count at the end has these");
	note(p, LG_DIAG_NOT_UNDERSTOOD, p->unknown_type, "records of type %u at byte %llu and others "
	     "like it", p->unknown_kind, (unsigned long long)p->unknown_at);
	note(p, LG_DIAG_NOT_UNDERSTOOD, p->h.in_folder, "perf record --threads left the samples in the files "
	     "data.0, data.1 ... beside this one, which are not read: record without --threads");
	note(p, LG_DIAG_NOT_UNDERSTOOD, p->deferred, "user stacks were recorded apart from their "
	     "samples (deferred unwinding) and are not joined");
	note(p, LG_DIAG_FILE_DAMAGED, p->h.attrs.unknown_ids, "%llu samples belong to no event of the "
	     "file", (unsigned long long)p->h.attrs.unknown_ids);
	note(p, LG_DIAG_STACK_TRUNCATED, p->tasks.cut, "call chains of more than 4096 frames");
	note(p, LG_DIAG_STACK_TRUNCATED, p->tasks.n_part, "of %llu stack copies (--call-graph dwarf) "
	     "end before their outermost frame: a copy was too short, or the code is not here",
	     (unsigned long long)p->tasks.n_unwound);
	note(p, LG_DIAG_STACK_TRUNCATED, p->tasks.n_no_unwind, "stack copies of a kind of machine that "
	     "is not unwound here: only where they stopped is known");
	note(p, LG_DIAG_TIME_CLAMPED, p->timeless, "samples carry no time: they are numbered in the "
	     "order of the file, 1 us apart");
	note(p, LG_DIAG_UNRESOLVED, p->code.unnamed, "%zu of %zu addresses have no function here",
	     p->code.unnamed, p->code.frames);
	note_proof(p, &p->code);
	if (p->order.late)
		lg_meta_setf(p->b, 0, "record.late", "%llu records came later than two rounds after "
			     "their time", (unsigned long long)p->order.late);
}

/* -- the walk -- */

static int walk(struct lg_pd *p, struct lg_error *err)
{
	struct lg_pd_record r;
	int rc;

	while ((rc = lg_pd_stream_next(&p->in, &r)) > 0) {
		if (__builtin_expect(p->in.skipped != 0, 0)) {
			if (!p->damaged++)
				p->damaged_at = p->in.skipped_at;
			p->damaged_bytes += p->in.skipped;
		}
		rc = any_record(p, &r, err);
		if (rc)
			return rc;
	}
	if (rc < 0)
		return nomem(err);
	if (p->in.skipped) {
		if (!p->damaged++)
			p->damaged_at = p->in.skipped_at;
		p->damaged_bytes += p->in.skipped;
	}
	rc = lg_pd_order_flush(&p->order);
	if (!rc)
		rc = lg_pd_handover_wait(p->handover);
	return rc == LG_E_NOMEM ? nomem(err) : rc;
}

static int nothing(struct lg_pd *p, struct lg_error *err)
{
	if (p->damaged)
		return lg_fail(err, LG_E_FORMAT, p->damaged_at,
			       "no record can be read, the first place is none");
	return lg_fail(err, LG_E_FORMAT, p->in.pos,
		       "the perf.data file holds no record");
}

static int read_all(struct lg_pd *p, int fd, const uint8_t *head, size_t n_head, unsigned how,
		    struct lg_error *err)
{
	const struct lg_pd_hands hands = { .complete = complete, .ahead = ahead, .work = work, .self = p };
	uint64_t skip;
	int rc = lg_pd_header_read(&p->h, how & SEEKABLE ? fd : -1, head, n_head, err);

	if (!rc)
		rc = lg_pd_code_init(&p->code, p->b, &p->h, err);
	if (rc)
		return rc;
	p->code.closed = how & CLOSED;
	lg_pd_stream_init(&p->in, &p->pool, fd, head, n_head);
	lg_pd_stream_init(&p->zin, &p->pool, -1, NULL, 0);
	p->in.swap = p->zin.swap = p->tasks.swap = p->h.swap;
	rc = lg_pd_handover_new(&p->handover, &p->pool, &hands, err);
	if (rc)
		return rc;
	p->order.pool = &p->pool;
	p->order.deliver = deliver;
	p->order.self = p;
	p->order.window = WINDOW_BYTES;
	p->tasks.b = p->b;
	p->tasks.code = &p->code;
	p->first_ts = INT64_MIN;
	/* What is kept for reuse counts against the file's size, which memory is to stay below. */
	if (!p->h.pipe && p->h.data_size)
		p->pool.max = 4 + (size_t)(p->h.data_size >> 24 < 60 ? p->h.data_size >> 24 : 60);
	if (!p->h.pipe && p->h.data_size)
		p->in.limit = p->h.data_at + p->h.data_size;
	/* Between header and records: the lists of ids, read already. */
	skip = p->h.data_at;
	if (lg_pd_stream_skip(&p->in, skip) < skip)
		return p->in.nomem ? nomem(err) : nothing(p, err);
	rc = walk(p, err);
	if (!rc)
		rc = settle(p, err);
	if (!rc && !p->records)
		rc = nothing(p, err);
	if (!rc && !p->h.attrs.n)
		rc = lg_fail(err, LG_E_FORMAT, p->in.pos,
			     "the perf.data stream describes no event");
	if (!rc)
		rc = lg_pd_events_finish(p, err);
	if (!rc) {
		lg_pd_kernel_threads(p);
		say_clock(p);
		notes(p);
	}
	return rc;
}

static int import_fd(int fd, const uint8_t *head, size_t n_head, unsigned how, struct lg_builder *b,
		     struct lg_error *err)
{
	struct lg_pd *p = lg_calloc(1, sizeof *p);
	int rc;

	if (!p)
		return nomem(err);
	p->b = p->h.b = b;
	rc = read_all(p, fd, head, n_head, how, err);
	lg_pd_handover_free(p->handover);
	lg_pd_events_free(p->events);
	lg_pd_order_done(&p->order);
	if (p->in.pool) {
		lg_pd_stream_done(&p->in);
		lg_pd_stream_done(&p->zin);
	}
	lg_pd_pool_done(&p->pool);
	ZSTD_freeDStream(p->zstd);
	lg_pd_memo_free(p->memo);
	lg_pd_tasks_done(&p->tasks);
	lg_pd_code_done(&p->code);
	lg_pd_header_done(&p->h);
	lg_free(p->cpu);
	lg_free(p);
	if (!rc && lg_builder_failed(b))
		rc = nomem(err);
	return rc;
}

static int run_how(const char *path, unsigned how, struct lg_builder *b, struct lg_error *err)
{
	uint8_t head[HEAD_BYTES];
	size_t n = 0;
	ssize_t k = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return lg_fail_errno(err, errno, "cannot open %s", path);
	while (n < sizeof head && ((k = read(fd, head + n, sizeof head - n)) > 0 ||
				   (k < 0 && errno == EINTR)))
		n += k > 0 ? (size_t)k : 0;
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	rc = k < 0 ? lg_fail_errno(err, errno, "cannot read %s", path)
		   : import_fd(fd, head, n, how, b, err);
	close(fd);
	return rc;
}

static int run(const char *path, struct lg_builder *b, struct lg_error *err)
{
	return run_how(path, SEEKABLE, b, err);
}

static int run_stream(int fd, const uint8_t *head, size_t n, struct lg_builder *b, struct lg_error *err)
{
	return import_fd(fd, head, n, 0, b, err);
}

int lg_perfdata_read_memory(const uint8_t *p, size_t n, struct lg_builder *b, struct lg_error *err)
{
	int fd = memfd_create("perf.data", MFD_CLOEXEC), rc;
	char path[32];

	if (fd < 0)
		return lg_fail_errno(err, errno, "cannot make a file in memory");
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	rc = write(fd, p, n) == (ssize_t)n ? run_how(path, SEEKABLE | CLOSED, b, err)
					 : lg_fail_errno(err, EIO, "memory file");
	close(fd);
	return rc;
}

const struct lg_importer lg_import_perfdata = {
	.name = "perf.data",
	.summary = "perf record's perf.data",
	.sniff = lg_pd_sniff,
	.run = run,
	.streams = lg_pd_is_pipe,
	.run_stream = run_stream,
};
