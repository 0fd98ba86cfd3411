/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf.h - write protocol buffers forward into one growing buffer.
 *
 * A nested message reserves four bytes for its length and fills them in when it is closed, as a
 * varint padded with continuation bits: legal (decoders take redundant bytes), and nothing is
 * measured or moved. A nested message must stay below 2^28 bytes. Sticky failure: check `failed`.
 */
#ifndef LG_REPORT_PROTOBUF_H
#define LG_REPORT_PROTOBUF_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lg_pb {
	uint8_t *p;
	size_t n, cap;
	bool failed;
};

void lg_pb_varint(struct lg_pb *b, uint32_t field, uint64_t v);
void lg_pb_fixed64(struct lg_pb *b, uint32_t field, uint64_t v);
void lg_pb_double(struct lg_pb *b, uint32_t field, double v);
void lg_pb_bytes(struct lg_pb *b, uint32_t field, const void *p, size_t n);
/* As bytes, with what is not UTF-8 replaced by '?' (a string field must be UTF-8). */
void lg_pb_string(struct lg_pb *b, uint32_t field, const char *s);
size_t lg_pb_open(struct lg_pb *b, uint32_t field); /* returns what lg_pb_close() wants */
void lg_pb_close(struct lg_pb *b, size_t at);
void lg_pb_reset(struct lg_pb *b); /* keeps the memory */
void lg_pb_done(struct lg_pb *b);
/* A varint alone; returns its length (at most 10). */
size_t lg_pb_put_varint(uint8_t out[10], uint64_t v);

#endif /* LG_REPORT_PROTOBUF_H */
