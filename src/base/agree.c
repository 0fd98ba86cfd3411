/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.c - see agree.h.
 *
 * What printf() fills in is known only behind it, and whose word is whose only before. So words of the
 * skeleton that may have to change are written in both forms, and one of them is left out at the end.
 */
#include "base/agree.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Control characters, which no skeleton has: both forms of a noun or a verb, and where they end. */
enum { NOUN = '\1', VERB = '\2', OTHERWISE = '\3', END = '\4' };
enum { FORM_MAX = 8, WORDS_BETWEEN = 3, SKELETON_MAX = 1024 };

/* What is counted in skeletons (tools/check-rules asks for each word in s that a number stands before). */
static const char *const nouns[] = {
	"addresses", "blocks", "bursts", "bytes", "calls", "casts", "causes", "collectives", "convolutions", "copies",
	"deviations", "devices", "digits", "distances", "ends", "entries", "epochs", "events", "files", "findings", "frames", "groups", "hosts", "ids", "kernels",
	"launches", "lines", "modules", "multiprocessors", "nodes", "operators", "others", "pairs", "parts", "pauses",
	"pieces", "placements", "places", "processes", "ranks", "readings", "records", "regions", "reports", "requests",
	"rows", "samples", "saves", "segments", "siblings", "sizes", "slices", "spans", "stacks", "states", "steps",
	"stretches", "tables", "tensors", "things", "threads", "times", "transfers", "values", "versions", "waits",
	"workers",
};

static const struct {
	const char *many, *one;
} verbs[] = {
	{ "are", "is" }, { "were", "was" }, { "have", "has" }, { "do", "does" }, { "begin", "begins" }, { "belong", "belongs" },
	{ "call", "calls" }, { "complain", "complains" }, { "differ", "differs" }, { "follow", "follows" },
	{ "grow", "grows" }, { "hold", "holds" }, { "need", "needs" }, { "reach", "reaches" }, { "report", "reports" },
	{ "run", "runs" }, { "serve", "serves" }, { "show", "shows" }, { "stand", "stands" }, { "start", "starts" },
	{ "take", "takes" }, { "tell", "tells" }, { "wait", "waits" }, { "work", "works" },
};

/* What numbers a thing, and counts none: "rank 1 waits". */
static const char *const numbered[] = { "rank", "ranks", "device", "GPU", "CPU", "pid", "step", "line", "level", "node" };
/* "2 of the slow steps": the noun is not what is counted. */
static const char *const parting[] = { "of", "in", "to", "with", "and", "a", "an", "the", "from", "at", "by", "on",
				       "for", "or", "than", "while", "ms", "us", "s" };

static bool is_one_of(const char *const *v, size_t n, const char *word, size_t len)
{
	for (size_t i = 0; i < n; i++)
		if (strlen(v[i]) == len && !strncmp(v[i], word, len))
			return true;
	return false;
}
#define IS_ONE_OF(v, word, len) is_one_of((v), sizeof(v) / sizeof *(v), (word), (len))

struct text {
	char *p;
	size_t n, size;
};

static void put(struct text *t, const char *s, size_t n)
{
	n = n < t->size - t->n ? n : t->size - t->n;
	memcpy(t->p + t->n, s, n);
	t->n += n;
}

static void put_forms(struct text *t, char kind, const char *one, const char *many)
{
	put(t, &kind, 1);
	put(t, one, strlen(one));
	put(t, &(char){ OTHERWISE }, 1);
	put(t, many, strlen(many));
	put(t, &(char){ END }, 1);
}

static void put_noun(struct text *t, const char *word, size_t n)
{
	static const char *const endings[][2] = { { "ies", "y" }, { "sses", "ss" }, { "ches", "ch" }, { "s", "" } };
	size_t i = 0, k;

	while ((k = strlen(endings[i][0])) >= n || strncmp(word + n - k, endings[i][0], k))
		i++;
	put(t, word, n - k);
	put_forms(t, NOUN, endings[i][1], endings[i][0]);
}

static size_t word_at(const char *p)
{
	size_t n = 0;

	while (isalpha((unsigned char)p[n]) || (n && p[n] == '-'))
		n++;
	return n;
}

static size_t verb_of(const char *p, size_t n)
{
	size_t i = 0;

	while (i < sizeof verbs / sizeof *verbs &&
	       (strlen(verbs[i].many) != n || strncmp(verbs[i].many, p, n)))
		i++;
	return i;
}

/* Verbs behind a noun, or a number alone: "ranks that report call". Returns what comes next. */
static const char *put_verbs(struct text *t, const char *p)
{
	for (;;) {
		size_t n = *p == ' ' ? word_at(p + 1) : 0, i = n ? verb_of(p + 1, n) : 0;

		if (n == 4 && !strncmp(p + 1, "that", 4)) {
			put(t, p, 5);
			p += 5;
			continue;
		}
		if (!n || i == sizeof verbs / sizeof *verbs)
			return p;
		put(t, " ", 1);
		put_forms(t, VERB, verbs[i].one, verbs[i].many);
		p += 1 + n;
	}
}

/* Behind a number: up to three words, and the noun. Returns what comes next. */
static const char *put_counted(struct text *t, const char *p)
{
	const char *q = p;

	for (int k = 0; k <= WORDS_BETWEEN && *q == ' '; k++) {
		size_t n = word_at(q + 1);

		if (!n || IS_ONE_OF(parting, q + 1, n))
			return p;
		if (verb_of(q + 1, n) < sizeof verbs / sizeof *verbs)
			return k ? p : put_verbs(t, p);
		if (IS_ONE_OF(nouns, q + 1, n)) {
			put(t, p, (size_t)(q + 1 - p));
			put_noun(t, q + 1, n);
			return put_verbs(t, q + 1 + n);
		}
		q += 1 + n;
	}
	return p;
}

/* One directive at p, "%zu". Returns its length; *ret_whole: does it print a whole number? */
static size_t directive(const char *p, bool *ret_whole)
{
	size_t n = 1 + strspn(p + 1, "-+ #0'"), width;
	bool none = false;

	width = strspn(p + n, "0123456789*");
	n += width;
	if (p[n] == '.') {
		size_t digits = strspn(p + n + 1, "0123456789*");

		none = digits == 1 && p[n + 1] == '0';
		n += 1 + digits;
	}
	n += strspn(p + n, "hlLqjzt");
	*ret_whole = p[n] && (strchr("diu", p[n]) || (p[n] == 'f' && none));
	return n + (p[n] != 0);
}

static bool is_numbered(const char *fmt, const char *p)
{
	const char *end = p > fmt && p[-1] == ' ' ? p - 1 : NULL, *from = end;

	while (from && from > fmt && isalpha((unsigned char)from[-1]))
		from--;
	return end && IS_ONE_OF(numbered, from, (size_t)(end - from));
}

static bool mark(const char *fmt, struct text *t)
{
	const char *p = fmt;

	while (*p) {
		const char *percent = strchrnul(p, '%');
		bool whole;
		size_t n;

		put(t, p, (size_t)(percent - p));
		if (!*percent)
			break;
		n = directive(percent, &whole);
		put(t, percent, n);
		p = percent + n;
		if (whole && !is_numbered(fmt, percent))
			p = put_counted(t, p);
	}
	if (t->n == t->size)
		return false;
	t->p[t->n] = 0;
	return true;
}

/* The whole number that ends at or before p is 1. *ret_at: where it begins. */
static bool is_one(const char *text, const char *p, const char **ret_at)
{
	const char *end;

	while (p > text && !isdigit((unsigned char)p[-1]))
		p--;
	end = p;
	while (p > text && isdigit((unsigned char)p[-1]))
		p--;
	*ret_at = p;
	return end - p == 1 && *p == '1' && (p == text || !strchr("-.,", p[-1]));
}

/* "1 of 2 devices", "1 of the 2 devices": a verb is of the first, a noun of the last. */
static bool agrees_with_one(const char *text, const char *p, char kind)
{
	static const char *const of[] = { " of ", " of the ", " of its " };
	const char *at;
	bool one = is_one(text, p, &at);

	for (size_t i = 0; kind == VERB && i < sizeof of / sizeof *of; i++) {
		size_t n = strlen(of[i]);

		if (at - text > (ptrdiff_t)n && !strncmp(at - n, of[i], n) &&
		    isdigit((unsigned char)*(at - n - 1)))
			return is_one(text, at - n, &at);
	}
	return one;
}

/* The first such character behind p, which is within a word's forms; NULL = there is none. */
static const char *behind(const char *p, char mark)
{
	return p ? memchr(p, mark, strnlen(p, FORM_MAX + 2)) : NULL;
}

/*
 * Of each word that has both forms the one that fits. What looks like a mark and is none stays. cut: the text
 * is, perhaps amid the forms of its last word. Returns by how much it is shorter now.
 */
static int choose(char *text, bool cut)
{
	const char *p = text;
	char *to = text;

	while (*p) {
		const char *otherwise = *p == NOUN || *p == VERB ? behind(p, OTHERWISE) : NULL;
		const char *end = behind(otherwise, END), *from;
		size_t n;

		if (!end && cut && (*p == NOUN || *p == VERB) && strlen(p) <= 2 * FORM_MAX)
			break;
		if (!end) {
			*to++ = *p++;
			continue;
		}
		from = agrees_with_one(text, to, *p) ? p + 1 : otherwise + 1;
		n = (size_t)((from == p + 1 ? otherwise : end) - from);
		memmove(to, from, n);
		to += n;
		p = end + 1;
	}
	*to = 0;
	return (int)(p - to);
}

int lg_vagree(char *buf, size_t size, const char *fmt, va_list ap)
{
	char skeleton[SKELETON_MAX];
	struct text t = { skeleton, 0, sizeof skeleton };
	int n;

	if (!mark(fmt, &t))
		return vsnprintf(buf, size, fmt, ap);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	n = vsnprintf(buf, size, skeleton, ap); /* the same directives in the same order */
#pragma GCC diagnostic pop
	if (n >= 0 && size)
		n -= choose(buf, (size_t)n >= size);
	return n;
}

int lg_agree(char *buf, size_t size, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = lg_vagree(buf, size, fmt, ap);
	va_end(ap);
	return n;
}
