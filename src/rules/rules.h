/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - every finding's policy, from the one table (rules.def): its id, the numbers that it is judged by,
 * how it is graded, and the closed lists of words that a verdict is made of.
 *
 * The analyses read numbers and ids from here and never the advice, which advise/ expands from the same rows.
 */
#ifndef LG_RULES_RULES_H
#define LG_RULES_RULES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lg_rule_id {
	LG_R_NONE,
#define RULE(name, id, ...) LG_R_##name,
#include "rules/rules.def"
	LG_R_MAX
};

#define COUNT(name, number, n) enum { LG_N_##name##_##number = (n) };
#define SHARE(name, number, value) static const double LG_N_##name##_##number = (value);
#define PLAIN(name, number, value) static const double LG_N_##name##_##number = (value);
#define MS(name, number, ms) static const int64_t LG_N_##name##_##number = (int64_t)((ms) * 1e6);
#include "rules/rules.def"

enum lg_basis { LG_BASIS_MEASURED, LG_BASIS_UNMEASURED, LG_BASIS_HANG, LG_BASIS_LOW, LG_BASIS_INFO };
enum lg_whose_loss { LG_LOSS_OF_HOST, LG_LOSS_OF_DEVICE };

struct lg_policy {
	const char *id; /* "host.lock_held" */
	enum lg_basis basis;
	enum lg_whose_loss loss_of;
};

const struct lg_policy *lg_policy(enum lg_rule_id rule);
/* LG_R_NONE: there is no such rule. */
enum lg_rule_id lg_rule_from(const char *id);
/* The n-th rule (from 0) beside which that one is not told; LG_R_NONE: there are no more. */
enum lg_rule_id lg_rule_yields(enum lg_rule_id rule, size_t n);
/* Its number FLOOR; 0 where it has none. */
double lg_rule_floor(enum lg_rule_id rule);
/*
 * How often findings of that rule and strength of evidence (0 to 1, as the rule states it), loud (medium or
 * high) or not, were right on drawn jobs: calibration.def. *ret_draws (NULL: not wanted): how many draws of
 * such evidence or weaker there were; 0 where there were none: then the strength, and no more than stronger
 * evidence was worth, or, of a rule that was never drawn, what other rules' was that were taken for new ones.
 */
double lg_worth(enum lg_rule_id rule, bool loud, double strength, unsigned *ret_draws);
/* A line of that table: evidence from that strength on was right in so many of the draws. */
struct lg_worth_row {
	enum lg_rule_id rule;
	bool loud;
	unsigned draws;
	double from, worth;
};
/* The rule's next line after last (NULL: its first); NULL = there is no more. LG_R_MAX: those of a rule that
 * was never drawn, of so many rules. */
const struct lg_worth_row *lg_worth_next(enum lg_rule_id rule, const struct lg_worth_row *last);
/* template with the rule's {NUMBER}s filled in, cut to size; what names no number stays as it is. */
void lg_rule_fill(enum lg_rule_id rule, const char *template, char *ret, size_t size);

/*
 * Words that a verdict is made of: an enum each, one function to its text (NULL: not known) and one back
 * (false: there is no such text).
 */
#define LG_SEVERITIES(X) X(INFO, "info") X(LOW, "low") X(MEDIUM, "medium") X(HIGH, "high")
#define LG_SHAPES(X)                                                                                \
	X(NONE, NULL) X(STEADY, "steady") X(BURSTY, "bursty") X(PERIODIC, "periodic") X(SHIFT, "shift") \
	X(DRIFT, "drift")
#define LG_SCOPES(X)                                                                                \
	X(NONE, NULL) X(SINGLE, "single") X(GLOBAL, "global") X(RANK_LOCAL, "rank_local")           \
	X(ROTATING, "rotating")
#define LG_BOUNDS(X)                                                                                \
	X(NONE, NULL) X(UNKNOWN, "unknown") X(GPU, "gpu") X(DATA, "data") X(COMMS, "comms")         \
	X(HOST, "host") X(MIXED, "mixed")
#define LG_RELATIONS(X)                                                                             \
	X(NONE, NULL) X(OTHER_PROCESS, "other_process") X(SAME_PROCESS, "same_process")             \
	X(KERNEL, "kernel") X(RANK, "rank") X(SELF, "self") X(HARDWARE, "hardware")

/* What a thread had to do with Python's lock: waited for it; had it, and ran the interpreter, native code
 * that was called, the C library for a caller that is not known, or slept; ran native code without it. */
#define LG_GIL_DIDS(X)                                                                              \
	X(WAITED, "waited") X(PYTHON, "python") X(NATIVE, "native") X(LIBRARY, "library")           \
	X(ASLEEP, "asleep") X(RELEASED, "released")

#define LG_WORD_ENUM(name, words, prefix)                                                           \
	enum name { words(prefix) };                                                                \
	const char *name##_text(enum name v);                                                       \
	bool name##_from(const char *text, enum name *ret)
#define LG_SEVERITY_VALUE(name, text) LG_SEVERITY_##name,
#define LG_SHAPE_VALUE(name, text) LG_SHAPE_##name,
#define LG_SCOPE_VALUE(name, text) LG_SCOPE_##name,
#define LG_BOUND_VALUE(name, text) LG_BOUND_##name,
#define LG_RELATION_VALUE(name, text) LG_RELATION_##name,
#define LG_GIL_DID_VALUE(name, text) LG_GIL_##name,
LG_WORD_ENUM(lg_severity, LG_SEVERITIES, LG_SEVERITY_VALUE); /* in rising order */
LG_WORD_ENUM(lg_shape, LG_SHAPES, LG_SHAPE_VALUE);
LG_WORD_ENUM(lg_scope, LG_SCOPES, LG_SCOPE_VALUE);
LG_WORD_ENUM(lg_bound, LG_BOUNDS, LG_BOUND_VALUE);
LG_WORD_ENUM(lg_relation, LG_RELATIONS, LG_RELATION_VALUE);
LG_WORD_ENUM(lg_gil_did, LG_GIL_DIDS, LG_GIL_DID_VALUE);

#endif /* LG_RULES_RULES_H */
