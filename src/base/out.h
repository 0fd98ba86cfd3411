/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out.h - buffered writer with a sticky error: emitters are straight-line code and check once,
 * in lg_out_close().
 */
#ifndef LG_BASE_OUT_H
#define LG_BASE_OUT_H
#include <stddef.h>
#include <stdint.h>

#include "base/writer_thread.h"
#include "base/error.h"

struct lg_out;

enum lg_out_codec { LG_OUT_PLAIN, LG_OUT_GZIP };

/* Open path for writing, as place.h says: a file takes its name in lg_out_close() and only when it is
 * whole. */
int lg_out_open(struct lg_out **ret, const char *path, enum lg_out_codec codec,
		struct lg_error *err) LG_MUST_CHECK;
/* Write into memory; lg_out_close() with lg_out_take() hands the bytes over (lg_free them). */
int lg_out_memory(struct lg_out **ret, struct lg_error *err) LG_MUST_CHECK;
void lg_out_write(struct lg_out *o, const void *p, size_t n);
void lg_out_puts(struct lg_out *o, const char *s);
void lg_out_printf(struct lg_out *o, const char *fmt, ...) LG_PRINTF(2, 3);
void lg_out_i64(struct lg_out *o, int64_t v);  /* decimal, fast */
void lg_out_json_string(struct lg_out *o, const char *s, size_t n); /* quoted; bad UTF-8 -> U+FFFD */
uint64_t lg_out_bytes(const struct lg_out *o); /* before compression */
int lg_out_failed(const struct lg_out *o);     /* 0 or LG_E_*: what was written may not all be there */
/*
 * For hot paths: room for up to n (at most 64 KiB) bytes to fill in place, NULL when the writer
 * has failed; nothing counts as written until lg_out_commit() gets the end of what was filled.
 */
char *lg_out_reserve(struct lg_out *o, size_t n);
void lg_out_commit(struct lg_out *o, const char *end);
char *lg_put_u64(char *at, uint64_t v); /* decimal, at most 20 bytes, no NUL; returns the end */
/*
 * Bytes that can be made at any time: they get their place now and are made by make(), in another
 * thread perhaps, several pieces at a time. arg must live, and what make() reads must not change, until
 * lg_out_settle(); lg_out_bytes() counts them from then on. After a failure make() is not called.
 */
void lg_out_later(struct lg_out *o, void (*make)(void *arg, struct lg_pen *pen), void *arg);
void lg_out_settle(struct lg_out *o);
/* The memory writer's bytes so far, lg_out_bytes() of them; they move with the next write. */
const char *lg_out_view(const struct lg_out *o);
/* Forget the memory writer's bytes. */
void lg_out_clear(struct lg_out *o);
/* Steal the memory writer's bytes (NUL-terminated, *ret_n excludes the NUL). NULL on error. */
char *lg_out_take(struct lg_out *o, size_t *ret_n);
/* Flush, close and free; reports the first failure of the writer's life. */
int lg_out_close(struct lg_out *o, struct lg_error *err) LG_MUST_CHECK;
/* Throw the output away: the named file is left as it was. */
void lg_out_abort(struct lg_out *o);

#endif /* LG_BASE_OUT_H */
