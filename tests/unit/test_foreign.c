/* SPDX-License-Identifier: Apache-2.0 */
/* CPU samples alone: who is named for a thread that stands still, and who must not be. Times in ms. */
#include "timeline/bursts.h"
#include "base/map.h"
#include "floor.h"
#include "store/builder.h"

enum { VICTIM = 900, SUSPECT = 4711, LENGTH = 8000, STALL = 60 };

static struct lg_builder *b;
static struct outcome o;
static const char torch[] = "/x/libtorch_cpu.so", *victim_dso = torch;

static void start(int cpus)
{
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	lg_meta_setf(b, 0, "host.cpus", "%d", cpus);
	lg_thread_name(b, lg_thread_get(b, VICTIM, VICTIM), lg_intern(b, "victim"));
	lg_thread_name(b, lg_thread_get(b, SUSPECT, SUSPECT), lg_intern(b, "suspect"));
}

/* A sample each ms. The victim is at code of a framework: it trains, unless the test says otherwise. */
static void runs(int pid, int tid, int cpu, int from, int to)
{
	lg_thr thr = lg_thread_get(b, pid, tid);
	struct lg_frame_row frame = { .pc = 0x10, .dso = lg_intern(b, victim_dso), .kind = LG_FRAME_USER };
	lg_stk stk = pid == VICTIM ? lg_intern_stack(b, 0, lg_intern_frame(b, &frame)) : 0;

	for (int i = from; i < to; i++)
		lg_add_sample(b, &(struct lg_sample_row){ .ts = (1000 + i) * MS, .thr = thr, .cpu = cpu,
							  .weight = MS, .stack = stk });
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

static const char *evidence_of(const struct lg_finding *f, const char *what)
{
	for (size_t i = 0; i < f->n_evidence; i++)
		if (strstr(f->evidence[i].text, what))
			return f->evidence[i].text;
	fail_msg("no evidence tells of \"%s\"", what);
	return NULL;
}

/* The number of random placements that is told is that of those made: few where they lie far off. */
static void placements_that_were_not_made_are_not_told_of(void **state)
{
	size_t made[2];

	(void)state;
	for (int many = 0; many < 2; many++) {
		const struct lg_finding *f;
		const char *text;

		start(8);
		victim_runs(0, LENGTH, many ? 250 : 2600);
		for (int at = many ? 250 : 2600; at < LENGTH; at += many ? 250 : 2600)
			runs(SUSPECT, SUSPECT, 3, at, at + STALL);
		f = accused();
		assert_non_null(f);
		text = evidence_of(f, "random placements");
		text = strstr(text, "by chance with p <= ");
		assert_non_null(text);
		text = strstr(text, "(none of ");
		assert_non_null(text);
		made[many] = strtoul(text + strlen("(none of "), NULL, 10);
		done(&o);
	}
	assert_int_equal(made[0], 20000);
	assert_true(made[1] == 32 || made[1] == 256);
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
	assert_int_equal(f->severity, LG_SEVERITY_LOW);
	done(&o);
}

/*
 * Seen for as long as somebody looks with perf: one that comes every 0.9 s for 10 s, every 2.5 s for 8 s,
 * beside a program as busy at other times. Where it came once nobody is named, and it is said how long to
 * record.
 */
static void readers_of_a_few_seconds_are_named_or_the_time_is_told(void **state)
{
	static const struct {
		int every, length;
		bool named;
	} seen[] = { { 900, 10000, true }, { 2500, 8000, true }, { 2500, 4800, false } };

	(void)state;
	for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
		const struct lg_finding *f;

		start(8);
		lg_thread_name(b, lg_thread_get(b, 4800, 4800), lg_intern(b, "innocent"));
		for (int at = 0; at < seen[i].length; at += seen[i].every) {
			int end = at + seen[i].every < seen[i].length ? at + seen[i].every : seen[i].length;

			/* It waits for others for 3 ms of each 14 as well. */
			for (int step = at + (at ? STALL : 0); step < end; step += 14)
				runs(VICTIM, VICTIM, 0, step, step + 11 < end ? step + 11 : end);
			if (at)
				runs(SUSPECT, SUSPECT, 3, at, at + STALL);
			runs(4800, 4800, 5, at + 400, at + 400 + STALL);
		}
		f = accused();
		assert_int_equal(f != NULL, seen[i].named);
		if (f) {
			assert_int_equal(f->culprit.pid, SUSPECT);
			assert_non_null(evidence_of(f, "by chance with p <= "));
			assert_int_equal(f->severity,
					 f->lost_share >= 0.03 ? LG_SEVERITY_MEDIUM : LG_SEVERITY_LOW);
		}
		assert_int_equal(has_limit(o.v, "suspect (pid 4711) was busy in 1 stall of victim"), !seen[i].named);
		assert_int_equal(has_limit(o.v, "would show it (perf record -a -g -- sleep"), !seen[i].named);
		done(&o);
	}
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

/* Bursts and stalls at any time: coincidences are as many as there are by chance, and one run in a hundred
 * has enough of them to name somebody. */
static void whose_bursts_fall_anywhere_is_hardly_ever_named(void **state)
{
	enum { RUNS = 150, SLOTS = 40, SLOT = LENGTH / SLOTS };
	int named = 0, met = 0;

	(void)state;
	for (uint64_t seed = 0; seed < RUNS; seed++) {
		bool both = false;

		start(8);
		for (int k = 0; k < SLOTS; k++) {
			uint64_t drawn = lg_mix64(seed * SLOTS + (uint64_t)k);
			bool stall = k && drawn % 4 == 0, burst = (drawn >> 8) % 4 == 0;

			runs(VICTIM, VICTIM, 0, k * SLOT + (stall ? STALL : 0), (k + 1) * SLOT);
			if (burst)
				runs(SUSPECT, SUSPECT, 3, k * SLOT, k * SLOT + STALL);
			both |= stall && burst;
		}
		met += both;
		named += accused() != NULL;
		done(&o);
	}
	assert_true(met > RUNS / 2);
	assert_in_range(named, 0, RUNS * 3 / 100);
}

/* Two bursts, and the victim stands still in x of each 1000 ms: it would be hit by chance, too. */
static struct outcome two_bursts_beside(const struct floor *f, int64_t x)
{
	(void)f;
	start(8);
	for (int at = 0; at < LENGTH; at += 1000)
		runs(VICTIM, VICTIM, 0, at + (at ? (int)x : 0), at + 1000);
	runs(SUSPECT, SUSPECT, 3, 2000, 2000 + STALL);
	runs(SUSPECT, SUSPECT, 3, 5000, 5000 + STALL);
	(void)accused();
	return o;
}

/* Wherever the two bursts lay: that both were in stalls. */
static double both_by_chance(int64_t x)
{
	return pow(((double)x - STALL) / 1000, 2);
}

static void told_from_its_threshold_on(void **state)
{
	static const struct floor p = { "host.foreign_activity", 0.004, 0.012, { NULL }, 800, .told = 70,
					.truth = both_by_chance, .others = true };

	(void)state;
	assert_int_equal(floor_judge(&p, two_bursts_beside), 0);
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

/*
 * One that takes a CPU for 200 ms of each second is among the busiest, and could be the job as well as the
 * one that stands still meanwhile. Two ranks are of one program; and what stands still as long at other
 * times, too, as a server for its next request, waits for more than that. While others have the CPU nobody
 * is named, and who stood still is not the one that mostly sleeps. What shows that one of them trains settles
 * it.
 */
static void one_of_the_busiest_may_be_the_stranger(void **state)
{
	enum { STRANGER, TRAINS, SAME_PROGRAM, IDLE_AS_WELL, FULL_CPU, KINDS };

	(void)state;
	for (int kind = 0; kind < KINDS; kind++) {
		const struct lg_finding *f;

		victim_dso = kind == TRAINS ? torch : "/x/solver";
		start(8);
		if (kind == SAME_PROGRAM)
			lg_thread_name(b, lg_thread_get(b, SUSPECT, SUSPECT), lg_intern(b, "victim"));
		for (int at = 0; at < LENGTH; at += 1000) {
			runs(SUSPECT, SUSPECT, 3, at, at + 200);
			runs(VICTIM, VICTIM, 0, at + 200, at + 500);
			runs(VICTIM, VICTIM, 0, at + (kind == IDLE_AS_WELL ? 750 : 500), at + 1000);
			if (kind == FULL_CPU)
				runs(100 + at, 100 + at, 0, at, at + 200);
		}
		f = accused();
		assert_int_equal(f != NULL, kind <= TRAINS);
		if (f) {
			assert_int_equal(f->culprit.pid, SUSPECT);
			assert_int_equal(f->victims[0].pid, VICTIM);
			assert_int_equal(f->severity, kind == TRAINS ? LG_SEVERITY_HIGH : LG_SEVERITY_LOW);
			assert_int_equal(f->n_against > 0 && strstr(f->against[0].text, "--victim PID") != NULL,
					 kind == STRANGER);
		} else {
			assert_true(has_limit(o.v, "victim (pid 900) was judged"));
		}
		done(&o);
	}
	victim_dso = torch;
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

/* What else runs on the victim's CPU, which it leaves in each step and for STALL in each second. */
enum filler { NOBODY, SPINS, ONLY_IN_STALLS };
static int step_ms = 50, leaves_ms = 8;

static void two_full_cpus(enum filler filler, bool suspect, int suspect_cpu)
{
	start(2);
	for (int at = 0, end; at < LENGTH; at = end) {
		bool stalled = at && at % 1000 == 0;
		int back = at + (stalled ? STALL : leaves_ms);

		end = at + (stalled ? 100 : step_ms);
		runs(VICTIM, VICTIM, 0, back, end);
		if (stalled && suspect)
			runs(SUSPECT, SUSPECT, suspect_cpu, at, back);
		if (filler == ONLY_IN_STALLS ? stalled
					     : filler == SPINS && !(stalled && suspect && !suspect_cpu))
			runs(200, 200, 0, at, back);
		if (filler == SPINS)
			runs(201, 201, 1, stalled && suspect && suspect_cpu ? back : at, end);
	}
}

/* A program that spins on every CPU at idle priority has the victim's CPU whenever the victim leaves it: in
 * the stalls, too. That explains them as little as an idle CPU would. */
static void who_is_always_ready_hides_nobody(void **state)
{
	(void)state;
	victim_dso = "/x/solver"; /* the spinners are as busy: one of them might be meant */
	for (int filler = NOBODY; filler <= ONLY_IN_STALLS; filler++) {
		const struct lg_finding *f;
		bool told = filler != SPINS;

		two_full_cpus((enum filler)filler, true, 1);
		f = accused();
		/* Two run in the stalls alone, one on the victim's CPU: who of them it was is open. */
		assert_int_equal(f && f->culprit.pid == SUSPECT, filler != ONLY_IN_STALLS);
		if (f)
			assert_int_equal(f->victims[0].pid, VICTIM);
		for (size_t i = 0; f && i < f->n_evidence; i++)
			told |= strstr(f->evidence[i].text, "(pid 201): of them") != NULL;
		assert_true(told);
		done(&o);
	}
	victim_dso = torch;
}

static void who_is_always_ready_is_not_named(void **state)
{
	(void)state;
	/* Where little is left, half of the moments show no spinner. */
	for (step_ms = 50; step_ms <= 100; step_ms += 50) {
		leaves_ms = step_ms == 50 ? 8 : 3;
		two_full_cpus(SPINS, false, 0);
		assert_null(accused());
		assert_int_equal(o.v->n_findings, 0);
		assert_true(has_limit(o.v, "stalls without a proven cause: victim (pid 900) stood still 7 times"));
		assert_true(has_limit(o.v, "(pid 200) had it for 100 %"));
		judged_without_memory(&o);
		done(&o);
	}
	step_ms = 50;
	leaves_ms = 8;
}

/* One that takes the victim's CPU in the stalls only is no spinner, whoever spins beside it. */
static void a_hog_beside_a_spinner_is_named(void **state)
{
	const struct lg_finding *f;

	(void)state;
	two_full_cpus(SPINS, true, 0);
	f = accused();
	assert_non_null(f);
	assert_int_equal(f->culprit.pid, SUSPECT);
	done(&o);
}

/* A turn of 6 ms on another rank's CPU, for which the victim waits while a spinner has its own. */
static void a_turn_on_another_rank_s_cpu_is_no_stall(void **state)
{
	(void)state;
	start(2);
	for (int at = 0; at < LENGTH; at += 50) {
		int back = at + (at && at % 400 == 0 ? 14 : 8);

		runs(VICTIM, VICTIM, 0, back, at + 50);
		runs(200, 200, 0, at, back);
		runs(VICTIM + 1, VICTIM + 1, 1, back, at + 50);
		runs(SUSPECT, SUSPECT, 1, at + 8, back);
	}
	assert_null(accused());
	done(&o);
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
	assert_int_equal(f->severity, LG_SEVERITY_MEDIUM);
	done(&o);
}

/* Out of CPU quota for 40 ms of each 100 ms: what little others have of its CPU then took nothing from it.
 * While they have it for most of that time, nothing is told of a quota. */
static void a_used_up_quota_is_not_laid_to_who_had_the_cpu(void **state)
{
	(void)state;
	for (int taken = 0; taken < 3; taken++) {
		start(2);
		if (taken == 2) /* perf record -p: nobody else was seen */
			lg_meta_set(b, 0, "record.scope", "processes");
		for (int at = 0; at < LENGTH; at += 100) {
			runs(VICTIM, VICTIM, 0, at, at + 60);
			if (taken < 2)
				runs(SUSPECT + at / 100 % 3, SUSPECT + at / 100 % 3, 0, at + 60,
				     at + (taken ? 98 : 73));
			runs(100, 100, 1, at, at + 30);
		}
		assert_null(accused());
		assert_int_equal(has_limit(o.v, "nr_throttled in the cgroup's cpu.stat"), !taken);
		assert_int_equal(has_limit(o.v, "others had the CPU of"), taken == 1);
		assert_int_equal(has_limit(o.v, "not in a recording of single programs"), taken == 2);
		done(&o);
	}
}

/* Whose stalls they are nobody said: a busy server is held up as well. */
static void what_may_be_no_training_is_low(void **state)
{
	(void)state;
	for (int trains = 0; trains < 2; trains++) {
		const struct lg_finding *f;

		victim_dso = trains ? torch : "/x/libssl.so";
		start(8);
		victim_runs(0, LENGTH, 1000);
		for (int at = 1000; at < LENGTH; at += 1000)
			runs(SUSPECT, SUSPECT, 3, at, at + STALL);
		f = accused();
		assert_non_null(f);
		assert_int_equal(f->severity, trains ? LG_SEVERITY_MEDIUM : LG_SEVERITY_LOW);
		assert_int_equal(f->n_against, !trains);
		done(&o);
	}
}

/* Two equal ones that compute most of the time stand still together: ranks. At times of their own: not. */
static void equal_ones_that_stand_still_together_are_ranks(void **state)
{
	(void)state;
	victim_dso = "/x/solver";
	for (int together = 0; together < 2; together++) {
		const struct lg_finding *f;

		start(8);
		lg_thread_name(b, lg_thread_get(b, VICTIM + 1, VICTIM + 1), lg_intern(b, "victim"));
		victim_runs(0, LENGTH, 1000);
		for (int at = 0; at < LENGTH; at += 1000) {
			int from = together ? at : at + 500;

			runs(VICTIM + 1, VICTIM + 1, 1, at ? from + STALL : 0, from + 1000);
			if (at)
				runs(SUSPECT, SUSPECT, 3, at, at + STALL);
		}
		f = accused();
		assert_non_null(f);
		assert_int_equal(f->culprit.pid, SUSPECT);
		assert_int_equal(f->severity, together ? LG_SEVERITY_MEDIUM : LG_SEVERITY_LOW);
		done(&o);
	}
	victim_dso = torch;
}

/* With the index of a list and without it: the same time. */
static void an_index_changes_no_sum(void **state)
{
	struct lg_stretches plain = { 0 }, indexed = { 0 };
	uint64_t seed = 3;
	int64_t ts = 5000;

	(void)state;
	for (int i = 0; i < 300; i++) {
		int64_t len = 1 + (int64_t)((seed = seed * 6364136223846793005u + 1) >> 54);

		assert_int_equal(lg_stretch_add(&plain, ts, ts + len), 0);
		assert_int_equal(lg_stretch_add(&indexed, ts, ts + len), 0);
		ts += len + (i % 50 ? (int64_t)(seed >> 56) : 90000);
	}
	assert_int_equal(lg_stretches_index(&indexed), 0);
	for (int i = 0; i < 20000; i++) {
		int64_t from = (int64_t)((seed = seed * 6364136223846793005u + 1) >> 33) % (ts + 20000);
		int64_t to = (from -= 5000) + (int64_t)(seed % 7000);

		assert_int_equal(lg_covered(&plain, from, to), lg_covered(&indexed, from, to));
	}
	lg_stretches_done(&plain);
	lg_stretches_done(&indexed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(placements_that_were_not_made_are_not_told_of),
		cmocka_unit_test(an_index_changes_no_sum),
		cmocka_unit_test(two_bursts_that_are_apart_are_a_repetition),
		cmocka_unit_test(readers_of_a_few_seconds_are_named_or_the_time_is_told),
		cmocka_unit_test(who_coincides_as_well_is_told),
		cmocka_unit_test(what_happens_once_is_no_repetition),
		cmocka_unit_test(whose_bursts_fall_anywhere_is_hardly_ever_named),
		cmocka_unit_test(told_from_its_threshold_on),
		cmocka_unit_test(who_is_waited_for_was_started_by_the_victim),
		cmocka_unit_test(one_of_the_busiest_may_be_the_stranger),
		cmocka_unit_test(a_process_that_is_gone_does_not_stand_still),
		cmocka_unit_test(on_a_full_machine_one_of_many_is_not_named),
		cmocka_unit_test(turns_on_a_cpu_are_no_stall),
		cmocka_unit_test(who_is_always_ready_hides_nobody),
		cmocka_unit_test(who_is_always_ready_is_not_named),
		cmocka_unit_test(a_hog_beside_a_spinner_is_named),
		cmocka_unit_test(a_turn_on_another_rank_s_cpu_is_no_stall),
		cmocka_unit_test(on_a_full_machine_the_only_one_is_named),
		cmocka_unit_test(a_used_up_quota_is_not_laid_to_who_had_the_cpu),
		cmocka_unit_test(what_may_be_no_training_is_low),
		cmocka_unit_test(equal_ones_that_stand_still_together_are_ranks),
	};

	return cmocka_run_group_tests_name("foreign", tests, NULL, NULL);
}
