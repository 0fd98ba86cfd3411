/* SPDX-License-Identifier: Apache-2.0 */
/* What one user may take of a recorder's memory, and that the job's own names never pay for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "store/budget.h"
#include "store/builder.h"

enum { JOB = 100, ATTACKER = 200, ANOTHER = 300, KIB = 1 << 10, STORM = 200000 };

/* A job of pid 100 (uid 1000), an attacker of uid 65534, a bystander of uid 1001. */
static struct lg_builder *machine(void)
{
	static const struct lg_budget_limits limits = { .job = 4096 * KIB, .user = 512 * KIB,
							.users = 1024 * KIB };
	static const struct { int32_t pid; uint32_t uid, role; } who[] = {
		{ JOB, 1000, LG_ROLE_RANK }, { ATTACKER, 65534, 0 }, { ANOTHER, 1001, 0 },
	};
	struct lg_builder *b;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	for (size_t i = 0; i < 3; i++) {
		lg_thr thr = lg_thread_start(b, 1, who[i].pid, who[i].pid, 5);
		struct lg_process_row r = lg_process_read(b, lg_thread_process(b, thr));

		r.uid = who[i].uid;
		r.role = who[i].role;
		lg_process_write(b, lg_thread_process(b, thr), &r);
	}
	lg_builder_limit(b, &limits);
	return b;
}

static lg_str named(struct lg_builder *b, int32_t pid, const char *what, unsigned i)
{
	char text[64];

	snprintf(text, sizeof text, "%s %u", what, i);
	lg_builder_for(b, pid);
	return lg_intern(b, text);
}

static const char *text(struct lg_builder *b, lg_str s)
{
	return lg_string(lg_builder_trace(b), s);
}

/* Rows of that id's texts. */
static uint64_t denied(struct lg_builder *b, const char *of)
{
	const struct lg_trace *t = lg_builder_trace(b);
	uint64_t n = 0;

	for (size_t i = 0; i < t->diag.n; i++)
		if (t->diag.id[i] == LG_DIAG_OVER_BUDGET && !strcmp(lg_string(t, t->diag.text[i]), of))
			n += t->diag.count[i];
	return n;
}

static void a_storm_of_names_ends_at_its_users_budget(void **state)
{
	struct lg_builder *b = machine();
	size_t kept = 0;
	(void)state;

	for (unsigned i = 0; i < STORM; i++)
		kept += strcmp(text(b, named(b, ATTACKER, "storm", i)), "[over budget]") != 0;
	assert_in_range(kept, 1000, 512 * KIB / 64);
	assert_true(lg_builder_trace(b)->n_str < 10000);
	/* What it was known by before it still is. */
	assert_string_equal(text(b, named(b, ATTACKER, "storm", 7)), "storm 7");
	/* Nobody else pays. */
	assert_string_equal(text(b, named(b, JOB, "job", 1)), "job 1");
	assert_string_equal(text(b, named(b, ANOTHER, "bystander", 1)), "bystander 1");
	lg_builder_for(b, 0);
	assert_string_equal(text(b, lg_intern(b, "the recorder's own")), "the recorder's own");
	lg_builder_tell_budget(b, 77);
	assert_int_equal(denied(b, "of user 65534"), STORM - kept);
	assert_int_equal(denied(b, "of the job"), 0);
	lg_builder_tell_budget(b, 78);
	assert_int_equal(denied(b, "of user 65534"), STORM - kept); /* told once */
	lg_builder_free(b);
}

static void many_users_together_have_a_budget_too(void **state)
{
	struct lg_builder *b = machine();
	(void)state;

	for (int32_t u = 0; u < 64; u++) {
		lg_thr thr;
		struct lg_process_row r;

		lg_builder_for(b, 0);
		thr = lg_thread_start(b, 1, 1000 + u, 1000 + u, 9);
		r = lg_process_read(b, lg_thread_process(b, thr));
		r.uid = 2000 + (uint32_t)u;
		lg_process_write(b, lg_thread_process(b, thr), &r);
		for (unsigned i = 0; i < 4000; i++)
			(void)named(b, 1000 + u, "of many", (unsigned)u * 4000 + i);
	}
	assert_true(lg_builder_trace(b)->n_str < 1024 * KIB / 64 + 100);
	assert_string_equal(text(b, named(b, JOB, "job", 2)), "job 2");
	lg_builder_free(b);
}

static void stacks_beyond_it_end_where_they_were_known_to(void **state)
{
	struct lg_builder *b = machine();
	lg_stk job, known = 0;
	(void)state;

	lg_builder_for(b, ATTACKER);
	for (uint64_t i = 0; i < STORM; i++) {
		lg_frm f = lg_intern_frame(b, &(struct lg_frame_row){ .pc = 4096 + i });
		lg_stk s = lg_intern_stack(b, 0, f);

		if (i == 3)
			known = s;
		if (i == STORM - 1)
			assert_int_equal(s, 0);
	}
	assert_true(lg_builder_trace(b)->frame.n < 4000 && lg_builder_trace(b)->stack.n < 8000);
	job = lg_intern_frame(b, &(struct lg_frame_row){ .pc = 4099 });
	assert_int_equal(lg_intern_stack(b, 0, job), known);
	lg_builder_for(b, JOB);
	job = lg_intern_stack(b, known, lg_intern_frame(b, &(struct lg_frame_row){ .pc = 1 }));
	assert_true(job > known);
	lg_builder_free(b);
}

/* A fork bomb, told as fork and exit or, where the fork was lost, by what its threads did. */
static void lives_beyond_it_share_one_row(void **state)
{
	struct lg_builder *b = machine();
	const struct lg_trace *t = lg_builder_trace(b);
	size_t n_prc, n_thr;
	lg_thr thr = 0, job;
	(void)state;

	for (int i = 0; i < 50000; i++) {
		int32_t pid = 1000 + i % 30000;

		lg_builder_for(b, ATTACKER);
		thr = lg_thread_start(b, ATTACKER, pid, pid, 100 + i);
		lg_thread_name(b, thr, named(b, ATTACKER, "n", (unsigned)i));
		if (i % 3)
			lg_thread_end(b, pid, 101 + i);
	}
	n_prc = t->process.n;
	n_thr = t->thread.n;
	assert_true(n_prc < 2000 && n_thr < 4000);
	assert_string_equal(text(b, t->thread.comm[thr]), "[over budget]");
	assert_int_equal(t->process.uid[t->thread.prc[thr]], 65534);
	assert_true(t->process.end[t->thread.prc[thr]] == INT64_MAX);
	/* A new thread of the job has its own row, and a used id comes back to life for who gets it. */
	lg_builder_for(b, JOB);
	job = lg_thread_start(b, JOB, JOB, 1002, 90000);
	assert_int_equal(job, n_thr);
	assert_int_equal(lg_thread_process(b, job), lg_process_get(b, JOB));
	lg_builder_for(b, JOB);
	assert_int_equal(lg_thread_get(b, JOB, 1002), job);
	lg_builder_free(b);
}

static void what_is_given_back_may_be_had_again(void **state)
{
	struct lg_builder *b = machine();
	uint32_t account;
	(void)state;

	for (int i = 0; i < 100; i++) {
		assert_true(lg_builder_charge(b, ATTACKER, 300 * KIB, &account));
		assert_false(lg_builder_charge(b, ATTACKER, 300 * KIB, &account));
		assert_true(lg_builder_charge(b, ANOTHER, 300 * KIB, &account));
		lg_builder_give_back(b, account, 300 * KIB);
		assert_true(lg_builder_charge(b, ATTACKER, 100 * KIB, &account));
		lg_builder_give_back(b, account, 400 * KIB);
	}
	lg_builder_free(b);
}

static void without_limits_nothing_is_counted(void **state)
{
	struct lg_builder *b;
	(void)state;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	for (unsigned i = 0; i < STORM; i++)
		(void)named(b, ATTACKER, "storm", i);
	assert_int_equal(lg_builder_trace(b)->n_str, STORM + 1);
	lg_builder_tell_budget(b, 1);
	assert_int_equal(lg_builder_trace(b)->diag.n, 0);
	lg_builder_free(b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_storm_of_names_ends_at_its_users_budget),
		cmocka_unit_test(many_users_together_have_a_budget_too),
		cmocka_unit_test(stacks_beyond_it_end_where_they_were_known_to),
		cmocka_unit_test(lives_beyond_it_share_one_row),
		cmocka_unit_test(what_is_given_back_may_be_had_again),
		cmocka_unit_test(without_limits_nothing_is_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
