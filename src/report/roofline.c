/* SPDX-License-Identifier: Apache-2.0 */
/* roofline.c - what `laggard roofline` prints. */
#include "report/roofline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/words.h"
#include "report/json_write.h"
#include "report/text.h"

#define NOTHING 0.03 /* what lies below does not help */
enum { SENTENCE = 1024, NAME = 300 };

static const char *name_of(const struct lg_roofline_part *p, char buf[NAME])
{
	static const char without[] = "without:";
	const size_t n = sizeof without - 1;

	if (!strcmp(p->kind, "cached"))
		snprintf(buf, NAME, "its loader");
	else if (!strcmp(p->kind, "quiet"))
		snprintf(buf, NAME, "its collectives");
	else
		snprintf(buf, NAME, "%.280s", p->kind + (strncmp(p->kind, without, n) ? 0 : n));
	return buf;
}

static bool is_loader(const struct lg_roofline_part *p)
{
	return !strcmp(p->kind, "cached");
}

/* "12.3 steps/s", "0.0123 steps/s" */
static const char *rate(double v, char buf[32])
{
	snprintf(buf, 32, v >= 100 ? "%.0f" : v >= 0.1 ? "%.3g" : "%.2g", v);
	return buf;
}

static const char *sentence(const struct lg_roofline *r, const struct lg_roofline_part *p, char buf[SENTENCE])
{
	char name[NAME], a[32], b[32], range[96];
	const char *cached = is_loader(p) || !r->loader ? "" : ", each with kept batches";

	name_of(p, name);
	if (p->rounds < LG_ROOFLINE_ROUNDS_MIN) {
		snprintf(buf, SENTENCE, "What %s costs is not known: %zu pair%s of windows are too few, %d are wanted.", name,
			 p->rounds, lg_s(p->rounds), LG_ROOFLINE_ROUNDS_MIN);
		return buf;
	}
	rate(p->with, a);
	rate(p->without, b);
	snprintf(range, sizeof range, "%.1f %% of its time, 95 %% sure of %.1f to %.1f %%", 100 * p->share, 100 * p->lo,
		 100 * p->hi);
	if (p->lo > 0 && p->hi >= NOTHING)
		snprintf(buf, SENTENCE, "%s: %s steps/s with %s, %s without (%s)%s.",
			 is_loader(p) ? "A faster loader would help" : "Costs time", a, name, b, range, cached);
	else if (p->hi < NOTHING)
		snprintf(buf, SENTENCE, "%s: %s steps/s with %s, %s without (%s)%s.",
			 is_loader(p) ? "A faster loader would not help" : "Costs next to nothing", a, name, b, range, cached);
	else
		snprintf(buf, SENTENCE, "Not to be told yet: %s steps/s with %s, %s without (%s)%s; a longer run narrows it.", a,
			 name, b, range, cached);
	return buf;
}

static const struct lg_roofline_part *loader_of(const struct lg_roofline *r)
{
	for (size_t i = 0; i < r->n_parts; i++)
		if (is_loader(&r->parts[i]))
			return &r->parts[i];
	return NULL;
}

/* How much faster the whole would be, where that is worth a line. */
static void at_best(const struct lg_roofline *r, struct lg_out *o)
{
	const struct lg_roofline_part *p = loader_of(r);
	char line[SENTENCE];

	if (!p || p->rounds < LG_ROOFLINE_ROUNDS_MIN || !(p->lo > 0) || p->hi < NOTHING || !(p->share < 1))
		return;
	snprintf(line, sizeof line, "At best %.2f times as fast: then the rest of the step is what takes time.",
		 1 / (1 - p->share));
	lg_text_wrap(o, line, 0, 0, 110);
}

static void limits(const struct lg_roofline *r, void (*say)(void *arg, const char *line), void *arg)
{
	char line[SENTENCE];

	for (size_t i = 0; i < r->n_refused; i++) {
		snprintf(line, sizeof line, "%.300s was not taken out: %.300s.", r->refused[i].part, r->refused[i].why);
		say(arg, line);
	}
	if (r->skipped) {
		snprintf(line, sizeof line, "%zu step%s with an evaluation %s not counted.", r->skipped, lg_s(r->skipped),
			 r->skipped == 1 ? "was" : "were");
		say(arg, line);
	}
	if (r->off) {
		snprintf(line, sizeof line, "The hook stopped: %.400s.", r->off);
		say(arg, line);
	}
}

static void say_text(void *arg, const char *line)
{
	lg_text_wrap(arg, line, 0, 2, 110);
}

static void say_json(void *arg, const char *line)
{
	lg_json_str(arg, line);
}

void lg_roofline_term(const struct lg_roofline *r, struct lg_out *o)
{
	char line[SENTENCE];

	for (size_t i = 0; i < r->n_parts; i++)
		lg_text_wrap(o, sentence(r, &r->parts[i], line), 0, 0, 110);
	at_best(r, o);
	snprintf(line, sizeof line, "%zu of %zu steps compared, of %zu process%s; %.200s%s%.200s%s%.40s.", r->counted, r->steps,
		 r->processes, r->processes == 1 ? "" : "es", r->loader ? r->loader : "no DataLoader",
		 r->kept ? ", kept " : "", r->kept ? r->kept : "", r->kept_on ? ", on " : "", r->kept_on ? r->kept_on : "");
	lg_text_wrap(o, line, 0, 2, 110);
	limits(r, say_text, o);
}

static void numbers(const struct lg_roofline_part *p, struct lg_json *j)
{
	lg_json_key_num(j, "with_steps_per_s", p ? p->with : (double)NAN, 4);
	lg_json_key_num(j, "without_steps_per_s", p ? p->without : (double)NAN, 4);
	lg_json_key(j, "ci95");
	lg_json_open_flat(j, '[');
	lg_json_num(j, p ? p->lo : (double)NAN, 5);
	lg_json_num(j, p ? p->hi : (double)NAN, 5);
	lg_json_close(j, ']');
	lg_json_key_num(j, "lost_share", p ? p->share : (double)NAN, 5);
	lg_json_key_int(j, "windows", p ? (int64_t)p->rounds : 0);
}

void lg_roofline_json(const struct lg_roofline *r, struct lg_out *o)
{
	struct lg_json j = { .o = o };
	char line[SENTENCE], name[NAME];

	lg_json_open(&j, '{');
	lg_json_key_int(&j, "schema", 1);
	lg_json_key_str(&j, "laggard", LG_VERSION);
	lg_json_key(&j, "roofline");
	lg_json_open(&j, '{');
	numbers(loader_of(r), &j);
	lg_json_key_int(&j, "steps", (int64_t)r->counted);
	lg_json_key_str(&j, "loader", r->loader);
	lg_json_key_str(&j, "batches", r->kept);
	lg_json_key_str(&j, "device", r->kept_on);
	lg_json_key(&j, "parts");
	lg_json_open(&j, '[');
	for (size_t i = 0; i < r->n_parts; i++) {
		const struct lg_roofline_part *p = &r->parts[i];

		if (is_loader(p))
			continue;
		lg_json_open(&j, '{');
		lg_json_key_str(&j, "part", strcmp(p->kind, "quiet") ? name_of(p, name) : "collectives");
		numbers(p, &j);
		lg_json_key_str(&j, "text", sentence(r, p, line));
		lg_json_close(&j, '}');
	}
	lg_json_close(&j, ']');
	lg_json_close(&j, '}');
	lg_json_key_str(&j, "text", loader_of(r) ? sentence(r, loader_of(r), line) : NULL);
	lg_json_key(&j, "limits");
	lg_json_open(&j, '[');
	limits(r, say_json, &j);
	lg_json_close(&j, ']');
	lg_json_close(&j, '}');
	lg_out_puts(o, "\n");
}
