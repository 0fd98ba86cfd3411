/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/rules.h"

#include <stdio.h>
#include <string.h>

static const struct lg_policy policies[] = {
	[LG_R_NONE] = { .id = "" },
#define RULE(name, rid, rbasis, rtimeline, ...)                                                     \
	[LG_R_##name] = { .id = rid, .basis = LG_BASIS_##rbasis, .loss_of = LG_LOSS_OF_##rtimeline },
#include "rules/rules.def"
};

enum number_kind { AS_SHARE, AS_IT_IS, AS_MS };

static const struct number {
	const char *of, *name; /* "HOST_LOCK_HELD", "FLOOR" */
	double value;
	enum number_kind kind;
} numbers[] = {
#define SHARE(rule, number, v) { #rule, #number, (v), AS_SHARE },
#define PLAIN(rule, number, v) { #rule, #number, (v), AS_IT_IS },
#define COUNT(rule, number, v) { #rule, #number, (v), AS_IT_IS },
#define MS(rule, number, v) { #rule, #number, (v), AS_MS },
#include "rules/rules.def"
};

const struct lg_policy *lg_policy(enum lg_rule_id rule)
{
	return &policies[rule];
}

enum lg_rule_id lg_rule_from(const char *id)
{
	for (size_t i = 1; id && i < LG_R_MAX; i++)
		if (!strcmp(policies[i].id, id))
			return (enum lg_rule_id)i;
	return LG_R_NONE;
}

/* Is the first word, of n bytes, the enum's name of the rule's id ("HOST_LOCK_HELD" of host.lock_held)? */
static int is_named(const char *id, const char *name)
{
	for (; *id && *name; id++, name++)
		if (*name != (*id == '.' ? '_' : *id >= 'a' && *id <= 'z' ? *id - 'a' + 'A' : *id))
			return 0;
	return !*id && !*name;
}

/* what: "FLOOR", or "ANY.REPEATS", of n bytes. */
static const struct number *number_of(enum lg_rule_id rule, const char *what, size_t n)
{
	const char *dot = memchr(what, '.', n);
	const char *name = dot ? dot + 1 : what;
	size_t of = dot ? (size_t)(dot - what) : 0, len = n - (size_t)(name - what);

	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		const struct number *x = &numbers[i];

		if (strlen(x->name) != len || strncmp(x->name, name, len))
			continue;
		if (dot ? strlen(x->of) == of && !strncmp(x->of, what, of)
			: is_named(policies[rule].id, x->of))
			return x;
	}
	return NULL;
}

enum lg_rule_id lg_rule_yields(enum lg_rule_id rule, size_t n)
{
	static const struct {
		enum lg_rule_id rule, other;
	} rows[] = {
#define YIELDS(name, other) { LG_R_##name, LG_R_##other },
#include "rules/rules.def"
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (rows[i].rule == rule && !n--)
			return rows[i].other;
	return LG_R_NONE;
}

double lg_rule_floor(enum lg_rule_id rule)
{
	const struct number *x = number_of(rule, "FLOOR", strlen("FLOOR"));

	return x ? x->value : 0;
}

static void print_number(const struct number *x, char *ret, size_t size)
{
	snprintf(ret, size, x->kind == AS_SHARE ? "%.3g %%" : x->kind == AS_MS ? "%.3g ms" : "%.3g",
		 x->kind == AS_SHARE ? 100 * x->value : x->value);
}

void lg_rule_fill(enum lg_rule_id rule, const char *template, char *ret, size_t size)
{
	size_t n = 0;

	for (const char *p = template; *p && n + 1 < size;) {
		const char *end = *p == '{' ? strchr(p, '}') : NULL;
		const struct number *x = end ? number_of(rule, p + 1, (size_t)(end - p - 1)) : NULL;
		char text[32];

		if (!x) {
			ret[n++] = *p++;
			continue;
		}
		print_number(x, text, sizeof text);
		n += (size_t)snprintf(ret + n, size - n, "%s", text);
		n = n < size ? n : size - 1;
		p = end + 1;
	}
	ret[n] = 0;
}

#define TEXT(name, text) text,
#define WORDS(name, words)                                                                          \
	static const char *const name##_texts[] = { words(TEXT) };                                  \
	const char *name##_text(enum name v)                                                        \
	{                                                                                           \
		return name##_texts[v];                                                             \
	}                                                                                           \
	bool name##_from(const char *text, enum name *ret)                                          \
	{                                                                                           \
		for (size_t i = 0; text && i < sizeof name##_texts / sizeof *name##_texts; i++)     \
			if (name##_texts[i] && !strcmp(name##_texts[i], text)) {                    \
				*ret = (enum name)i;                                                \
				return true;                                                        \
			}                                                                           \
		return false;                                                                       \
	}
WORDS(lg_severity, LG_SEVERITIES)
WORDS(lg_shape, LG_SHAPES)
WORDS(lg_scope, LG_SCOPES)
WORDS(lg_bound, LG_BOUNDS)
WORDS(lg_relation, LG_RELATIONS)
WORDS(lg_gil_did, LG_GIL_DIDS)
