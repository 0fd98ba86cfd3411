/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script_line.h - one line of what perf script prints, taken apart.
 *
 * Every field is optional (perf script -F), names contain spaces and brackets, numbers are
 * aligned as it pleases: a line is what its fields say when read from left to right, and
 * anything else is LG_PS_ODD. Views point into the line.
 */
#ifndef LG_IMPORT_PERFSCRIPT_SCRIPT_LINE_H
#define LG_IMPORT_PERFSCRIPT_SCRIPT_LINE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lg_ps_kind { LG_PS_BLANK, LG_PS_COMMENT, LG_PS_EVENT, LG_PS_FRAME, LG_PS_ODD };

struct lg_ps_view {
	const char *p;
	size_t n;
};

struct lg_ps_line {
	/* event */
	struct lg_ps_view comm, event, rest; /* rest: behind the event's colon */
	int32_t pid, tid, cpu;               /* -1 = not printed */
	int64_t ts;
	uint64_t period;                     /* 0 = not printed */
	bool has_time;
	/* frame */
	uint64_t ip, offset;                 /* offset: of name+0xOFFSET */
	struct lg_ps_view name, dso;
	bool inlined;
};

/* inside: the line before belonged to an event, so that frames are expected. */
enum lg_ps_kind lg_ps_parse(struct lg_ps_line *ret, const char *line, size_t n, bool inside);
/* A frame on the event's own line: "cycles:  ffffffff8104f45a name (dso)". */
bool lg_ps_parse_rest(struct lg_ps_line *ret, struct lg_ps_view rest);

#endif /* LG_IMPORT_PERFSCRIPT_SCRIPT_LINE_H */
