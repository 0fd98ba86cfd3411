/* SPDX-License-Identifier: Apache-2.0 */
/* fired.h - of a file that a trigger wrote: what fired it, and what took the time of that moment. */
#ifndef LG_ANALYSE_FIRED_H
#define LG_ANALYSE_FIRED_H
#include "analyse/chains/tally.h"

/* Before anything is judged: the rows of the recorder (record/session_dump.c). */
int lg_note_fired(struct lg_case *c) LG_MUST_CHECK;
/* What the chains say of those moments, however little of the run they are. */
void lg_judge_fired(struct lg_case *c, const struct lg_tally *y);
/* Findings are told and in their order: which of them is about those moments. */
void lg_fired_findings(struct lg_case *c);

#endif /* LG_ANALYSE_FIRED_H */
