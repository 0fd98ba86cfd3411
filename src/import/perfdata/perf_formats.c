/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "import/perfdata/perf_bytes.h"
#include "store/sched_feed.h"

enum {
	FORMAT_BYTES_MAX = 1 << 20, /* the longest in Linux 6.18 has 30 kB */
	FORMATS_MAX = 65536
};

/*
 * The letters of prev_state, from the print format: { 0x0001, "S" }, { 0x0002, "D" } ... and
 * REC->prev_state & (...) ? "+" : "". Before Linux 4.14 dead, wakekill, waking and parked had
 * other bits, and the preempted bit was above them, at a place that moved.
 */
static void parse_states(struct lg_pd_format *f, const char *states, const char *end)
{
	const char *p = states;
	uint32_t top = 0;

	for (; p < end && (p = memchr(p, '{', (size_t)(end - p))); p++) {
		char *rest;
		unsigned long bit;

		if (end - p < 8 || f->n_states >= 16)
			break;
		/* The text ends in NUL (see lg_pd_format_parse). */
		bit = strtoul(p + 1, &rest, 0);
		rest += strspn(rest, ", ");
		if (rest[0] != '"' || !rest[1] || rest[2] != '"' || bit > UINT32_MAX)
			continue;
		f->state[f->n_states].bit = (uint32_t)bit;
		f->state[f->n_states++].letter = rest[1];
		if (bit > top)
			top = (uint32_t)bit;
	}
	/* TASK_REPORT_MAX (4.14+) is the bit above the highest; before, it is written as a number. */
	f->preempted = top ? top * 2 : 256;
	p = strstr(states, " ? \"+\"");
	while (p && p > states && p[-1] >= '0' && p[-1] <= '9')
		p--;
	if (p && *p != ' ')
		f->preempted = (uint32_t)strtoul(p, NULL, 10);
}

int lg_pd_format_parse(struct lg_pd_format *f, const char *system, const char *text, size_t n)
{
	char *copy = lg_realloc(NULL, n + 1, 1), *fmt;
	int rc;

	if (!copy)
		return LG_E_NOMEM;
	memcpy(copy, text, n);
	copy[n] = 0;
	*f = (struct lg_pd_format){ 0 };
	rc = lg_tp_format_parse(&f->tp, copy, NULL);
	fmt = rc || strcmp(f->tp.name, "sched_switch") ? NULL : strstr(copy, "print fmt:");
	if (fmt)
		parse_states(f, fmt, copy + n);
	snprintf(f->name, sizeof f->name, "%.31s:%.60s", system, f->tp.name);
	lg_free(copy);
	return rc;
}

uint64_t lg_pd_format_state(const struct lg_pd_format *f, uint64_t prev_state)
{
	uint64_t out = 0;

	if (!f->n_states)
		return prev_state;
	if (prev_state & f->preempted)
		return 256;
	for (unsigned i = 0; i < f->n_states; i++)
		if (prev_state & f->state[i].bit)
			out |= lg_sched_state_bit(f->state[i].letter);
	return out;
}

const struct lg_pd_format *lg_pd_formats_by_id(const struct lg_pd_formats *f, uint64_t id)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->format[i]->tp.id == id)
			return f->format[i];
	return NULL;
}

static int keep(struct lg_pd_formats *f, const char *system, struct pd_cursor *c)
{
	uint64_t size = pd_take_u64(c);
	const uint8_t *text = size <= FORMAT_BYTES_MAX ? pd_take(c, size) : NULL;
	struct lg_pd_format *one;
	int rc;

	if (!text || f->n >= FORMATS_MAX)
		return LG_E_FORMAT;
	one = lg_calloc(1, sizeof *one);
	if (!one || lg_grow(&f->format, &f->cap, f->n + 1, sizeof *f->format)) {
		lg_free(one);
		return LG_E_NOMEM;
	}
	rc = lg_pd_format_parse(one, system, (const char *)text, size);
	if (rc)
		lg_free(one);
	else
		f->format[f->n++] = one;
	return rc == LG_E_NOMEM ? rc : 0;
}

/* Layout: trace-cmd.dat(5) up to its version 6, of which perf writes this much. */
int lg_pd_formats_read(struct lg_pd_formats *f, const uint8_t *p, size_t n, uint64_t *ret_used,
		       struct lg_error *err)
{
	static const char magic[] = "\x17\x08\x44tracing";
	struct pd_cursor c = { .p = p, .end = p + n };
	const uint8_t *head = pd_take(&c, sizeof magic - 1), *end;
	const char *system;
	uint32_t count, n_systems, kallsyms;
	int rc = 0;

	if (!head || memcmp(head, magic, sizeof magic - 1))
		return lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET, "no tracing data where it should be");
	(void)pd_take_string(&c); /* version: "0.5", "0.6" */
	end = pd_take(&c, 1);
	c.swap = end && (*end != 0) != (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
	end = pd_take(&c, 1);
	f->long_size = end ? *end : 8;
	f->page_size = pd_take_u32(&c);
	(void)pd_take_string(&c); /* "header_page" */
	(void)pd_take(&c, pd_take_u64(&c));
	(void)pd_take_string(&c); /* "header_event" */
	(void)pd_take(&c, pd_take_u64(&c));
	for (count = pd_take_u32(&c); count && !c.bad && !rc; count--)
		rc = keep(f, "ftrace", &c);
	n_systems = pd_take_u32(&c);
	for (; n_systems && !c.bad && !rc; n_systems--) {
		system = pd_take_string(&c);
		for (count = pd_take_u32(&c); count && !c.bad && !rc; count--)
			rc = keep(f, system, &c);
	}
	kallsyms = c.bad || rc ? 0 : pd_take_u32(&c);
	end = kallsyms ? pd_take(&c, kallsyms) : NULL;
	if (end && !f->kallsyms) {
		f->kallsyms = lg_realloc(NULL, (size_t)kallsyms + 1, 1);
		if (f->kallsyms) {
			memcpy(f->kallsyms, end, kallsyms);
			f->kallsyms[kallsyms] = 0;
			f->n_kallsyms = kallsyms;
		}
	}
	(void)pd_take(&c, pd_take_u32(&c)); /* printk formats */
	if (ret_used)
		*ret_used = (uint64_t)(c.p - p);
	if (rc == LG_E_NOMEM)
		return lg_fail(err, rc, LG_NO_OFFSET, "out of memory");
	if (c.bad || rc)
		return lg_fail(err, LG_E_FORMAT, (uint64_t)(c.p - p), "tracing data is damaged");
	return 0;
}

void lg_pd_formats_done(struct lg_pd_formats *f)
{
	for (size_t i = 0; i < f->n; i++)
		lg_free(f->format[i]);
	lg_free(f->format);
	lg_free(f->kallsyms);
	*f = (struct lg_pd_formats){ 0 };
}
