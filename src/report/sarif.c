/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sarif.c - a verdict for code hosts: SARIF 2.1.0 (OASIS), one run, a result a finding.
 *
 * A finding is about a run, not about a line of source: its place is the file that was read, and the
 * culprit's function a logical one beside it. What the verdict could not see is a notification of the tool.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "advise/advise.h"
#include "report/json_write.h"
#include "report/report.h"
#include "report/runs.h"

static void put_message(struct lg_json *j, const char *key, const char *text)
{
	lg_json_key(j, key);
	lg_json_open(j, '{');
	lg_json_key_str(j, "text", text);
	lg_json_close(j, '}');
}

/* Sections 3.27.10 and 3.58.6: error, warning, note. */
static const char *level(enum lg_severity s)
{
	return s == LG_SEVERITY_HIGH ? "error" : s == LG_SEVERITY_MEDIUM ? "warning" : "note";
}

/* A path as a URI (RFC 3986): an absolute one of this machine, or one relative to where we were. */
static void put_uri(struct lg_json *j, const char *path)
{
	enum { LONGEST = 3 * 4096 };
	char uri[LONGEST + 16];
	size_t n = 0;

	if (*path == '/')
		n += (size_t)snprintf(uri, sizeof uri, "file://");
	for (; *path && n < LONGEST; path++) {
		unsigned char c = (unsigned char)*path;
		bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			     strchr("-._~/", c);

		n += (size_t)snprintf(uri + n, sizeof uri - n, plain ? "%c" : "%%%02X", c);
	}
	uri[n] = 0;
	lg_json_key_str(j, "uri", uri);
}

static size_t rule_index(const struct lg_verdict *v, size_t finding)
{
	size_t index = 0;

	for (size_t i = 0; i < v->n_findings; i++) {
		size_t first = 0;

		while (strcmp(v->findings[first].id, v->findings[i].id) != 0)
			first++;
		if (!strcmp(v->findings[i].id, v->findings[finding].id))
			return index;
		index += first == i;
	}
	return index;
}

static void put_rules(struct lg_json *j, const struct lg_verdict *v)
{
	lg_json_key(j, "rules");
	lg_json_open(j, '[');
	for (size_t i = 0, told = 0; i < v->n_findings; i++) {
		const struct lg_rule *r = lg_rule_find(v->findings[i].id);

		if (!r || rule_index(v, i) != told)
			continue;
		told++;
		lg_json_open(j, '{');
		lg_json_key_str(j, "id", r->id);
		put_message(j, "shortDescription", r->sentence);
		put_message(j, "fullDescription", r->signal);
		put_message(j, "help", r->advice.fix);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
}

static void put_place(struct lg_json *j, const struct lg_verdict *v, const struct lg_finding *f)
{
	const char *in = f->culprit.function ? f->culprit.function : f->culprit.comm;

	lg_json_key(j, "locations");
	lg_json_open(j, '[');
	lg_json_open(j, '{');
	if (v->n_inputs) {
		lg_json_key(j, "physicalLocation");
		lg_json_open(j, '{');
		lg_json_key(j, "artifactLocation");
		lg_json_open(j, '{');
		put_uri(j, v->inputs[0].path);
		lg_json_close(j, '}');
		lg_json_close(j, '}');
	}
	if (in) {
		lg_json_key(j, "logicalLocations");
		lg_json_open(j, '[');
		lg_json_open(j, '{');
		lg_json_key_str(j, "fullyQualifiedName", in);
		lg_json_key_str(j, "kind", f->culprit.function ? "function" : "process");
		lg_json_close(j, '}');
		lg_json_close(j, ']');
	}
	lg_json_close(j, '}');
	lg_json_close(j, ']');
}

/* The same cause in the next run is the same alert: rule, culprit's program and function, not its pid. */
static void put_fingerprint(struct lg_json *j, const struct lg_finding *f)
{
	const char *const of[] = { f->id, f->culprit.comm, f->culprit.function, f->culprit.lock, f->detail };
	XXH64_hash_t sum = 0;
	char text[17];

	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		sum = of[i] ? XXH3_64bits_withSeed(of[i], strlen(of[i]), sum + i) : sum + 1;
	snprintf(text, sizeof text, "%016llx", (unsigned long long)sum);
	lg_json_key(j, "partialFingerprints");
	lg_json_open(j, '{');
	lg_json_key_str(j, "cause/v1", text);
	lg_json_close(j, '}');
}

static void put_result(struct lg_json *j, const struct lg_verdict *v, size_t i)
{
	const struct lg_finding *f = &v->findings[i];

	lg_json_open(j, '{');
	lg_json_key_str(j, "ruleId", f->id);
	lg_json_key_int(j, "ruleIndex", (int64_t)rule_index(v, i));
	lg_json_key_str(j, "level", level(f->severity));
	put_message(j, "message", f->title);
	put_place(j, v, f);
	put_fingerprint(j, f);
	lg_json_key(j, "properties");
	lg_json_open(j, '{');
	lg_json_key_str(j, "severity", lg_severity_text(f->severity));
	lg_json_key_num(j, "confidence", f->confidence, 3);
	lg_json_key_num(j, "lost_ms", f->lost_ms, 3);
	lg_json_key_str(j, "fix", f->fix);
	lg_json_key_str(j, "tradeoff", f->tradeoff);
	lg_json_close(j, '}');
	lg_json_close(j, '}');
}

void lg_report_sarif(const struct lg_verdict *v, const struct lg_run_table *runs, struct lg_out *o)
{
	struct lg_json j = { .o = o };
	char headline[4096];

	lg_json_open(&j, '{');
	lg_json_key_str(&j, "$schema", "https://json.schemastore.org/sarif-2.1.0.json");
	lg_json_key_str(&j, "version", "2.1.0");
	lg_json_key(&j, "runs");
	lg_json_open(&j, '[');
	lg_json_open(&j, '{');
	lg_json_key(&j, "tool");
	lg_json_open(&j, '{');
	lg_json_key(&j, "driver");
	lg_json_open(&j, '{');
	lg_json_key_str(&j, "name", "laggard");
	lg_json_key_str(&j, "version", LG_VERSION);
	put_rules(&j, v);
	lg_json_close(&j, '}');
	lg_json_close(&j, '}');
	lg_json_key(&j, "invocations");
	lg_json_open(&j, '[');
	lg_json_open(&j, '{');
	lg_json_key(&j, "executionSuccessful");
	lg_json_bool(&j, true);
	lg_json_key(&j, "toolExecutionNotifications");
	lg_json_open(&j, '[');
	for (size_t i = 0; i < v->n_limits; i++) {
		lg_json_open(&j, '{');
		lg_json_key_str(&j, "level", "note");
		put_message(&j, "message", v->limits[i]);
		lg_json_close(&j, '}');
	}
	lg_json_close(&j, ']');
	lg_json_close(&j, '}');
	lg_json_close(&j, ']');
	lg_json_key(&j, "results");
	lg_json_open(&j, '[');
	for (size_t i = 0; i < v->n_findings; i++)
		put_result(&j, v, i);
	lg_json_close(&j, ']');
	lg_json_key(&j, "properties");
	lg_json_open(&j, '{');
	lg_json_key_str(&j, "headline", lg_headline(v, headline, sizeof headline));
	if (runs)
		lg_json_runs(runs, &j);
	lg_json_close(&j, '}');
	lg_json_close(&j, '}');
	lg_json_close(&j, ']');
	lg_json_close(&j, '}');
	lg_out_puts(o, "\n");
}
