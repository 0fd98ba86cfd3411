/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve.h - names for the user frames of a builder that have none, for the recorder at its end.
 *
 * One pass over the unnamed frames grouped by file, so each file is read once. What is in the
 * files is read by another process (symbol_child.h): here only descriptors and names pass through.
 */
#ifndef LG_SYMBOLS_RESOLVE_H
#define LG_SYMBOLS_RESOLVE_H
#include <sys/types.h>

#include "store/builder.h"

struct lg_symbolizer;
struct lg_symbol_child;

struct lg_symbolizer_stats {
	size_t frames, named;  /* frames without a name before; given one now */
	size_t dsos, no_file;  /* files asked for; of them not there */
	size_t other_build;    /* of them replaced since: another build id, not used */
	size_t lost;           /* not read to their end; each is a diag row (the first few) */
};

/* child: borrowed; NULL = only what is in no file has names. */
int lg_symbolizer_new(struct lg_symbolizer **ret, struct lg_builder *b, struct lg_symbol_child *child,
		      struct lg_error *err) LG_MUST_CHECK;
void lg_symbolizer_free(struct lg_symbolizer *s);
/*
 * The bytes of dso are in fd (taken over, closed by the symbolizer). Needed where the path in
 * dso does not lead there: other mount namespaces, deleted files. Where nobody says, the path
 * itself is opened and used if its build id is the frames' (or they have none).
 */
int lg_symbolizer_file(struct lg_symbolizer *s, lg_str dso, int fd) LG_MUST_CHECK;
/* Frames of dso are JIT code (pc = address); fd (taken over) is the perf map that names them. */
int lg_symbolizer_perf_map(struct lg_symbolizer *s, lg_str dso, int fd) LG_MUST_CHECK;
/* Frames of dso are wanted for the job, for root or for who records. What only others run, whoever owns
 * the file, has the time of all others together: they could run through every library there is. */
int lg_symbolizer_trust(struct lg_symbolizer *s, lg_str dso) LG_MUST_CHECK;
/* Frames of dso are Python's (pc: symbols/python_code.h); fd (taken over) has code objects of that user. */
int lg_symbolizer_python(struct lg_symbolizer *s, lg_str dso, int fd, uid_t owner) LG_MUST_CHECK;
/* Name what can be named, once. A missing file is no error. now_ns: time of diag rows. */
int lg_symbolizer_run(struct lg_symbolizer *s, int64_t now_ns, struct lg_symbolizer_stats *ret,
		      struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_SYMBOLS_RESOLVE_H */
