/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_trace.c - records of TORCH_TRACE: one JSON object behind torch's header, its payload on lines that
 * start with a tab. compilation_metrics is the one record with an epoch time: it tells the zone of the
 * others.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import/torchlog/torchlog.h"

#define QUARTER (INT64_C(900) * 1000000000)

static void compile_id(const struct lg_doc *d, char *out, size_t size)
{
	snprintf(out, size, "[%lld/%lld]", (long long)lg_value_int(d, lg_value_get(d, d->root, "frame_id"), -1),
		 (long long)lg_value_int(d, lg_value_get(d, d->root, "frame_compile_id"), -1));
}

static uint64_t key_of(const struct lg_log_line *line, int64_t number)
{
	return lg_mix64((uint64_t)(uint32_t)line->pid << 32 ^ (uint64_t)number) | 1;
}

/* Of one compilation of a frame. */
static uint64_t compilation_key(const struct lg_log_line *line, const struct lg_doc *d)
{
	int64_t frame = lg_value_int(d, lg_value_get(d, d->root, "frame_id"), -1);
	int64_t compile = lg_value_int(d, lg_value_get(d, d->root, "frame_compile_id"), -1);

	return lg_mix64(key_of(line, frame) ^ (uint64_t)compile) | 1;
}

static void remember(struct lg_torchlog *l, struct lg_map *m, uint64_t key, lg_str s)
{
	if (lg_map_set(m, key, s))
		lg_builder_fail(l->b);
}

/* {"str": ["/app/train.py", 7]}: from here on 7 stands for that file in the records of this process. */
static void string(struct lg_torchlog *l, const struct lg_log_line *line, const struct lg_doc *d, uint32_t v)
{
	int64_t number = lg_value_int(d, lg_value_at(d, v, 1), -1);

	if (number >= 0)
		remember(l, &l->file_of, key_of(line, number),
			 lg_intern(l->b, lg_value_text(d, lg_value_at(d, v, 0))));
}

static void frame_is(struct lg_torchlog *l, const struct lg_log_line *line, const struct lg_doc *d,
		     const char *function, const char *file, int64_t at)
{
	char text[512];

	if (!*function || !*file)
		return;
	snprintf(text, sizeof text, "%s (%s:%lld)", function, file, (long long)at);
	remember(l, &l->code_of, key_of(line, lg_value_int(d, lg_value_get(d, d->root, "frame_id"), -1)),
		 lg_intern(l->b, text));
}

/* The stack at a compilation's start ends in the function that is compiled. */
static void started(struct lg_torchlog *l, const struct lg_log_line *line, const struct lg_doc *d,
		    uint32_t start)
{
	uint32_t stack = lg_value_get(d, start, "stack"), n = lg_value_count(d, stack);
	uint32_t last = n ? lg_value_at(d, stack, n - 1) : 0;
	int64_t number = n ? lg_value_int(d, lg_value_get(d, last, "filename"), -1) : -1;
	lg_str file = number >= 0 ? lg_map_get(&l->file_of, key_of(line, number)) : 0;

	if (file)
		frame_is(l, line, d, lg_value_text(d, lg_value_get(d, last, "name")),
			 lg_string(lg_builder_trace(l->b), file),
			 lg_value_int(d, lg_value_get(d, last, "line"), 0));
}

/* "f (/app/train.py:6) [0/1]", as far as the records before tell. */
static void code_and_id(struct lg_torchlog *l, const struct lg_log_line *line, const struct lg_doc *d,
			char *out, size_t size)
{
	int64_t frame = lg_value_int(d, lg_value_get(d, d->root, "frame_id"), -1);
	lg_str code = lg_map_get(&l->code_of, key_of(line, frame));
	char id[48];

	compile_id(d, id, sizeof id);
	snprintf(out, size, "%s%s%s", code ? lg_string(lg_builder_trace(l->b), code) : "", code ? " " : "", id);
}

/* ns since 1970 of a compilation's start; 0 = not told. */
static int64_t start_of(const struct lg_doc *d, uint32_t m)
{
	int64_t us = lg_value_int(d, lg_value_get(d, m, "start_time_us"), 0);
	double s = lg_value_real(d, lg_value_get(d, m, "start_time"), 0);

	if (us > 0 && us < INT64_MAX / 1000)
		return us * 1000;
	/* a double of epoch seconds is good to 0.2 us */
	return s > 0 && s < 9e9 ? (int64_t)llround(s * 1e6) * 1000 : 0;
}

static void metrics(struct lg_torchlog *l, const struct lg_log_line *line, const struct lg_doc *d, uint32_t m)
{
	int64_t start = start_of(d, m), dur;
	double s = lg_value_real(d, lg_value_get(d, m, "entire_frame_compile_time_s"), 0);
	double us = lg_value_real(d, lg_value_get(d, m, "duration_us"), 0);
	const char *fail = lg_value_text(d, lg_value_get(d, m, "fail_type"));
	uint32_t why = lg_value_get(d, m, "restart_reasons");
	const char *function = lg_value_text(d, lg_value_get(d, m, "co_name"));
	char id[48], where[512], text[LG_LOG_TEXT];

	if (!(us > 0)) /* 2024-12 to 2025-03 */
		us = lg_value_real(d, lg_value_get(d, m, "dynamo_cumulative_compile_time_us"), 0);
	s = s > 0 ? s : us / 1e6;
	dur = s > 0 && s < 1e6 ? (int64_t)(s * 1e9) : 0;
	compile_id(d, id, sizeof id);
	snprintf(where, sizeof where, "%s (%s:%lld) %s", function,
		 lg_value_text(d, lg_value_get(d, m, "co_filename")),
		 (long long)lg_value_int(d, lg_value_get(d, m, "co_firstlineno"), 0), id);
	frame_is(l, line, d, function, lg_value_text(d, lg_value_get(d, m, "co_filename")),
		 lg_value_int(d, lg_value_get(d, m, "co_firstlineno"), 0));
	if (start && line->ts != INT64_MIN) {
		/* The line was written when the compilation ended: what is left is the zone, in whole
		 * quarters of an hour. A year that was guessed wrong shows here, too. */
		int64_t zone = line->ts - (start + dur),
			       q = (zone + (zone < 0 ? -QUARTER : QUARTER) / 2) / QUARTER;

		if (llabs(zone - q * QUARTER) < QUARTER / 4 && (!l->zone_known || l->zone == q * QUARTER)) {
			l->zone = q * QUARTER;
			l->zone_known = 1;
		}
	}
	if (dur)
		lg_add_span(l->b, &(struct lg_span_row){
					  .ts = start && l->zone_known ? start + l->zone
								       : lg_torchlog_now(l, line) - dur,
					  .dur = dur, .thr = lg_torchlog_thread(l, line),
						       .kind = LG_SPAN_COMPILE,
					  .seq = lg_value_int(d, lg_value_get(d, d->root, "frame_compile_id"), -1),
					  .name = lg_intern(l->b, where) });
	if (*fail) {
		snprintf(text, sizeof text, "%s: %s: %s", where, fail,
			 lg_value_text(d, lg_value_get(d, m, "fail_reason")));
		lg_torchlog_mark(l, line, "log.compile_failed", 0, text);
	}
	/* torch 2.3 and later tell each break when it comes, and here once more. */
	if (lg_map_get(&l->broken, compilation_key(line, d)))
		return;
	for (uint32_t i = 0; i < lg_value_count(d, why); i++) {
		const char *reason = lg_value_text(d, lg_value_at(d, why, i));

		/* The compiler begins anew for what it learned (a number that varies), and breaks nothing:
		 * then torch states the exception's class, "<class 'torch._dynamo.exc.Unspec...'>". */
		if (!strncmp(reason, "<class '", 8))
			continue;
		snprintf(text, sizeof text, "%s: %s", where, reason);
		lg_torchlog_mark(l, line, "log.graph_break", 0, text);
	}
}

/* The payload that follows is the text of some. */
static void artifact(struct lg_torchlog *l, const struct lg_log_line *line, const struct lg_doc *d,
		     uint32_t a)
{
	static const struct {
		const char *name, *mark;
		int payload;
	} known[] = {
		{ "dynamo_graph_break_reason", "log.graph_break", 1 },
		{ "recompile_reasons", "log.recompile", 1 },
		{ "dynamo_error", "log.compile_failed", 1 },
		{ "fx_graph_cache_hit", "log.cache_hit", 0 },
		{ "fx_graph_cache_miss", "log.cache_miss", 0 },
		{ "fx_graph_cache_bypass", "log.cache_bypass", 0 },
		{ "aotautograd_cache_hit", "log.cache_hit", 0 },
		{ "aotautograd_cache_miss", "log.cache_miss", 0 },
		{ "aotautograd_cache_bypass", "log.cache_bypass", 0 },
	};
	const char *name = lg_value_text(d, lg_value_get(d, a, "name"));
	int64_t compile = lg_value_int(d, lg_value_get(d, d->root, "frame_compile_id"), -1);
	char code[560], text[576];

	code_and_id(l, line, d, code, sizeof code);
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		if (strcmp(name, known[i].name))
			continue;
		if (!known[i].payload) {
			lg_torchlog_mark(l, line, known[i].mark, compile, name);
			return;
		}
		if (!strcmp(known[i].mark, "log.graph_break"))
			remember(l, &l->broken, compilation_key(line, d), 1);
		snprintf(text, sizeof text, "%s:", code);
		lg_torchlog_open(l, line, LG_LOG_PAYLOAD, known[i].mark, compile, text);
		return;
	}
}

void lg_torchlog_record(struct lg_torchlog *l, const struct lg_log_line *line, char *json)
{
	static const char *const wanted[] = { "{\"compilation_metrics\"", "{\"bwd_compilation_metrics\"",
					      "{\"artifact\"", "{\"dynamo_start\"", "{\"str\"" };
	struct lg_log_line with = *line;
	struct lg_doc d;
	uint32_t v;
	size_t i = 0;

	while (i < sizeof wanted / sizeof *wanted && strncmp(json, wanted[i], strlen(wanted[i])))
		i++;
	if (i == sizeof wanted / sizeof *wanted || lg_doc_json(&d, json, strlen(json), NULL))
		return;
	if (with.rank < 0) {
		int64_t rank = lg_value_int(&d, lg_value_get(&d, d.root, "rank"), -1);

		with.rank = rank >= 0 && rank < 1 << 20 ? (int32_t)rank : -1;
	}
	if ((v = lg_value_get(&d, d.root, "compilation_metrics")) ||
	    (v = lg_value_get(&d, d.root, "bwd_compilation_metrics"))) {
		metrics(l, &with, &d, v);
	} else if ((v = lg_value_get(&d, d.root, "artifact"))) {
		artifact(l, &with, &d, v);
	} else if ((v = lg_value_get(&d, d.root, "dynamo_start"))) {
		char code[560];

		started(l, &with, &d, v);
		code_and_id(l, &with, &d, code, sizeof code);
		lg_torchlog_mark(l, &with, "log.compile_start",
				 lg_value_int(&d, lg_value_get(&d, d.root, "frame_compile_id"), -1), code);
	} else if ((v = lg_value_get(&d, d.root, "str"))) {
		string(l, &with, &d, v);
	}
	lg_doc_done(&d);
}
