/* SPDX-License-Identifier: Apache-2.0 */
/* test_perf_order.c - records into time order, and from one thread to the other. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/median.h"
#include "import/perfdata/perf_buckets.h"
#include "import/perfdata/perf_handover.h"
#include "random_trace.h"
#include "symbols/shrunk.h"

enum { RECORDS = 40000 };

struct taken {
	uint64_t ts[RECORDS], offset[RECORDS];
	size_t n, fail_at;
};

static int take(void *self, const struct lg_pd_entry *e)
{
	struct taken *t = self;

	assert_true(t->n < RECORDS);
	t->ts[t->n] = e->ts;
	t->offset[t->n++] = e->offset;
	return t->n == t->fail_at ? LG_E_NOMEM : 0;
}

static void add(struct lg_pd_order *o, uint64_t ts, uint64_t offset, struct lg_pd_block *block)
{
	struct lg_pd_entry *e = lg_pd_order_room(o);

	assert_non_null(e);
	*e = (struct lg_pd_entry){ .ts = ts, .offset = offset, .block = block };
	assert_int_equal(lg_pd_order_add(o, 40), 0);
}

/* Four CPUs' buffers, one after the other, round by round; times repeat. */
static void hands_out_what_every_cpu_wrote_in_order(void **state)
{
	static struct taken got;
	struct lg_pd_block block = { .refs = 1 };
	struct lg_pd_pool pool = { 0 };
	struct lg_pd_order o = { .pool = &pool, .window = SIZE_MAX, .deliver = take, .self = &got };
	uint64_t seed = 5, cpu[4] = { 0 };
	size_t n = 0;

	(void)state;
	got = (struct taken){ 0 };
	for (uint64_t round = 1; n < RECORDS; round++) {
		for (int c = 0; c < 4; c++) {
			/* nothing of a round is older than the newest of the round before the last */
			cpu[c] = cpu[c] > (round - 1) * 100 ? cpu[c] : (round - 1) * 100;
			while (n < RECORDS && cpu[c] < (round + 1) * 100 - 20) {
				cpu[c] += rnd(&seed) % 20;
				add(&o, cpu[c], n++, &block);
			}
		}
		assert_int_equal(lg_pd_order_round(&o), 0);
	}
	assert_true(got.n > RECORDS / 2); /* bounded: rounds hand out what is final */
	assert_int_equal(lg_pd_order_flush(&o), 0);
	assert_int_equal(got.n, RECORDS);
	assert_int_equal(o.late, 0);
	for (size_t i = 1; i < RECORDS; i++) {
		assert_true(got.ts[i] >= got.ts[i - 1]);
		if (got.ts[i] == got.ts[i - 1])
			assert_true(got.offset[i] > got.offset[i - 1]);
	}
	assert_int_equal(block.refs, 1);
	lg_pd_order_done(&o);
}

/* Times that fall all the way, and no rounds: the window decides, and says what came too late. */
static void orders_within_the_window(void **state)
{
	static struct taken got;
	struct lg_pd_block block = { .refs = 1 };
	struct lg_pd_pool pool = { 0 };
	struct lg_pd_order o = { .pool = &pool, .window = 40 * 1000, .deliver = take, .self = &got };

	(void)state;
	got = (struct taken){ 0 };
	for (size_t i = 0; i < RECORDS; i++)
		add(&o, RECORDS - i, i, &block);
	assert_int_equal(lg_pd_order_flush(&o), 0);
	assert_int_equal(got.n, RECORDS);
	assert_true(o.late > RECORDS / 2 && o.late < RECORDS);
	assert_int_equal(block.refs, 1);
	lg_pd_order_done(&o);
}

/* Of which records: nearer() of one is called before its work(), and no other's takes its slot in between. */
static uint64_t in_slot[LG_PD_SLOTS];

static void take_nearer(void *self, const struct lg_pd_handed *e, size_t slot)
{
	(void)self;
	assert_true(slot < LG_PD_SLOTS);
	in_slot[slot] = e->entry.offset;
}

static int take_handed(void *self, const struct lg_pd_handed *e, size_t slot)
{
	assert_int_equal(in_slot[slot], e->entry.offset);
	return take(self, &e->entry);
}

static void hands_over_all_in_order(void **state)
{
	static struct taken got;
	struct lg_pd_block block = { .refs = 1 };
	struct lg_pd_pool pool = { 0 };
	const struct lg_pd_hands hands = { .nearer = take_nearer, .work = take_handed, .self = &got };
	struct lg_pd_handover *h;
	struct lg_pd_handed *handed;

	(void)state;
	/* fail_at: never; while it is still done on the spot; in the thread */
	for (size_t fail_at = 0; fail_at <= 20000; fail_at = fail_at ? fail_at * 200 : 100) {
		int rc = 0;

		got = (struct taken){ .fail_at = fail_at };
		assert_int_equal(lg_pd_handover_new(&h, &pool, &hands, NULL), 0);
		for (size_t i = 0; i < RECORDS && !rc; i++) {
			const struct lg_pd_entry e = { .ts = i, .block = &block, .offset = i };

			rc = lg_pd_handover_add(h, &e, &handed);
			if (!rc && i % 10000 == 9999) {
				rc = lg_pd_handover_wait(h);
				assert_int_equal(got.n, rc ? fail_at : i + 1);
			}
		}
		assert_int_equal(rc, fail_at ? LG_E_NOMEM : 0);
		if (fail_at)
			assert_int_equal(lg_pd_handover_wait(h), LG_E_NOMEM);
		lg_pd_handover_free(h);
		assert_int_equal(block.refs, 1);
		assert_int_equal(got.n, fail_at ? fail_at : RECORDS);
		for (size_t i = 0; i < got.n; i++)
			assert_int_equal(got.offset[i], i);
	}
}

struct reader {
	pthread_t reader;
	const volatile char *gone;
	size_t n_beside;
};

/* Reads where a mapped file ended, but not on the spot. */
static int read_gone(void *self, const struct lg_pd_handed *e, size_t slot)
{
	struct reader *r = self;

	(void)e;
	(void)slot;
	if (!pthread_equal(pthread_self(), r->reader)) {
		r->n_beside++;
		assert_int_equal(*r->gone, 0);
	}
	return 0;
}

/* The names of code are read in the thread, from files that others may cut. */
static void the_thread_outlives_a_file_that_shrank(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), before = lg_shrunk_pages();
	int fd = memfd_create("file", MFD_CLOEXEC);
	struct lg_pd_block block = { .refs = 1 };
	struct lg_pd_pool pool = { 0 };
	struct reader r = { .reader = pthread_self() };
	const struct lg_pd_hands hands = { .work = read_gone, .self = &r };
	struct lg_pd_handover *h;
	struct lg_pd_handed *handed;
	char *p;

	(void)state;
	signal(SIGBUS, SIG_DFL); /* cmocka has a handler, which would be kept */
	lg_shrunk_guard();
	assert_int_equal(ftruncate(fd, (off_t)page), 0);
	p = mmap(NULL, page, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(p != MAP_FAILED);
	lg_shrunk_watch(p, page);
	r.gone = p;
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(lg_pd_handover_new(&h, &pool, &hands, NULL), 0);
	for (size_t i = 0; i < RECORDS; i++) {
		const struct lg_pd_entry e = { .ts = i, .block = &block };

		assert_int_equal(lg_pd_handover_add(h, &e, &handed), 0);
	}
	assert_int_equal(lg_pd_handover_wait(h), 0);
	lg_pd_handover_free(h);
	assert_true(r.n_beside > 0);
	assert_int_equal(lg_shrunk_pages(), before + 1);
	lg_shrunk_let_go(p);
	munmap(p, page);
	close(fd);
}

static void selects_what_a_sort_would_put_there(void **state)
{
	enum { N = 2000 };
	int64_t v[N], w[N];
	double real[N];
	uint64_t seed = 9;

	(void)state;
	for (int round = 0; round < 200; round++) {
		size_t n = 1 + rnd(&seed) % N, k = rnd(&seed) % n;
		uint64_t values = 1 + rnd(&seed) % (round % 2 ? 5 : 1u << 20);

		for (size_t i = 0; i < n; i++) {
			v[i] = w[i] = round % 5 == 0 ? (int64_t)i : round % 7 == 0 ? -(int64_t)i
				      : (int64_t)(rnd(&seed) % values) - 100;
			real[i] = (double)v[i];
		}
		qsort(w, n, sizeof *w, lg_cmp_i64);
		assert_int_equal(lg_select_i64(v, n, k), w[k]);
		assert_int_equal((int64_t)lg_select_f64(real, n, k), w[k]);
	}
}

enum { LENGTH = 40 };

static size_t chain_of(uint64_t i, uint64_t chain[LENGTH])
{
	memset(chain, 0, LENGTH * sizeof *chain);
	chain[0] = i * 0x9e3779b97f4a7c15u >> 8;
	chain[1] = i / 3;
	return 2 + i % (LENGTH - 1);
}

static void ask_soon(struct lg_pd_seen_chains *m, const uint64_t *chain, size_t n, int32_t pid,
		     struct lg_pd_seen *ret)
{
	struct lg_pd_look look = { .pid = pid, .misc = 2 };

	lg_pd_seen_chains_look(&look, (const uint8_t *)chain, n, false);
	lg_pd_seen_chains_ask(m, &look, ret);
}

/* What is forgotten may be forgotten; what is remembered is right, and each process has its own. */
static void remembers_chains(void **state)
{
	enum { CHAINS = 250000, KEPT = 1 << 18, PIDS = 5, AT_ONCE = 100 };
	static struct { uint64_t chain; uint32_t check; } by_number[KEPT + 1];
	static uint64_t chain[AT_ONCE][LENGTH];
	struct lg_pd_seen seen[AT_ONCE];
	struct lg_pd_seen_chains *m = lg_pd_seen_chains_new();
	size_t known = 0;

	(void)state;
	assert_non_null(m);
	for (uint64_t pass = 0; pass < 2; pass++) {
		for (uint64_t i = 1; i <= CHAINS; i += AT_ONCE) {
			for (size_t k = 0; k < AT_ONCE; k++) {
				size_t n = chain_of(i + k, chain[k]);

				ask_soon(m, chain[k], n, (int32_t)((i + k) % PIDS), &seen[k]);
			}
			lg_pd_seen_chains_settle(m);
			for (size_t k = 0; k < AT_ONCE; k++) {
				struct lg_pd_number n = seen[k].whole;

				assert_in_range(n.i, 1, KEPT);
				if (by_number[n.i].chain && by_number[n.i].check == n.check) {
					assert_int_equal(by_number[n.i].chain, i + k);
					known++;
				}
				by_number[n.i].chain = i + k;
				by_number[n.i].check = n.check;
			}
		}
	}
	assert_true(known > CHAINS / 10);
	lg_pd_seen_chains_free(m);
}

static struct lg_pd_seen ask(struct lg_pd_seen_chains *m, const uint64_t *chain, size_t n, int32_t pid)
{
	struct lg_pd_seen seen;

	ask_soon(m, chain, n, pid, &seen);
	lg_pd_seen_chains_settle(m);
	return seen;
}

static bool one(struct lg_pd_number a, struct lg_pd_number b)
{
	return a.i == b.i && a.check == b.check;
}

static void has_a_number_as_long_as_it_means_the_same(void **state)
{
	const uint64_t chain[] = { 0x1000, 0x2000, 0x3000 }, other[] = { 0x1004, 0x2000, 0x3000 };
	struct lg_pd_seen_chains *m = lg_pd_seen_chains_new();
	struct lg_pd_seen first, second;

	(void)state;
	first = ask(m, chain, 3, 7);
	assert_true(first.whole.i && first.fresh);
	second = ask(m, chain, 3, 7);
	assert_true(one(first.whole, second.whole) && !second.fresh);
	second = ask(m, chain, 3, 8);
	assert_true(!one(first.whole, second.whole) && first.version != second.version);
	/* What addresses mean is one thing, which they are another. */
	second = ask(m, other, 3, 7);
	assert_true(!one(first.whole, second.whole) && first.version == second.version);
	lg_pd_seen_chains_changed(m, 9);
	assert_true(one(first.whole, ask(m, chain, 3, 7).whole));
	lg_pd_seen_chains_changed(m, 7);
	second = ask(m, chain, 3, 7);
	assert_true(!one(first.whole, second.whole) && first.version != second.version && second.fresh);
	lg_pd_seen_chains_kernel_changed(m);
	assert_false(one(second.whole, ask(m, chain, 3, 7).whole));
	lg_pd_seen_chains_free(m);
}

/* More than there is room for: what is found is what was put there last, and most of the last is found. */
static void keeps_the_values_of_keys(void **state)
{
	enum { KEYS = 400000, LAST = 50000 };
	struct lg_pd_buckets b;
	size_t found = 0;
	bool known;

	(void)state;
	assert_int_equal(lg_pd_buckets_init(&b), 0);
	for (int pass = 0; pass < 2; pass++)
		for (uint32_t i = 1; i <= KEYS; i++) {
			uint64_t tag = lg_mix64(i);
			uint32_t place = (uint32_t)lg_mix64(tag), was = lg_pd_buckets_find(&b, tag, place);
			uint32_t *value = lg_pd_buckets_put(&b, tag, place, &known);

			assert_int_equal(known, was != 0);
			assert_true(pass ? !was || was == i : !was);
			if (known)
				assert_int_equal(*value, i);
			*value = i;
		}
	for (uint32_t i = KEYS - LAST; i <= KEYS; i++)
		found += lg_pd_buckets_find(&b, lg_mix64(i), (uint32_t)lg_mix64(lg_mix64(i))) == i;
	assert_true(found > LAST / 2);
	assert_true(b.n <= 1 << 18);
	lg_pd_buckets_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hands_out_what_every_cpu_wrote_in_order),
		cmocka_unit_test(orders_within_the_window),
		cmocka_unit_test(hands_over_all_in_order),
		cmocka_unit_test(the_thread_outlives_a_file_that_shrank),
		cmocka_unit_test(remembers_chains),
		cmocka_unit_test(has_a_number_as_long_as_it_means_the_same),
		cmocka_unit_test(keeps_the_values_of_keys),
		cmocka_unit_test(selects_what_a_sort_would_put_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
