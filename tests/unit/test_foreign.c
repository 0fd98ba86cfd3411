/* SPDX-License-Identifier: Apache-2.0 */
/* CPU samples alone: who is named for a thread that stands still, and who must not be. Times in ms. */
#include "outcome.h"
#include "store/builder.h"

enum { VICTIM = 900, SUSPECT = 4711, LENGTH = 8000, STALL = 60 };

static struct lg_builder *b;
static struct outcome o;

static void start(int cpus)
{
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	lg_meta_setf(b, 0, "host.cpus", "%d", cpus);
	lg_thread_name(b, lg_thread_get(b, VICTIM, VICTIM), lg_intern(b, "victim"));
	lg_thread_name(b, lg_thread_get(b, SUSPECT, SUSPECT), lg_intern(b, "suspect"));
}

/* A sample each ms. */
static void runs(int pid, int tid, int cpu, int from, int to)
{
	lg_thr thr = lg_thread_get(b, pid, tid);

	for (int i = from; i < to; i++)
		lg_add_sample(b, &(struct lg_sample_row){ .ts = (1000 + i) * MS, .thr = thr, .cpu = cpu,
							  .weight = MS });
}

/* The victim runs from `from` to `to`, but not for STALL after each multiple of `every`. */
static void victim_runs(int from, int to, int every)
{
	for (int at = from; at < to; at += every)
		runs(VICTIM, VICTIM, 0, at ? at + STALL : 0, at + every < to ? at + every : to);
}

/* The trace is complete: who is named? */
static const struct lg_finding *accused(void)
{
	struct lg_trace *t;

	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	o = judge(t);
	return find(o.v, "host.foreign_activity");
}

/* A capture of four seconds has two of them: enough, if they are apart. */
static void two_bursts_that_are_apart_are_a_repetition(void **state)
{
	const struct lg_finding *f;

	(void)state;
	start(8);
	victim_runs(0, 4000, 1500);
	runs(SUSPECT, SUSPECT, 3, 1500, 1500 + STALL);
	runs(SUSPECT, SUSPECT, 3, 3000, 3000 + STALL);
	f = accused();
	assert_non_null(f);
	assert_int_equal(f->culprit.pid, SUSPECT);
	assert_string_equal(f->severity, "low");
	done(&o);
}

/* Two run in the stalls: whoever is named, the other is said, and less is sure. */
static void who_coincides_as_well_is_told(void **state)
{
	double alone = 0;

	(void)state;
	for (int rival = 0; rival < 3; rival++) {
		const struct lg_finding *f;

		start(8);
		lg_thread_name(b, lg_thread_get(b, 4800, 4800), lg_intern(b, "echo"));
		victim_runs(0, LENGTH, 1000);
		for (int at = 1000; at < LENGTH; at += 1000) {
			int from = rival == 1 ? at + 1 : at + 400;

			runs(SUSPECT, SUSPECT, 3, at, at + STALL);
			if (rival)
				runs(4800, 4800, 5, from, from + STALL - 2);
		}
		f = accused();
		assert_non_null(f);
		if (rival == 1) {
			assert_int_equal(f->n_against, 1);
			assert_non_null(strstr(f->against[0].text,
					       f->culprit.pid == SUSPECT ? "echo" : "suspect"));
			assert_true(f->confidence < 0.8 * alone);
		} else {
			assert_int_equal(f->n_against, 0);
			assert_int_equal(f->culprit.pid, SUSPECT);
			alone = f->confidence;
		}
		done(&o);
	}
}

/* One stall, and one process in two threads, or in two pieces: that is one coincidence. */
static void what_happens_once_is_no_repetition(void **state)
{
	(void)state;
	for (int pieces = 0; pieces < 2; pieces++) {
		start(8);
		victim_runs(0, 4000, 2000);
		if (pieces) {
			runs(SUSPECT, SUSPECT, 3, 2000, 2020);
			runs(SUSPECT, SUSPECT, 3, 2030, 2050);
		} else {
			runs(SUSPECT, SUSPECT, 3, 2000, 2000 + STALL);
			runs(SUSPECT, SUSPECT + 1, 4, 2001, 2000 + STALL);
		}
		assert_null(accused());
		done(&o);
	}
}

/* A build waits for the compiler that it started: the same coincidence, and no stranger. */
static void who_is_waited_for_was_started_by_the_victim(void **state)
{
	(void)state;
	for (int stranger = 0; stranger < 2; stranger++) {
		start(8);
		for (int pid = SUSPECT; pid <= SUSPECT + 1; pid++) {
			lg_prc p = lg_thread_process(b, lg_thread_get(b, pid, pid));
			struct lg_process_row row = lg_process_read(b, p);

			/* The second is the first one's child. */
			row.ppid = pid > SUSPECT ? SUSPECT : stranger ? 1 : VICTIM;
			lg_process_write(b, p, &row);
		}
		victim_runs(0, LENGTH, 1000);
		for (int at = 1000; at < LENGTH; at += 1000)
			runs(SUSPECT + 1, SUSPECT + 1, 3, at, at + STALL);
		assert_int_equal(accused() != NULL, stranger);
		done(&o);
	}
}

/* What runs after the victim's end coincides with nothing. */
static void a_process_that_is_gone_does_not_stand_still(void **state)
{
	(void)state;
	start(8);
	runs(VICTIM, VICTIM, 0, 0, 5000);
	lg_thread_end(b, VICTIM, 6000 * MS);
	for (int at = 5200; at < LENGTH; at += 400)
		runs(SUSPECT, SUSPECT, 3, at, at + STALL);
	assert_null(accused());
	done(&o);
}

/*
 * Two CPUs, and more to run than they can: the victim is pushed off 30 times, each time by two of twelve.
 * Whatever one of them does lies within a stall, as the victim runs when none does.
 */
static void on_a_full_machine_one_of_many_is_not_named(void **state)
{
	(void)state;
	start(2);
	victim_runs(0, LENGTH, 250);
	runs(100, 100, 1, 0, 250);
	for (int k = 1; k * 250 < LENGTH; k++) {
		int one = k % 12 * 5 % 12, two = (one + 1 + k % 11) % 12, at = k * 250;

		runs(SUSPECT + one, SUSPECT + one, 0, at, at + STALL);
		runs(SUSPECT + two, SUSPECT + two, 1, at, at + STALL);
		runs(100, 100, 1, at + STALL, at + 250);
	}
	assert_null(accused());
	assert_true(has_limit(o.v, "others had the CPU"));
	done(&o);
}

/*
 * It takes turns with a rank on that rank's CPU: contention, at half speed, and the stalls of the other rank
 * are its waiting for the first. The same bursts elsewhere, while both stand still: the thing itself.
 */
static void turns_on_a_cpu_are_no_stall(void **state)
{
	(void)state;
	for (int real = 0; real < 2; real++) {
		start(4);
		for (int rank = 0; rank < 2; rank++) {
			lg_prc p = lg_thread_process(b, lg_thread_get(b, VICTIM + rank, VICTIM + rank));
			struct lg_process_row row = lg_process_read(b, p);

			row.rank = rank;
			row.role = LG_ROLE_RANK;
			lg_process_write(b, p, &row);
		}
		victim_runs(0, LENGTH, 600);
		for (int at = 0; at < LENGTH; at += 600) {
			int end = at + 600 < LENGTH ? at + 600 : LENGTH;

			runs(VICTIM + 1, VICTIM + 1, 1, at ? at + STALL : 0, end);
			if (at && real)
				runs(SUSPECT, SUSPECT, 1, at, at + STALL);
			for (int turn = at; at && !real && turn < at + STALL; turn += 12) {
				runs(SUSPECT, SUSPECT, 1, turn, turn + 6);
				runs(VICTIM + 1, VICTIM + 1, 1, turn + 6, turn + 12);
			}
		}
		assert_int_equal(accused() != NULL, real);
		done(&o);
	}
}

/* The same load, but all of the long stalls are one process's. */
static void on_a_full_machine_the_only_one_is_named(void **state)
{
	const struct lg_finding *f;

	(void)state;
	start(2);
	victim_runs(0, LENGTH, 1000);
	runs(100, 100, 1, 0, LENGTH);
	for (int at = 1000; at < LENGTH; at += 1000)
		runs(SUSPECT, SUSPECT, 0, at, at + STALL);
	f = accused();
	assert_non_null(f);
	assert_int_equal(f->culprit.pid, SUSPECT);
	assert_string_equal(f->severity, "medium");
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_bursts_that_are_apart_are_a_repetition),
		cmocka_unit_test(who_coincides_as_well_is_told),
		cmocka_unit_test(what_happens_once_is_no_repetition),
		cmocka_unit_test(who_is_waited_for_was_started_by_the_victim),
		cmocka_unit_test(a_process_that_is_gone_does_not_stand_still),
		cmocka_unit_test(on_a_full_machine_one_of_many_is_not_named),
		cmocka_unit_test(turns_on_a_cpu_are_no_stall),
		cmocka_unit_test(on_a_full_machine_the_only_one_is_named),
	};

	return cmocka_run_group_tests_name("foreign", tests, NULL, NULL);
}
