/* SPDX-License-Identifier: Apache-2.0 */
#include "import/source/frame.h"

#include <string.h>

lg_frm lg_frame_python(struct lg_builder *b, const char *name, const char *file, uint32_t line)
{
	return lg_intern_frame(b, &(struct lg_frame_row){ .dso = lg_intern(b, "[python]"),
							  .name = lg_intern(b, name),
							  .file = lg_intern(b, file), .line = line,
							  .kind = LG_FRAME_PYTHON });
}

static int ends(const char *p, size_t n, const char *with)
{
	size_t k = strlen(with);

	return n >= k && !memcmp(p + n - k, with, k);
}

lg_frm lg_frame_from_text(struct lg_builder *b, const char *p, size_t n)
{
	struct lg_frame_row row = { .kind = LG_FRAME_USER };
	const char *open = n > 3 && p[n - 1] == ')' ? memrchr(p, '(', n) : NULL;

	if (open && open > p + 1 && open[-1] == ' ') {
		const char *where = open + 1, *colon;
		size_t k = (size_t)(p + n - 1 - where);
		uint32_t line = 0;

		colon = memrchr(where, ':', k);
		for (const char *d = colon ? colon + 1 : p + n; d < p + n - 1; d++) {
			if (*d < '0' || *d > '9' || line > 100000000) {
				colon = NULL;
				break;
			}
			line = line * 10 + (uint32_t)(*d - '0');
		}
		row.name = lg_intern_n(b, p, (size_t)(open - 1 - p));
		if (colon || ends(where, k, ".py")) {
			row.kind = LG_FRAME_PYTHON;
			row.dso = lg_intern(b, "[python]");
			row.file = lg_intern_n(b, where, colon ? (size_t)(colon - where) : k);
			row.line = colon ? line : 0;
		} else {
			row.dso = lg_intern_n(b, where, k);
		}
		return lg_intern_frame(b, &row);
	}
	if (ends(p, n, "_[k]")) {
		row.kind = LG_FRAME_KERNEL;
		row.dso = lg_intern(b, "[kernel.kallsyms]");
		n -= 4;
	} else if (ends(p, n, "_[j]") || ends(p, n, "_[w]")) {
		n -= 4;
	} else if (ends(p, n, "_[i]")) {
		row.kind = LG_FRAME_INLINED;
		n -= 4;
	}
	row.name = lg_intern_n(b, p, n);
	return lg_intern_frame(b, &row);
}

lg_prc lg_process_unnumbered(struct lg_builder *b, const char *comm, int32_t rank, int32_t world)
{
	return lg_process_add(b, &(struct lg_process_row){
					 .start = INT64_MIN, .end = INT64_MAX, .pid = -1,
					 .rank = rank, .world = world, .local_rank = -1,
					 .role = rank >= 0 ? LG_ROLE_RANK : LG_ROLE_OTHER,
					 .comm = lg_intern(b, comm) });
}

lg_thr lg_thread_unnumbered(struct lg_builder *b, lg_prc p, const char *name, int is_main)
{
	return lg_thread_add(b, &(struct lg_thread_row){ .start = INT64_MIN, .end = INT64_MAX,
							 .tid = -1, .prc = p,
							 .comm = lg_intern(b, name),
							 .flags = is_main ? LG_THREAD_MAIN : 0 });
}
