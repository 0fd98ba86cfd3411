/* SPDX-License-Identifier: Apache-2.0 */
/* profiled.c - what the hook tells of the steps of torch.profiler that it took (_profiler.py). */
#include "analyse/finders.h"
#include "base/order.h"

void lg_tell_profiled(struct lg_case *c)
{
	const struct lg_mark_tab *m = &c->t->mark;
	size_t n_traces = 0, n_not = 0;
	const char *why = NULL;
	int64_t ns = 0, most = 0;

	for (size_t i = 0; i < m->n; i++) {
		const char *name = lg_string(c->t, m->name[i]);

		if (strncmp(name, "profiler.", 9))
			continue;
		if (!strcmp(name, "profiler.trace") && m->value[i] >= 0 && m->value[i] < INT64_MAX - ns) {
			n_traces++;
			ns += m->value[i];
			most = LG_MAX(most, m->value[i]);
		} else if (!strcmp(name, "profiler.refused") || !strcmp(name, "profiler.failed")) {
			n_not++;
			why = lg_string(c->t, m->text[i]);
		}
	}
	if (n_traces)
		lg_say(c, LG_SAYS_PROFILER_TRACES, n_traces, n_traces == 1 ? "" : "s", lg_ms(ns), lg_ms(most));
	if (n_not)
		lg_say(c, LG_SAYS_PROFILER_REFUSED, n_not, n_not == 1 ? "" : "s", why);
}
