/* SPDX-License-Identifier: Apache-2.0 */
/* modules.c - the tree of modules, with the time of each. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "modules/modules.h"
#include "base/words.h"
#include "report/json_write.h"
#include "report/report.h"
#include "report/text.h"

enum { NAME_WIDTH = 44, LINE = 1024, INDENT_MAX = 16 };

static const char *compiled_word(const struct lg_module *m)
{
	return m->compiled == LG_MODULE_COMPILED ? "  compiled" :
	       m->compiled == LG_MODULE_PARTS ? "  compiled, but parts of it run one by one" : "";
}

/* The last part of the path: the rest stands above it. */
static const char *name_of(const struct lg_modules *r, const struct lg_module *m)
{
	size_t n = m->up ? strlen(r->v[m->up - 1].path) : 0;

	return m->up && m->path[n] == '.' ? m->path + n + 1 : m->path;
}

static void row(const struct lg_modules *r, const struct lg_module *m, struct lg_out *o)
{
	unsigned indent = 2 * (m->depth < INDENT_MAX ? m->depth : INDENT_MAX);
	char line[LINE], share[16] = "-", device[32] = "";

	if (isfinite(m->share))
		snprintf(share, sizeof share, "%.1f %%", 100 * m->share);
	if (r->has_device)
		snprintf(device, sizeof device, " %9.3f", m->device);
	snprintf(line, sizeof line, "%*s%-*.300s %8s%s %9.3f %9.3f %9.3f%s", (int)indent, "",
		 (int)(indent < NAME_WIDTH ? NAME_WIDTH - indent : 1), name_of(r, m), share, device,
		 m->forward, m->backward, m->own_forward + m->own_backward, compiled_word(m));
	lg_text_safe(o, line);
	lg_out_puts(o, "\n");
}

void lg_modules_term(const struct lg_modules *r, double least, const struct lg_term_options *opt,
		     struct lg_out *o)
{
	size_t hidden = 0;
	char line[LINE];

	(void)opt; /* a table has no colours */
	if (!r->n) {
		lg_out_puts(o, "No module is told of: record with laggard record --modules -- CMD, or profile with "
			       "with_stack=True.\n");
		return;
	}
	snprintf(line, sizeof line, "ms in a step%s, of %.0f steps%s",
		 r->has_device ? " of the device, and of the host" : " of the host", r->steps,
		 r->rank >= 0 ? " of rank " : "");
	lg_out_puts(o, line);
	if (r->rank >= 0) {
		snprintf(line, sizeof line, "%d", (int)r->rank);
		lg_out_puts(o, line);
	}
	snprintf(line, sizeof line, "\n%-*s %8s%s %9s %9s %9s\n", NAME_WIDTH, "module", "share",
		 r->has_device ? "    device" : "", "forward", "backward", "own");
	lg_out_puts(o, line);
	for (size_t i = 0; i < r->n; i++) {
		if (isfinite(r->v[i].share) && r->v[i].share < least && r->v[i].up)
			hidden++;
		else
			row(r, &r->v[i], o);
	}
	if (hidden) {
		snprintf(line, sizeof line, "%zu module%s of less than %.0f %% each: -v shows them.\n", hidden, lg_s(hidden),
			 100 * least);
		lg_out_puts(o, line);
	}
	if (r->left_out) {
		snprintf(line, sizeof line, "%zu more module%s: what they take is in those around them.\n", r->left_out,
			 lg_s(r->left_out));
		lg_out_puts(o, line);
	}
}

void lg_modules_json(const struct lg_verdict *v, const struct lg_modules *r, struct lg_out *o)
{
	struct lg_json j = { .o = o };

	lg_json_open(&j, '{');
	lg_json_verdict(v, &j);
	lg_json_key(&j, "modules");
	lg_json_open(&j, '[');
	for (size_t i = 0; i < r->n; i++) {
		const struct lg_module *m = &r->v[i];
		const struct { const char *key; double ms; } times[] = {
			{ "forward_ms", m->forward }, { "backward_ms", m->backward },
			{ "self_ms", m->own_forward + m->own_backward },
			{ "device_ms", r->has_device ? m->device : (double)NAN },
			{ "self_device_ms", r->has_device ? m->own_device : (double)NAN }, { "share", m->share }, { "calls", m->calls } };

		lg_json_open_flat(&j, '{');
		lg_json_key_str(&j, "path", m->path);
		for (size_t k = 0; k < sizeof times / sizeof *times; k++) {
			lg_json_key(&j, times[k].key);
			lg_json_num(&j, times[k].ms, 5);
		}
		lg_json_key(&j, "compiled");
		lg_json_bool(&j, m->compiled == LG_MODULE_COMPILED);
		lg_json_key(&j, "compiled_in_parts");
		lg_json_bool(&j, m->compiled == LG_MODULE_PARTS);
		lg_json_close(&j, '}');
	}
	lg_json_close(&j, ']');
	lg_json_close(&j, '}');
	lg_out_puts(o, "\n");
}
