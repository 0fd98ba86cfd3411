/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpf_dump - runs the eBPF source alone, without session, and prints its rows as JSON lines.
 *
 *   bpf_dump SECONDS [-j PID]... [-f PID]... [-q] [-r RING_BYTES] [-l]
 *
 * -j: this process is of the job; -f: print only rows of these processes (default: all);
 * -q: only run time per thread, meta and diag rows; -l: light profile.
 * It stands in for session.c (everything that session.h promises to sources is below), so that a
 * fault of one is not taken for a fault of the other.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "record/session.h"

struct entry {
	int64_t ts;
	uint64_t order;
	size_t n;
	void *rec;
};

struct lg_session {
	struct lg_builder *b;
	struct lg_record_options opt;
	struct entry *queue;
	size_t n, cap;
	uint64_t order, bytes, records;
	int32_t jobs[64];
	size_t n_jobs;
};

struct symbol {
	uint64_t addr;
	char name[64];
};
static struct symbol *symbols;
static size_t n_symbols, cap_symbols;

struct lg_builder *lg_session_builder(struct lg_session *s) { return s->b; }
const struct lg_record_options *lg_session_options(const struct lg_session *s) { return &s->opt; }
unsigned lg_session_source_index(const struct lg_session *s) { (void)s; return 0; }
pid_t lg_session_self(const struct lg_session *s) { (void)s; return getpid(); }
int64_t lg_monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
int lg_session_watch(struct lg_session *s, int fd, struct lg_error *err)
{
	(void)s; (void)fd; (void)err;
	return 0;
}
bool lg_session_is_job(const struct lg_session *s, int32_t pid)
{
	for (size_t i = 0; i < s->n_jobs; i++)
		if (s->jobs[i] == pid)
			return true;
	return false;
}
void lg_session_fork(struct lg_session *s, int64_t ts, int32_t ppid, int32_t pid, int32_t tid)
{
	lg_thread_start(s->b, ppid, pid, tid, ts);
}
void lg_session_exec(struct lg_session *s, int64_t ts, int32_t pid, const char *comm)
{
	(void)s; (void)ts; (void)pid; (void)comm;
}
void lg_session_exit(struct lg_session *s, int64_t ts, int32_t pid, int32_t tid)
{
	(void)pid;
	lg_thread_end(s->b, tid, ts);
}
void lg_session_push(struct lg_session *s, unsigned src_i, int64_t ts, const void *rec, size_t n)
{
	struct entry *e;

	(void)src_i;
	if (lg_grow(&s->queue, &s->cap, s->n + 1, sizeof *s->queue))
		abort();
	e = &s->queue[s->n++];
	*e = (struct entry){ts, s->order++, n, malloc(n)};
	if (!e->rec)
		abort();
	memcpy(e->rec, rec, n);
	s->bytes += n + 8;
	s->records++;
}

static int by_addr(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

static void load_symbols(void)
{
	FILE *in = fopen("/proc/kallsyms", "re");
	char line[512];

	while (in && fgets(line, sizeof line, in)) {
		struct symbol s;
		char type;

		if (sscanf(line, "%" SCNx64 " %c %63s", &s.addr, &type, s.name) != 3 || !strchr("tTwW", type))
			continue;
		if (lg_grow(&symbols, &cap_symbols, n_symbols + 1, sizeof *symbols))
			abort();
		symbols[n_symbols++] = s;
	}
	if (in)
		fclose(in);
	qsort(symbols, n_symbols, sizeof *symbols, by_addr);
}

static const char *symbol_of(uint64_t addr)
{
	size_t lo = 0, hi = n_symbols;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (symbols[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? symbols[lo - 1].name : "?";
}

lg_stk lg_session_stack(struct lg_session *s, const struct lg_addresses *of)
{
	size_t n_user = of->n_user, n_kernel = of->n_kernel;
	lg_stk stk = 0;
	char text[32];

	while (n_user--) {
		snprintf(text, sizeof text, "0x%" PRIx64, of->user[n_user]);
		stk = lg_intern_stack(s->b, stk, lg_intern_frame(s->b, &(struct lg_frame_row){
			.pc = of->user[n_user], .kind = LG_FRAME_USER, .name = lg_intern(s->b, text)}));
	}
	while (n_kernel--)
		stk = lg_intern_stack(s->b, stk, lg_intern_frame(s->b, &(struct lg_frame_row){
			.pc = of->kernel[n_kernel], .kind = LG_FRAME_KERNEL,
			.name = lg_intern(s->b, symbol_of(of->kernel[n_kernel]))}));
	return stk;
}

/* Scheduler and locks only. */
const struct lg_bpf_python_layout *lg_session_python(struct lg_session *s, int32_t pid, uint64_t *ret_gil)
{
	*ret_gil = 0;
	(void)s; (void)pid;
	return NULL;
}
size_t lg_session_python_asleep(struct lg_session *s, int32_t pid, int32_t tid, uint64_t *frames)
{
	(void)s; (void)pid; (void)tid; (void)frames;
	return 0;
}
void lg_session_python_sample(struct lg_session *s, int32_t tid, int64_t ts, const uint64_t *frames, size_t n,
			      uint8_t gil)
{
	(void)gil;
	(void)s; (void)tid; (void)ts; (void)frames; (void)n;
}
void lg_session_set_sampler(struct lg_session *s, int prog_fd)
{
	(void)s; (void)prog_fd;
}

static int by_time(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->ts != y->ts)
		return x->ts < y->ts ? -1 : 1;
	return (x->order > y->order) - (x->order < y->order);
}

static void feed_until(struct lg_session *s, void *self, int64_t cutoff)
{
	size_t i, n = 0;

	qsort(s->queue, s->n, sizeof *s->queue, by_time);
	for (i = 0; i < s->n; i++) {
		if (s->queue[i].ts >= cutoff) {
			s->queue[n++] = s->queue[i];
			continue;
		}
		lg_source_bpf.feed(self, s->queue[i].ts, s->queue[i].rec, s->queue[i].n);
		free(s->queue[i].rec);
	}
	s->n = n;
}

static void print_stack(const struct lg_trace *t, const char *key, lg_stk s)
{
	const char *sep = "";

	if (!s)
		return;
	printf(",\"%s\":[", key);
	for (; s; s = t->stack.parent[s]) {
		printf("%s\"%s\"", sep, lg_string(t, t->frame.name[t->stack.frame[s]]));
		sep = ",";
	}
	printf("]");
}

static void print_thread(const struct lg_trace *t, const char *key, lg_thr thr)
{
	if (thr)
		printf(",\"%s\":{\"pid\":%d,\"tid\":%d,\"comm\":\"%s\"}", key,
		       t->process.pid[t->thread.prc[thr]], t->thread.tid[thr],
		       lg_string(t, t->thread.comm[thr]));
}

static bool wanted(const struct lg_trace *t, lg_thr thr, const int32_t *pids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (t->process.pid[t->thread.prc[thr]] == pids[i])
			return true;
	return !n;
}

static void print_rows(const struct lg_trace *t, const int32_t *f, size_t n_f)
{
	static const char *const kinds[] = {"none", "running", "runnable", "blocked"};
	size_t i;

	for (i = 0; i < t->state.n; i++) {
		const struct lg_state_tab *r = &t->state;

		if (!wanted(t, r->thr[i], f, n_f))
			continue;
		printf("{\"table\":\"state\",\"ts\":%" PRId64 ",\"dur\":%" PRId64 ",\"kind\":\"%s\",\"reason\":%u,"
		       "\"cpu\":%d,\"ctx\":%u,\"flags\":%u,\"object\":%" PRIu64 ",\"run\":%" PRId64,
		       r->ts[i], r->dur[i], kinds[r->kind[i] & 3], r->reason[i], r->cpu[i],
		       r->waker_ctx[i], r->flags[i], r->object[i], r->run[i]);
		print_thread(t, "thr", r->thr[i]);
		print_thread(t, "waker", r->waker[i]);
		print_thread(t, "blocker", r->blocker[i]);
		print_stack(t, "stack", r->stack[i]);
		puts("}");
	}
	for (i = 0; i < t->span.n; i++) {
		const struct lg_span_tab *r = &t->span;

		if (!wanted(t, r->thr[i], f, n_f) && !(r->peer[i] && wanted(t, r->peer[i], f, n_f)))
			continue;
		printf("{\"table\":\"span\",\"ts\":%" PRId64 ",\"dur\":%" PRId64 ",\"kind\":%u,\"flags\":%u,"
		       "\"name\":\"%s\",\"object\":%" PRIu64, r->ts[i], r->dur[i], r->kind[i],
		       r->flags[i], lg_string(t, r->name[i]), r->object[i]);
		print_thread(t, "thr", r->thr[i]);
		print_thread(t, "peer", r->peer[i]);
		print_stack(t, "stack", r->stack[i]);
		print_stack(t, "peer_stack", r->peer_stack[i]);
		puts("}");
	}
	for (i = 0; i < t->mark.n; i++)
		if (wanted(t, t->mark.thr[i], f, n_f))
			printf("{\"table\":\"mark\",\"ts\":%" PRId64 ",\"name\":\"%s\",\"value\":%" PRId64
			       ",\"text\":\"%s\"}\n", t->mark.ts[i], lg_string(t, t->mark.name[i]),
			       t->mark.value[i], lg_string(t, t->mark.text[i]));
}

static void print_sums(const struct lg_trace *t, int64_t first, int64_t last)
{
	int64_t *run = calloc(t->thread.n + 1, sizeof *run), *gap = calloc(t->thread.n + 1, sizeof *gap);
	uint64_t *rows = calloc(t->thread.n + 1, sizeof *rows);
	size_t i;

	if (!run || !gap || !rows)
		abort();
	for (i = 0; i < t->state.n; i++) {
		int64_t dur = t->state.dur[i] < 0 ? last - t->state.ts[i] : t->state.dur[i];

		rows[t->state.thr[i]]++;
		gap[t->state.thr[i]] += dur;
		if (t->state.flags[i] & LG_STATE_SUMMED)
			run[t->state.thr[i]] += t->state.run[i];
		else if (t->state.kind[i] == LG_RUNNING)
			run[t->state.thr[i]] += dur;
	}
	for (i = 1; i < t->thread.n; i++)
		if (rows[i]) {
			printf("{\"table\":\"sum\",\"run\":%" PRId64 ",\"known\":%" PRId64 ",\"rows\":%" PRIu64
			       ",\"start\":%" PRId64 ",\"end\":%" PRId64, run[i], gap[i], rows[i],
			       t->thread.start[i], t->thread.end[i]);
			print_thread(t, "thr", (lg_thr)i);
			puts("}");
		}
	for (i = 0; i < t->meta.n; i++)
		printf("{\"table\":\"meta\",\"key\":\"%s\",\"value\":\"%s\"}\n",
		       lg_string(t, t->meta.key[i]), lg_string(t, t->meta.value[i]));
	for (i = 0; i < t->diag.n; i++)
		printf("{\"table\":\"diag\",\"id\":%u,\"count\":%" PRIu64 ",\"cpu\":%d,\"text\":\"%s\"}\n",
		       t->diag.id[i], t->diag.count[i], t->diag.cpu[i], lg_string(t, t->diag.text[i]));
	printf("{\"table\":\"extent\",\"first\":%" PRId64 ",\"last\":%" PRId64 "}\n", first, last);
	free(run);
	free(gap);
	free(rows);
}

static int fail(const char *what, const struct lg_error *err)
{
	fprintf(stderr, "bpf_dump: %s: %s\n", what, err->message);
	return 1;
}

int main(int argc, char **argv)
{
	struct lg_session s = {.opt = {.profile = LG_PROFILE_DEFAULT}};
	struct lg_error err = {0};
	struct lg_trace *t;
	struct lg_probe probe;
	int32_t filter[64];
	size_t n_filter = 0;
	bool quiet = false;
	int64_t first, last, end, before;
	void *self;
	int c;

	while ((c = getopt(argc, argv, "j:f:qr:lp")) != -1) {
		if (c == 'j' && s.n_jobs < 64)
			s.jobs[s.n_jobs++] = atoi(optarg);
		else if (c == 'f' && n_filter < 64)
			filter[n_filter++] = atoi(optarg);
		else if (c == 'q')
			quiet = true;
		else if (c == 'r')
			s.opt.ring_bytes = (size_t)atol(optarg);
		else if (c == 'l')
			s.opt.profile = LG_PROFILE_LIGHT;
		else if (c == 'p') {
			if (lg_source_bpf.probe(&probe, &err))
				return fail("probe", &err);
			printf("{\"table\":\"probe\",\"works\":%s,\"why\":\"%s\",\"fix\":\"%s\",\"lost\":\"%s\"}\n",
			       probe.works ? "true" : "false", probe.why, probe.fix, probe.lost);
			return 0;
		} else {
			return 2;
		}
	}
	if (optind >= argc)
		return 2;
	load_symbols();
	if (lg_builder_new(&s.b, &err))
		return fail("builder", &err);
	if (lg_source_bpf.start(&s, &self, &err))
		return fail("start", &err);
	first = before = lg_monotonic_ns();
	end = first + (int64_t)(atof(argv[optind]) * 1e9);
	fprintf(stderr, "recording\n");
	while (lg_monotonic_ns() < end) {
		int64_t now = lg_monotonic_ns();

		if (lg_source_bpf.drain(self, &err))
			return fail("drain", &err);
		feed_until(&s, self, before);
		before = now;
		usleep(100000);
	}
	last = lg_monotonic_ns();
	if (lg_source_bpf.stop(self, &err))
		return fail("stop", &err);
	if (lg_source_bpf.drain(self, &err))
		return fail("drain", &err);
	feed_until(&s, self, INT64_MAX);
	if (lg_source_bpf.finish(self, &err))
		return fail("finish", &err);
	lg_source_bpf.free(self);
	if (lg_builder_seal(s.b, &t, &err))
		return fail("seal", &err);
	if (!quiet)
		print_rows(t, filter, n_filter);
	print_sums(t, first, last);
	fprintf(stderr, "%" PRIu64 " records, %" PRIu64 " bytes\n", s.records, s.bytes);
	lg_trace_free(t);
	free(symbols);
	return 0;
}
