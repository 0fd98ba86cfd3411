/* SPDX-License-Identifier: Apache-2.0 */
/*
 * html_memory.c - memory over time, on the axis that steps have, and where it was at its peak.
 *
 * One strip a counter of bytes. Each is drawn from 0 to its own peak, which is written beside it: a leak of a
 * process is no line at the bottom of a device's.
 */
#include <math.h>
#include <stdio.h>

#include "base/each.h"
#include "picture/memory_lines.h"
#include "report/html_text.h"
#include "report/report.h"

enum { WIDTH = 1200, HEIGHT = 46, ROW = 60 };

static const char *bytes(double v, char *buf, size_t size)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	size_t k = 0;

	for (; v >= 1024 && k + 1 < sizeof units / sizeof *units; k++)
		v /= 1024;
	snprintf(buf, size, k ? "%.2f %s" : "%.0f %s", v, units[k]);
	return buf;
}

static void name_of(const struct lg_trace *t, lg_trk k, char *buf, size_t size)
{
	lg_prc p = t->track.prc[k];
	lg_trk parent = t->track.parent[k];
	char pid[LG_PID_TEXT], index[24] = "";

	if (t->track.index[k] >= 0)
		snprintf(index, sizeof index, " %d", t->track.index[k]);
	if (p)
		snprintf(buf, size, "%.100s%s of %.60s (%s)", lg_string(t, t->track.name[k]), index,
			 lg_string(t, t->process.comm[p]), lg_pid_text(t->process.pid[p], pid));
	else
		snprintf(buf, size, "%.100s%s%s%.60s", lg_string(t, t->track.name[k]), index, parent ? ", " : "",
			 parent ? lg_string(t, t->track.name[parent]) : "");
}

static void strip(const struct lg_memory_line *x, int y, struct lg_out *o)
{
	bool on = false;

	lg_out_puts(o, "<path class=\"memory\" fill=\"#56b4e9\" fill-opacity=\"0.45\" stroke=\"#0072b2\" "
		       "stroke-width=\"1\" d=\"");
	for (int i = 0; i < LG_MEMORY_COLUMNS; i++) {
		double left = (double)i * WIDTH / LG_MEMORY_COLUMNS;
		double top = y + HEIGHT - (isnan(x->v[i]) ? 0 : x->v[i] / x->most * HEIGHT);

		if (isnan(x->v[i]))
			continue;
		if (!on)
			lg_out_printf(o, "M%.1f %d", left, y + HEIGHT);
		on = true;
		lg_out_printf(o, "L%.1f %.1fh%.1f", left, top, (double)WIDTH / LG_MEMORY_COLUMNS);
	}
	lg_out_printf(o, "V%dz\"/>\n", y + HEIGHT);
}

int lg_html_memory(const struct lg_verdict *v, struct lg_out *o, struct lg_error *err)
{
	const struct lg_trace *t = v->trace;
	struct lg_memory_lines l;
	char name[256], most[32];
	int y = 14;

	if (!t || t->first > t->last)
		return 0;
	if (lg_memory_lines_make(&l, t))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (l.n) {
		lg_out_printf(o, "<section id=\"memory\" aria-labelledby=\"memory-h\"><h2 id=\"memory-h\">Memory over "
				 "time</h2>\n<div class=\"picture\"><svg viewBox=\"0 0 %d %d\" width=\"%d\" role=\"img\" "
				 "aria-label=\"Memory over time; the table below has the peaks\">\n",
			      WIDTH, (int)l.n * ROW + 20, WIDTH);
		LG_EACH(x, l.v, l.n) {
			name_of(t, x->track, name, sizeof name);
			lg_out_printf(o, "<text class=\"label\" x=\"2\" y=\"%d\" font-size=\"11\" fill=\"#555\">", y - 3);
			lg_html_text(o, name);
			lg_out_printf(o, ": up to %s</text>\n", bytes(x->most, most, sizeof most));
			strip(x, y, o);
			y += ROW;
		}
		lg_out_printf(o, "<text class=\"label\" x=\"2\" y=\"%d\" font-size=\"11\" fill=\"#555\">0 s</text><text "
				 "class=\"label\" x=\"%d\" y=\"%d\" font-size=\"11\" fill=\"#555\" text-anchor=\"end\">%.2f "
				 "s</text></svg></div>\n<div class=\"wide\"><table><thead><tr><th scope=\"col\">what</th><th "
				 "scope=\"col\">at most</th><th scope=\"col\">at the end</th><th "
				 "scope=\"col\">readings</th></tr></thead><tbody>\n",
			      y + 2, WIDTH - 2, y + 2, (double)(t->last - t->first) / 1e9);
		LG_EACH(x, l.v, l.n) {
			char end[32];

			name_of(t, x->track, name, sizeof name);
			lg_out_puts(o, "<tr><th scope=\"row\">");
			lg_html_text(o, name);
			lg_out_printf(o, "</th><td>%s</td><td>%s</td><td>%zu</td></tr>\n", bytes(x->most, most, sizeof most),
				      bytes(x->v[LG_MEMORY_COLUMNS - 1], end, sizeof end), x->n);
		}
		lg_out_puts(o, "</tbody></table></div>");
		if (l.left_out)
			lg_out_printf(o, "<p class=\"note\">and %zu more</p>", l.left_out);
		lg_out_puts(o, "</section>\n");
	}
	lg_memory_lines_done(&l);
	return 0;
}
