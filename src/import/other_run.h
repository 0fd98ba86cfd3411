/* SPDX-License-Identifier: Apache-2.0 */
/* other_run.h - do two files that lie apart in time tell of two runs, or of two windows of one? */
#ifndef LG_IMPORT_OTHER_RUN_H
#define LG_IMPORT_OTHER_RUN_H
#include <stdbool.h>

#include "store/trace.h"

/* The rank of the one process that t is of; LG_NO_RANK: of several, or nobody says. */
#define LG_NO_RANK (-1)
int32_t lg_rank_of_file(const struct lg_trace *t);

/*
 * a and b do not overlap. Is a rank of a, or its only process, another process in b (by number or host)? Then
 * it was started anew. Files that name no process, as a log that was rotated, are of one run.
 */
bool lg_other_run(const struct lg_trace *a, const struct lg_trace *b);

/* Of a process that both have, as above: do the numbers of its steps go on in `later`, which is of a later
 * time? They begin anew in another run (in a container its process may have the same number), and for another
 * profile() of the same one: OF_PROFILE, where what the process itself counts goes on. */
enum lg_numbers { LG_NUMBERS_NONE, LG_NUMBERS_GO_ON, LG_NUMBERS_OF_PROFILE, LG_NUMBERS_ANEW };
enum lg_numbers lg_step_numbers(const struct lg_trace *earlier, const struct lg_trace *later);

#endif /* LG_IMPORT_OTHER_RUN_H */
