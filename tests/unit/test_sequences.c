/* SPDX-License-Identifier: Apache-2.0 */
/* test_sequences.c - ranks of a recording whose collectives part, or of which one never comes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "outcome.h"
#include "store/builder.h"

#define SEC (1000 * MS)
enum { RANKS = 3, STEPS = 12 };

struct plan {
	int odd;            /* rank; -1 = none */
	const char *op;     /* of the odd rank in step 8; NULL = all_reduce */
	uint64_t bytes;     /* of it */
	bool absent;        /* the odd rank does not come to step 8 and later */
	int64_t waits;      /* the others in step 8; 0 = as ever */
	bool times_out;     /* and then it ends */
	bool comes;         /* the odd rank comes at last */
	bool async;         /* a call that returns at once, and a wait */
	bool p2p, other_group;
	bool split;         /* `alone` has a group of its own of that name, the others are in another */
	int alone;
	int64_t usual;      /* the calls before take so long; 0 = 5 ms */
	bool same_rank;     /* all say that they are rank 0 */
};

static void call(struct lg_builder *b, const struct plan *p, lg_thr thr, int rank, int k, int64_t ts,
		 int64_t dur)
{
	bool odd = rank == p->odd && k == 8;
	struct lg_span_row r = { .ts = ts, .dur = p->async ? 1000 : dur, .thr = thr,
				 .kind = LG_SPAN_COLLECTIVE, .seq = k, .group = lg_intern(b, p->p2p ? "default:p2p:0>1" : "default"),
				 .flags = p->async ? LG_SPAN_ASYNC : 0,
				 .bytes = odd && p->bytes ? p->bytes : 4096,
				 .name = lg_intern(b, odd && p->op ? p->op : "all_reduce") };

	lg_add_span(b, &r);
	if (!p->async)
		return;
	r.kind = LG_SPAN_WAIT;
	r.name = lg_intern(b, "Work.wait");
	r.dur = dur;
	r.flags = 0;
	r.ts += 1000;
	lg_add_span(b, &r);
}

static struct outcome run(const struct plan *p)
{
	static const char *const rest[] = { "1,2", "0,2", "0,1" };
	struct lg_builder *b = NULL;
	struct lg_trace *t = NULL;
	struct lg_error err;

	assert_int_equal(lg_builder_new(&b, &err), 0);
	for (int rank = 0; rank < RANKS; rank++) {
		lg_prc prc = lg_process_get(b, 900 + rank);
		struct lg_process_row row = lg_process_read(b, prc);
		lg_thr thr = lg_thread_get(b, 900 + rank, 900 + rank);
		struct lg_thread_row task = lg_thread_read(b, thr);

		row.rank = p->same_rank ? 0 : rank;
		row.world = RANKS;
		row.role = LG_ROLE_RANK;
		lg_process_write(b, prc, &row);
		task.flags |= LG_THREAD_MAIN;
		lg_thread_write(b, thr, &task);
		lg_meta_set(b, prc, "group.default.ranks",
			    p->split ? rank == p->alone ? "2,3" : rest[p->alone] :
			    p->other_group && rank == p->odd ? "1,2" : p->other_group ? "0,2" : "0,1,2");
		for (int k = 0; k < STEPS; k++) {
			int64_t usual = p->usual ? p->usual : 5 * MS;
			int64_t ts = SEC + k * (95 * MS + usual);
			bool late = k >= 8 && p->waits;

			if (k > 8 && p->waits && !p->comes)
				break;
			if (late && rank == p->odd && p->absent && !p->comes)
				break;
			ts += k > 8 && p->waits ? p->waits : 0;
			lg_add_span(b, &(struct lg_span_row){ .ts = ts, .dur = 85 * MS + usual, .thr = thr,
							      .seq = k, .kind = LG_SPAN_STEP });
			if (late && k == 8 && rank == p->odd && p->comes)
				call(b, p, thr, rank, k, ts + p->waits, 5 * MS);
			else if (late && k == 8)
				call(b, p, thr, rank, k, ts + 10 * MS,
				     p->times_out || p->comes ? p->waits : -1);
			else
				call(b, p, thr, rank, k, ts + 10 * MS, usual);
		}
	}
	/* The recording goes on for as long. */
	lg_add_mark(b, &(struct lg_mark_row){ .ts = 2 * SEC + 8 * p->usual + p->waits, .thr = 1, .name = lg_intern(b, "end") });
	assert_int_equal(lg_builder_seal(b, &t, &err), 0);
	return judge(t);
}

static const struct lg_finding *about(const struct outcome *o, const char *id)
{
	for (size_t i = 0; i < o->v->n_findings; i++)
		if (!strcmp(o->v->findings[i].id, id))
			return &o->v->findings[i];
	return NULL;
}

static void silent(const struct plan *p)
{
	struct outcome o = run(p);

	assert_null(about(&o, "comms.mismatch"));
	assert_null(about(&o, "comms.missing_rank"));
	done(&o);
}

static void accused(const struct plan *p, const char *id, int rank)
{
	struct outcome o = run(p);
	const struct lg_finding *f = about(&o, id);

	assert_non_null(f);
	assert_int_equal(f->culprit.rank, rank);
	assert_int_equal(f->severity, LG_SEVERITY_HIGH);
	assert_true(isnan(f->lost_ms));
	assert_true(f->n_evidence > 0);
	assert_null(strstr(f->title, "Work.wait"));
	done(&o);
}

static void ranks_that_call_another_collective(void **state)
{
	(void)state;
	silent(&(struct plan){ .odd = -1 });
	accused(&(struct plan){ .odd = 1, .op = "broadcast" }, "comms.mismatch", 1);
	accused(&(struct plan){ .odd = 0, .op = "barrier" }, "comms.mismatch", 0);
	accused(&(struct plan){ .odd = 2, .bytes = 8192 }, "comms.mismatch", 2);
	/* It hangs there, too: the sequences that part say why. */
	accused(&(struct plan){ .odd = 1, .op = "broadcast", .waits = 60 * SEC }, "comms.mismatch", 1);
	silent(&(struct plan){ .odd = 1, .op = "recv", .p2p = true });
	silent(&(struct plan){ .odd = 1, .op = "broadcast", .other_group = true });
	silent(&(struct plan){ .odd = 1, .op = "broadcast", .same_rank = true });
	/* Of two, neither is the odd one, whatever a rank of another group of that name calls. */
	accused(&(struct plan){ .odd = 0, .op = "broadcast", .split = true, .alone = 2 }, "comms.mismatch", -1);
	accused(&(struct plan){ .odd = 1, .op = "broadcast", .split = true, .alone = 0 }, "comms.mismatch", -1);
	silent(&(struct plan){ .odd = 2, .op = "broadcast", .split = true, .alone = 2 });
}

static void a_rank_that_never_comes(void **state)
{
	(void)state;
	accused(&(struct plan){ .odd = 1, .absent = true, .waits = 60 * SEC }, "comms.missing_rank", 1);
	accused(&(struct plan){ .odd = 0, .absent = true, .waits = 60 * SEC, .times_out = true },
		"comms.missing_rank", 0);
	accused(&(struct plan){ .odd = 2, .absent = true, .waits = 60 * SEC, .async = true },
		"comms.missing_rank", 2);
	/* A recording that ends in the middle of a step, a rank that comes late, and all that hang alike. */
	silent(&(struct plan){ .odd = 1, .absent = true, .waits = 3 * SEC });
	silent(&(struct plan){ .odd = 1, .absent = true, .waits = 60 * SEC, .comes = true });
	silent(&(struct plan){ .odd = -1, .waits = 60 * SEC });
	/* Half a minute, and ten times the longest wait before. */
	for (int i = 0; i < 4; i++) {
		static const struct {
			int64_t waits, usual;
		} s[] = { { 28, 0 }, { 31, 0 }, { 38, 4 }, { 42, 4 } };
		struct plan p = { .odd = 1, .absent = true, .times_out = true, .waits = s[i].waits * SEC,
				  .usual = s[i].usual * SEC };

		if (i % 2)
			accused(&p, "comms.missing_rank", 1);
		else
			silent(&p);
	}
	/* It is in another group of that name, and has fewer calls there. */
	silent(&(struct plan){ .odd = 2, .absent = true, .waits = 60 * SEC, .split = true, .alone = 2 });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_that_call_another_collective),
		cmocka_unit_test(a_rank_that_never_comes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
