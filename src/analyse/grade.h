/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grade.h - the one place that says how bad a finding is, and in what order findings are told.
 *
 * A rule says what is lost and how often that was seen; what that makes is the contract's, by the numbers and
 * the basis of rules/rules.def. What speaks against a grade is a reason of the closed list below.
 */
#ifndef LG_ANALYSE_GRADE_H
#define LG_ANALYSE_GRADE_H
#include "analyse/verdict.h"

/* Why a finding counts for less than its share: X(name, most). */
#define LG_CAPS(X)                                                                                          \
	X(GUESS, LOW)        /* who or what it was, or whom it hit, is not proven */                        \
	X(UNMEASURED, LOW)   /* a flag, a warning, a part of something: its own price is not known */       \
	X(ORDINARY, LOW)     /* such a share belongs to the work itself */                                  \
	X(UNEQUAL, LOW)      /* there is one other to compare with, or they are not of one kind */          \
	X(UNBELIEVED, INFO)  /* what was drawn says that it is wrong more often than right */             \
	X(EXPLAINED, INFO)   /* nothing is lost that has no other explanation */
enum lg_cap {
#define LG_CAP_VALUE(name, most) LG_CAP_##name,
	LG_CAPS(LG_CAP_VALUE)
};

/* May a loss be graded above low, by what it rests on? */
bool lg_gradable(size_t repeats, int64_t wall_ns);
/* By its share of the run's wall time alone; NaN is info. */
enum lg_severity lg_severity_of(double share);

/* f->severity by f->lost_share, seen so often in so much judged time: low where that is too little. */
void lg_grade(struct lg_finding *f, size_t repeats, int64_t wall_ns);
/* The same of what is always there, or was tested otherwise. No known share: as what has no price. */
void lg_grade_steady(struct lg_finding *f);
/* By a share that is not f's own: the surer part of it. */
void lg_grade_share(struct lg_finding *f, double share);
/* One recording cannot measure what it costs: medium, but what halts or ends the run is high. */
void lg_grade_unpriced(struct lg_finding *f);
/* What ended the run is high, whatever its rule is about otherwise. */
void lg_grade_fatal(struct lg_finding *f);
/* Its price has grown, or was seen on another victim as well: never lower than before. */
void lg_grade_more(struct lg_finding *f, size_t repeats, int64_t wall_ns);
/* Of a loss that a window shows in so many episodes, the part that is beyond chance: 1 from five on. */
double lg_proven(size_t seen);
/* Graded as if it had lost that part of its share only, but low at least. seen: the few episodes that most
 * of it came in, for which it is less sure; 0 = it came often. */
void lg_grade_part(struct lg_finding *f, double part, size_t seen);
/* Its price is another one now, that of several ranks. What came rarely on one of them came on all as part
 * and seen say (lg_grade_part()); what is no loss stays that. */
void lg_grade_anew(struct lg_finding *f, double part, size_t seen);
/* A mistake is worth a line, whatever it costs here. */
void lg_grade_worth_a_line(struct lg_finding *f);
void lg_cap(struct lg_finding *f, enum lg_cap why);
/* No worse than g, which is the same finding elsewhere. */
void lg_cap_as(struct lg_finding *f, const struct lg_finding *g);

/* From the strength of evidence, which the rules stated, to what it is worth; the strength is kept, and what
 * has one already stays as it is. */
void lg_findings_calibrate(struct lg_verdict *v);
/* By lost time; the unmeasured ones come last, by severity. */
void lg_findings_rank(struct lg_verdict *v);

#endif /* LG_ANALYSE_GRADE_H */
