/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scene.h - the sealed trace that timelines are told from, and where what is told of it lives.
 * What nearly all of timeline/ calls comes with it: memory, walks, order, the index.
 */
#ifndef LG_TIMELINE_SCENE_H
#define LG_TIMELINE_SCENE_H
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/duration.h"
#include "base/each.h"
#include "base/intervals.h"
#include "base/order.h"
#include "store/index.h"

struct lg_scene {
	const struct lg_trace *t;
	const struct lg_index *idx;
	struct lg_arena *arena; /* that memory is exhausted is told by its .failed, too */
	lg_str *span_names;     /* each name that spans have, once; filled by lg_gpu_new() */
	size_t n_span_names;
	uint8_t no_activity;    /* flags of samples that lg_shows_activity() leaves out */
};

/* Does rc say that memory is exhausted? Then the scene's arena remembers it. */
static inline bool lg_scene_failed(const struct lg_scene *sc, int rc)
{
	if (rc)
		sc->arena->failed = 1;
	return rc != 0;
}

#endif /* LG_TIMELINE_SCENE_H */
