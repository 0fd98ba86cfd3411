/* SPDX-License-Identifier: Apache-2.0 */
/* folded.c - collapsed stacks: CPU samples counted by process name and stack. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "report/convert.h"
#include "report/profile.h"

struct line {
	lg_str comm;
	lg_stk stack;
	uint64_t count;
};

/* ';' ends a frame and the last space the stack: neither may be in a name, nor a line break. */
static void put_name(struct lg_out *o, const char *s)
{
	for (; *s; s++) {
		char c = *s == ';' ? ':' : (unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s;

		lg_out_write(o, &c, 1);
	}
}

static void put_stack(const struct lg_trace *t, lg_stk stk, lg_stk *path, size_t max, struct lg_out *o)
{
	char name[512];
	size_t n = 0;

	for (; stk && n < max; stk = t->stack.parent[stk])
		path[n++] = stk;
	while (n) {
		lg_frm f = t->stack.frame[path[--n]];

		lg_out_write(o, ";", 1);
		put_name(o, lg_frame_text(t, f, name, sizeof name));
		if (t->frame.kind[f] == LG_FRAME_KERNEL)
			lg_out_puts(o, "_[k]"); /* flamegraph.pl colours by this */
	}
}

int lg_folded_write(const struct lg_trace *t, const struct lg_window *w, struct lg_out *o,
		    struct lg_error *err)
{
	enum { DEPTH_MAX = 1024 };
	const struct lg_profile kind = { .tracepoints = lg_profile_only_tracepoints(t, w) };
	struct lg_map index = { 0 };
	struct line *lines = NULL;
	size_t n = 0, cap = 0;
	lg_stk *path = lg_calloc(DEPTH_MAX, sizeof *path);
	int rc = path ? 0 : LG_E_NOMEM;

	for (size_t i = 0; i < t->sample.n && !rc; i++) {
		lg_prc prc = t->thread.prc[t->sample.thr[i]];
		lg_str comm = t->process.comm[prc] ? t->process.comm[prc] : t->thread.comm[t->sample.thr[i]];
		uint64_t key = (uint64_t)comm << 32 | t->sample.stack[i];
		uint32_t at;

		if (!lg_profile_counts(&kind, t, w, i))
			continue;
		at = lg_map_get(&index, key);
		if (!at) {
			if (lg_grow(&lines, &cap, n + 1, sizeof *lines) ||
			    lg_map_set(&index, key, (uint32_t)n + 1)) {
				rc = LG_E_NOMEM;
				break;
			}
			lines[n++] = (struct line){ comm, t->sample.stack[i], 0 };
			at = (uint32_t)n;
		}
		lines[at - 1].count += lg_profile_samples(t, i);
	}
	for (size_t i = 0; i < n && !rc; i++) {
		const char *comm = lg_string(t, lines[i].comm);

		put_name(o, *comm ? comm : "?");
		put_stack(t, lines[i].stack, path, DEPTH_MAX, o);
		lg_out_printf(o, " %llu\n", (unsigned long long)lines[i].count);
	}
	lg_map_done(&index);
	lg_free(lines);
	lg_free(path);
	return rc ? lg_fail(err, rc, LG_NO_OFFSET, "out of memory") : 0;
}
