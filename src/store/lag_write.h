/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lag_write.h - write a .lag file chunk by chunk (layout: lag_chunk.h, laggard-format(5)).
 *
 * Every chunk leaves with one write(); nothing is synced, the page cache survives kill -9. After
 * a failed write (disk full) the writer says so once and takes nothing more; what was written
 * before stays readable. One thread.
 */
#ifndef LG_STORE_LAG_WRITE_H
#define LG_STORE_LAG_WRITE_H
#include "store/builder.h"

struct lg_writer;

/* Begin a file for path, as base/place.h says: it takes the name in lg_writer_keep() or at the latest
 * in lg_writer_close(), and is removed by lg_writer_abort() before that. */
int lg_writer_open(struct lg_writer **ret, const char *path, struct lg_error *err) LG_MUST_CHECK;
/* For lg_builder_flush(b, &lg_writer_sink, writer, err). */
extern const struct lg_sink lg_writer_sink;
/* There is something to keep: the file takes its name now, in place of an older one, and from here on
 * outlives even a kill. */
int lg_writer_keep(struct lg_writer *w, struct lg_error *err) LG_MUST_CHECK;
/* Write the directory and the trailer, close and free. Reports the first failure of the
 * writer's life unless the sink has reported it already. */
int lg_writer_close(struct lg_writer *w, struct lg_error *err) LG_MUST_CHECK;
/* Close and free without directory and trailer, as after a crash; a file that has no name yet is gone.
 * NULL is fine. */
void lg_writer_abort(struct lg_writer *w);
uint64_t lg_writer_bytes(const struct lg_writer *w); /* written so far */
uint64_t lg_writer_rows(const struct lg_writer *w);  /* rows of time tables so far */

/* A whole sealed trace as one file (laggard convert -o x.lag), put in place when it is whole. */
int lg_lag_save(const struct lg_trace *t, const char *path, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_STORE_LAG_WRITE_H */
