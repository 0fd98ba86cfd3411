/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_github.c - the comparison as annotations of a GitHub Actions run: workflow commands, one a
 * line (docs.github.com, "Workflow commands for GitHub Actions"). %, CR and LF are escaped, in a
 * property also ':' and ','; nothing from outside can therefore begin a command of its own.
 */
#include <string.h>

#include "base/printable.h"
#include "report/diff_report.h"

static void escaped(struct lg_out *o, const char *s, bool property)
{
	while (s && *s) {
		unsigned char c = (unsigned char)*s;
		size_t n = lg_printable((const unsigned char *)s);

		if (c == '%' || c == '\r' || c == '\n' || (property && (c == ':' || c == ',')))
			lg_out_printf(o, "%%%02X", c);
		else
			lg_out_write(o, n ? s : " ", n ? n : 1);
		s += n ? n : 1;
	}
}

static void command(struct lg_out *o, const char *kind, const char *title, const char *text,
		    const char *more)
{
	lg_out_printf(o, "::%s title=", kind);
	escaped(o, title, true);
	lg_out_puts(o, "::");
	escaped(o, text, false);
	if (more) {
		lg_out_puts(o, "%0Afix: ");
		escaped(o, more, false);
	}
	lg_out_puts(o, "\n");
}

void lg_diff_github(const struct lg_diff *d, struct lg_out *o)
{
	bool failed = d->gate.verdict && !strcmp(d->gate.verdict, "fail");

	for (size_t i = 0; i < d->n_unfair; i++)
		command(o, "warning", "laggard: not like with like", d->unfair[i], NULL);
	if (d->gate.verdict)
		command(o, failed ? "error" : !strcmp(d->gate.verdict, "pass") ? "notice" : "warning",
			failed ? "laggard: slower than the limit" : "laggard: step time", d->gate.why, NULL);
	command(o, "notice", "laggard diff", d->headline, NULL);
	for (size_t i = 0; i < d->v.n_findings; i++) {
		const struct lg_finding *f = &d->v.findings[i];
		bool loud = f->severity == LG_SEVERITY_HIGH || f->severity == LG_SEVERITY_MEDIUM;

		if (!strcmp(f->id, "regress.workload"))
			continue; /* said first */
		if (loud || f->severity == LG_SEVERITY_LOW)
			command(o, loud ? failed ? "error" : "warning" : "notice", f->id, f->title, f->fix);
	}
}
