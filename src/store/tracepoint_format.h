/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracepoint_format.h - the `format` text of a tracepoint: where its fields are.
 *
 * The same text is in tracefs (recorder) and in the header of perf.data (importer). Offsets are
 * the running kernel's business and are never written down anywhere else.
 */
#ifndef LG_STORE_TRACEPOINT_FORMAT_H
#define LG_STORE_TRACEPOINT_FORMAT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define LG_TP_FIELDS 40

struct lg_tp_field {
	char name[32];
	uint32_t offset, size;
	bool is_signed;
};

struct lg_tp_format {
	char name[64];
	uint32_t id;
	uint32_t n;
	struct lg_tp_field field[LG_TP_FIELDS];
};

int lg_tp_format_parse(struct lg_tp_format *ret, const char *text, struct lg_error *err) LG_MUST_CHECK;
/* NULL when the kernel has no such field. */
const struct lg_tp_field *lg_tp_field(const struct lg_tp_format *f, const char *name);
/* An integer of 1, 2, 4 or 8 bytes in native byte order; 0 when raw is too short or f NULL. */
int64_t lg_tp_int(const struct lg_tp_field *f, const uint8_t *raw, size_t n);

#endif /* LG_STORE_TRACEPOINT_FORMAT_H */
