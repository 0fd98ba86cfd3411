/* SPDX-License-Identifier: Apache-2.0 */
/* test_modules.c - the hook's sums, and a profiler's module rows, to a tree of modules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "modules/modules.h"
#include "base/alloc.h"
#include "store/builder.h"

#define MS INT64_C(1000000)

struct job {
	struct lg_builder *b;
	struct lg_verdict v;
	struct lg_trace *t;
	int64_t now;
	lg_thr thr;
};

static struct job job_begin(void)
{
	struct job j = { .now = 1000 };

	assert_int_equal(lg_builder_new(&j.b, NULL), 0);
	j.thr = lg_thread_get(j.b, 10, 10);
	return j;
}

static struct lg_modules *judge(struct job *j)
{
	struct lg_modules *m;

	assert_int_equal(lg_builder_seal(j->b, &j->t, NULL), 0);
	j->v.trace = j->t;
	assert_int_equal(lg_modules_new(&j->v, &m, NULL), 0);
	return m;
}

static void done(struct job *j, struct lg_modules *m)
{
	lg_modules_free(m);
	lg_trace_free(j->t);
}

static void mark(struct job *j, const char *name, int64_t value, const char *text)
{
	lg_add_mark(j->b, &(struct lg_mark_row){ .ts = j->now++,
						 .thr = j->thr,
						 .value = value,
						 .name = lg_intern(j->b, name),
						 .text = lg_intern(j->b, text) });
}

static const struct lg_module *find(const struct lg_modules *m, const char *path)
{
	for (size_t i = 0; i < m->n; i++)
		if (!strcmp(m->v[i].path, path))
			return &m->v[i];
	return NULL;
}

/* Sums after n steps: Net 1 ms and its layer 3 + 4 ms a step; what came before step 5 is not counted. */
static void tell(struct job *j, int64_t n)
{
	mark(j, "module.steps", n, "");
	mark(j, "module.forward", 900 * MS + n * MS, "Net");
	mark(j, "module.calls", n, "Net");
	mark(j, "module.forward", 5000 * MS + n * 3 * MS, "Net.layers.3.attn");
	mark(j, "module.backward", n * 4 * MS, "Net.layers.3.attn");
	mark(j, "module.calls", n, "Net.layers.3.attn");
	if (n > 5)
		mark(j, "module.forward", (n - 5) * 2 * MS, "Net.late");
}

static void sums_of_the_hook_become_a_tree(void **state)
{
	struct job j = job_begin();
	struct lg_modules *m;
	const struct lg_module *attn;

	(void)state;
	for (int64_t n = 5; n <= 55; n += 10)
		tell(&j, n);
	mark(&j, "module.compiled", 1, "Net.layers.3.attn");
	m = judge(&j);
	assert_int_equal(m->n, 3);
	assert_float_equal(m->steps, 50, 0);
	assert_string_equal(m->v[0].path, "Net");
	assert_string_equal(m->v[1].path, "Net.layers.3.attn"); /* longest first */
	assert_float_equal(m->v[0].own_forward, 1, 1e-9);
	assert_float_equal(m->v[0].forward, 6, 1e-9);
	assert_float_equal(m->v[0].backward, 4, 1e-9);
	attn = &m->v[1];
	assert_int_equal(attn->up, 1);
	assert_int_equal(attn->depth, 1);
	assert_float_equal(attn->forward, 3, 1e-9);
	assert_float_equal(attn->backward, 4, 1e-9);
	assert_float_equal(attn->calls, 1, 1e-9);
	assert_float_equal(attn->var, 0, 1e-9);
	assert_int_equal(attn->compiled, LG_MODULE_COMPILED);
	assert_float_equal(find(m, "Net.late")->forward, 2, 1e-9); /* not told the first time: it was 0 */
	assert_true(isnan(attn->share)); /* no steps were seen */
	done(&j, m);
}

/* A ring has lost the beginning: what was told of first is where counting begins. */
static void a_ring_without_its_beginning(void **state)
{
	struct job j = job_begin();
	struct lg_modules *m;

	(void)state;
	mark(&j, "module.forward", 77 * MS, "Net"); /* of which telling it is, is lost */
	for (int64_t n = 1005; n <= 1035; n += 10)
		tell(&j, n);
	m = judge(&j);
	assert_float_equal(m->steps, 30, 0);
	assert_float_equal(find(m, "Net.layers.3.attn")->forward, 3, 1e-9);
	assert_float_equal(find(m, "Net.late")->forward, 2, 1e-9);
	done(&j, m);
}

static void what_was_told_once_tells_nothing(void **state)
{
	struct job j = job_begin();
	struct lg_modules *m;

	(void)state;
	tell(&j, 5);
	m = judge(&j);
	assert_int_equal(m->n, 0);
	done(&j, m);
}

/* Whatever a program writes into its ring: bounded, and no number that is none. */
static void sums_that_run_backwards(void **state)
{
	struct job j = job_begin();
	struct lg_modules *m;
	char path[64];

	(void)state;
	mark(&j, "module.steps", 5, "");
	mark(&j, "module.forward", INT64_MAX, "A");
	mark(&j, "module.forward", -5, "A.b");
	mark(&j, "module.left_out", -5, "");
	mark(&j, "module.steps", 3, "");
	mark(&j, "module.steps", 25, "");
	for (int i = 0; i < LG_MODULES_MAX + 100; i++) {
		snprintf(path, sizeof path, "A.%d", i);
		mark(&j, "module.forward", 20 * MS, path);
	}
	mark(&j, "module.compiled", 99, "A.0");
	mark(&j, "module.forward", 0, "A");
	m = judge(&j);
	assert_int_equal(m->n, LG_MODULES_MAX);
	for (size_t i = 0; i < m->n; i++)
		assert_true(isfinite(m->v[i].forward) && m->v[i].forward >= 0);
	assert_int_equal(find(m, "A.0")->compiled, LG_MODULE_EAGER);
	done(&j, m);
}

/* ---- a profiler's rows ---- */

static void row(struct job *j, uint8_t kind, const char *name, int64_t ts, int64_t dur, int64_t seq,
		const char *args)
{
	lg_add_span(j->b, &(struct lg_span_row){ .ts = ts,
						 .dur = dur,
						 .thr = j->thr,
						 .kind = kind,
						 .seq = seq,
						 .name = lg_intern(j->b, name),
						 .args = lg_intern(j->b, args) });
}

static void rows_of_a_profiler_become_a_tree(void **state)
{
	struct job j = job_begin();
	struct lg_step steps[2] = { { .ts = 0, .dur = 100 * MS, .rank = -1 },
				    { .ts = 100 * MS, .dur = 100 * MS, .rank = -1 } };
	struct lg_modules *m;

	(void)state;
	for (int s = 0; s < 2; s++) {
		int64_t at = s * 100 * MS;

		row(&j, LG_SPAN_PYTHON, "train.py(1): step", at, 99 * MS, 0, "");
		row(&j, LG_SPAN_PYTHON, "nn.Module: Net_0", at + 1 * MS, 20 * MS, 0, "");
		row(&j, LG_SPAN_PYTHON, "net.py(7): forward", at + 1 * MS, 20 * MS, 0, "");
		row(&j, LG_SPAN_PYTHON, "nn.Module: Linear_0", at + 2 * MS, 5 * MS, 0, "");
		row(&j, LG_SPAN_OP, "aten::linear", at + 3 * MS, 1 * MS, 10 * s, "");
		row(&j, LG_SPAN_PYTHON, "nn.Module: Linear_1", at + 8 * MS, 10 * MS, 0, "");
		row(&j, LG_SPAN_OP, "aten::view", at + 8 * MS, 1 * MS, 10 * s + 1, "");
		row(&j, LG_SPAN_NOTE, "Torch-Compiled Region: 0/0", at + 10 * MS, 2 * MS, -1, "");
		row(&j, LG_SPAN_OP, "aten::relu", at + 19 * MS, 1 * MS, 10 * s + 1, ""); /* the last one makes the node */
		row(&j, LG_SPAN_OP, "autograd::engine::evaluate_function: ReluBackward0", at + 30 * MS, 4 * MS, 10 * s + 1, "fwd=1");
		row(&j, LG_SPAN_OP, "ReluBackward0", at + 31 * MS, 2 * MS, 10 * s + 1, "fwd=1");
		row(&j, LG_SPAN_OP, "AddmmBackward0", at + 40 * MS, 8 * MS, 10 * s, "fwd=1");
		row(&j, LG_SPAN_OP, "AccumulateGrad", at + 50 * MS, 8 * MS, 777, "fwd=1"); /* nobody's */
	}
	row(&j, LG_SPAN_PYTHON, "nn.Module: Net_0", 500 * MS, 20 * MS, 0, ""); /* behind the last step */
	steps[0].prc = steps[1].prc = lg_process_get(j.b, 10);
	j.v.steps = steps;
	j.v.n_steps = 2;
	m = judge(&j);
	assert_int_equal(m->n, 3);
	assert_float_equal(m->steps, 2, 0);
	assert_string_equal(m->v[0].path, "Net_0");
	assert_float_equal(m->v[0].forward, 20, 1e-9);
	assert_float_equal(m->v[0].own_forward, 5, 1e-9);
	assert_float_equal(m->v[0].own_backward, 4, 1e-9);
	assert_float_equal(m->v[0].backward, 12, 1e-9);
	assert_float_equal(m->v[0].share, 0.32, 1e-9);
	assert_float_equal(find(m, "Net_0.Linear_0")->backward, 8, 1e-9);
	assert_float_equal(find(m, "Net_0.Linear_0")->calls, 1, 1e-9);
	assert_float_equal(find(m, "Net_0.Linear_1")->forward, 10, 1e-9);
	assert_float_equal(find(m, "Net_0.Linear_1")->backward, 0, 1e-9);
	assert_int_equal(find(m, "Net_0.Linear_1")->compiled, LG_MODULE_COMPILED);
	assert_int_equal(m->v[0].compiled, LG_MODULE_EAGER);
	done(&j, m);
}

/* A kernel is of the module that launched it, one of the backward pass of the module whose node it is for. */
static void what_a_device_computes_is_of_who_launched_it(void **state)
{
	struct job j = job_begin();
	struct lg_step step = { .ts = 0, .dur = 100 * MS, .rank = -1 };
	lg_trk stream = lg_track_get(j.b, &(struct lg_track_row){ .kind = LG_TRACK_STREAM, .index = 7 });
	static const struct {
		int64_t launch, begin, dur;
	} k[] = { { 3, 20, 5 }, { 6, 25, 7 }, { 32, 40, 11 }, { 60, 70, 13 } };
	struct lg_modules *m;

	(void)state;
	row(&j, LG_SPAN_PYTHON, "nn.Module: Net_0", 1 * MS, 10 * MS, 0, "");
	row(&j, LG_SPAN_PYTHON, "nn.Module: Linear_0", 2 * MS, 3 * MS, 0, "");
	row(&j, LG_SPAN_OP, "aten::linear", 3 * MS, 1 * MS, 4, "");
	row(&j, LG_SPAN_OP, "AddmmBackward0", 30 * MS, 4 * MS, 4, "fwd=1");
	for (int i = 0; i < 4; i++) {
		lg_add_span(j.b, &(struct lg_span_row){ .ts = k[i].begin * MS,
							.dur = k[i].dur * MS,
							.track = stream,
							.kind = LG_SPAN_KERNEL,
							.seq = 1 + i % 2 }); /* numbers repeat */
		lg_add_flow(j.b, &(struct lg_flow_row){ .ts = k[i].launch * MS,
							.ts_to = k[i].begin * MS,
							.thr = j.thr,
							.kind = LG_FLOW_LAUNCH,
							.id = (uint64_t)(1 + i % 2) });
	}
	step.prc = lg_process_get(j.b, 10);
	j.v.steps = &step;
	j.v.n_steps = 1;
	m = judge(&j);
	assert_true(m->has_device);
	assert_float_equal(find(m, "Net_0.Linear_0")->device, 5 + 11, 1e-9);
	assert_float_equal(m->v[0].own_device, 7, 1e-9);
	assert_float_equal(m->v[0].device, 23, 1e-9);
	assert_float_equal(m->v[0].share, 0.23, 1e-9);
	done(&j, m);
}

static void a_trace_without_modules_has_none(void **state)
{
	struct job j = job_begin();
	struct lg_modules *m;

	(void)state;
	row(&j, LG_SPAN_PYTHON, "train.py(1): step", 0, 99 * MS, 0, "");
	row(&j, LG_SPAN_OP, "aten::linear", 0, 99 * MS, 3, "");
	m = judge(&j);
	assert_int_equal(m->n, 0);
	done(&j, m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_of_the_hook_become_a_tree),
		cmocka_unit_test(a_ring_without_its_beginning),
		cmocka_unit_test(what_was_told_once_tells_nothing),
		cmocka_unit_test(sums_that_run_backwards),
		cmocka_unit_test(rows_of_a_profiler_become_a_tree),
		cmocka_unit_test(what_a_device_computes_is_of_who_launched_it),
		cmocka_unit_test(a_trace_without_modules_has_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
