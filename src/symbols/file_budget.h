/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_budget.h - what the files that others wrote may cost together, while their symbols are read.
 *
 * Each file has bounds of its own, but a recording of a whole machine names as many as its users like to run.
 * So all of one import have a common account, of which the files of strangers have a quarter: who runs
 * programs to be read costs others like him their names, never root's nor one's own. What was spent is not
 * given back: it is memory that is kept until the end, or time.
 */
#ifndef LG_SYMBOLS_FILE_BUDGET_H
#define LG_SYMBOLS_FILE_BUDGET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum lg_file_cost {
	LG_COST_UNPACKED, /* bytes made of packed sections */
	LG_COST_KEPT,     /* bytes of tables: symbols, sections, what a JIT wrote */
	LG_COST_SUMMED,   /* bytes read for a check sum */
	LG_FILE_COSTS
};

/* A new import, or the next file where one is read by itself. */
void lg_file_budget_begin(void);
/* n more for a file of that user; false: it is too much, and what it is for is to be left out. Any thread. */
bool lg_file_spend(enum lg_file_cost what, uid_t owner, uint64_t n);
/* How often that was so since the beginning; what: of which kind. */
size_t lg_file_over_budget(enum lg_file_cost what);

/* Is a file of that user as good as one's own: root's, or of who runs laggard, also through sudo? */
bool lg_is_own(uid_t owner);

#endif /* LG_SYMBOLS_FILE_BUDGET_H */
