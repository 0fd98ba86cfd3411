/* SPDX-License-Identifier: Apache-2.0 */
/* test_merge.c - several recordings as one, and the way from paths to a trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include <time.h>

#include "base/alloc.h"
#include "import/import.h"
#include "random_trace.h"
#include "store/index.h"
#include "store/lag_write.h"
#include "store/merge.h"

static char dir[] = "/tmp/laggard-test-XXXXXX";
static char path[3][128];

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	for (int i = 0; i < 3; i++)
		snprintf(path[i], sizeof path[i], "%s/%d.lag", dir, i);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		unlink(path[i]);
	return rmdir(dir);
}

static struct lg_builder *fresh(void)
{
	struct lg_builder *b;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	return b;
}

static struct lg_trace *seal(struct lg_builder *b)
{
	struct lg_trace *t;

	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return t;
}

/* One process with one running row on CPU 0, and the facts that tell machines apart. */
static struct lg_trace *machine(const char *host, const char *boot, int32_t pid, int32_t rank,
				int64_t ts, int64_t wall)
{
	struct lg_builder *b = fresh();
	lg_thr thr = lg_thread_get(b, pid, pid);
	struct lg_process_row r = lg_process_read(b, 1);

	r.rank = rank;
	lg_process_write(b, 1, &r);
	lg_thread_name(b, thr, lg_intern(b, "python3"));
	lg_add_state(b, &(struct lg_state_row){ .ts = ts, .dur = 10, .thr = thr, .kind = LG_RUNNING,
						.object = 0xffff888000001000 });
	if (host)
		lg_meta_set(b, 0, "host.name", host);
	if (boot)
		lg_meta_set(b, 0, "record.boot_id", boot);
	if (wall)
		lg_add_clock(b, &(struct lg_clock_row){ .ts = ts, .value = wall, .error = 9,
							.clock = CLOCK_REALTIME });
	lg_track_get(b, &(struct lg_track_row){ .kind = LG_TRACK_CPU, .name = lg_intern(b, "CPU 0") });
	return seal(b);
}

/* Takes the sources over. */
static struct lg_trace *merge(struct lg_trace *const *t, const int64_t *offset, size_t n)
{
	struct lg_builder *b = fresh();
	struct lg_merger g = { 0 };

	for (size_t i = 0; i < n; i++)
		assert_int_equal(lg_merge_add(&g, b, t[i], offset[i], NULL, NULL), 0);
	assert_int_equal(lg_merge_finish(&g, b, NULL), 0);
	lg_merger_done(&g);
	return seal(b);
}

static struct lg_trace *merged(struct lg_trace *a, struct lg_trace *c)
{
	struct lg_trace *t[2] = { a, c };
	int64_t offset[2] = { 0 }, error;

	(void)!lg_merge_offset(a, c, &offset[1], &error);
	return merge(t, offset, 2);
}

/* Merged alone, a trace is itself (its strings and frames may be numbered anew). */
static void test_identity(void **state)
{
	struct lg_builder *b = fresh(), *again = fresh();
	struct lg_trace *t, *u, *same;

	(void)state;
	random_trace(b, 3000, 4);
	t = seal(b);
	random_trace(again, 3000, 4);
	same = seal(again);
	u = merge(&same, &(int64_t){ 0 }, 1);
	/* random_trace leaves process.host empty; the merge fills it from meta. */
	for (size_t i = 1; i < u->process.n; i++) {
		assert_string_equal(lg_string(u, u->process.host[i]), "h1");
		t->process.host[i] = u->process.host[i];
	}
	assert_int_equal(u->state.n, t->state.n);
	assert_int_equal(u->thread.n, t->thread.n);
	assert_int_equal(u->stack.n, t->stack.n);
	for (size_t i = 0; i < t->span.n; i++) {
		assert_int_equal(t->span.ts[i], u->span.ts[i]);
		assert_int_equal(t->span.thr[i], u->span.thr[i]);
		assert_string_equal(lg_string(t, t->span.name[i]), lg_string(u, u->span.name[i]));
		assert_int_equal(t->frame.pc[t->stack.frame[t->span.stack[i]]],
				 u->frame.pc[u->stack.frame[u->span.stack[i]]]);
	}
	for (size_t i = 0; i < t->state.n; i++)
		assert_int_equal(t->state.object[i], u->state.object[i]);
	lg_trace_free(t);
	lg_trace_free(u);
}

enum { SOURCES = 4 };
static const size_t n_rows[SOURCES] = { 90000, 0, 7, 140000 };
static const int64_t offsets[SOURCES] = { 0, 5, -40, 1000 };

/* Row i of source s begins at i / 3, so that three have one time, and says by its length what it is. */
static struct lg_trace *source(size_t s)
{
	struct lg_builder *b = fresh();
	lg_thr thr = lg_thread_get(b, (int32_t)(100 + s), (int32_t)(100 + s));
	char name[2] = { (char)('a' + s), 0 };

	for (size_t i = 0; i < n_rows[s]; i++)
		lg_add_span(b, &(struct lg_span_row){ .ts = (int64_t)(i / 3), .thr = thr,
						      .dur = (int64_t)(s * 1000000 + i),
						      .kind = (uint8_t)(i % 5),
						      .name = lg_intern(b, i % 2 ? "odd" : name) });
	if (n_rows[s])
		lg_add_flow(b, &(struct lg_flow_row){ .ts = 4, .ts_to = 9, .thr = thr, .thr_to = thr });
	return seal(b);
}

/* By time, of equal times by source, then as in the source; more rows than one thread has for itself. */
static void test_order(void **state)
{
	struct lg_trace *t[SOURCES], *u;
	size_t at[SOURCES] = { 0 }, flows = 0;

	(void)state;
	for (size_t s = 0; s < SOURCES; s++)
		t[s] = source(s);
	u = merge(t, offsets, SOURCES);
	assert_int_equal(u->span.n, n_rows[0] + n_rows[1] + n_rows[2] + n_rows[3]);
	for (size_t i = 0; i < u->span.n; i++) {
		size_t s = (size_t)u->span.dur[i] / 1000000, k = (size_t)u->span.dur[i] % 1000000;
		char name[2] = { (char)('a' + s), 0 };

		assert_int_equal(k, at[s]++);
		assert_int_equal(u->span.ts[i], (int64_t)(k / 3) + offsets[s]);
		assert_int_equal(u->span.kind[i], k % 5);
		assert_int_equal(u->thread.tid[u->span.thr[i]], 100 + s);
		assert_string_equal(lg_span_name(u, i), k % 2 ? "odd" : name);
		assert_int_equal(u->span.bytes[i], 0);
		if (i && u->span.ts[i] == u->span.ts[i - 1])
			assert_true((size_t)u->span.dur[i - 1] / 1000000 <= s);
		else if (i)
			assert_true(u->span.ts[i] > u->span.ts[i - 1]);
	}
	for (size_t i = 0; i < u->flow.n; i++) {
		assert_int_equal(u->flow.ts_to[i] - u->flow.ts[i], 5);
		flows += u->flow.thr[i] == u->flow.thr_to[i];
	}
	assert_int_equal(flows, 3);
	lg_trace_free(u);
}

static void test_two_hosts(void **state)
{
	/* The second host's clock started 1000 ns later; both rows happened at wall time 5050. */
	struct lg_trace *t = merged(machine("h1", "b1", 100, 0, 2050, 5050),
				    machine("h2", "b2", 100, 1, 1050, 5050));
	struct lg_index *x;
	lg_thr a, c;

	(void)state;
	assert_int_equal(t->process.n, 3);
	assert_int_equal(t->state.ts[0], 2050);
	assert_int_equal(t->state.ts[1], 2050);
	assert_string_equal(lg_string(t, t->process.host[1]), "h1");
	assert_string_equal(lg_string(t, t->process.host[2]), "h2");
	a = t->state.thr[0];
	c = t->state.thr[1];
	assert_int_not_equal(a, c);
	/* One address on two machines is two locks. */
	assert_true(t->state.object[0] == 0xffff888000001000);
	assert_true(t->state.object[1] != t->state.object[0]);
	assert_true((t->state.object[1] ^ t->state.object[0]) << 16 == 0);
	assert_int_equal(t->track.n, 3);
	assert_string_equal(lg_meta_get(t, "host.name"), "h1");
	assert_string_equal(lg_meta_get(t, "h2/host.name"), "h2");
	/* CPU 0 is another CPU on each. */
	assert_int_equal(lg_index_new(&x, t, NULL), 0);
	assert_int_equal(t->state.thr[lg_index_cpu_at(x, a, 0, 2055)], a);
	assert_int_equal(t->state.thr[lg_index_cpu_at(x, c, 0, 2055)], c);
	lg_index_free(x);
	lg_trace_free(t);
}

/* Two recorders on one machine see the same process; the wall clock is not asked. */
static void test_one_host(void **state)
{
	struct lg_trace *t = merged(machine("h1", "b1", 100, -1, 2000, 5050),
				    machine("h1", "b1", 100, 3, 2500, 9999));

	(void)state;
	assert_int_equal(t->process.n, 2);
	assert_int_equal(t->thread.n, 2);
	assert_int_equal(t->process.rank[1], 3);
	assert_int_equal(t->state.ts[1], 2500);
	assert_int_equal(t->state.thr[0], t->state.thr[1]);
	assert_true(t->state.object[0] == t->state.object[1]);
	assert_int_equal(t->track.n, 2);
	lg_trace_free(t);
	/* Containers of one machine: two host names, one boot. */
	t = merged(machine("c1", "b1", 100, 0, 2000, 0), machine("c2", "b1", 200, 1, 2500, 0));
	assert_int_equal(t->process.n, 3);
	assert_int_equal(t->process.host[1], t->process.host[2]);
	lg_trace_free(t);
}

/* Without host names: equal pids are one process only where the ranks say so. */
static void test_unknown_hosts(void **state)
{
	struct lg_trace *t;

	(void)state;
	t = merged(machine(NULL, NULL, 100, 0, 1, 0), machine(NULL, NULL, 100, 1, 1, 0));
	assert_int_equal(t->process.n, 3);
	lg_trace_free(t);
	t = merged(machine(NULL, NULL, 100, 1, 1, 0), machine(NULL, NULL, 100, 1, 1, 0));
	assert_int_equal(t->process.n, 2);
	lg_trace_free(t);
	t = merged(machine("h1", "b1", 100, 1, 1, 0), machine(NULL, NULL, 100, 1, 1, 0));
	assert_int_equal(t->process.n, 2);
	lg_trace_free(t);
}

/* A reused pid is two lives; the row of a second recorder belongs to the one it overlaps. */
static void test_lives(void **state)
{
	struct lg_builder *a = fresh(), *c = fresh();
	struct lg_trace *w;
	lg_thr thr;

	(void)state;
	lg_thread_start(a, 1, 7, 7, 100);
	lg_thread_end(a, 7, 200);
	lg_thread_start(a, 1, 7, 7, 300);
	lg_thread_end(a, 7, 400);
	lg_meta_set(a, 0, "host.name", "h");
	lg_thread_start(c, 1, 7, 7, 100);
	lg_thread_end(c, 7, 210);
	lg_meta_set(c, 0, "host.name", "h");
	thr = lg_thread_start(c, 1, 7, 7, 300); /* the second life, in the second file too */
	lg_add_mark(c, &(struct lg_mark_row){ .ts = 350, .thr = thr });
	w = merge((struct lg_trace *[]){ seal(a), seal(c) }, (int64_t[]){ 0, 0 }, 2);
	assert_int_equal(w->process.n, 3);
	assert_int_equal(w->thread.start[w->mark.thr[0]], 300);
	lg_trace_free(w);
}

static void test_import(void **state)
{
	struct lg_trace *t = machine("h1", "b1", 100, 0, 2050, 5050), *u;
	struct lg_trace *t2 = machine("h2", "b2", 100, 1, 1050, 5050);
	struct lg_import_info info[2];
	const char *both[] = { path[0], path[1] };
	const char *same[] = { path[0], path[0] };
	struct lg_error err;

	(void)state;
	assert_int_equal(lg_lag_save(t, path[0], NULL), 0);
	assert_int_equal(lg_lag_save(t2, path[1], NULL), 0);
	lg_trace_free(t2);

	assert_int_equal(lg_import(both, 1, &u, info, &err), 0);
	assert_int_equal(trace_differences(t, u), 0);
	assert_string_equal(info[0].format, "laggard");
	assert_string_equal(info[0].host, "h1");
	assert_int_equal(info[0].rows_state, 1);
	assert_int_equal(info[0].lost_events, 0);
	lg_trace_free(u);

	assert_int_equal(lg_import(both, 2, &u, info, &err), 0);
	assert_int_equal(u->state.n, 2);
	assert_string_equal(info[1].host, "h2");
	assert_int_equal(info[1].first, 2050);
	assert_int_equal(u->diag.n, 0);
	lg_trace_free(u);

	assert_int_equal(lg_import(same, 2, &u, info, &err), LG_E_USAGE);
	lg_trace_free(t);
}

static void test_lost_events(void **state)
{
	struct lg_builder *b = fresh();
	struct lg_import_info info;
	const char *one[] = { path[0] };
	struct lg_trace *t;

	(void)state;
	lg_add_diag_now(b, LG_DIAG_LOST_EVENTS, 5, 40, "ring 1");
	lg_add_diag_now(b, LG_DIAG_LOST_SAMPLES, 5, 2, "ring 2");
	lg_add_diag_now(b, LG_DIAG_NO_PERMISSION, 5, 1, "no BPF");
	t = seal(b);
	assert_int_equal(lg_lag_save(t, path[0], NULL), 0);
	lg_trace_free(t);
	assert_int_equal(lg_import(one, 1, &t, &info, NULL), 0);
	assert_int_equal(info.lost_events, 42);
	lg_trace_free(t);
}

static void assert_refused(const char *content, size_t n, const char *hint)
{
	struct lg_import_info info;
	const char *one[] = { path[2] };
	struct lg_trace *t;
	struct lg_error err;
	FILE *f = fopen(path[2], "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(content, 1, n, f), n);
	fclose(f);
	assert_int_equal(lg_import(one, 1, &t, &info, &err), LG_E_FORMAT);
	assert_non_null(strstr(err.message, path[2]));
	assert_non_null(strstr(err.message, hint));
	assert_null(strchr(err.message, '\n'));
}

static void test_refused(void **state)
{
	const char *none[] = { "/nonexistent/x.lag" }, *folder[] = { "/tmp" };
	struct lg_import_info info;
	struct lg_trace *t;
	struct lg_error err;

	(void)state;
	assert_refused("", 0, "empty");
	assert_refused("\x1f\x8b\x08", 3, "gzip");
	assert_refused("hello\n", 6, "text");
	assert_refused("\x89LAG\r\n\x1a\nxx", 10, "ends inside its header");
	assert_int_equal(lg_import(none, 1, &t, &info, &err), LG_E_IO);
	assert_int_equal(lg_import(folder, 1, &t, &info, &err), LG_E_FORMAT);
	assert_int_equal(lg_import(none, 0, &t, &info, &err), LG_E_USAGE);
}

/* A recording that comes through a pipe. */
static void test_pipe(void **state)
{
	struct lg_trace *t = machine("h1", "b1", 100, 0, 2050, 5050), *u;
	struct lg_import_info info;
	const char *in[] = { "-" };
	int fd[2], saved;
	char buf[8192];
	size_t n;
	FILE *f;

	(void)state;
	assert_int_equal(lg_lag_save(t, path[0], NULL), 0);
	f = fopen(path[0], "rb");
	assert_non_null(f);
	n = fread(buf, 1, sizeof buf, f);
	assert_true(n < sizeof buf);
	fclose(f);
	assert_int_equal(pipe(fd), 0);
	assert_int_equal(write(fd[1], buf, n), n);
	close(fd[1]);
	saved = dup(STDIN_FILENO);
	assert_int_equal(dup2(fd[0], STDIN_FILENO), STDIN_FILENO);
	close(fd[0]);
	assert_int_equal(lg_import(in, 1, &u, &info, NULL), 0);
	if (saved >= 0) {
		dup2(saved, STDIN_FILENO);
		close(saved);
	}
	assert_int_equal(trace_differences(t, u), 0);
	lg_trace_free(t);
	lg_trace_free(u);
}

static void test_no_memory(void **state)
{
	struct lg_import_info info[2];
	const char *both[] = { path[0], path[1] };
	struct lg_builder *b;
	struct lg_trace *t;
	int rc;

	(void)state;
	for (int i = 0; i < 2; i++) {
		b = fresh();
		random_trace(b, 20, (uint64_t)i);
		t = seal(b);
		assert_int_equal(lg_lag_save(t, path[i], NULL), 0);
		lg_trace_free(t);
	}
	for (uint64_t n = 1;; n++) {
		lg_alloc_fail_at(n);
		rc = lg_import(both, 2, &t, info, NULL);
		if (lg_alloc_count() < n)
			break;
		if (!rc)
			lg_trace_free(t);
		assert_true(rc == 0 || rc == LG_E_NOMEM);
	}
	lg_alloc_fail_at(0);
	assert_int_equal(rc, 0);
	lg_trace_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_identity),      cmocka_unit_test(test_two_hosts),
		cmocka_unit_test(test_one_host),      cmocka_unit_test(test_unknown_hosts),
		cmocka_unit_test(test_lives),	      cmocka_unit_test(test_import),
		cmocka_unit_test(test_lost_events),   cmocka_unit_test(test_refused),
		cmocka_unit_test(test_pipe),	      cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
