/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_ahead.h - find events in one thread while another makes rows of them.
 *
 * Both take about as long. Events go over in batches; their slices point into the source's blocks, which
 * are given back when the batch has been worked off.
 */
#ifndef LG_IMPORT_JSON_AHEAD_H
#define LG_IMPORT_JSON_AHEAD_H
#include "import/json/json_events.h"

struct lg_ahead;

/* Scan from r in a thread of its own and set r->ahead, where that can be. From here on the rest of r,
 * which must stay where it is, belongs to that thread, until lg_ahead_next() has returned LG_ITEM_END or
 * an error. */
void lg_ahead_start(struct lg_events *r);
/* The next item, as lg_events_take(); the caller may write to it. */
int lg_ahead_next(struct lg_ahead *a, struct lg_event **ret, struct lg_error *err);
/* Scanner: the window is about to move from `keep` on. LG_E_IO: nobody wants more. */
int lg_ahead_before_more(struct lg_ahead *a, const char *keep) LG_MUST_CHECK;
void lg_ahead_stop(struct lg_ahead *a);

#endif /* LG_IMPORT_JSON_AHEAD_H */
