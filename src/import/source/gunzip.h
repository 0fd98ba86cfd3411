/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gunzip.h - gzip (RFC 1952, several members allowed): ISA-L where the machine has it, else zlib.
 *
 * A profiler's .json.gz is the largest thing that laggard reads, and inflating it in zlib takes longer
 * than everything that is done with the text; ISA-L takes a third of zlib's time. Debian 12 has it as a
 * shared library only, and laggard is one file that runs anywhere: so it is looked for at run time.
 */
#ifndef LG_IMPORT_SOURCE_GUNZIP_H
#define LG_IMPORT_SOURCE_GUNZIP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct lg_gunzip;

/* Up to n compressed bytes to buf: their number, 0 at the end, < 0 = they cannot be read. */
typedef int64_t lg_gunzip_read(void *ctx, void *buf, size_t n);

int lg_gunzip_new(struct lg_gunzip **ret, lg_gunzip_read *read, void *ctx, struct lg_error *err)
	LG_MUST_CHECK;
/* The same, by zlib on every machine. */
int lg_gunzip_new_zlib(struct lg_gunzip **ret, lg_gunzip_read *read, void *ctx, struct lg_error *err)
	LG_MUST_CHECK;
/*
 * Fill out. Fewer than size bytes only at the end: of the data, where they are damaged
 * (lg_gunzip_fault), or where they cannot be read (lg_gunzip_stopped: what read returned).
 */
size_t lg_gunzip_get(struct lg_gunzip *z, void *out, size_t size);
const char *lg_gunzip_fault(const struct lg_gunzip *z); /* "" = none */
bool lg_gunzip_short(const struct lg_gunzip *z);        /* the fault is that the data end too early */
int64_t lg_gunzip_stopped(const struct lg_gunzip *z);   /* 0 = no */
void lg_gunzip_free(struct lg_gunzip *z);

#endif /* LG_IMPORT_SOURCE_GUNZIP_H */
