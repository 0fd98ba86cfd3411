/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps told from ranges: loops whose ranges are steps, beside those that only look so (layers of one forward
 * pass, requests of a pool, a few ranges before the work).
 */
#include <stdio.h>

#include "gpu_outcome.h"
#include "store/builder.h"

enum { PID = 4000, KERNELS = 10 };

struct loop {
	struct lg_builder *b;
	lg_thr thr, pool[3];
	lg_trk stream;
	int64_t now, corr;
};

static struct loop begin(void)
{
	struct loop l = { .now = 1000 * MS };
	lg_prc prc;
	lg_trk gpu;

	assert_int_equal(lg_builder_new(&l.b, NULL), 0);
	prc = lg_process_get(l.b, PID);
	l.thr = lg_thread_get(l.b, PID, PID);
	for (int i = 0; i < 3; i++)
		l.pool[i] = lg_thread_get(l.b, PID, PID + 1 + i);
	gpu = lg_track_get(l.b, &(struct lg_track_row){ .kind = LG_TRACK_GPU, .prc = prc,
							.name = lg_intern(l.b, "GPU 0") });
	l.stream = lg_track_get(l.b, &(struct lg_track_row){ .kind = LG_TRACK_STREAM, .prc = prc, .index = 7,
							     .parent = gpu, .name = lg_intern(l.b, "stream") });
	return l;
}

static void row(struct loop *l, lg_thr thr, int64_t ts, int64_t dur, int kind, const char *name, int64_t seq)
{
	lg_add_span(l->b, &(struct lg_span_row){ .ts = ts, .dur = dur, .thr = thr, .kind = (uint8_t)kind,
						 .track = thr ? 0 : l->stream, .seq = seq,
						 .stage = kind == LG_SPAN_STAGE ? LG_STAGE_FORWARD : 0,
						 .name = lg_intern(l->b, name) });
}

/* Ten kernels of 100 us that the host launches one by one, in a range of that name; "" = in none. */
static void work(struct loop *l, lg_thr thr, const char *name)
{
	int64_t from = l->now;

	for (int i = 0; i < KERNELS; i++) {
		l->corr++;
		row(l, thr, l->now + 1000, 20 * US, LG_SPAN_OP, "aten::linear", -1);
		row(l, thr, l->now + 2000, 10 * US, LG_SPAN_RUNTIME, "cudaLaunchKernel", l->corr);
		row(l, 0, l->now + 20 * US, 100 * US, LG_SPAN_KERNEL, "gemm", l->corr);
		l->now += 120 * US;
	}
	if (*name)
		row(l, thr, from, l->now - from, LG_SPAN_NOTE, name, -1);
}

static struct outcome end(struct loop *l)
{
	struct lg_trace *t = NULL;

	assert_int_equal(lg_builder_seal(l->b, &t, NULL), 0);
	return judge(t);
}

static void steps_are(struct loop *l, size_t n)
{
	struct outcome o = end(l);

	assert_int_equal(o.v->n_steps, n);
	for (size_t i = 0; i < n; i++)
		assert_in_range(o.v->steps[i].dur, o.v->steps[0].dur * 9 / 10, o.v->steps[0].dur * 11 / 10);
	done(&o);
}

static void numbers_that_count_up_are_steps(void **state)
{
	struct loop l = begin();
	char name[32];

	(void)state;
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof name, "execute_%d(%d)", i, 64 + i % 3);
		work(&l, l.thr, name);
	}
	steps_are(&l, 10);
}

static void forward_passes_that_come_back_are_steps(void **state)
{
	struct loop l = begin();

	(void)state;
	for (int i = 0; i < 6; i++) {
		int64_t from = l.now;

		work(&l, l.thr, "encoder");
		work(&l, l.thr, "decoder");
		row(&l, l.thr, from - 100, l.now - from + 200, LG_SPAN_STAGE, "forward", -1);
		l.now += 300;
	}
	steps_are(&l, 6);
}

static void layers_of_one_forward_pass_are_none(void **state)
{
	struct loop l = begin();
	int64_t from = l.now;
	char name[32];

	(void)state;
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof name, "layer_%d", i);
		work(&l, l.thr, name);
	}
	row(&l, l.thr, from - 100, l.now - from + 200, LG_SPAN_STAGE, "Model_Forward", -1);
	steps_are(&l, 0);
}

static void numbers_that_begin_again_are_parts(void **state)
{
	struct loop l = begin();
	char name[32];

	(void)state;
	for (int i = 0; i < 24; i++) {
		snprintf(name, sizeof name, "layer_%d", i % 4);
		work(&l, l.thr, name);
	}
	steps_are(&l, 6);
}

static void the_last_step_has_no_tail(void **state)
{
	struct loop l = begin();
	char name[32];

	(void)state;
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof name, "batch %d", i);
		work(&l, l.thr, name);
	}
	l.now += 500 * MS;
	work(&l, l.thr, "");
	steps_are(&l, 10);
}

static bool limited(const struct outcome *o, const char *what)
{
	for (size_t i = 0; i < o->v->n_limits; i++)
		if (strstr(o->v->limits[i], what))
			return true;
	return false;
}

/* Each is counted, on whatever thread; the window is judged as one piece. */
static void requests_of_a_pool_are_counted(void **state)
{
	struct loop l = begin();
	struct outcome o;

	(void)state;
	for (int i = 0; i < 5; i++) {
		char name[32];

		work(&l, l.thr, "");
		snprintf(name, sizeof name, "request %d", i);
		work(&l, l.thr, name);
		for (int k = 0; k < 3; k++)
			work(&l, l.pool[k], "request 7");
	}
	o = end(&l);
	assert_int_equal(o.v->n_steps, 20);
	assert_int_equal(o.v->n_judged, 20);
	assert_true(limited(&o, "20 requests, told from request 0: 4 threads serve them, 1.0 at once"));
	assert_true(limited(&o, "is judged as one piece"));
	done(&o);
	/* Most of the work is elsewhere: what the ranges are is not known. */
	l = begin();
	for (int i = 0; i < 5; i++) {
		for (int k = 0; k < 6; k++)
			work(&l, l.thr, "");
		for (int k = 0; k < 3; k++)
			work(&l, l.pool[k], "request");
	}
	steps_are(&l, 0);
	/* A range for each thread's life is no request. */
	l = begin();
	for (int k = 0; k < 3; k++)
		work(&l, l.pool[k], "worker");
	steps_are(&l, 0);
}

/* Three threads at once, each with its own requests; without ranges, the function that comes back on them. */
static void requests_overlap(void **state)
{
	for (int frames = 0; frames < 2; frames++) {
		struct loop l = begin();
		struct outcome o;

		for (int k = 0; k < 3; k++) {
			int64_t from = l.now = 1000 * MS + k * 300 * US;

			for (int i = 0; i < 8; i++) {
				int64_t at = l.now;

				work(&l, l.pool[k], frames ? "" : "handle");
				if (frames)
					row(&l, l.pool[k], at, l.now - at, LG_SPAN_PYTHON, "server.py(20): handle", -1);
			}
			if (frames)
				row(&l, l.pool[k], from, l.now - from, LG_SPAN_PYTHON, "server.py(9): serve", -1);
		}
		o = end(&l);
		judged_without_memory(&o);
		assert_int_equal(o.v->n_judged, 24);
		assert_true(o.v->median_ms > 1.1 && o.v->median_ms < 1.3);
		assert_true(limited(&o, frames ? "24 requests, told from server.py(20): handle: 3 threads"
					       : "24 requests, told from handle: 3 threads serve them, 2."));
		for (size_t i = 0; i < o.v->n_findings; i++)
			assert_false(is_loud(&o.v->findings[i]));
		done(&o);
	}
	(void)state;
}

static void ranges_before_the_work_are_no_steps(void **state)
{
	struct loop l = begin();

	(void)state;
	for (int i = 0; i < 9; i++) {
		row(&l, l.thr, l.now, 100 * US, LG_SPAN_NOTE, "load_parameter", -1);
		l.now += 110 * US;
	}
	for (int i = 0; i < 20; i++)
		work(&l, l.thr, "");
	steps_are(&l, 0);
}

static void a_payload_is_no_name(void **state)
{
	struct loop l = begin();

	(void)state;
	for (int i = 0; i < 10; i++)
		work(&l, l.thr, "{'marker': ['net.py:34']}");
	steps_are(&l, 0);
}

/* A round of three ranges, one after the other. */
static void round_of(struct loop *l, int64_t read, int64_t find, int64_t post)
{
	const char *const name[] = { "reader", "find_centers", "post" };
	const int64_t dur[] = { read, find, post };

	for (int i = 0; i < 3; i++) {
		row(l, l->thr, l->now, dur[i], LG_SPAN_NOTE, name[i], -1);
		l->now += dur[i];
	}
	l->now += MS / 2;
}

static void ranges_alone_tell_where_steps_are_long(void **state)
{
	struct loop l = begin();
	struct outcome o;

	(void)state;
	for (int i = 0; i < 30; i++)
		round_of(&l, MS, 6 * MS, i == 20 ? 22 * MS : 2 * MS);
	o = end(&l);
	assert_int_equal(o.v->n_judged, 30);
	assert_int_equal(o.v->n_slow, 1);
	assert_int_equal(o.v->n_findings, 0);
	assert_non_null(strstr(o.v->bound_why, "59 % in find_centers, 26 % in post, 10 % in reader, 5 % in others"));
	assert_true(limited(&o, "steps told from reader"));
	assert_true(limited(&o, "1 slow step took longer by 20.0 ms: 100 % in post"));
	done(&o);
	l = begin();
	for (int i = 0; i < 30; i++)
		round_of(&l, MS, 6 * MS, 2 * MS);
	o = end(&l);
	assert_int_equal(o.v->n_judged, 30);
	assert_false(limited(&o, "slow step"));
	done(&o);
}

static void a_few_ranges_alone_are_not_judged(void **state)
{
	struct loop l = begin();
	struct outcome o;

	(void)state;
	for (int i = 0; i < 5; i++)
		round_of(&l, MS, 6 * MS, 2 * MS);
	l.now += 1000 * MS;
	row(&l, l.thr, l.now, 5 * MS, LG_SPAN_NOTE, "save", -1);
	o = end(&l);
	assert_int_equal(o.v->n_steps, 0);
	assert_true(limited(&o, "no repeating steps were found"));
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_that_count_up_are_steps),
		cmocka_unit_test(forward_passes_that_come_back_are_steps),
		cmocka_unit_test(layers_of_one_forward_pass_are_none),
		cmocka_unit_test(numbers_that_begin_again_are_parts),
		cmocka_unit_test(the_last_step_has_no_tail),
		cmocka_unit_test(requests_of_a_pool_are_counted),
		cmocka_unit_test(requests_overlap),
		cmocka_unit_test(ranges_before_the_work_are_no_steps),
		cmocka_unit_test(a_payload_is_no_name),
		cmocka_unit_test(ranges_alone_tell_where_steps_are_long),
		cmocka_unit_test(a_few_ranges_alone_are_not_judged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
