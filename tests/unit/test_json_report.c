/* SPDX-License-Identifier: Apache-2.0 */
/* test_json_report.c - schema 1: every promised key, null where unknown, the catalogue complete. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "advise/advise.h"
#include "base/alloc.h"
#include "report/json_write.h"
#include "report/report.h"

static char *printed(const struct lg_verdict *v)
{
	struct lg_error err;
	struct lg_out *o;
	size_t n;
	char *s;

	assert_int_equal(lg_out_memory(&o, &err), 0);
	lg_report_json(v, o);
	s = lg_out_take(o, &n);
	assert_non_null(s);
	assert_int_equal(lg_out_close(o, &err), 0);
	assert_int_equal(strlen(s), n);
	return s;
}

static struct lg_finding unknown_finding(const char *id)
{
	return (struct lg_finding){ .id = id, .severity = LG_SEVERITY_MEDIUM, .confidence = 0.9,
				    .title = "say \"why\"\n", .lost_ms = NAN, .lost_share = NAN,
				    .excess_share = NAN, .cost_per_hour = NAN,
				    .culprit = { .pid = -1, .tid = -1, .rank = -1 } };
}

static struct lg_verdict empty_verdict(void)
{
	return (struct lg_verdict){ .median_ms = NAN, .p99_ms = NAN, .slow_threshold_ms = NAN,
				    .period_s = NAN, .period_p = NAN, .shift_s = NAN, .slope = NAN,
				    .unexplained_share = NAN };
}

static void nothing_known_prints_every_promised_key_as_null(void **state)
{
	static const char *const want[] = {
		"\"schema\": 1", "\"laggard\": \"" LG_VERSION "\"", "\"inputs\": []", "\"steps\": {\"count\": 0",
		"\"median_ms\": null", "\"p99_ms\": null", "\"slow\": 0", "\"slow_threshold_ms\": null",
		"\"shape\": null", "\"period_s\": null", "\"scope\": null", "\"ranks\": []",
		"\"bound\": {\"verdict\": null, \"confidence\": null, \"why\": null}", "\"findings\": []",
		"\"unexplained_share\": null", "\"limits\": []", "\"stages\": []",
	};
	struct lg_verdict v = empty_verdict();
	char *s = printed(&v);

	(void)state;
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		if (!strstr(s, want[i]))
			fail_msg("%s is not in %s", want[i], s);
	assert_null(strstr(s, "nan"));
	lg_free(s);
}

static void a_finding_with_unknown_cost_has_nulls(void **state)
{
	static const char *const want[] = {
		"\"id\": \"compile.skipped\"", "\"lost_ms\": null", "\"lost_share\": null",
		"\"excess_share\": null", "\"pid\": null", "\"tid\": null", "\"comm\": null",
		"\"cmdline\": null", "\"function\": null", "\"stack\": []", "\"lock\": null",
		"\"rank\": null", "\"container\": null", "\"relation\": null", "\"victims\": []",
		"\"evidence\": []", "\"title\": \"say \\\"why\\\"\\u000a\"", "\"rule\": \"compile.skipped\"",
	};
	struct lg_verdict v = empty_verdict();
	struct lg_finding f = unknown_finding("compile.skipped");
	char *s;

	(void)state;
	v.findings = &f;
	v.n_findings = 1;
	s = printed(&v);
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		if (!strstr(s, want[i]))
			fail_msg("%s is not in %s", want[i], s);
	lg_free(s);
}

static void evidence_times_count_from_the_start_of_the_trace(void **state)
{
	struct lg_trace t = { .first = 5000000000, .last = 9000000000 };
	struct lg_evidence e[] = { { "then", 17503000000, 19800000 }, { "always", INT64_MIN, 0 } };
	struct lg_verdict v = empty_verdict();
	struct lg_finding f = unknown_finding("host.lock_held");
	char *s;

	(void)state;
	f.evidence = e;
	f.n_evidence = 2;
	v.findings = &f;
	v.n_findings = 1;
	v.trace = &t;
	s = printed(&v);
	assert_non_null(strstr(s, "{\"text\": \"then\", \"t_s\": 12.503, \"dur_ms\": 19.8}"));
	assert_non_null(strstr(s, "{\"text\": \"always\", \"t_s\": null, \"dur_ms\": null}"));
	lg_free(s);
}

static void numbers_are_plain(void **state)
{
	static const struct { double v; int decimals; const char *want; } rows[] = {
		{ 0, 3, "0" }, { -0.0001, 3, "0" }, { 471.0, 3, "471" }, { 0.1 + 0.2, 4, "0.3" },
		{ 1.5, 0, "2" }, { 100, 2, "100" }, { 1e300, 3, "1e+300" }, { NAN, 3, "null" },
		{ INFINITY, 3, "null" }, { -12.345, 2, "-12.35" },
	};
	char b[64];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_string_equal(lg_num_text(b, sizeof b, rows[i].v, rows[i].decimals), rows[i].want);
}

/* What the first release promised, and what analyse/ may emit. */
static void every_rule_is_complete(void **state)
{
	static const char *const ids[] = {
		"host.lock_held", "host.cpu_contention", "comms.straggler", "compile.skipped",
		"debug.left_on", "host.oversubscribed", "host.io_wait", "host.stopped",
		"python.gc_pause", "data.loader_wait", "side.checkpoint",
	};
	const struct lg_rule *r;
	size_t n;

	(void)state;
	r = lg_rules(&n);
	for (size_t i = 0; i < n; i++) {
		assert_true(strlen(r[i].sentence) > 20 && strlen(r[i].signal) > 20);
		assert_true(strlen(r[i].threshold) > 10 && strlen(r[i].advice.fix) > 40);
		assert_true(strlen(r[i].advice.tradeoff) > 20 && strlen(r[i].advice.confirm) > 20);
		assert_true(strlen(r[i].sources) > 20);
		assert_true(!strcmp(r[i].basis, "measured") || !strcmp(r[i].basis, "fixed") ||
			    !strcmp(r[i].basis, "hang") || !strcmp(r[i].basis, "low") || !strcmp(r[i].basis, "info"));
		/* What is always so is no matter of the share that was lost. */
		assert_int_equal(strstr(r[i].threshold, "always info") && !strstr(r[i].threshold, "Off:"),
				 !strcmp(r[i].basis, "info"));
		assert_ptr_equal(lg_rule_find(r[i].id), &r[i]); /* also: no id twice */
	}
	for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
		assert_non_null(lg_rule_find(ids[i]));
	assert_null(lg_rule_find("host.no_such_thing"));
	assert_null(lg_rule_find(NULL));
}

static void lock_advice_follows_the_kind_of_lock_and_holder(void **state)
{
	static const char *const smaps[] = { "walk_page_range", "smap_gather_stats" };
	static const char *const readv[] = { "__access_remote_vm", "process_vm_rw" };
	static const struct {
		const char *lock, *const *stack;
		enum lg_relation relation;
		const char *word;
	} rows[] = {
		{ "mmap_lock", smaps, LG_RELATION_OTHER_PROCESS, "smaps_rollup" },
		{ "mmap_lock", readv, LG_RELATION_OTHER_PROCESS, "process_vm_readv" },
		{ "mmap_lock", NULL, LG_RELATION_OTHER_PROCESS, "address space" },
		{ "mmap_lock", NULL, LG_RELATION_SELF, "own threads" },
		{ "mmap_lock", smaps, LG_RELATION_SAME_PROCESS, "own threads" },
		{ "mmap_lock", NULL, LG_RELATION_KERNEL, "khugepaged" },
		{ "i_rwsem", NULL, LG_RELATION_OTHER_PROCESS, "one file" },
		{ "mutex", NULL, LG_RELATION_OTHER_PROCESS, "hold the lock for less time" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct lg_finding f = unknown_finding("host.lock_held");
		struct lg_verdict v = empty_verdict();
		struct lg_error err;

		f.culprit.lock = rows[i].lock;
		f.culprit.relation = rows[i].relation;
		f.culprit.stack = (const char **)(uintptr_t)rows[i].stack;
		f.culprit.n_stack = rows[i].stack ? 2 : 0;
		f.lost_share = 0.25;
		v.findings = &f;
		v.n_findings = 1;
		assert_int_equal(lg_advise(&v, 40.0, &err), 0);
		if (!strstr(f.fix, rows[i].word))
			fail_msg("row %zu: %s", i, f.fix);
		assert_non_null(f.tradeoff);
		assert_non_null(f.confirm);
		assert_true(fabs(f.cost_per_hour - 10.0) < 1e-9);
	}
}

static void advice_keeps_what_the_analysis_said_and_unknown_ids(void **state)
{
	struct lg_finding f[2] = { unknown_finding("host.io_wait"), unknown_finding("x.y") };
	struct lg_verdict v = empty_verdict();
	struct lg_error err;

	(void)state;
	f[0].fix = "mine";
	v.findings = f;
	v.n_findings = 2;
	assert_int_equal(lg_advise(&v, NAN, &err), 0);
	assert_string_equal(f[0].fix, "mine");
	assert_non_null(f[0].tradeoff);
	assert_true(isnan(f[0].cost_per_hour));
	assert_null(f[1].fix);
}

static void money_says_what_an_hour_of_training_done_costs(void **state)
{
	struct lg_finding f[3] = { unknown_finding("gpu.host_sync"), unknown_finding("data.loader_wait"),
				   unknown_finding("compile.skipped") };
	struct lg_verdict v = empty_verdict();
	struct lg_error err;
	char *s;

	(void)state;
	f[0].lost_share = 0.2;
	f[1].lost_share = 0.3;
	v.findings = f;
	v.n_findings = 3;
	v.saves.n = 4;
	v.saves.stall_share = 0.05;
	v.saves.bytes = v.saves.bytes_per_s = v.saves.bytes_per_hour = NAN;
	assert_int_equal(lg_advise(&v, NAN, &err), 0);
	s = printed(&v);
	assert_null(strstr(s, "\"cost\""));
	assert_non_null(strstr(s, "\"checkpoints\": {\"count\": 4, \"stall_share\": 0.05"));
	lg_free(s);
	assert_int_equal(lg_advise(&v, 100, &err), 0);
	assert_true(fabs(v.cost.lost_share - 0.5) < 1e-9);
	assert_true(fabs(v.cost.per_training_hour - 200) < 1e-6);
	s = printed(&v);
	assert_non_null(strstr(s, "\"per_training_hour\": 200"));
	assert_non_null(strstr(s, "\"checkpoints_per_hour\": 5"));
	lg_free(s);
	f[2] = unknown_finding("warmup.dominates"); /* comes once: no price an hour */
	f[2].lost_share = 0.4;
	assert_int_equal(lg_advise(&v, 100, &err), 0);
	assert_true(fabs(v.cost.lost_share - 0.5) < 1e-9 && isnan(f[2].cost_per_hour));
	f[0].lost_share = f[1].lost_share = 0.9; /* more than there is */
	assert_int_equal(lg_advise(&v, 100, &err), 0);
	assert_true(v.cost.per_training_hour <= 10001);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_known_prints_every_promised_key_as_null),
		cmocka_unit_test(a_finding_with_unknown_cost_has_nulls),
		cmocka_unit_test(evidence_times_count_from_the_start_of_the_trace),
		cmocka_unit_test(numbers_are_plain),
		cmocka_unit_test(every_rule_is_complete),
		cmocka_unit_test(lock_advice_follows_the_kind_of_lock_and_holder),
		cmocka_unit_test(advice_keeps_what_the_analysis_said_and_unknown_ids),
		cmocka_unit_test(money_says_what_an_hour_of_training_done_costs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
