/* SPDX-License-Identifier: Apache-2.0 */
/* Rows and batches of the fleet, folding of steps, the spool. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "base/alloc.h"
#include "fleet/fold.h"
#include "fleet/questions.h"
#include "fleet/spool.h"
#include "fleet/store.h"

#define MS INT64_C(1000000)

static char *pack_some(size_t *n, uint32_t rows)
{
	struct lg_fleet_batch *b;
	char *bytes;

	assert_int_equal(lg_fleet_batch_new(&b, NULL), 0);
	for (uint32_t i = 0; i < rows; i++) {
		struct lg_fleet_rank_step r = {
			.job = UINT64_MAX - 1, .step = i, .steps = 1, .last = i, .dur_us = 1000, .ver = 1
		};
		struct lg_fleet_stall s = { .job = 7, .step = i, .process = "p", .said = i % 2 ? "a \"quoted\"\tword" : NULL, .ver = 1 };

		lg_fleet_add_rank_step(b, &r);
		lg_fleet_add_stall(b, &s);
	}
	assert_int_equal(lg_fleet_batch_rows(b, LG_FLEET_T_STALL), rows);
	assert_int_equal(lg_fleet_batch_pack(b, &bytes, n, NULL), 0);
	assert_int_equal(lg_fleet_batch_rows(b, LG_FLEET_T_STALL), 0);
	lg_fleet_batch_free(b);
	return bytes;
}

static int see(void *arg, const struct lg_fleet_value *v, struct lg_error *err)
{
	(void)err;
	(*(uint64_t *)arg) += v[0].n == UINT64_MAX - 1 || (v[0].n == 7 && v[15].n == 1 && *v[15].text == 'p');
	return 0;
}

/* 0 and the rows seen; or an error. */
static int read_all(const char *bytes, size_t n, uint64_t *seen)
{
	struct lg_fleet_part p;
	size_t at = 0;
	int rc;

	*seen = 0;
	while ((rc = lg_fleet_batch_next(bytes, n, &at, &p, NULL)) > 0) {
		rc = lg_fleet_part_rows(&p, see, seen, NULL);
		if (rc)
			return rc;
	}
	return rc;
}

static void what_is_packed_is_read(void **state)
{
	uint64_t seen;
	size_t n;
	char *bytes = pack_some(&n, 100);

	(void)state;
	assert_int_equal(read_all(bytes, n, &seen), 0);
	assert_int_equal(seen, 200);
	lg_free(bytes);
}

static void a_torn_batch_is_refused_wherever_it_is_torn(void **state)
{
	uint64_t seen;
	size_t n;
	char *bytes = pack_some(&n, 20);

	(void)state;
	for (size_t k = 0; k < n; k++) {
		char *part = lg_calloc(k + 1, 1); /* its own block: a byte too far is seen */

		memcpy(part, bytes, k);
		assert_int_equal(read_all(part, k, &seen), LG_E_FORMAT);
		lg_free(part);
	}
	for (size_t k = 0; k < n; k++) {
		char was = bytes[k];

		bytes[k] = (char)(was ^ 0x41);
		(void)!read_all(bytes, n, &seen); /* whatever it says, it says it */
		assert_true(seen <= 40);
		bytes[k] = was;
	}
	lg_free(bytes);
}

static void a_store_takes_no_part_of_a_bad_batch(void **state)
{
	char path[] = "/tmp/laggard-fleet-XXXXXX", store[64];
	struct lg_fleet_options o = { .store = store, .write = true };
	struct lg_fleet_job_sum *jobs;
	struct lg_error err = { 0 };
	struct lg_fleet *f;
	uint32_t from;
	size_t n, n_jobs;
	char *bytes = pack_some(&n, 50);
	int fd = mkstemp(path);

	(void)state;
	close(fd);
	snprintf(store, sizeof store, "sqlite:%s", path);
	assert_int_equal(lg_fleet_open(&f, &o, &err), 0);
	assert_int_equal(lg_fleet_check(f, &err), LG_E_NOTFOUND);
	assert_int_equal(lg_fleet_init(f, &from, &err), 0);
	assert_int_equal(from, 0);
	assert_int_equal(lg_fleet_put(f, bytes, n - 30, &err), LG_E_FORMAT);
	assert_int_equal(lg_fleet_jobs(f, &(struct lg_fleet_scope){ 0 }, &jobs, &n_jobs, &err), 0);
	assert_int_equal(n_jobs, 0);
	lg_free(jobs);
	assert_int_equal(lg_fleet_put(f, bytes, n, &err), 0);
	assert_int_equal(lg_fleet_put(f, bytes, n, &err), 0);
	assert_int_equal(lg_fleet_jobs(f, &(struct lg_fleet_scope){ 0 }, &jobs, &n_jobs, &err), 0);
	assert_int_equal(n_jobs, 1);
	assert_true(jobs[0].steps == 50 && jobs[0].job == UINT64_MAX - 1 && !jobs[0].missing);
	lg_free(jobs);
	lg_fleet_close(f);
	lg_free(bytes);
	unlink(path);
}

/* ---- folding -------------------------------------------------------------------------------------- */

struct folded {
	struct lg_fleet_rank_step row[4096];
	size_t n;
	int64_t late;
};

static void feed(struct lg_fold *f, struct folded *to, int64_t number, int64_t *at, int64_t dur)
{
	struct lg_fold_step s = {
		.number = number, .t0_us = (uint64_t)*at / 1000, .dur = dur, .wait = dur / 4
	};
	int64_t late;

	s.stage[3] = dur / 2;
	to->n += lg_fold_add(f, &s, &to->row[to->n], &late);
	to->late += late;
	*at += dur;
}

static uint64_t steps_of(const struct folded *x)
{
	uint64_t n = 0;

	for (size_t i = 0; i < x->n; i++)
		n += x->row[i].steps;
	return n;
}

static void steps_are_folded_to_a_row_a_second(void **state)
{
	static const int64_t steps_ms[] = { 1, 3, 14, 250, 999, 1500, 30000 };

	(void)state;
	for (size_t k = 0; k < sizeof steps_ms / sizeof *steps_ms; k++) {
		static struct folded x;
		struct lg_fold f = { 0 };
		int64_t at = 1000 * MS, dur = steps_ms[k] * MS, n = 60000 / steps_ms[k] + 20;

		x.n = 0;
		for (int64_t i = 0; i < n; i++)
			feed(&f, &x, i, &at, dur);
		x.n += lg_fold_end(&f, &x.row[x.n]);
		assert_int_equal(steps_of(&x), n);
		assert_true((int64_t)x.n <= n * steps_ms[k] / 1000 + 16); /* but for the first few */
		for (size_t i = 12; i + 1 < x.n; i++) {
			assert_true(x.row[i].dur_us >= 1000000 || steps_ms[k] < 1000);
			assert_true(x.row[i].dur_us <= 2100000 || steps_ms[k] > 1000);
			assert_int_equal(x.row[i].fwd_us, x.row[i].dur_us / 2);
			assert_int_equal(x.row[i].wait_us, x.row[i].dur_us / 4);
			assert_int_equal(x.row[i].step % x.row[i].steps,
					 0); /* rows of ranks lie on each other */
		}
	}
}

static void the_worst_step_is_kept_and_called_late(void **state)
{
	static struct folded x;
	struct lg_fold f = { 0 };
	int64_t at = 0;

	(void)state;
	x = (struct folded){ 0 };
	for (int64_t i = 0; i < 200; i++)
		feed(&f, &x, i, &at, i == 150 ? 90 * MS : i == 160 ? 21 * MS : 20 * MS); /* 5 % is not late */
	x.n += lg_fold_end(&f, &x.row[x.n]);
	assert_int_equal(x.late, 70 * MS);
	for (size_t i = 0; i < x.n; i++)
		if (x.row[i].step <= 150 && 150 <= x.row[i].last) {
			assert_int_equal(x.row[i].worst, 150);
			assert_int_equal(x.row[i].max_us, 90000);
		}
}

static void wild_numbers_make_few_rows(void **state)
{
	static struct folded x;
	struct lg_fold f = { 0 };
	int64_t at = 0;

	(void)state;
	x = (struct folded){ 0 };
	for (int64_t i = 0; i < 4000; i++)
		feed(&f, &x, i % 2 ? INT64_MAX - i : -i, &at, i % 5 ? -3 : INT64_MAX / 4000);
	assert_true(steps_of(&x) <= 4000);
}

/* ---- the spool ------------------------------------------------------------------------------------ */

static void the_oldest_is_dropped_and_counted(void **state)
{
	char path[] = "/tmp/laggard-spool-XXXXXX", rm[64];
	static char bytes[30000];
	struct lg_spooled one, held;
	struct lg_spool s;
	uint64_t last;

	(void)state;
	assert_non_null(mkdtemp(path));
	assert_int_equal(lg_spool_open(&s, path, 100000, NULL), 0);
	for (uint64_t i = 1; i <= 3; i++)
		assert_int_equal(lg_spool_add(&s, i, 10, bytes, sizeof bytes, NULL), 0);
	assert_int_equal(lg_spool_oldest(&s, &held, NULL), 1); /* it is being sent */
	assert_int_equal(held.seq, 1);
	assert_int_equal(lg_spool_add(&s, 4, 10, bytes, sizeof bytes, NULL), 0);
	assert_int_equal(s.dropped_rows, 10);
	lg_spool_done(&s, &held, true);
	assert_int_equal(lg_spool_look(&s, &last, NULL), 0);
	assert_true(s.files == 2 && s.rows == 20 && last == 4 && s.bytes == 2 * sizeof bytes);
	assert_int_equal(lg_spool_oldest(&s, &one, NULL), 1);
	assert_int_equal(one.seq, 3); /* 2 was dropped in place of 1 */
	lg_spool_done(&s, &one, false);
	assert_int_equal(lg_spool_add(&s, 5, 7, bytes, sizeof bytes, NULL), 0);
	s.most_bytes = 1000;
	assert_int_equal(lg_spool_add(&s, 6, 9, bytes, sizeof bytes, NULL), LG_E_LIMIT);
	assert_int_equal(s.dropped_rows, 10 + 10 + 10 + 7 + 9);
	assert_int_equal(lg_spool_oldest(&s, &one, NULL), 0);
	lg_spool_close(&s);
	chmod(path, 0755);
	assert_int_equal(lg_spool_open(&s, path, 1000, NULL), LG_E_PERM);
	snprintf(rm, sizeof rm, "rm -r %s", path);
	assert_int_equal(system(rm), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_packed_is_read),
		cmocka_unit_test(a_torn_batch_is_refused_wherever_it_is_torn),
		cmocka_unit_test(a_store_takes_no_part_of_a_bad_batch),
		cmocka_unit_test(steps_are_folded_to_a_row_a_second),
		cmocka_unit_test(the_worst_step_is_kept_and_called_late),
		cmocka_unit_test(wild_numbers_make_few_rows),
		cmocka_unit_test(the_oldest_is_dropped_and_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
