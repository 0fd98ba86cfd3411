/* SPDX-License-Identifier: Apache-2.0 */
/* test_term.c - what is printed on a terminal: the sentence first, clean, and within the width. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "report/report.h"
#include "report/text.h"

static struct lg_evidence proof[7];
static const char *stack[] = { "smap_gather_stats", "show_smaps_rollup", "seq_read_iter" };

static struct lg_verdict sample(struct lg_finding *f)
{
	*f = (struct lg_finding){
		.id = "host.lock_held", .severity = LG_SEVERITY_HIGH, .confidence = 0.98,
		.title = "pid 4711 held the mmap_lock of rank 0", .stage = "forward", .lost_ms = 471,
		.lost_share = 0.19, .excess_share = 0.93, .cost_per_hour = 12.5,
		.culprit = { .relation = LG_RELATION_OTHER_PROCESS, .pid = 4711, .tid = 4711, .comm = "python3",
			     .cmdline = "evil \033[2Jagent.py \x9b" "31m", .function = "smap_gather_stats",
			     .lock = "mmap_lock", .rank = -1, .stack = stack, .n_stack = 3 },
		.evidence = proof, .n_evidence = 7, .fix = "stop it", .tradeoff = "none" };
	for (size_t i = 0; i < 7; i++)
		proof[i] = (struct lg_evidence){ "waited", INT64_MIN, 0 };
	return (struct lg_verdict){ .findings = f, .n_findings = 1, .n_judged = 100, .n_slow = 5,
				    .min_ms = 4.9, .median_ms = 5.1, .p99_ms = 24.8, .max_ms = 31,
				    .slow_threshold_ms = 10.2,
				    .shape = LG_SHAPE_PERIODIC, .period_s = 2.5, .period_p = 0.001,
				    .scope = LG_SCOPE_ROTATING, .shift_s = NAN, .slope = NAN,
				    .bound = LG_BOUND_HOST,
				    .bound_confidence = 0.9, .unexplained_share = 0.04 };
}

static char *printed(const struct lg_verdict *v, bool colour, unsigned width, int markdown)
{
	struct lg_term_options opt = { .colour = colour, .width = width };
	struct lg_error err;
	struct lg_out *o;
	size_t n;
	char *s;

	assert_int_equal(lg_out_memory(&o, &err), 0);
	if (markdown)
		lg_report_markdown(v, NULL, o);
	else
		lg_report_term(v, &opt, o);
	s = lg_out_take(o, &n);
	assert_non_null(s);
	assert_int_equal(lg_out_close(o, &err), 0);
	return s;
}

static void the_sentence_comes_first_and_all_parts_follow(void **state)
{
	static const char *const want[] = {
		"100, min 4.90 ms, median 5.10 ms, p99 24.80 ms, max 31.00 ms; 5 slow (over 10.20 ms); periodic, every 2.50 s",
		"rotating", "bound: host", "1. high: pid 4711", "471.0 ms, 19.0 % of the run, 93 %",
		"confidence 0.98", "smap_gather_stats < show_smaps_rollup < seq_read_iter",
		"another process", "mmap_lock", "fix", "stop it", "trade-off", "12.50 an hour",
		"... and 2 more",
	};
	struct lg_finding f;
	struct lg_verdict v = sample(&f);
	char *s = printed(&v, false, 200, 0);

	(void)state;
	assert_int_equal(strncmp(s, f.title, strlen(f.title)), 0);
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		if (!strstr(s, want[i]))
			fail_msg("%s is not in:\n%s", want[i], s);
	lg_free(s);
}

static void nothing_from_outside_steers_the_terminal(void **state)
{
	struct lg_finding f;
	struct lg_verdict v = sample(&f);
	char *s = printed(&v, false, 80, 0), *c = printed(&v, true, 80, 0);

	(void)state;
	assert_null(strchr(s, 033));
	assert_null(strchr(s, 0x9b));
	assert_non_null(strstr(s, "evil ?[2Jagent.py ?31m"));
	assert_non_null(strstr(c, "\033[1m"));
	assert_null(strstr(c, "\033[2J"));
	lg_free(s);
	lg_free(c);
}

static void lines_keep_within_the_width(void **state)
{
	static const unsigned widths[] = { 40, 80, 100 };
	struct lg_finding f;
	struct lg_verdict v = sample(&f);

	(void)state;
	f.fix = "a long piece of advice with m\xc3\xa4ny words that goes on and on until it must be "
		"broken more than once, whatever the terminal is, and still reads well";
	for (size_t i = 0; i < 3; i++) {
		char *s = printed(&v, false, widths[i], 0);

		for (char *line = strtok(s, "\n"); line; line = strtok(NULL, "\n")) {
			size_t columns = 0;

			for (char *p = line; *p; p++)
				columns += (*p & 0xc0) != 0x80;
			if (columns > widths[i])
				fail_msg("%zu columns at width %u: %s", columns, widths[i], line);
		}
		lg_free(s);
	}
}

/* Whoever the sentence names has a chain and a fix on the screen, and whom it does not name stands below. */
static void the_screen_says_what_to_do_of_whom_it_names(void **state)
{
	struct lg_finding f;
	struct lg_verdict v = sample(&f);
	struct lg_term_options opt = { .width = 80 };
	struct lg_error err;

	(void)state;
	f.severity = LG_SEVERITY_LOW;
	f.lost_share = 0.02;
	v.n_slow = 12;
	for (int named = 1; named >= 0; named--) {
		struct lg_out *o;
		size_t n;
		char *s;

		f.excess_share = named ? 0.8 : 0.1;
		assert_ptr_equal(lg_named(&v), named ? &f : NULL);
		assert_int_equal(lg_out_memory(&o, &err), 0);
		lg_report_screen(&v, &opt, o);
		s = lg_out_take(o, &n);
		assert_int_equal(lg_out_close(o, &err), 0);
		assert_int_equal(strstr(s, "fix       stop it") != NULL, named);
		assert_int_equal(strstr(s, "held by pid 4711") != NULL, named);
		assert_int_equal(strstr(s, "also      low: pid 4711") != NULL, !named);
		lg_free(s);
	}
}

static void it_says_so_when_nothing_is_wrong(void **state)
{
	struct lg_finding f;
	struct lg_verdict v = sample(&f);
	char buf[512];

	(void)state;
	f.doubted = true;
	f.severity = LG_SEVERITY_LOW;
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "nothing shows that who was held up trains"));
	f.doubted = false;
	f.severity = LG_SEVERITY_LOW; /* large, but seen too few times to be graded: said as that */
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "too few times to grade"));
	f.lost_share = 0.02; /* below medium, but why slow steps are slow */
	f.excess_share = 0.8;
	v.n_slow = 12;
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "80 % of the slow steps"));
	f.excess_share = 0.1; /* below medium: mentioned, but not the headline */
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "Nothing is wrong"));
	f.lost_share = 0.05;
	f.ordinary = true; /* low for what it is, not for how seldom it was seen */
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "Nothing is wrong"));
	v.n_findings = 0;
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "Nothing is wrong"));
	v.n_slow = 1; /* one may be anything, unless it is much of the run */
	v.unexplained_share = 0.8;
	for (int much = 0; much < 2; much++) {
		v.slow_excess_ms = v.median_ms * (double)v.n_judged * (much ? 0.2 : 0.05);
		assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), much ? " steps was slow, which took" :
				       ", 1 of them slow, no finding"));
	}
	v.n_slow = 12;
	v.slow_excess_ms = v.unexplained_share = 0;
	v.shape = LG_SHAPE_SHIFT; /* for good, whether a finding explains it or not */
	v.slower = 0.4;
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "Steps got 40 % slower"));
	v.slower = -0.4; /* faster */
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "Nothing is wrong"));
	v.untraced_share = 0.47;
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "No cause proven: for 47 % of the steps' time"));
	v.inference = true; /* called what it is, whatever else is known */
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "Inference or evaluation, "));
	assert_non_null(strstr(buf, "53 % of their time is traced work, for 47 % of the time nothing runs"));
	v.untraced_share = 0;
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "of inference or evaluation, 12 of them slow"));
	v.inference = false;
	v.untraced_share = 0.47;
	v.n_judged = 0;
	v.n_steps = 1; /* there are some, of graphs being captured */
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "Nothing is judged: 1 step in"));
	v.n_steps = 0;
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "No repeating training steps"));
	v.unjudged = "The recording holds no samples";
	assert_string_equal(lg_headline(&v, buf, sizeof buf), "The recording holds no samples: nothing is judged.");
	v.cut = true; /* the reason says it where that is why */
	assert_string_equal(lg_headline(&v, buf, sizeof buf), "The recording holds no samples: nothing is judged.");
	v.unjudged = NULL;
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), ". The file is cut: what it ends before is not"));
}

static void what_cannot_be_measured_is_told_first_where_the_measured_is_little(void **state)
{
	struct lg_finding f[2];
	struct lg_verdict v = sample(&f[0]);
	char buf[512], *s;

	(void)state;
	f[0].severity = LG_SEVERITY_LOW;
	f[0].lost_share = f[0].excess_share = 0.02;
	f[1] = f[0];
	f[1].title = "anomaly detection is on";
	f[1].severity = LG_SEVERITY_MEDIUM;
	f[1].lost_ms = f[1].lost_share = NAN;
	v.n_findings = 2;
	assert_string_equal(lg_headline(&v, buf, sizeof buf), f[1].title);
	s = printed(&v, false, 0, 0);
	assert_non_null(strstr(s, "\nlost: cannot be measured"));
	lg_free(s);
	f[0].lost_share = 0.3; /* large, though seen too few times */
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "too few times to grade; record longer (and 1 more"));
	assert_null(lg_lead(&v));
	f[0].severity = LG_SEVERITY_HIGH;
	assert_ptr_equal(lg_lead(&v), &f[0]);
	f[0].severity = f[1].severity = LG_SEVERITY_LOW; /* and nothing that matters */
	f[0].lost_share = 0.02;
	assert_null(lg_lead(&v));
	assert_non_null(strstr(lg_headline(&v, buf, sizeof buf), "Nothing is wrong"));
}

static void findings_are_counted_as_they_are_shown(void **state)
{
	struct lg_finding f[4];
	struct lg_verdict v = sample(&f[0]);
	char *s;

	(void)state;
	for (size_t i = 1; i < 4; i++)
		f[i] = f[0];
	f[1].severity = LG_SEVERITY_INFO; /* has no number: a line of its own at the end */
	f[2].fix = "start it";
	f[3].fix = "start it";
	v.n_findings = 4;
	s = printed(&v, false, 0, 0);
	assert_non_null(strstr(s, "\n2. high"));
	assert_non_null(strstr(s, "\n3. high"));
	assert_null(strstr(s, "\n4. "));
	assert_non_null(strstr(s, "as for 2\n"));
	lg_free(s);
}

/* Not before what made it slow while it still ran. */
static void a_hang_leads(void **state)
{
	struct lg_finding f[2];
	struct lg_verdict v = sample(&f[0]);
	char buf[512];

	(void)state;
	f[1] = f[0];
	f[1].id = "comms.missing_rank";
	f[1].title = "rank 3 never entered all_reduce";
	f[1].lost_ms = f[1].lost_share = NAN;
	v.n_findings = 2;
	assert_string_equal(lg_headline(&v, buf, sizeof buf),
			    "rank 3 never entered all_reduce (and 1 more finding)");
	f[1].severity = LG_SEVERITY_LOW;
	assert_ptr_equal(lg_lead(&v), &f[0]);
}

static void markdown_escapes_what_it_quotes(void **state)
{
	struct lg_finding f;
	struct lg_verdict v = sample(&f);
	char *s;

	(void)state;
	f.title = "<b>x</b> | [link](y) `code` *a*";
	s = printed(&v, false, 0, 1);
	assert_non_null(strstr(s, "\\<b\\>x\\</b\\> \\| \\[link\\](y) \\`code\\` \\*a\\*"));
	assert_null(strchr(s, 033));
	lg_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_sentence_comes_first_and_all_parts_follow),
		cmocka_unit_test(nothing_from_outside_steers_the_terminal),
		cmocka_unit_test(lines_keep_within_the_width),
		cmocka_unit_test(the_screen_says_what_to_do_of_whom_it_names),
		cmocka_unit_test(it_says_so_when_nothing_is_wrong),
		cmocka_unit_test(what_cannot_be_measured_is_told_first_where_the_measured_is_little),
		cmocka_unit_test(findings_are_counted_as_they_are_shown),
		cmocka_unit_test(a_hang_leads),
		cmocka_unit_test(markdown_escapes_what_it_quotes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
