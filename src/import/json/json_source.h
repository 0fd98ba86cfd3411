/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_source.h - the text of a plain, .gz or .zst file as a moving window.
 *
 * Another thread reads and decompresses into a few blocks while the caller scans; memory does not
 * depend on the file's size. The window always holds what the caller wants to keep plus at least one
 * byte more, and LG_JSON_PAD bytes that may be read behind it.
 */
#ifndef LG_IMPORT_JSON_SOURCE_H
#define LG_IMPORT_JSON_SOURCE_H
#include "base/error.h"
#include "import/json/json_scan.h"

/* The most that one event or field may take: the window grows to it, no further. */
enum { LG_JSON_KEEP_MAX = 8 << 20 };

struct lg_json_source;

int lg_json_source_open(struct lg_json_source **ret, const char *path, struct lg_error *err)
	LG_MUST_CHECK;
/* The same over memory, in blocks of `block` bytes (tests and fuzzing); data may be compressed. */
int lg_json_source_memory(struct lg_json_source **ret, const void *data, size_t n, size_t block,
			  struct lg_error *err) LG_MUST_CHECK;
/*
 * Keep [keep, *end) and add more behind it; *p becomes where keep went. 1 = there is more, 0 = the
 * text is over (what was kept is still there, at *p), or LG_E_IO, LG_E_NOMEM, LG_E_LIMIT
 * (LG_JSON_KEEP_MAX). Start with keep = *p = *end = NULL.
 */
int lg_json_source_more(struct lg_json_source *s, const char *keep, const char **p,
			const char **end, struct lg_error *err) LG_MUST_CHECK;
/*
 * For slices that are looked at by another thread while this one goes on. From hold on a block stays as
 * it is until release() is told what taken() was when the block was the window; before `more` with a
 * `keep` for which moves() says yes, nobody else may look at any slice. hold: false when it cannot be.
 */
bool lg_json_source_hold(struct lg_json_source *s);
void lg_json_source_unhold(struct lg_json_source *s);
unsigned lg_json_source_taken(const struct lg_json_source *s);
void lg_json_source_release(struct lg_json_source *s, unsigned taken);
/* From the thread that looks later, when it has nothing to do: read or decompress one block more. false:
 * there is none to be filled, or somebody does. */
bool lg_json_source_help(struct lg_json_source *s);
bool lg_json_source_moves(const struct lg_json_source *s, const char *keep);
/* From another thread: `more` fails from now on. */
void lg_json_source_stop(struct lg_json_source *s);
/* Offset in the (uncompressed) text of the window's byte p. */
uint64_t lg_json_source_offset(const struct lg_json_source *s, const char *p);
/* After the end: what was wrong with the compressed data, "" = nothing. */
const char *lg_json_source_fault(const struct lg_json_source *s);
void lg_json_source_close(struct lg_json_source *s);


#endif /* LG_IMPORT_JSON_SOURCE_H */
