/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chromejson.h - any Trace Event Format JSON that is not torch.profiler's.
 *
 * B/E and X become spans of kind OTHER on their thread, with the category in args ("cat=..."), b/e
 * (S/F) spans on a track of their category, s/t/f flows, C counters, i/I/R/n marks, the "samples" of
 * the object form samples. A begin without an end is cut off (dur -1), an end without a begin is
 * counted; both are told in a diag row.
 */
#ifndef LG_IMPORT_CHROMEJSON_CHROMEJSON_H
#define LG_IMPORT_CHROMEJSON_CHROMEJSON_H
#include "import/import.h"
#include "import/json/json_events.h"

extern const struct lg_importer lg_import_chromejson;

/* Read all events of r, which is at its start. */
int lg_chromejson_read(struct lg_events *r, struct lg_builder *b, struct lg_error *err)
	LG_MUST_CHECK;

#endif /* LG_IMPORT_CHROMEJSON_CHROMEJSON_H */
