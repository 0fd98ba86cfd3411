/* SPDX-License-Identifier: Apache-2.0 */
#include "import/plumbing.h"

#include <string.h>

#include "base/alloc.h"
#include "store/kernel_names.h"

static bool is_plumbing(struct lg_plumbing *m, const struct lg_trace *t, lg_frm f)
{
	size_t old = m->cap;
	const char *name;

	if (f >= old) {
		if (lg_grow(&m->of, &m->cap, (size_t)f + 1, 1))
			return false;
		memset(m->of + old, 0, m->cap - old);
	}
	if (m->of[f])
		return m->of[f] == 2;
	m->of[f] = 1;
	name = lg_string(t, t->frame.name[f]);
	if (t->frame.kind[f] == LG_FRAME_KERNEL && lg_is_plumbing(name, LG_PLUMBING_IMPORTED))
		m->of[f] = 2;
	return m->of[f] == 2;
}

lg_stk lg_without_plumbing(struct lg_plumbing *m, const struct lg_trace *t, lg_stk stk)
{
	while (stk && is_plumbing(m, t, t->stack.frame[stk]))
		stk = t->stack.parent[stk];
	return stk;
}

void lg_plumbing_done(struct lg_plumbing *m)
{
	lg_free(m->of);
	*m = (struct lg_plumbing){ 0 };
}
