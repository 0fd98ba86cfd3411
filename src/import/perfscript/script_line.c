/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfscript/script_line.h"

#include <string.h>

enum { COMM_LONGEST = 15 }; /* TASK_COMM_LEN in include/linux/sched.h less the closing zero */

static bool is_space(char c)
{
	return c == ' ' || c == '\t';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static int hex_digit(char c)
{
	if (is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

static const char *skip_spaces(const char *p, const char *end)
{
	while (p < end && is_space(*p))
		p++;
	return p;
}

static const char *token_end(const char *p, const char *end)
{
	while (p < end && !is_space(*p))
		p++;
	return p;
}

/* Decimal digits; NULL when there are none or too many. */
static const char *number(const char *p, const char *end, uint64_t *ret)
{
	const char *first = p;
	uint64_t v = 0;

	for (; p < end && is_digit(*p); p++) {
		if (p - first >= 19)
			return NULL;
		v = v * 10 + (uint64_t)(*p - '0');
	}
	*ret = v;
	return p > first ? p : NULL;
}

static bool id(const char *p, const char *end, int32_t *ret_pid, int32_t *ret_tid)
{
	uint64_t a, b = 0;
	const char *q = number(p, end, &a);

	if (!q || a > INT32_MAX)
		return false;
	if (q == end) {
		*ret_pid = -1; /* perf script prints the thread's id when it prints one */
		*ret_tid = (int32_t)a;
		return true;
	}
	if (*q != '/')
		return false;
	/* "-1": a thread that was gone when the event came */
	if (end - q == 3 && q[1] == '-' && q[2] == '1')
		b = a;
	else if (number(q + 1, end, &b) != end || b > INT32_MAX)
		return false;
	*ret_pid = (int32_t)a;
	*ret_tid = (int32_t)b;
	return true;
}

/* "3366.526831:" with 6 or 9 digits (or any number up to 9) */
static bool timestamp(const char *p, const char *end, int64_t *ret)
{
	uint64_t s, frac = 0;
	const char *q = number(p, end, &s), *f;

	if (!q || q == end || *q != '.' || end[-1] != ':' || s > INT64_MAX / 1000000000 - 1)
		return false;
	f = number(q + 1, end - 1, &frac);
	if (f != end - 1 || f - q - 1 > 9)
		return false;
	for (ptrdiff_t digits = f - q - 1; digits < 9; digits++)
		frac *= 10;
	*ret = (int64_t)(s * 1000000000 + frac);
	return true;
}

static bool cpu(const char *p, const char *end, int32_t *ret)
{
	uint64_t v;

	if (end - p < 3 || *p != '[' || end[-1] != ']' || number(p + 1, end - 1, &v) != end - 1 ||
	    v > 1 << 20)
		return false;
	*ret = (int32_t)v;
	return true;
}

/* -F +misc: letters before the CPU or the time (tools/perf/builtin-script.c, perf_sample__fprintf_start()) */
static bool is_misc(const char *p, const char *e, const char *end)
{
	int32_t cpu_nr;
	int64_t ts;

	if (p == e || e - p > 5)
		return false;
	for (const char *q = p; q < e; q++)
		if (!strchr("KUHGgMESpi", *q))
			return false;
	p = skip_spaces(e, end);
	e = token_end(p, end);
	return p < e && (cpu(p, e, &cpu_nr) || timestamp(p, e, &ts));
}

/*
 * -F without event: nothing follows the time and period, or the innermost frame does. time: that field, of 6
 * or 9 decimals as perf prints it, because little else tells such a line from "loss 2.31:".
 */
static bool no_event(struct lg_ps_line *l, struct lg_ps_view time, const char *p, const char *end)
{
	struct lg_ps_view rest = { p, (size_t)(end - p) };
	const char *dot = time.n ? memchr(time.p, '.', time.n) : NULL;
	ptrdiff_t decimals = dot ? time.p + time.n - dot - 2 : 0;
	struct lg_ps_line frame;

	if ((decimals != 6 && decimals != 9) || (p < end && !lg_ps_parse_rest(&frame, rest)))
		return false;
	l->event = (struct lg_ps_view){ p, 0 };
	l->rest = rest;
	return true;
}

/* [cpu] time: period event: rest. All but time and event may be missing, and the event behind a time. */
static bool tail(struct lg_ps_line *l, const char *p, const char *end)
{
	struct lg_ps_view time = { p, 0 };
	const char *e;

	l->cpu = -1;
	l->period = 0;
	l->has_time = false;
	p = skip_spaces(p, end);
	e = token_end(p, end);
	if (is_misc(p, e, end)) {
		p = skip_spaces(e, end);
		e = token_end(p, end);
	}
	if (p < e && cpu(p, e, &l->cpu)) {
		p = skip_spaces(e, end);
		e = token_end(p, end);
	}
	if (l->cpu >= 0 && is_misc(p, e, end)) {
		p = skip_spaces(e, end);
		e = token_end(p, end);
	}
	/* "d..2." of the latency format */
	if (l->cpu >= 0 && e - p >= 4 && e - p <= 6 && strchr("d.XB", *p) && p[1] == '.') {
		p = skip_spaces(e, end);
		e = token_end(p, end);
	}
	if (p < e && timestamp(p, e, &l->ts)) {
		l->has_time = true;
		time = (struct lg_ps_view){ p, (size_t)(e - p) };
		p = skip_spaces(e, end);
		e = token_end(p, end);
	}
	if (p < e && number(p, e, &l->period) == e) {
		p = skip_spaces(e, end);
		e = token_end(p, end);
	} else {
		l->period = 0;
	}
	if (e - p > 12 && !memcmp(p, "PERF_RECORD_", 12)) { /* --show-task-events and the like */
		e = p + 12;
		while (e < end && ((*e >= 'A' && *e <= 'Z') || *e == '_' || is_digit(*e)))
			e++;
		l->event = (struct lg_ps_view){ p, (size_t)(e - p) };
		l->rest = (struct lg_ps_view){ e, (size_t)(end - e) };
		return l->has_time;
	}
	/* the event: "cycles:", "sched:sched_switch:", "branch-misses/period=50/u:" */
	if (e - p < 2 || e[-1] != ':' || *p == '[' || *p == '(' || *p == ':')
		return no_event(l, time, p, end);
	l->event = (struct lg_ps_view){ p, (size_t)(e - p) - 1 };
	l->rest = (struct lg_ps_view){ e, (size_t)(end - e) };
	return true;
}

/* The name is what stands before p. */
static void set_comm(struct lg_ps_line *l, const char *start, const char *p)
{
	while (p > start && is_space(p[-1]))
		p--;
	l->comm = (struct lg_ps_view){ start, (size_t)(p - start) };
}

/*
 * Names contain spaces and digits: the thread's id is the first number behind which the line
 * makes sense. longest: of the name.
 */
static bool with_id(struct lg_ps_line *l, const char *start, const char *end, bool want_time,
		    ptrdiff_t longest)
{
	for (const char *p = start, *e = start; p < end && e - start <= longest; p = skip_spaces(e, end)) {
		e = token_end(p, end);
		if (!id(p, e, &l->pid, &l->tid) || !tail(l, e, end) || l->has_time != want_time)
			continue;
		set_comm(l, start, p);
		/* Without name and time any prose with a number and a colon would do. */
		return l->has_time || l->comm.n;
	}
	return false;
}

static bool without_id(struct lg_ps_line *l, const char *start, const char *end, ptrdiff_t longest)
{
	for (const char *p = start, *e = start; p < end && e - start <= longest; p = skip_spaces(e, end)) {
		e = token_end(p, end);
		if (!tail(l, p, end) || !l->has_time)
			continue;
		l->pid = l->tid = -1;
		set_comm(l, start, p);
		return true;
	}
	return false;
}

static bool event_line(struct lg_ps_line *l, const char *line, const char *end)
{
	const char *start = skip_spaces(line, end);

	return with_id(l, start, end, true, PTRDIFF_MAX) || without_id(l, start, end, PTRDIFF_MAX) ||
	       with_id(l, start, end, false, PTRDIFF_MAX);
}

/* "name+0x1f (dso)", "name (inlined)", "name" */
static void symbol(struct lg_ps_line *l, const char *p, const char *end)
{
	static const char deleted[] = " (deleted))";
	const char *open, *plus;

	l->name = (struct lg_ps_view){ p, (size_t)(end - p) };
	l->dso = (struct lg_ps_view){ end, 0 };
	l->offset = 0;
	l->inlined = false;
	if (end > p && end[-1] == ')') {
		open = end - 1;
		if ((size_t)(end - p) > sizeof deleted &&
		    !memcmp(end - (sizeof deleted - 1), deleted, sizeof deleted - 1))
			open = end - (sizeof deleted - 1);
		while (open > p && !(open[0] == '(' && is_space(open[-1])))
			open--;
		if (open > p) {
			l->dso = (struct lg_ps_view){ open + 1, (size_t)(end - open) - 2 };
			for (end = open; end > p && is_space(end[-1]);)
				end--;
			l->name.n = (size_t)(end - p);
		} else if (*p == '(') { /* no name at all */
			l->dso = (struct lg_ps_view){ p + 1, (size_t)(end - p) - 2 };
			l->name.n = 0;
		}
	}
	l->inlined = l->dso.n == 7 && !memcmp(l->dso.p, "inlined", 7);
	for (plus = p + l->name.n; plus > p && hex_digit(plus[-1]) >= 0; plus--)
		;
	if (plus - p > 3 && plus < p + l->name.n && !memcmp(plus - 3, "+0x", 3)) {
		for (const char *d = plus; d < p + l->name.n; d++)
			l->offset = l->offset << 4 | (uint64_t)hex_digit(*d);
		l->name.n = (size_t)(plus - 3 - p);
	}
}

static bool frame_line(struct lg_ps_line *l, const char *p, const char *end)
{
	const char *first;

	l->ip = 0;
	for (first = p; p < end && hex_digit(*p) >= 0; p++) {
		if (p - first >= 16)
			return false;
		l->ip = l->ip << 4 | (uint64_t)hex_digit(*p);
	}
	if (p == first || (p < end && !is_space(*p)))
		return false;
	p = skip_spaces(p, end);
	symbol(l, p, end);
	return true;
}

/*
 * dd, bc, cc1 and fade are names of processes and addresses too, and without names the thread's id stands
 * first: of a line that could be a frame, whether it has the fields of an event. No name is longer than
 * COMM_LONGEST, so that the symbols of frames are hardly looked at. perf indents frames by a tab
 * (sample__fprintf_callchain() in tools/perf/util/evsel_fprintf.c) and events by spaces, but text that was
 * pasted somewhere may have lost its tabs: behind one only all of an event's fields count. Without a time
 * something of perf's must follow the event, as "816276 7 of: them (libx.so)" is a symbol.
 */
static bool event_after_all(struct lg_ps_line *l, char indent, const char *start, const char *end)
{
	struct lg_ps_line at;

	if (with_id(l, start, end, true, COMM_LONGEST))
		return true;
	if (indent == '\t')
		return false;
	if (without_id(l, start, end, COMM_LONGEST))
		return true;
	return with_id(l, start, end, false, COMM_LONGEST) &&
	       (!l->rest.n || lg_ps_parse_rest(&at, l->rest) || memchr(l->rest.p, '=', l->rest.n));
}

/* Text that was pasted may have lost all its indents: an address of eight digits and more, and a dso. */
static bool is_pasted_frame(const char *p, const char *end)
{
	const char *e = p;

	while (e < end && hex_digit(*e) >= 0)
		e++;
	return e - p >= 8 && e < end && *e == ' ' && end[-1] == ')';
}

enum lg_ps_kind lg_ps_parse(struct lg_ps_line *ret, const char *line, size_t n, bool inside)
{
	const char *end = line + n, *p;
	struct lg_ps_line event = { .pid = -1, .tid = -1, .cpu = -1 };

	*ret = event;
	while (end > line && (is_space(end[-1]) || end[-1] == '\r'))
		end--;
	if (end == line)
		return LG_PS_BLANK;
	if (*line == '#')
		return LG_PS_COMMENT;
	p = skip_spaces(line, end);
	if (inside && (p > line || is_pasted_frame(line, end)) && frame_line(ret, p, end)) {
		if (!event_after_all(&event, *line, p, end))
			return LG_PS_FRAME;
		*ret = event;
		return LG_PS_EVENT;
	}
	if (event_line(ret, line, end))
		return LG_PS_EVENT;
	return LG_PS_ODD;
}

bool lg_ps_parse_rest(struct lg_ps_line *ret, struct lg_ps_view rest)
{
	const char *end = rest.p + rest.n, *p = skip_spaces(rest.p, end), *e;

	while (end > p && is_space(end[-1]))
		end--;
	/* the data address comes first where it was recorded (-F addr): take the last of two */
	e = token_end(p, end);
	if (e < end) {
		const char *next = skip_spaces(e, end);

		if (next < end && frame_line(ret, next, end) && ret->name.n &&
		    token_end(next, end) - next >= 4)
			return end[-1] == ')';
	}
	return p < end && frame_line(ret, p, end) && end[-1] == ')';
}
