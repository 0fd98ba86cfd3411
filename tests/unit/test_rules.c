/* SPDX-License-Identifier: Apache-2.0 */
/* test_rules.c - the table of findings: its numbers stand in its texts, and one place grades by it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "advise/advise.h"
#include "analyse/chains/ends.h"
#include "analyse/grade.h"
#include "rules/device_names.h"

static void names_are_on_their_lists(void **state)
{
	static const struct { const char *name; enum lg_name_list list; bool is; } rows[] = {
		{ "Memcpy HtoD (Pageable -> Device)", LG_LIST_COPIES, true },
		{ "memcpy", LG_LIST_COPIES, true }, { "CopyHostToDevice", LG_LIST_COPIES, false },
		{ "Memcpy HtoD (Pageable -> Device)", LG_LIST_COPIES_PAGEABLE, true },
		{ "Memcpy HtoD (Pinned -> Device)", LG_LIST_COPIES_PAGEABLE, false },
		{ "CopyHostToDevice", LG_LIST_COPIES_IN, true }, { "Memcpy M2D", LG_LIST_COPIES_IN, true },
		{ "Memcpy H2D", LG_LIST_COPIES_IN, true }, { "Memcpy D2D", LG_LIST_COPIES_IN, false },
		{ "Memcpy D2M", LG_LIST_COPIES_OUT, true }, { "Memcpy DtoH", LG_LIST_COPIES_OUT, true },
		{ "Memcpy M2D", LG_LIST_COPIES_OUT, false },
		{ "Memcpy M2D", LG_LIST_COPIES_PAGEABLE, true }, { "Memcpy D2M", LG_LIST_COPIES_PAGEABLE, true },
		{ "Memcpy H2D", LG_LIST_COPIES_PAGEABLE, false }, { "Memcpy", LG_LIST_COPIES_PAGEABLE, false },
		{ "void at::native::multi_tensor_apply_kernel", LG_LIST_MANY_TENSORS, true },
		{ "triton_poi_fused_0", LG_LIST_MANY_TENSORS, true },
		{ "not_triton_", LG_LIST_MANY_TENSORS, false },
		{ "nccl:all_reduce", LG_LIST_NO_STEP, true }, { "{\"a\": 1}", LG_LIST_NO_STEP, true },
		{ "[1]", LG_LIST_NO_STEP, true }, { "step 1", LG_LIST_NO_STEP, false },
		{ "aten::item", LG_LIST_WAITS_FOR_DEVICE, true }, { "aten::itemize", LG_LIST_WAITS_FOR_DEVICE, false },
		{ "torch.save", LG_LIST_SIDE_SAVES, true }, { "SummaryWriter.add_scalar", LG_LIST_SIDE_SAVES, false },
		{ "SummaryWriter.add_scalar", LG_LIST_SIDE_LOGS, true },
		{ "torch.profiler", LG_LIST_SIDE_PROFILER, true },
		{ "/v/torch/serialization.py(629): save", LG_LIST_SAVE_FRAMES, true },
		{ "torch/serialization.py(629): load", LG_LIST_SAVE_FRAMES, false },
		{ "gpu.mem_used", LG_LIST_MEMORY, true }, { "/a/torch/b.py", LG_LIST_LIBRARY, true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (lg_on_list(rows[i].list, rows[i].name) != rows[i].is)
			fail_msg("%s is %son list %d", rows[i].name, rows[i].is ? "not " : "", rows[i].list);
}

/* A list is looked for up to the first row of another one. */
static void rows_of_a_list_stand_together(void **state)
{
	static const enum lg_name_list of[] = {
#define LIST(name, how, text) LG_LIST_##name,
#include "rules/device_names.def"
	};

	(void)state;
	for (size_t i = 1; i < sizeof of / sizeof *of; i++)
		for (size_t j = 0; of[i] != of[i - 1] && j < i; j++)
			assert_int_not_equal(of[i], of[j]);
}

static void every_number_that_a_text_names_is_in_the_table(void **state)
{
	const struct lg_rule *r;
	char text[1024];
	size_t n;

	(void)state;
	r = lg_rules(&n);
	assert_int_equal(n, LG_R_MAX - 1);
	for (size_t i = 0; i < n; i++) {
		lg_rule_fill(lg_rule_from(r[i].id), r[i].threshold, text, sizeof text);
		if (strchr(text, '{') || strlen(text) + 1 == sizeof text)
			fail_msg("%s: %s", r[i].id, text);
	}
}

static void every_number_of_a_rule_is_in_its_text(void **state)
{
	static const struct {
		const char *name, *number;
	} numbers[] = {
#define SHARE(rule, number, v) { #rule, #number },
#define PLAIN(rule, number, v) { #rule, #number },
#define COUNT(rule, number, v) { #rule, #number },
#define MS(rule, number, v) { #rule, #number },
#include "rules/rules.def"
	};
	static const struct {
		const char *name, *threshold;
	} rules[] = {
#define RULE(name, id, basis, whose, says, signal, threshold, ...) { #name, threshold },
#include "rules/rules.def"
	};

	(void)state;
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
			char braced[64];

			snprintf(braced, sizeof braced, "{%s}", numbers[i].number);
			if (!strcmp(numbers[i].name, rules[k].name) && !strstr(rules[k].threshold, braced))
				fail_msg("%s does not say its %s", rules[k].name, numbers[i].number);
		}
}

static void numbers_are_printed_as_they_are_used(void **state)
{
	char text[64];

	(void)state;
	lg_rule_fill(LG_R_HOST_LOCK_HELD, "{FLOOR}, {PROVEN}, {ANY.REPEATS}, {ANY.GRADED}, {NO.SUCH} {", text, sizeof text);
	assert_string_equal(text, "1 %, 0.2 %, 5, 333 ms, {NO.SUCH} {");
	lg_rule_fill(LG_R_GPU_BOUND, "{BOUND.COMPUTE}, {BOUND.TIMES}, {BOUND.MOST}, {BOUND.CAUSE}", text, sizeof text);
	assert_string_equal(text, "75 %, 3, 60 %, 30 %");
	lg_rule_fill(LG_R_HOST_LOCK_HELD, "{FLOOR} and more", text, 6);
	assert_string_equal(text, "1 % a");
	assert_true(lg_rule_floor(LG_R_DATA_LOADER_WAIT) == LG_N_DATA_LOADER_WAIT_FLOOR);
	assert_true(lg_rule_floor(LG_R_COMPILE_SKIPPED) == 0);
	assert_int_equal(LG_N_GPU_LAUNCH_BOUND_PAUSE, 2000000);
	assert_int_equal(lg_rule_from("host.no_such_thing"), LG_R_NONE);
	assert_int_equal(lg_rule_from(NULL), LG_R_NONE);
}

static struct lg_finding lost(enum lg_rule_id rule, double share)
{
	return (struct lg_finding){ .rule = rule, .id = lg_policy(rule)->id, .lost_share = share };
}

static void a_grade_follows_the_share_and_the_repetitions(void **state)
{
	static const struct {
		double share;
		size_t repeats;
		int64_t wall;
		enum lg_severity want;
	} rows[] = {
		{ 0.10, 5, 333000000, LG_SEVERITY_HIGH },    { 0.0999, 5, 333000000, LG_SEVERITY_MEDIUM },
		{ 0.03, 5, 333000000, LG_SEVERITY_MEDIUM },  { 0.0299, 5, 333000000, LG_SEVERITY_LOW },
		{ 0.01, 5, 333000000, LG_SEVERITY_LOW },     { 0.0099, 5, 333000000, LG_SEVERITY_INFO },
		{ 0.50, 4, 333000000, LG_SEVERITY_LOW },     { 0.50, 5, 332999999, LG_SEVERITY_LOW },
		{ 0.005, 4, 1, LG_SEVERITY_INFO },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct lg_finding f = lost(LG_R_HOST_LOCK_HELD, rows[i].share);

		lg_grade(&f, rows[i].repeats, rows[i].wall);
		if (f.severity != rows[i].want)
			fail_msg("row %zu: %s", i, lg_severity_text(f.severity));
	}
}

static void a_rule_is_never_graded_above_its_basis(void **state)
{
	struct lg_finding f = lost(LG_R_HOST_STEAL, 0.5);

	(void)state;
	lg_grade_steady(&f);
	assert_int_equal(f.severity, LG_SEVERITY_LOW);
	f = lost(LG_R_GPU_BOUND, (double)NAN);
	lg_grade_steady(&f);
	assert_int_equal(f.severity, LG_SEVERITY_INFO);
	f = lost(LG_R_COMPILE_SKIPPED, (double)NAN);
	lg_grade_steady(&f);
	assert_int_equal(f.severity, LG_SEVERITY_MEDIUM);
	f = lost(LG_R_COMMS_MISSING_RANK, (double)NAN);
	lg_grade_steady(&f);
	assert_int_equal(f.severity, LG_SEVERITY_HIGH);
}

/* What came twice on one rank came on others as well: it is as sure as all of that. */
static void a_price_of_several_ranks_is_graded_by_all_of_their_episodes(void **state)
{
	struct lg_finding f = lost(LG_R_HOST_LOCK_HELD, 0.5), once = f;
	struct lg_finding none = lost(LG_R_HOST_LOCK_HELD, 0.005);

	(void)state;
	f.confidence = once.confidence = 0.9;
	lg_grade_steady(&f);
	lg_grade_part(&f, 0.05, 2);
	lg_grade_anew(&f, 1, 0);
	assert_true(f.severity == LG_SEVERITY_HIGH && !f.seen && fabs(f.confidence - 0.9) < 1e-9);
	lg_grade_steady(&once);
	lg_grade_part(&once, 1, 0);
	lg_grade_anew(&once, 0.1, 2); /* it came often already */
	assert_true(once.severity == LG_SEVERITY_HIGH && !once.seen);
	lg_grade_steady(&none);
	lg_grade_anew(&none, 1, 0);
	assert_int_equal(none.severity, LG_SEVERITY_INFO);
}

static void caps_only_lower(void **state)
{
	struct lg_finding f = lost(LG_R_HOST_LOCK_HELD, 0.5), g = lost(LG_R_HOST_LOCK_HELD, 0.005);

	(void)state;
	lg_grade_steady(&f);
	lg_grade_part(&f, 0.1, 2);
	assert_true(f.severity == LG_SEVERITY_MEDIUM && f.seen == 2);
	lg_cap(&f, LG_CAP_GUESS);
	assert_int_equal(f.severity, LG_SEVERITY_LOW);
	lg_grade_anew(&f, 0.01, 1); /* what has too few repetitions stays that */
	assert_int_equal(f.severity, LG_SEVERITY_LOW);
	lg_grade_steady(&g);
	lg_grade_part(&g, lg_proven(1), 1);
	assert_int_equal(g.severity, LG_SEVERITY_INFO); /* it was no more than that */
	lg_grade_worth_a_line(&g);
	assert_int_equal(g.severity, LG_SEVERITY_LOW);
	lg_grade_more(&g, 5, INT64_MAX);
	assert_int_equal(g.severity, LG_SEVERITY_LOW); /* never lower than before */
}

/* A rate at which so many and more would be seen once in twenty windows is what they prove. */
static void few_episodes_prove_what_chance_leaves(void **state)
{
	(void)state;
	for (size_t n = 1; n < LG_N_ANY_REPEATS; n++) {
		double rate = lg_proven(n) * (double)n, term = exp(-rate), fewer = 0;

		for (size_t k = 0; k < n; k++) {
			fewer += term;
			term *= rate / (double)(k + 1);
		}
		assert_true(fabs(1 - fewer - 0.05) < 1e-3);
		assert_true(lg_proven(n) < lg_proven(n + 1));
	}
	assert_true(lg_proven(0) == 0 && lg_proven(LG_N_ANY_REPEATS) == 1);
}

static void a_rule_yields_to_others_and_not_in_a_circle(void **state)
{
	size_t rows = 0;

	(void)state;
	for (enum lg_rule_id rule = LG_R_NONE + 1; rule < LG_R_MAX; rule++) {
		enum lg_rule_id other;

		for (size_t n = 0; (other = lg_rule_yields(rule, n)); n++, rows++)
			for (size_t k = 0; lg_rule_yields(other, k); k++)
				assert_int_not_equal(lg_rule_yields(other, k), rule);
	}
	assert_true(rows >= 4);
	assert_int_equal(lg_rule_yields(LG_R_COMMS_MISSING_RANK, 0), LG_R_COMMS_MISMATCH);
	assert_int_equal(lg_rule_yields(LG_R_COMMS_MISSING_RANK, 1), LG_R_NONE);
}

static void words_come_back_as_what_they_were(void **state)
{
	enum lg_severity s;
	enum lg_scope scope;

	(void)state;
	for (int i = LG_SEVERITY_INFO; i <= LG_SEVERITY_HIGH; i++)
		assert_true(lg_severity_from(lg_severity_text((enum lg_severity)i), &s) && (int)s == i);
	assert_true(lg_scope_from("rotating", &scope) && scope == LG_SCOPE_ROTATING);
	assert_false(lg_severity_from("loud", &s));
	assert_false(lg_scope_from(NULL, &scope));
	assert_null(lg_shape_text(LG_SHAPE_NONE));
}

/* What is accused has a rule, and what is no cause has none. */
static void ends_of_chains_are_whole(void **state)
{
	(void)state;
	for (int i = 0; i < LG_END_MAX; i++) {
		const struct lg_end *e = lg_end((enum lg_end_kind)i);

		assert_int_equal(lg_is_cause((enum lg_end_kind)i), e->rule != LG_R_NONE);
		assert_int_equal(e->rule != LG_R_NONE, e->own_rule != LG_R_NONE);
		assert_true(!e->rule || lg_rule_floor(e->rule) > 0);
	}
	assert_true(lg_is_taken_by_host(LG_R_HOST_OVERSUBSCRIBED) && lg_is_taken_by_host(LG_R_HOST_IO_WAIT));
	assert_false(lg_is_taken_by_host(LG_R_DATA_LOADER_WAIT) || lg_is_taken_by_host(LG_R_NONE));
}

/* Worth never falls with strength; weaker evidence than was drawn is no surer than its own word. */
static void worth_rises_with_strength(void **state)
{
	(void)state;
	for (int rule = 1; rule < LG_R_MAX; rule++)
		for (int loud = 0; loud < 2; loud++) {
			double before = 0;
			unsigned draws, drawn;

			(void)lg_worth((enum lg_rule_id)rule, loud, 1, &drawn);
			for (int i = 0; i <= 100; i++) {
				double worth = lg_worth((enum lg_rule_id)rule, loud, i / 100.0, &draws);

				assert_true(worth >= before && worth <= 1);
				if (!drawn || !draws)
					assert_true(worth <= i / 100.0);
				before = worth;
			}
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_on_their_lists),
		cmocka_unit_test(rows_of_a_list_stand_together),
		cmocka_unit_test(every_number_that_a_text_names_is_in_the_table),
		cmocka_unit_test(every_number_of_a_rule_is_in_its_text),
		cmocka_unit_test(numbers_are_printed_as_they_are_used),
		cmocka_unit_test(a_grade_follows_the_share_and_the_repetitions),
		cmocka_unit_test(a_rule_is_never_graded_above_its_basis),
		cmocka_unit_test(a_price_of_several_ranks_is_graded_by_all_of_their_episodes),
		cmocka_unit_test(caps_only_lower),
		cmocka_unit_test(few_episodes_prove_what_chance_leaves),
		cmocka_unit_test(a_rule_yields_to_others_and_not_in_a_circle),
		cmocka_unit_test(words_come_back_as_what_they_were),
		cmocka_unit_test(ends_of_chains_are_whole),
		cmocka_unit_test(worth_rises_with_strength),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
