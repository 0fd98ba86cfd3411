/* SPDX-License-Identifier: Apache-2.0 */
/* top_lines.h - the lines of top's picture in the order, and of the kind, that its reader asked for. */
#ifndef LG_CLI_TOP_LINES_H
#define LG_CLI_TOP_LINES_H

#include <stdbool.h>
#include <stddef.h>

enum { LG_TOP_TEXT = 48, LG_TOP_COLUMNS = 9 };

struct lg_top_view {
	char find[LG_TOP_TEXT], filter[LG_TOP_TEXT]; /* "" = none */
	unsigned sort; /* 0 = as it is drawn, else a column of the ranks from 1 on */
	bool turned;   /* the other way round */
};

/* Of a picture, that stays its owner's; without the newline. */
struct lg_top_line {
	const char *at;
	size_t n;
	double key; /* of its column */
	size_t place;
};

/* The name of a column by which ranks are sorted; NULL for 0. */
const char *lg_top_column(unsigned sort);
/* Does it hold the text, whatever its case? Colours are not part of it; "" is held by none. */
bool lg_top_holds(const struct lg_top_line *l, const char *text);
/* New lines, to be lg_freed: ranks sorted, ranks and who waits filtered. NULL: no memory. */
struct lg_top_line *lg_top_lines(const char *picture, size_t n, const struct lg_top_view *v, size_t *ret_n);

#endif
