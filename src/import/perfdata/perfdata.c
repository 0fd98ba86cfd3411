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
#include <time.h>
#include <unistd.h>

#include "base/agree.h"
#include "base/alloc.h"
#include "import/perfdata/perf_import.h"
#include "import/source/stamp.h"
#include "symbols/file_budget.h"
#include "symbols/inlines.h"
#include "symbols/shrunk.h"

enum {
	HEAD_BYTES = PD_FILE_HEADER,
	/* Records that wait for order when no round ends: 2 buffers of 256 CPUs at perf's default
	 * size would be 256 MB, but those have rounds. */
	WINDOW_BYTES = 32 << 20,
	/* Of a folder that is known, so only what was written in disorder waits: at most this. */
	FOLDER_WINDOW_BYTES = 256 << 20,
	/* The formats of every event of a kernel have 2 MB. */
	TRACING_MAX = 64 << 20,
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

/* Everything that is wanted of most samples, while their bytes are at hand. Returns the time. */
static uint64_t look_at_sample(struct lg_pd_look *look, struct lg_pd_attrs *attrs,
			       const struct lg_pd_record *r)
{
	struct lg_pd_attr *a = lg_pd_attr_of(attrs, r->p, r->size, true);
	uint64_t ts = a ? lg_pd_sample_time(a, r->p, r->size, attrs->swap) : LG_PD_NO_TIME;
	bool swap = attrs->swap;
	const uint8_t *chain;
	size_t n = 0;

	look->sample = true;
	look->misc = r->misc;
	look->events = (uint32_t)attrs->n;
	if (!a || r->size < a->at.fixed)
		return ts;
	chain = lg_pd_sample_chain(a, r->p, r->size, swap, &n);
	if (!chain) { /* behind what a group of counters read */
		struct lg_pd_sample s;

		(void)lg_pd_sample_read(&s, a, r->p, r->size, swap);
		chain = s.chain;
		n = s.n_chain;
	}
	if (!chain || !n)
		return ts;
	look->chain_at = (uint16_t)(chain - r->p);
	lg_pd_sample_who(a, r->p, swap, &look->pid, &look->tid, &look->cpu);
	lg_pd_seen_chains_look(look, chain, n, swap);
	if (lg_pd_sample_is_plain(a) && n == pd_u64(chain - 8, swap)) {
		look->plain = (uint32_t)(a - attrs->attr) + 1;
		look->period = lg_pd_sample_period(a, r->p, swap);
	}
	return ts;
}

/* A sample's chain gets its number here: in the order of time, as what lies where changes. */
static void number_chain(struct lg_pd *p, const struct lg_pd_entry *e, struct lg_pd_handed *h)
{
	const struct lg_pd_look *look = &e->look;

	if (!p->memo)
		p->memo = lg_pd_seen_chains_new();
	/* A dying thread's pid is -1: it is not known here whose addresses these are. */
	if (p->memo && look->pid >= 0)
		lg_pd_seen_chains_ask(p->memo, look, &h->seen);
	if (look->plain)
		h->plain = &p->timing.attr[look->plain - 1];
}

/* Chains that were seen before may mean something else from here on. */
static void look_at_change(struct lg_pd *p, const uint8_t *rec, uint32_t type)
{
	uint16_t misc = pd_u16(rec + 4, p->timing.swap), size = pd_u16(rec + 6, p->timing.swap);

	if (!p->memo)
		return;
	if (type == PD_KSYMBOL)
		lg_pd_seen_chains_kernel_changed(p->memo);
	else if (size >= PD_RECORD_HEADER + 4 &&
		 (((type == PD_MMAP || type == PD_MMAP2) && !(misc & PDM_MMAP_DATA)) ||
		  (type == PD_COMM && misc & PDM_COMM_EXEC) || type == PD_FORK || type == PD_EXIT))
		lg_pd_seen_chains_changed(p->memo, (int32_t)pd_u32(rec + PD_RECORD_HEADER, p->timing.swap));
}

/* A pipe has described events since: it may be of one of them. Its time stays what it was put in order by. */
static struct lg_pd_entry looked_again(struct lg_pd *p, const struct lg_pd_entry *e)
{
	bool swap = p->timing.swap;
	struct lg_pd_record r = { .p = e->rec, .misc = pd_u16(e->rec + 4, swap),
				  .size = pd_u16(e->rec + 6, swap) };
	struct lg_pd_entry again = *e;

	again.look = (struct lg_pd_look){ 0 };
	(void)look_at_sample(&again.look, &p->timing, &r);
	return again;
}

static int hand_over(struct lg_pd *p, const struct lg_pd_entry *e)
{
	struct lg_pd_entry again;
	struct lg_pd_handed *h;
	int rc;

	if (__builtin_expect(e->look.sample && e->look.events != p->timing.n, 0)) {
		again = looked_again(p, e);
		e = &again;
	}
	rc = lg_pd_handover_add(p->handover, e, &h);
	if (rc)
		return rc;
	if (!e->look.sample) {
		look_at_change(p, e->rec, pd_u32(e->rec, p->timing.swap));
		return 0;
	}
	p->sampled = true;
	if (e->look.n)
		number_chain(p, e, h);
	return 0;
}

static void complete(void *self)
{
	struct lg_pd *p = self;

	if (p->memo)
		lg_pd_seen_chains_settle(p->memo);
}

static int deliver(void *self, const struct lg_pd_entry *e)
{
	struct lg_pd *p = self;

	return hand_over(p, e);
}

static int work(void *self, const struct lg_pd_handed *e, size_t slot)
{
	struct lg_pd *p = self;

	p->tasks.slot = slot;
	return lg_pd_record_in_order(p, e);
}

/* The record was read by another CPU: its first lines, if they will be looked at, and where its chain may
 * be known. */
static void ahead(void *self, const struct lg_pd_handed *e)
{
	struct lg_pd *p = self;

	if (!e->plain || e->seen.fresh) {
		__builtin_prefetch(e->entry.rec);
		__builtin_prefetch(e->entry.rec + 64);
		__builtin_prefetch(e->entry.rec + 128);
	}
	lg_pd_known_ahead(&p->tasks, &e->seen);
}

static void nearer(void *self, const struct lg_pd_handed *e, size_t slot)
{
	struct lg_pd *p = self;
	const struct lg_pd_look *look = &e->entry.look;

	if (e->seen.fresh)
		lg_pd_callers_ahead(&p->tasks, e->entry.rec + look->chain_at, look->n, e->seen.version, slot);
}

/* Before what the file says about itself changes: the records so far are read by what it said. */
static int before_change(struct lg_pd *p, struct lg_error *err)
{
	int rc = lg_pd_handover_wait(p->handover);

	return rc == LG_E_NOMEM ? nomem(err) : rc;
}

static void after_change(struct lg_pd *p)
{
	if (p->settled) /* events of a pipe that came late have no names yet */
		lg_pd_header_settle(&p->h);
	/* The same list of events, with a memory of its own for the last one that was asked for. */
	p->timing = p->h.attrs;
}

static int kernel_record(struct lg_pd *p, const struct lg_pd_record *r, struct lg_error *err)
{
	struct lg_pd_entry *e;
	int rc = 0;

	if (__builtin_expect(!p->settled, 0)) {
		rc = settle(p, err);
		if (rc)
			return rc;
		after_change(p);
	}
	e = lg_pd_order_room(&p->order);
	if (!e)
		return nomem(err);
	*e = (struct lg_pd_entry){ .rec = r->p, .block = r->block, .offset = r->offset };
	e->ts = r->type == PD_SAMPLE ? look_at_sample(&e->look, &p->timing, r) : lg_pd_time_of(&p->timing, r);
	/* Without a time, or about what was there before: as soon as it is read, like perf. */
	if (!lg_pd_is_timed(e->ts)) {
		rc = hand_over(p, e);
	} else {
		p->f->timed++;
		rc = lg_pd_order_add(&p->order, r->size);
	}
	return rc == LG_E_NOMEM ? nomem(err) : rc;
}

static int any_record(struct lg_pd *p, const struct lg_pd_record *r, struct lg_error *err);

static int unpacked_record(void *self, const struct lg_pd_record *r)
{
	struct lg_pd *p = self;

	return any_record(p, r, p->err);
}

static int too_much_tracing(uint64_t n, uint64_t offset, struct lg_error *err)
{
	return lg_fail(err, LG_E_LIMIT, offset, "tracing data of %llu bytes", (unsigned long long)n);
}

static int tracing_data(struct lg_pd *p, const uint8_t *bytes, size_t n, uint64_t offset,
			struct lg_error *err)
{
	int rc = before_change(p, err);

	if (rc)
		return rc;
	rc = lg_pd_header_feature(&p->h, PDH_TRACING_DATA, bytes, n, err);
	if (rc == LG_E_NOMEM)
		return rc;
	if (rc) {
		p->h.features_damaged++;
		p->h.damaged_at = offset;
	}
	after_change(p);
	return 0;
}

/* A u32 says how much it is; in simpleperf's records the rest is padding. */
static int counted_tracing_data(struct lg_pd *p, const uint8_t *bytes, size_t room, uint64_t offset,
				struct lg_error *err)
{
	uint32_t n = room >= 4 ? pd_u32(bytes, p->h.swap) : 0;

	return n ? tracing_data(p, bytes + 4, n < room - 4 ? n : room - 4, offset, err) : 0;
}

/* What is beyond a record with a payload of n bytes, of which all may not be there. */
static int tracing_record(struct lg_pd *p, const struct lg_pd_record *r, uint64_t n, struct lg_error *err)
{
	struct lg_pd_stream *in = &p->f->in;
	const uint8_t *bytes;
	int rc;

	if (!n)
		return counted_tracing_data(p, r->p + PD_RECORD_HEADER, r->size - (size_t)PD_RECORD_HEADER,
					    r->offset, err);
	if (n > TRACING_MAX)
		return too_much_tracing(n, r->offset, err);
	rc = lg_pd_stream_ensure(in, (size_t)n);
	if (rc <= 0)
		return rc ? nomem(err) : 0;
	bytes = in->block->bytes + in->at;
	return r->type == PD_HEADER_TRACING_DATA ? tracing_data(p, bytes, (size_t)n, r->offset, err)
						 : counted_tracing_data(p, bytes, (size_t)n, r->offset, err);
}

static int payload_record(struct lg_pd *p, const struct lg_pd_record *r, struct lg_error *err)
{
	struct lg_pd_stream *in = &p->f->in;
	uint64_t n = lg_pd_payload(r, p->h.swap);
	int rc = 0;

	if (r->type == PD_HEADER_TRACING_DATA || r->type == PD_SIMPLE_TRACING_DATA)
		rc = tracing_record(p, r, n, err);
	p->aux_bytes += r->type == PD_AUXTRACE ? n : 0;
	if (!rc && n && lg_pd_stream_skip(in, n) < n)
		p->f->cut_payload = true;
	return in->nomem ? nomem(err) : rc;
}

/* simpleperf wrote a record that is longer than 16 bits can say in parts, before its records could be so long
 * themselves. Of those it wrote so, tracing data is asked for here. */
static int split_record(struct lg_pd *p, const struct lg_pd_record *r, struct lg_error *err)
{
	size_t n = r->size - (size_t)PD_RECORD_HEADER, have = p->n_split;
	uint32_t type;

	if (r->type == PD_SIMPLE_SPLIT) {
		if (n > TRACING_MAX - have)
			return too_much_tracing(have + n, r->offset, err);
		if (lg_grow(&p->split, &p->split_cap, have + n, 1))
			return nomem(err);
		memcpy(p->split + have, r->p + PD_RECORD_HEADER, n);
		p->n_split += n;
		return 0;
	}
	p->n_split = 0;
	if (have < PD_RECORD_HEADER)
		return 0;
	type = pd_u32(p->split, p->h.swap);
	if (type != PD_HEADER_TRACING_DATA && type != PD_SIMPLE_TRACING_DATA)
		return 0;
	return counted_tracing_data(p, p->split + PD_RECORD_HEADER, have - PD_RECORD_HEADER, r->offset, err);
}

/*
 * simpleperf debug-unwind keeps a sample twice: with its registers and stack, and behind them with the
 * callers that were found. In between stand these callers as records of their own (cmd_debug_unwind.cpp),
 * which its reports do not look at either: here they only tell that the first of the two is one too many.
 */
static void simple_chain(struct lg_pd *p, const struct lg_pd_record *r)
{
	const struct lg_pd_entry *e = lg_pd_order_last(&p->order);
	bool swap = p->h.swap;
	struct lg_pd_attr *a;
	int32_t pid, tid, cpu;
	uint16_t size;

	if (!e || !e->look.sample || r->size < PD_RECORD_HEADER + 32 ||
	    e->ts != pd_u64(r->p + PD_RECORD_HEADER + 16, swap))
		return;
	size = pd_u16(e->rec + 6, swap);
	a = lg_pd_attr_of(&p->timing, e->rec, size, true);
	if (e->offset + size != r->offset || !a || size < a->at.fixed ||
	    !(a->sample_type & PDS_REGS_USER) || !(a->sample_type & PDS_STACK_USER))
		return;
	lg_pd_sample_who(a, e->rec, swap, &pid, &tid, &cpu);
	if (pid != (int32_t)pd_u32(r->p + PD_RECORD_HEADER, swap) ||
	    tid != (int32_t)pd_u32(r->p + PD_RECORD_HEADER + 4, swap))
		return;
	lg_pd_order_take_back(&p->order, size);
	p->twins++;
}

/*
 * How the next sample's stack was unwound. simpleperf record writes it where that failed; debug-unwind, which
 * wrote less of it, for all.
 */
static void simple_unwinding(struct lg_pd *p, const struct lg_pd_record *r)
{
	enum { FOR_ALL = PD_RECORD_HEADER + 48 };

	p->broken_unwinds += r->size + lg_pd_payload(r, p->h.swap) > FOR_ALL;
}

/* Of a kind that may be younger than this program. */
static void unknown_record(struct lg_pd *p, const struct lg_pd_record *r)
{
	if (p->unknown_type++)
		return;
	p->unknown_kind = r->type;
	p->unknown_at = r->offset;
	p->unknown_in = p->f->name;
}

static int any_record(struct lg_pd *p, const struct lg_pd_record *r, struct lg_error *err)
{
	int rc = 0;

	p->records++;
	if (__builtin_expect(r->type <= PD_KERNEL_MAX, 1)) {
		if (r->type > PD_CALLCHAIN_DEFERRED)
			unknown_record(p, r);
		p->deferred += r->type == PD_CALLCHAIN_DEFERRED;
		return kernel_record(p, r, err);
	}
	switch (r->type) {
	case PD_FINISHED_ROUND:
		if (p->n_files == 1) /* of a folder, the files themselves tell what is final */
			rc = lg_pd_order_round(&p->order);
		break;
	case PD_COMPRESSED:
	case PD_COMPRESSED2:
		/* What is in them says itself what it fails with; err is the same. */
		p->err = err;
		rc = lg_pd_file_unpack(p->f, r, unpacked_record, p);
		break;
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
	case PD_STAT:
		p->counted = true;
		break;
	case PD_ID_INDEX:
		if (p->h.in_folder)
			rc = lg_pd_members_index(p, r);
		break;
	case PD_AUXTRACE_INFO:
		p->aux = true;
		if (r->size >= PD_RECORD_HEADER + 4)
			p->aux_kind = pd_u32(r->p + PD_RECORD_HEADER, p->h.swap);
		break;
	case PD_AUXTRACE:
	case PD_HEADER_TRACING_DATA:
		return payload_record(p, r, err);
	case PD_SIMPLE_SPLIT:
	case PD_SIMPLE_SPLIT_END:
		return split_record(p, r, err);
	default:
		if (r->type == PD_SIMPLE_CALLCHAIN)
			simple_chain(p, r);
		else if (r->type == PD_SIMPLE_UNWINDING)
			simple_unwinding(p, r);
		if (r->type >= PD_SIMPLE_FIRST)
			return payload_record(p, r, err);
		if (r->type > PD_SCHEDSTAT_DOMAIN)
			unknown_record(p, r);
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
	lg_vagree(text, sizeof text, fmt, ap);
	va_end(ap);
	lg_add_diag_now(p->b, id, p->first_ts == INT64_MIN ? INT64_MIN : p->last_ts, n, "%s", text);
}

static void note_end(struct lg_pd *p, const struct lg_pd_file *f)
{
	const struct lg_pd_stream *in = &f->in;
	size_t left = in->end - in->at;
	const char *who = *f->name ? f->name : "the file";
	bool closes = !p->h.pipe && f == p->file; /* the header says where its records end */
	unsigned long long at = in->pos, want = p->h.data_at + p->h.data_size;

	if (in->read_errno)
		note(p, LG_DIAG_FILE_TRUNCATED, 1, "%s%sreading stopped at byte %llu: %s", f->name,
		     *f->name ? ": " : "", at, strerror(in->read_errno));
	else if (left || f->cut_payload)
		note(p, LG_DIAG_FILE_TRUNCATED, 1, "%s ends inside a record at byte %llu", who, at);
	else if (closes && p->h.data_size && at < want)
		note(p, LG_DIAG_FILE_TRUNCATED, 1,
		     "%s ends at byte %llu, its records were to go on to byte %llu", who, at, want);
	else if (closes && !p->h.data_size)
		note(p, LG_DIAG_FILE_TRUNCATED, 1,
		     "perf record did not close %s: read to its end at byte %llu", who, at);
	if (f->zin.end > f->zin.at)
		note(p, LG_DIAG_FILE_TRUNCATED, 1, "%s: the compressed part ends inside a record at byte %llu",
		     who, at);
}

static void note_file(struct lg_pd *p, const struct lg_pd_file *f)
{
	const char *colon = *f->name ? ": " : "";

	note_end(p, f);
	note(p, LG_DIAG_FILE_DAMAGED, f->damaged, "%s%s%llu places are not records, the first at byte %llu; "
	     "%llu bytes were skipped", f->name, colon, (unsigned long long)f->damaged,
	     (unsigned long long)f->damaged_at, (unsigned long long)f->damaged_bytes);
	note(p, LG_DIAG_FILE_DAMAGED, f->zstd_failed, "%s%s%llu compressed records cannot be unpacked, the "
	     "first at byte %llu", f->name, colon, (unsigned long long)f->zstd_failed,
	     (unsigned long long)f->zstd_failed_at);
}

/* What of the folder is not here. */
static void note_members(struct lg_pd *p)
{
	const struct lg_pd_members *m = &p->members;
	size_t unread = 0;
	const struct lg_pd_member *first = NULL;

	for (size_t i = 0; i < m->n; i++) {
		first = m->at[i].error && !first ? &m->at[i] : first;
		unread += m->at[i].error != 0;
	}
	if (first)
		note(p, LG_DIAG_PARTIAL, unread, "%zu files of the recording cannot be read, the first is "
		     "data.%u: %s", unread, first->number, strerror(first->error));
	note(p, LG_DIAG_PARTIAL, m->missing, "%zu files of the recording are missing, the first is data.%u",
	     m->missing, m->first_missing);
	note(p, LG_DIAG_PARTIAL, p->h.in_folder && !m->n && !m->missing, "perf record --threads leaves the samples "
	     "in the files data.0, data.1 ... beside its file data: there are none; give the whole folder");
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

/* What perf's decoders make of it are samples, and those can be read. */
static void note_hardware_trace(struct lg_pd *p)
{
	static const char *const kinds[] = { "a kind that is not told", "Intel PT", "Intel BTS",
					     "Arm CoreSight", "Arm SPE", "s390 CPU sampling",
					     "HiSilicon PTT", "VPA dispatch" };
	const char *kind = "an unknown kind";

	if (!p->aux && !p->aux_bytes)
		return;
	if (p->aux_kind < sizeof kinds / sizeof *kinds)
		kind = kinds[p->aux_kind];
	if (!p->aux_bytes)
		note(p, LG_DIAG_HW_TRACE, 1, "it was %s; nothing of it is in the file", kind);
	else
		note(p, LG_DIAG_HW_TRACE, 1, "%llu bytes of %s; %s", (unsigned long long)p->aux_bytes, kind,
		     p->h.simpleperf ? "record with simpleperf record -e cpu-clock -g for samples"
				     : "let perf make samples of them: perf inject --itrace=i100usl -i FILE -o OUT, "
				       "or perf script --itrace=i100usl");
}

/* Of a folder, what is missing tells already. Switches are something to go by, too. */
static void note_no_samples(struct lg_pd *p)
{
	if (p->sampled || lg_builder_trace(p->b)->state.n || (p->h.in_folder && p->n_files == 1))
		return;
	note(p, LG_DIAG_NO_SAMPLES, 1, "%s",
	     p->counted ? "perf stat wrote it, which counts only"
	     : p->aux ? "only a processor's trace" : "its command was over at once, or nothing of it ran");
}

/* Of the files that the recording names, or a link of theirs. */
static void note_over_budget(struct lg_pd *p)
{
	note(p, LG_DIAG_NAMES_LOST, lg_file_over_budget(LG_COST_UNPACKED), "packed sections of files were left out: "
	     "unpacked they are more than is kept for all files together; functions there have no names");
	note(p, LG_DIAG_NAMES_LOST, lg_file_over_budget(LG_COST_KEPT), "tables of files were left out: they are "
	     "more than is kept for all files together; functions there have no names");
	note(p, LG_DIAG_NAMES_LOST, lg_file_over_budget(LG_COST_SUMMED), "debug files were left out: to sum them up "
	     "is more than is read for all files together; functions there have no names");
}

static void notes(struct lg_pd *p)
{
	for (size_t i = 0; i < p->n_files; i++)
		note_file(p, &p->file[i]);
	note_members(p);
	note_no_samples(p);
	note_hardware_trace(p);
	note(p, LG_DIAG_FILE_DAMAGED, p->short_records, "%llu records are shorter than their content, "
	     "the first at byte %llu", (unsigned long long)p->short_records,
	     (unsigned long long)p->short_at);
	note(p, LG_DIAG_FILE_DAMAGED, p->h.features_damaged, "%llu parts of the file's description "
	     "cannot be read, the last at byte %llu", (unsigned long long)p->h.features_damaged,
	     (unsigned long long)p->h.damaged_at);
	note(p, p->h.joined ? LG_DIAG_PARTIAL : LG_DIAG_NOT_UNDERSTOOD, p->h.behind != 0,
	     p->h.joined ? "another perf.data file begins at byte %llu: it and what may follow, %llu bytes, "
			   "were not read; give each file by itself"
			 : "from byte %llu on, %llu bytes were not read: they lie behind the last part that the "
			   "header lists, and are none of its records",
	     (unsigned long long)p->h.behind_at, (unsigned long long)p->h.behind);
	note(p, LG_DIAG_LOST_EVENTS, p->lost_by_event > p->lost ? p->lost_by_event - p->lost : 0,
	     "perf's buffer was full; when is not told: only perf's count at the end has these");
	note(p, LG_DIAG_NOT_UNDERSTOOD, p->unknown_type, "records of type %u at byte %llu%s%s and others "
	     "like it", p->unknown_kind, (unsigned long long)p->unknown_at,
	     p->unknown_in && *p->unknown_in ? " of " : "", p->unknown_in ? p->unknown_in : "");
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
	note(p, LG_DIAG_STACK_TRUNCATED, p->broken_unwinds, "stacks that simpleperf could not unwind to their "
	     "outermost frame");
	note(p, LG_DIAG_NO_TIMES, p->timeless, "samples are numbered in the order of the file, 1 us apart");
	note(p, LG_DIAG_UNRESOLVED, p->code.unnamed, "%zu of %zu addresses have no function here",
	     p->code.unnamed, p->code.frames);
	note(p, LG_DIAG_NAMES_LOST, lg_shrunk_pages(), "pages of mapped files were gone while they were read: "
	     "functions there have no names");
	note(p, LG_DIAG_NAMES_LOST, lg_inlines_cut(), "files have more debug information than is looked through: "
	     "not all functions inlined there are told");
	note(p, LG_DIAG_NAMES_LOST, p->code.strange_maps, "perf maps or jitdumps are neither root's nor of the "
	     "process's own user or who reads them, and were not believed");
	note_over_budget(p);
	note(p, LG_DIAG_UNRESOLVED, p->kcore.why[0] != 0, "kcore_dir/kallsyms, of perf record --kcore, %s",
	     p->kcore.why);
	note_proof(p, &p->code);
	if (p->twins)
		lg_meta_setf(p->b, 0, "record.twins", "%llu samples were there a second time, with their callers",
			     (unsigned long long)p->twins);
	if (p->order.late)
		lg_meta_setf(p->b, 0, "record.late", "%llu records came later than two rounds after "
			     "their time", (unsigned long long)p->order.late);
}

/* -- the walk -- */

int lg_pd_step(struct lg_pd *p, struct lg_error *err)
{
	struct lg_pd_record r;
	int rc = lg_pd_file_next(p->f, &r);

	if (rc <= 0)
		return rc < 0 ? nomem(err) : 0;
	rc = any_record(p, &r, err);
	return rc ? rc : 1;
}

static int walk(struct lg_pd *p, struct lg_error *err)
{
	int rc;

	if (p->n_files > 1)
		rc = lg_pd_folder_walk(p, err);
	else
		while ((rc = lg_pd_step(p, err)) > 0)
			;
	if (rc)
		return rc;
	rc = lg_pd_order_flush(&p->order);
	if (!rc)
		rc = lg_pd_handover_wait(p->handover);
	return rc == LG_E_NOMEM ? nomem(err) : rc;
}

static int nothing(struct lg_pd *p, struct lg_error *err)
{
	if (p->file->damaged)
		return lg_fail(err, LG_E_FORMAT, p->file->damaged_at,
			       "no record can be read, the first place is none");
	return lg_fail(err, LG_E_FORMAT, p->file->in.pos,
		       "the perf.data file holds no record");
}

/* Positioned at its start; -1. */
static int memory_file(const struct lg_perfdata_part *part, struct lg_error *err)
{
	int fd = memfd_create("perf.data", MFD_CLOEXEC);

	if (fd < 0) {
		(void)lg_fail_errno(err, errno, "cannot make a file in memory");
	} else if (pwrite(fd, part->p, part->n, 0) != (ssize_t)part->n) {
		(void)lg_fail_errno(err, EIO, "memory file");
		close(fd);
		fd = -1;
	}
	return fd;
}

/* What is read: a file or a pipe, of which the head has been read from fd already. */
struct input {
	int fd;
	const uint8_t *head;
	size_t n_head;
	unsigned how;
	const char *path;                  /* NULL = none: nothing lies beside it */
	const struct lg_perfdata_part *part; /* of a test: what lies beside it */
	size_t n_parts;
};

static int files_beside(struct lg_pd *p, const struct input *in, struct lg_error *err)
{
	if (!p->h.in_folder)
		return 0;
	if (in->path)
		return lg_pd_members_open(&p->members, in->path, err);
	for (size_t i = 0; i < in->n_parts; i++) {
		struct lg_pd_member m = { .number = (uint32_t)i, .fd = memory_file(&in->part[i], err),
					  .size = in->part[i].n };

		if (m.fd < 0)
			return LG_E_IO;
		if (lg_pd_members_add(&p->members, &m)) {
			close(m.fd);
			return nomem(err);
		}
	}
	p->members.end = (uint32_t)in->n_parts;
	return 0;
}

static int open_files(struct lg_pd *p, const struct input *in, struct lg_error *err)
{
	uint64_t size = p->h.data_size;
	int rc = files_beside(p, in, err);

	if (rc)
		return rc;
	p->file = lg_calloc(1 + p->members.n, sizeof *p->file);
	if (!p->file)
		return nomem(err);
	p->f = &p->file[p->n_files++];
	lg_pd_file_init(p->f, &p->pool, in->fd, in->head, in->n_head, p->h.swap);
	if (!p->h.pipe && p->h.data_size)
		p->f->in.limit = p->h.data_at + p->h.data_size;
	for (size_t i = 0; i < p->members.n; i++) {
		const struct lg_pd_member *m = &p->members.at[i];

		if (m->fd < 0)
			continue;
		snprintf(p->file[p->n_files].name, sizeof p->file->name, "data.%u", m->number);
		lg_pd_file_init(&p->file[p->n_files++], &p->pool, m->fd, NULL, 0, p->h.swap);
		size += m->size;
	}
	if (p->n_files > 1)
		snprintf(p->file->name, sizeof p->file->name, "data");
	/* What is kept for reuse counts against the file's size, which memory is to stay below. */
	if (!p->h.pipe && p->h.data_size)
		p->pool.max = 4 + (size_t)(size >> 24 < 60 ? size >> 24 : 60);
	return 0;
}

static int prepare(struct lg_pd *p, const struct input *in, struct lg_error *err)
{
	const struct lg_pd_hands hands = { .complete = complete, .ahead = ahead, .nearer = nearer,
					   .work = work, .self = p };
	int rc = lg_pd_header_read(&p->h, in->how & SEEKABLE ? in->fd : -1, in->head, in->n_head, err);

	if (!rc)
		rc = lg_pd_code_init(&p->code, p->b, &p->h, err);
	if (rc)
		return rc;
	p->code.closed = in->how & CLOSED;
	if (in->path) {
		lg_pd_kcore_open(&p->kcore, in->path);
		p->code.kcore = &p->kcore;
	}
	rc = open_files(p, in, err);
	if (!rc)
		rc = lg_pd_handover_new(&p->handover, &p->pool, &hands, err);
	if (rc)
		return rc;
	p->tasks.swap = p->h.swap;
	p->order.pool = &p->pool;
	p->order.deliver = deliver;
	p->order.self = p;
	p->order.window = p->n_files > 1 ? FOLDER_WINDOW_BYTES : WINDOW_BYTES;
	p->tasks.b = p->b;
	p->tasks.code = &p->code;
	p->first_ts = INT64_MIN;
	return 0;
}

static int read_all(struct lg_pd *p, const struct input *in, struct lg_error *err)
{
	int rc = prepare(p, in, err);

	if (rc)
		return rc;
	/* Between header and records: the lists of ids, read already. */
	if (lg_pd_stream_skip(&p->f->in, p->h.data_at) < p->h.data_at && p->n_files == 1)
		return p->f->in.nomem ? nomem(err) : nothing(p, err);
	rc = walk(p, err);
	if (!rc)
		rc = settle(p, err);
	if (!rc && !p->records)
		rc = nothing(p, err);
	if (!rc && !p->h.attrs.n)
		rc = lg_fail(err, LG_E_FORMAT, p->f->in.pos,
			     "the perf.data stream describes no event");
	if (!rc)
		rc = lg_pd_events_finish(p, err);
	if (!rc) {
		lg_pd_members_check(p);
		lg_pd_kernel_threads(p);
		lg_pd_named_job(p);
		say_clock(p);
		notes(p);
	}
	return rc;
}

static int import_input(const struct input *in, struct lg_builder *b, struct lg_error *err)
{
	struct lg_pd *p = lg_calloc(1, sizeof *p);
	int rc;

	if (!p)
		return nomem(err);
	p->b = p->h.b = b;
	rc = read_all(p, in, err);
	lg_pd_handover_free(p->handover);
	lg_pd_events_free(p->events);
	lg_pd_order_done(&p->order);
	for (size_t i = 0; i < p->n_files; i++)
		lg_pd_file_done(&p->file[i]);
	lg_free(p->file);
	lg_pd_members_done(&p->members);
	lg_pd_pool_done(&p->pool);
	lg_pd_seen_chains_free(p->memo);
	lg_pd_tasks_done(&p->tasks);
	lg_pd_code_done(&p->code);
	lg_pd_kcore_done(&p->kcore);
	lg_pd_header_done(&p->h);
	lg_free(p->cpu);
	lg_free(p->split);
	lg_idle_done(&p->idle);
	lg_free(p);
	if (!rc && lg_builder_failed(b))
		rc = nomem(err);
	return rc;
}

/* in: but for what is read here. */
static int run_fd(struct input in, struct lg_builder *b, struct lg_error *err)
{
	uint8_t head[HEAD_BYTES];
	ssize_t k = 0;

	while (in.n_head < sizeof head && ((k = read(in.fd, head + in.n_head, sizeof head - in.n_head)) > 0 ||
					   (k < 0 && errno == EINTR)))
		in.n_head += k > 0 ? (size_t)k : 0;
	in.head = head;
	(void)posix_fadvise(in.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return k < 0 ? lg_fail_errno(err, errno, "cannot read %s", in.path ? in.path : "the file")
		     : import_input(&in, b, err);
}

static int run(const char *path, struct lg_builder *b, struct lg_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return lg_fail_errno(err, errno, "cannot open %s", path);
	rc = run_fd((struct input){ .fd = fd, .how = SEEKABLE, .path = path }, b, err);
	close(fd);
	return rc;
}

static int run_stream(int fd, const uint8_t *head, size_t n, struct lg_builder *b, struct lg_error *err)
{
	return import_input(&(struct input){ .fd = fd, .head = head, .n_head = n }, b, err);
}

int lg_perfdata_read_parts(const struct lg_perfdata_part *part, size_t n, struct lg_builder *b,
			   struct lg_error *err)
{
	int fd = memory_file(part, err), rc;

	if (fd < 0)
		return LG_E_IO;
	rc = run_fd((struct input){ .fd = fd, .how = SEEKABLE | CLOSED, .part = part + 1, .n_parts = n - 1 },
		    b, err);
	close(fd);
	return rc;
}

int lg_perfdata_read_memory(const uint8_t *p, size_t n, struct lg_builder *b, struct lg_error *err)
{
	return lg_perfdata_read_parts(&(struct lg_perfdata_part){ p, n }, 1, b, err);
}

static int sniff(const struct lg_head *h)
{
	return lg_pd_sniff(h->p, h->n);
}

const struct lg_importer lg_import_perfdata = {
	.name = "perf.data",
	.summary = "perf record's perf.data",
	.sniff = sniff,
	.run = run,
	.streams = lg_pd_is_pipe,
	.run_stream = run_stream,
};
