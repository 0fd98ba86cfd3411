/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a comparison tells last: a process that runs now and did not before (regress.process), and time that
 * no input accounts for (regress.step). Traces that show steps and little else, each with its healthy twin.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/map.h"
#include "diff_pair.h"
#include "store/builder.h"

#define MS 1000000ll

struct plan {
	double step_ms;
	double noise;        /* of a step, up and down; 0 = 1 % */
	bool shifting;       /* a step is a forward and a backward pass; what each has of it changes */
	double new_op_ms;    /* more, in an operator */
	double newcomer_cpu; /* of one CPU; 0 = it is not there */
	bool of_job;         /* the newcomer is a process of the job's */
	int more;            /* other ones like it */
};

enum { STEPS = 300, PID = 900, DAEMON_PID = 50, NEWCOMER_PID = 4711 };

static lg_thr process(struct lg_builder *b, int32_t pid, const char *command, int role)
{
	lg_thr thr = lg_thread_get(b, pid, pid);
	struct lg_process_row row = lg_process_read(b, lg_thread_process(b, thr));

	row.role = (uint8_t)role;
	row.rank = role == LG_ROLE_RANK ? 0 : -1;
	row.comm = lg_intern(b, command);
	row.cmdline = lg_intern(b, command);
	lg_process_write(b, lg_thread_process(b, thr), &row);
	return thr;
}

static void running(struct lg_builder *b, lg_thr thr, int64_t ts, int64_t dur, int cpu)
{
	lg_add_state(b, &(struct lg_state_row){ .ts = ts, .dur = dur, .thr = thr, .cpu = cpu,
						.kind = LG_RUNNING });
}

static void stage(struct lg_builder *b, lg_thr thr, int64_t ts, int64_t dur, int what)
{
	lg_add_span(b, &(struct lg_span_row){ .ts = ts, .dur = dur, .thr = thr, .seq = -1,
					      .kind = LG_SPAN_STAGE, .stage = (uint8_t)what });
}

static struct lg_trace *made(const struct plan *p)
{
	struct lg_builder *b;
	struct lg_trace *t;
	int64_t ts = 1000 * MS;
	lg_thr rank, daemon, newcomer = 0, more[8] = { 0 };

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	rank = process(b, PID, "train.py", LG_ROLE_RANK);
	daemon = process(b, DAEMON_PID, "daemon", LG_ROLE_OTHER);
	if (p->newcomer_cpu > 0)
		newcomer = process(b, NEWCOMER_PID, "newcomer", p->of_job ? LG_ROLE_JOB : LG_ROLE_OTHER);
	for (int i = 0; i < p->more; i++) {
		char name[] = { 'o', 'n', 'e', (char)('a' + i), 0 };

		more[i] = process(b, NEWCOMER_PID + 1 + i, name, LG_ROLE_OTHER);
	}
	for (int k = 0; k < STEPS; k++) {
		/* steps differ by themselves, the same way in every run */
		double wide = p->noise > 0 ? p->noise : 0.01;
		double noise = 1 - wide + 2 * wide * (double)(lg_mix64((uint64_t)k) % 1000) / 1000;
		int64_t dur = (int64_t)(p->step_ms * noise * 1e6);
		int64_t op = (int64_t)(p->new_op_ms * noise * 1e6);

		if (op)
			lg_add_span(b, &(struct lg_span_row){ .ts = ts + dur, .dur = op, .thr = rank,
							      .seq = -1, .kind = LG_SPAN_OP,
							      .name = lg_intern(b, "aten::new_thing") });
		lg_add_span(b, &(struct lg_span_row){ .ts = ts, .dur = dur + op, .thr = rank,
						      .kind = LG_SPAN_STEP,
						      .seq = k, .name = lg_intern(b, "step") });
		if (p->shifting) {
			/* from a tenth to nine tenths, by the run as well */
			uint64_t drawn = lg_mix64((uint64_t)k + (uint64_t)(p->step_ms * 1000)) % 800;
			int64_t forward = dur * (int64_t)(100 + drawn) / 1000;

			stage(b, rank, ts, forward, LG_STAGE_FORWARD);
			stage(b, rank, ts + forward, dur - forward, LG_STAGE_BACKWARD);
		}
		running(b, rank, ts, dur + op, 0);
		running(b, daemon, ts, dur / 50, 1);
		if (newcomer)
			running(b, newcomer, ts, (int64_t)((double)dur * p->newcomer_cpu), 2);
		for (int i = 0; i < p->more; i++)
			running(b, more[i], ts, (int64_t)((double)dur * p->newcomer_cpu), 3 + i);
		ts += dur + op;
	}
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return t;
}

static struct pair compare(const struct plan *before, const struct plan *after)
{
	return compare_traces(made(before), made(after), 0.05);
}

static const struct plan plain = { .step_ms = 10 };

static void a_process_that_is_new_is_told_and_costs_nothing(void **state)
{
	struct plan with = plain;
	struct pair p;
	const struct lg_finding *f;

	(void)state;
	with.newcomer_cpu = 0.006;
	p = compare(&plain, &with);
	f = find(&p, "regress.process");
	assert_non_null(f);
	assert_int_equal(f->severity, LG_SEVERITY_INFO);
	assert_true(f->lost_ms == 0);
	assert_int_equal(f->culprit.pid, NEWCOMER_PID);
	assert_int_equal(f->culprit.relation, LG_RELATION_OTHER_PROCESS);
	assert_non_null(strstr(f->title, "newcomer (pid 4711)"));
	assert_non_null(strstr(f->evidence[0].text, "0.6 % of a CPU"));
	assert_int_equal(p.d->v.n_findings, 1);
	assert_string_equal(p.d->gate.verdict, "pass");
	done(&p);
}

static void newcomers_beyond_what_is_told_are_counted(void **state)
{
	struct plan with = plain;

	(void)state;
	with.newcomer_cpu = 0.006;
	for (with.more = 4; with.more <= 7; with.more += 3) { /* five in all, and eight */
		struct pair p = compare(&plain, &with);
		const struct lg_finding *f = &p.d->v.findings[p.d->v.n_findings - 1];
		bool counted = false;

		assert_int_equal(p.d->v.n_findings, 5);
		for (size_t i = 0; i < p.d->v.n_findings; i++)
			for (size_t k = 0; k < p.d->v.findings[i].n_evidence; k++)
				counted |= strstr(p.d->v.findings[i].evidence[k].text, "... and 3 more processes that run "
						  "now and did not before") != NULL;
		assert_string_equal(f->id, "regress.process");
		assert_int_equal(counted, with.more == 7);
		done(&p);
	}
}

static void processes_that_are_no_news_are_not_told(void **state)
{
	static const struct {
		double before, after;
		bool of_job;
	} twins[] = {
		{ 0, 0.004, false },   /* next to nothing */
		{ 0.006, 0.006, false },
		{ 0.002, 0.009, false }, /* it was there, and less than five times as busy */
		{ 0.5, 0, false },     /* it is gone */
		{ 0, 0.5, true },      /* the job's own */
	};

	(void)state;
	for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
		struct plan a = plain, b = plain;
		struct pair p;

		a.newcomer_cpu = twins[i].before;
		b.newcomer_cpu = twins[i].after;
		a.of_job = b.of_job = twins[i].of_job;
		p = compare(&a, &b);
		assert_int_equal(p.d->v.n_findings, 0);
		done(&p);
	}
}

/* Either stage may have got longer or shorter; together they did get longer. */
static void time_that_no_stage_accounts_for_is_told_as_that(void **state)
{
	struct plan before = { .step_ms = 10, .shifting = true }, after = before;
	const struct lg_finding *f;
	struct pair p;

	(void)state;
	after.step_ms = 10.45;
	p = compare(&before, &after);
	f = find(&p, "regress.step");
	assert_non_null(f);
	assert_true(f == &p.d->v.findings[0] && p.d->v.n_findings == 1);
	assert_true(fabs(f->lost_ms - 0.45 * STEPS) < 0.1 * f->lost_ms);
	assert_int_equal(loud(&p), 0); /* two runs may differ by that much */
	assert_non_null(strstr(f->title, "do not show why"));
	check_sum(&p);
	done(&p);
}

/* 0.6 ms are a riddle, beside x us that are none. */
static struct pair beside_an_operator(int64_t x)
{
	struct plan before = { .step_ms = 10, .shifting = true }, after = before;

	after.step_ms = 10.6;
	after.new_op_ms = (double)x / 1000;
	return compare(&before, &after);
}

static bool step_is_told(const struct pair *p)
{
	return find(p, "regress.step") != NULL;
}

static void a_small_part_of_the_change_is_no_riddle(void **state)
{
	int64_t us = told_from(beside_an_operator, step_is_told, 4000, 400);

	(void)state;
	if (us < 1300 || us > 1450) /* 0.6 of 2.0 ms are three tenths */
		fail_msg("told beside %lld us", (long long)us);
}

static void time_that_is_accounted_for_and_small_changes_are_no_riddle(void **state)
{
	struct plan before = { .step_ms = 10, .shifting = true }, after = before;
	struct pair p;

	(void)state;
	after.step_ms = 10.25; /* 2.5 % */
	p = compare(&before, &after);
	assert_int_equal(p.d->v.n_findings, 0);
	done(&p);
	after.step_ms = 9; /* shorter */
	p = compare(&before, &after);
	assert_int_equal(p.d->v.n_findings, 0);
	done(&p);
	/* Steps that are one piece: that piece is known. */
	before.shifting = after.shifting = false;
	after.step_ms = 15;
	p = compare(&before, &after);
	assert_null(find(&p, "regress.step"));
	assert_string_equal(p.d->v.findings[0].id, "regress.stage");
	assert_int_equal(loud(&p), 1);
	done(&p);
}

/* What the steps may be wrong by, and what lies between two runs, have nothing to do with each other. */
static void two_doubts_are_no_sum(void **state)
{
	struct plan before = { .step_ms = 10, .noise = 0.5 }, after = before;
	const struct lg_finding *f;
	struct pair p;

	(void)state;
	after.step_ms = 11.2;
	p = compare(&before, &after);
	f = find(&p, "regress.stage");
	assert_non_null(f);
	assert_true(f->lost_ms / (double)p.s[1]->s.n < p.d->delta_ms - p.d->stages[0].lo + p.d->between * 10);
	assert_true(f->severity > LG_SEVERITY_INFO);
	assert_int_equal(loud(&p), 0);
	done(&p);
	after.step_ms = 10.6;
	p = compare(&before, &after);
	assert_true(!find(&p, "regress.stage") || find(&p, "regress.stage")->severity == LG_SEVERITY_INFO);
	done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_process_that_is_new_is_told_and_costs_nothing),
		cmocka_unit_test(newcomers_beyond_what_is_told_are_counted),
		cmocka_unit_test(processes_that_are_no_news_are_not_told),
		cmocka_unit_test(time_that_no_stage_accounts_for_is_told_as_that),
		cmocka_unit_test(a_small_part_of_the_change_is_no_riddle),
		cmocka_unit_test(time_that_is_accounted_for_and_small_changes_are_no_riddle),
		cmocka_unit_test(two_doubts_are_no_sum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
