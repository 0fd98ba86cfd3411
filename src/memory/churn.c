/* SPDX-License-Identifier: Apache-2.0 */
/* churn.c - segments that are given back to the device and asked for again. */
#include "memory/parts.h"

void lg_memory_find_churn(struct lg_memory_work *w, struct lg_memory_device *d)
{
	const struct lg_span_tab *s = &w->t->span;
	struct lg_memory_churn *k = &d->churn;
	uint64_t gone = 0, most = 0;
	int64_t before = INT64_MIN;
	bool in_episode = false;

	*k = (struct lg_memory_churn){ .first = INT64_MIN };
	for (size_t i = 0; i < d->n_rows; i++) {
		uint32_t row = d->rows[i];
		enum lg_memory_row kind = lg_memory_row(w, row);
		uint64_t bytes = s->bytes[row];
		bool counts = false;

		if (kind == LG_MEM_SEGMENT_FREE || kind == LG_MEM_SEGMENT_UNMAP) {
			k->freed++;
			gone += bytes;
			in_episode = false; /* until one is asked for again */
			k->empty_cache |= (w->at[s->stack[row]] & LG_AT_EMPTY_CACHE) != 0;
			if (bytes > most) {
				most = bytes;
				k->freed_by = s->stack[row];
			}
			counts = true;
		} else if ((kind == LG_MEM_SEGMENT_ALLOC || kind == LG_MEM_SEGMENT_MAP) && gone) {
			uint64_t again = bytes < gone ? bytes : gone;

			k->again++;
			k->again_bytes += again;
			gone -= again;
			k->episodes += !in_episode;
			k->first = k->first == INT64_MIN ? s->ts[row] : k->first;
			in_episode = true;
			counts = true;
		}
		if (counts && before != INT64_MIN)
			k->took += s->ts[row] - before;
		if (kind != LG_MEM_SEGMENT && kind != LG_MEM_IDLE && kind != LG_MEM_HELD)
			before = s->ts[row];
	}
}
