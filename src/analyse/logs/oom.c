/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom.c - why a request for device memory failed, as far as the message itself tells.
 *
 * c10/cuda/CUDACachingAllocator.cpp prints what was asked for, what the device has, what is free, who uses
 * the rest and what the allocator holds and has not given out. The numbers decide: memory that it holds
 * unused would have done, but not in one piece; without the other processes there had been room; the device
 * had more free than was asked for, so something else limits the process; or it does not fit.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "analyse/finders.h"
#include "analyse/steps/log_steps.h"
#include "base/words.h"

#define KIB 1024.0

/* Bytes; NaN = the message does not say. */
struct oom {
	double tried, total, free, allocated, unallocated, others, allowed;
};

/* "1.70 GiB", "910.35 MiB", "0 bytes" */
static double size_at(const char *p)
{
	static const char units[] = "KMGT";
	char *end;
	double v = strtod(p, &end);
	const char *u;

	if (end == p || !(v >= 0))
		return (double)NAN;
	end += strspn(end, " ");
	u = *end ? strchr(units, *end) : NULL;
	for (long i = u ? u - units + 1 : 0; i > 0; i--)
		v *= KIB;
	return v;
}

static double size_after(const char *text, const char *words)
{
	const char *p = strstr(text, words);

	return p ? size_at(p + strlen(words)) : (double)NAN;
}

/* The size right before the words: "10.92 GiB total capacity". */
static double size_before(const char *text, const char *words)
{
	const char *p = strstr(text, words);

	if (!p)
		return (double)NAN;
	while (p > text && isalpha((unsigned char)p[-1]))
		p--;
	while (p > text && p[-1] == ' ')
		p--;
	while (p > text && (isdigit((unsigned char)p[-1]) || p[-1] == '.'))
		p--;
	return size_at(p);
}

static double either(double a, double b)
{
	return isnan(a) ? b : a;
}

/*
 * What other processes have. In a container this process does not know its own pid and lists itself among
 * them: without a line of its own, the one that is nearest to what the allocator has is it.
 */
static double others_of(const char *text, double own)
{
	double sum = 0, mine = strstr(text, "this process has ") ? 0 : (double)NAN;

	for (const char *p = text; (p = strstr(p, "Process ")); p += 8) {
		const char *has = p + 8 + strspn(p + 8, "0123456789");
		double v = strncmp(has, " has ", 5) ? (double)NAN : size_at(has + 5);

		if (isnan(v))
			continue;
		sum += v;
		if (!(mine <= 0) && v >= own && (isnan(mine) || v < mine))
			mine = v;
	}
	return sum - (mine > 0 ? mine : 0);
}

static struct oom read_oom(const char *text)
{
	struct oom m = { .tried = size_after(text, "Tried to allocate ") };
	double held = size_before(text, " reserved in total");

	m.total = either(size_after(text, "total capacity of "),
			 either(size_after(text, "total capacty of "), size_before(text, " total capacity")));
	m.free = either(size_before(text, " is free"), size_before(text, " free"));
	m.allocated = either(size_before(text, " is allocated by PyTorch"), size_before(text, " already allocated"));
	m.unallocated = either(size_before(text, " is reserved by PyTorch but unallocated"),
			       either(held - m.allocated, size_before(text, " cached")));
	m.allowed = size_before(text, " allowed"); /* set_per_process_memory_fraction(), since torch 2.9 */
	m.others = others_of(text, m.allocated + either(m.unallocated, 0));
	return m;
}

/* Is what others have a good part of the device, and enough for the request? */
static bool others_are_many(const struct oom *m)
{
	return !(m->allowed < m->total) && m->others >= m->total / 10 &&
	       m->free + either(m->unallocated, 0) + m->others >= m->tried;
}

/* Comparisons with what is not told are false. */
static const char *cause_of(const struct oom *m)
{
	/* Of what the device has free a process with a limit gets what is left of that. */
	double room = fmin(m->free, m->allowed - m->allocated - m->unallocated);

	if (m->tried > m->total)
		return "too_large";
	/* What the device has free it gives out as a segment of its own, however the others are cut. */
	if (m->unallocated >= m->tried && !(room >= m->tried))
		return "fragmentation";
	if (others_are_many(m))
		return "co_tenant";
	if (m->free >= m->tried)
		return "limit";
	return isnan(m->free) && isnan(m->unallocated) ? NULL : "too_large";
}

static const char *title_of(struct lg_case *c, const struct oom *m, const char *cause)
{
	char size[LG_BYTES_TEXT];
	const char *asked;

	if (isnan(m->tried))
		return "out of device memory";
	asked = lg_text(c, LG_SAYS_MEM_OOM_ASKED, lg_bytes_text(m->tried, size));
	if (!cause)
		return asked;
	if (!strcmp(cause, "fragmentation"))
		return lg_text(c, LG_SAYS_MEM_OOM_IN_PIECES, asked,
			       lg_bytes_text(m->unallocated, size));
	if (!strcmp(cause, "co_tenant"))
		return lg_text(c, LG_SAYS_MEM_OOM_OTHERS, asked, lg_bytes_text(m->others, size));
	if (!strcmp(cause, "limit") && m->allowed < m->total)
		return lg_text(c, LG_SAYS_MEM_OOM_ALLOWED, asked, lg_bytes_text(m->allowed, size));
	if (!strcmp(cause, "limit"))
		return lg_text(c, LG_SAYS_MEM_OOM_LIMITED, asked, lg_bytes_text(m->free, size));
	return lg_text(c, "%s%s", asked, m->tried > m->total ? LG_SAYS_MEM_OOM_TOO_LARGE
		       : LG_SAYS_MEM_OOM_NO_ROOM);
}

static void say(struct lg_case *c, size_t first, size_t lines, size_t steps)
{
	const struct lg_trace *t = c->t;
	const char *text = lg_string(t, t->mark.text[first]), *place = strrchr(text, '(');
	struct oom m = read_oom(text);
	const char *cause = cause_of(&m);
	bool shared = cause && !strcmp(cause, "co_tenant");
	struct lg_finding *f = lg_finding_about(c, LG_R_MEM_OOM, LG_STAGE_NONE,
						shared ? LG_RELATION_OTHER_PROCESS : LG_RELATION_SELF,
						cause ? 0.9 : 0.75);

	if (steps >= LG_N_MEM_OOM_STEPS)
		lg_cap(f, LG_CAP_UNMEASURED);
	f->detail = cause;
	f->culprit.rank = lg_rank_of_mark(t, first);
	f->title = title_of(c, &m, cause);
	/* At the end of a traceback: file:line of the program. */
	if (place && strchr(place, ':') && place[strlen(place) - 1] == ')')
		f->culprit.function = lg_text(c, "%.*s", (int)strlen(place) - 2, place + 1);
	if (f->culprit.rank >= 0)
		f->title = lg_text(c, "%s (rank %d)", f->title, f->culprit.rank);
	lg_evidence_add(c, f, t->mark.ts[first], 0, "%s", text);
	if (lines > 1)
		lg_evidence(c, f, LG_SAYS_MEM_OOM_LINES, lines);
	if (shared && !strstr(text, "this process has "))
		lg_evidence_against(c, f, LG_SAYS_MEM_OOM_WHICH_PROCESS);
	if (cause && !strcmp(cause, "fragmentation") && others_are_many(&m)) {
		char others[LG_BYTES_TEXT];

		f->confidence = 0.75;
		lg_evidence_against(c, f, LG_SAYS_MEM_OOM_OTHERS_TOO, lg_bytes_text(m.others, others));
	}
	if (steps >= LG_N_MEM_OOM_STEPS)
		lg_evidence_against(c, f, LG_SAYS_MEM_OOM_CAUGHT, steps);
}

static size_t steps_after(const struct lg_case *c, int64_t ts)
{
	size_t n = 0;

	LG_EACH(s, c->v->steps, c->v->n_steps)
		n += s->ts > ts;
	return n;
}

int lg_find_oom(struct lg_case *c)
{
	size_t first = c->t->mark.n, last = 0, lines = 0;

	LG_EACH_MARK(i, c->t, "log.oom") {
		first = lines++ ? first : i;
		last = i;
	}
	if (lines) {
		say(c, first, lines, lg_step_lines_after(c->t, last, true));
		return c->failed;
	}
	LG_EACH_MARK(i, c->t, "memory.oom") { /* the hook's, in the words of a log */
		first = lines++ ? first : i;
		last = i;
	}
	if (lines)
		say(c, first, lines, steps_after(c, c->t->mark.ts[last]));
	return c->failed;
}
