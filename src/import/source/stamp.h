/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stamp.h - dates and times as logs print them, and what a file's times are worth.
 *
 * Every importer of a file without the trace's own clock calls lg_time_base() once; join.c reads the
 * meta row "import.clock" that it leaves.
 */
#ifndef LG_IMPORT_SOURCE_STAMP_H
#define LG_IMPORT_SOURCE_STAMP_H
#include "store/builder.h"

struct lg_stamp {
	int64_t ns;    /* since 1970 as if the text were UTC; without a date: since midnight */
	int has_date, has_zone; /* has_zone: ns is UTC */
	int digits;    /* of the fraction: the resolution */
};
/*
 * Read a time at the start of s: "2025-09-24T03:41:43.487Z", "2025/10/03 18:37:01.832",
 * "2025-10-03 18:37:01,832", "20251003 18:37:01", "18:37:01". Bytes used, 0 = none there.
 */
size_t lg_stamp_read(const char *s, size_t n, struct lg_stamp *ret);
/* Days since 1970-01-01 of a civil date (proleptic Gregorian). */
int64_t lg_days(int64_t year, int month, int day);
/* n digits to a number; -1 when one is not a digit. */
int lg_digits(const char *s, int n);

enum lg_time_base {
	LG_TIME_REALTIME, /* ns since 1970 UTC: clock rows relate it to every other file */
	LG_TIME_LOCAL,    /* the same in a time zone that the file does not tell */
	LG_TIME_RELATIVE, /* lengths are true, the start is not known */
	LG_TIME_NONE      /* no times: rows are numbered 1 us apart */
};
/* Say so in b: meta "import.clock", and for LG_TIME_REALTIME a clock row at ts with its error. */
void lg_time_base(struct lg_builder *b, enum lg_time_base base, int64_t ts, int64_t error,
		  const char *source);
/* The name in "import.clock". */
const char *lg_time_base_name(enum lg_time_base base);

#endif /* LG_IMPORT_SOURCE_STAMP_H */
