/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_rules.c - the catalogue of findings. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "advise/advise.h"
#include "base/words.h"
#include "cli/load.h"
#include "report/json_write.h"
#include "report/text.h"

enum { WIDTH = 96, LABEL = 14, THRESHOLD_MAX = 1024 };

static void field(struct lg_out *o, const char *label, const char *text)
{
	lg_out_printf(o, "  %-*s", LABEL - 2, label);
	lg_text_wrap(o, text, LABEL, LABEL, WIDTH);
}

static void sources(struct lg_out *o, const char *s)
{
	const char *label = "sources";

	while (*s) {
		size_t n = strcspn(s, "\n");

		lg_out_printf(o, "  %-*s%.*s\n", LABEL - 2, label, (int)n, s);
		label = "";
		s += n + (s[n] == '\n');
	}
}

static void severity(struct lg_out *o, enum lg_rule_id rule)
{
	static const char *const words[] = {
		[LG_BASIS_MEASURED] = "by lost share of the run: high from {ANY.HIGH}, medium from {ANY.MEDIUM}, low from "
				      "{ANY.LOW}, else info",
		[LG_BASIS_UNMEASURED] = "medium, or lower where the threshold says so: what it costs cannot be measured "
					"from one recording",
		[LG_BASIS_HANG] = "high: the run does not go on",
		[LG_BASIS_LOW] = "low",
		[LG_BASIS_INFO] = "info: it is no loss, or none that the run goes on to have",
	};
	char text[256];

	lg_rule_fill(rule, words[lg_policy(rule)->basis], text, sizeof text);
	field(o, "severity", text);
}

static size_t evidence(const struct lg_worth_row *r, char *text, size_t size)
{
	return (size_t)snprintf(text, size, "%s, evidence of strength %.2f and more: ",
				r->loud ? "medium and high" : "low", r->from);
}

/* What its confidence is worth, as drawn jobs have shown (doc/calibration.md). */
static void worth(struct lg_out *o, enum lg_rule_id rule)
{
	const struct lg_worth_row *r = NULL;
	const char *label = "confidence";
	char text[256];

	while ((r = lg_worth_next(rule, r))) {
		size_t n = evidence(r, text, sizeof text);

		if (r->draws)
			snprintf(text + n, sizeof text - n, "right in %.0f %% of drawn jobs (%u draw%s)",
				 100 * r->worth, r->draws, lg_s(r->draws));
		else
			snprintf(text + n, sizeof text - n, "%.0f %%, as evidence of that strength is right over all "
				 "rules: no job was drawn in which this rule had any", 100 * r->worth);
		field(o, label, text);
		label = "";
	}
	if (!*label)
		return;
	field(o, label, "what the rule itself states of its evidence: no jobs were drawn with such a cause; and no more "
	      "than other rules' evidence was worth, each in turn taken for one that was never drawn:");
	while ((r = lg_worth_next(LG_R_MAX, r))) {
		size_t n = evidence(r, text, sizeof text);

		snprintf(text + n, sizeof text - n, "%.0f %%", 100 * r->worth);
		field(o, "", text);
	}
}

static void worth_json(struct lg_json *j, enum lg_rule_id rule)
{
	lg_json_key(j, "worth");
	lg_json_open(j, '[');
	for (const struct lg_worth_row *r = NULL; (r = lg_worth_next(rule, r));) {
		lg_json_open_flat(j, '{');
		lg_json_key_str(j, "severity", r->loud ? "medium" : "low");
		lg_json_key_num(j, "strength_from", r->from, 3);
		lg_json_key_num(j, "right", r->worth, 3);
		lg_json_key_int(j, "draws", r->draws);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
}

static void threshold(const struct lg_rule *r, char *ret, size_t size)
{
	lg_rule_fill(lg_rule_from(r->id), r->threshold, ret, size);
}

/* Beside which rules it is not told. */
static void yields(struct lg_out *o, enum lg_rule_id rule)
{
	char text[256] = "not told beside ";
	size_t n = strlen(text);
	enum lg_rule_id other;

	for (size_t i = 0; (other = lg_rule_yields(rule, i)) && n < sizeof text; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? ", " : "", lg_policy(other)->id);
	if (lg_rule_yields(rule, 0))
		field(o, "yields", text);
}

static void one(struct lg_out *o, const struct lg_rule *r)
{
	char text[THRESHOLD_MAX];

	threshold(r, text, sizeof text);
	lg_out_printf(o, "%s\n", r->id);
	field(o, "says", r->sentence);
	field(o, "signal", r->signal);
	field(o, "threshold", text);
	severity(o, lg_rule_from(r->id));
	yields(o, lg_rule_from(r->id));
	worth(o, lg_rule_from(r->id));
	field(o, "fix", r->advice.fix);
	field(o, "trade-off", r->advice.tradeoff);
	field(o, "to confirm", r->advice.confirm);
	sources(o, r->sources);
}

static void as_json(struct lg_out *o, const struct lg_rule *r, size_t n)
{
	struct lg_json j = { .o = o };

	lg_json_open(&j, '[');
	for (size_t i = 0; i < n; i++) {
		char text[THRESHOLD_MAX];
		const char *const pairs[][2] = {
			{ "id", r[i].id }, { "severity", r[i].basis }, { "sentence", r[i].sentence },
			{ "signal", r[i].signal }, { "threshold", text },
			{ "fix", r[i].advice.fix }, { "tradeoff", r[i].advice.tradeoff },
			{ "confirm", r[i].advice.confirm }, { "sources", r[i].sources },
		};

		threshold(&r[i], text, sizeof text);
		lg_json_open(&j, '{');
		for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
			lg_json_key(&j, pairs[k][0]);
			lg_json_str(&j, pairs[k][1]);
		}
		worth_json(&j, lg_rule_from(r[i].id));
		lg_json_close(&j, '}');
	}
	lg_json_close(&j, ']');
	lg_out_puts(o, "\n");
}

static int run(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const struct lg_rule *all, *pick = NULL;
	struct lg_out *o;
	bool json = false;
	size_t n;
	int c;

	opterr = 0;
	optind = 0;
	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		if (c == 'h')
			return lg_help(&lg_cmd_rules);
		if (c != 'j')
			return lg_usage(&lg_cmd_rules, "no option \"%s\"", argv[optind - 1]);
		json = true;
	}
	if (argc - optind > 1)
		return lg_usage(&lg_cmd_rules, "one ID at a time");
	all = lg_rules(&n);
	if (optind < argc) {
		pick = lg_rule_find(argv[optind]);
		if (!pick)
			return lg_usage(&lg_cmd_rules, "no rule \"%s\"; laggard rules lists them",
					argv[optind]);
	}
	o = lg_stdout_open();
	if (!o)
		return LG_EXIT_FAILED;
	if (json) {
		as_json(o, pick ? pick : all, pick ? 1 : n);
	} else if (pick) {
		one(o, pick);
	} else {
		for (size_t i = 0; i < n; i++) {
			lg_out_printf(o, "%-24s ", all[i].id);
			lg_text_wrap(o, all[i].sentence, 25, 25, WIDTH);
		}
	}
	return lg_finish(o);
}

const struct lg_command lg_cmd_rules = {
	.name = "rules",
	.args = "[ID] [--json]",
	.summary = "the catalogue of findings: signal, threshold, fix, trade-off, sources",
	.help =
	"  --json     the same as JSON\n\n"
	"example:\n"
	"  laggard rules host.lock_held\n",
	.run = run,
};
