/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_write.h - strict JSON onto an lg_out: commas and indentation are kept here, numbers that
 * JSON cannot hold (NaN, infinity) become null. Errors are lg_out's sticky ones.
 */
#ifndef LG_REPORT_JSON_WRITE_H
#define LG_REPORT_JSON_WRITE_H
#include <stdbool.h>

#include "base/out.h"

struct lg_json {
	struct lg_out *o;
	unsigned depth;
	bool has_item, after_key, flat; /* flat: everything below stays on one line */
	unsigned flat_from;
};

void lg_json_open(struct lg_json *j, char bracket);  /* '{' or '[' */
void lg_json_open_flat(struct lg_json *j, char bracket);
void lg_json_close(struct lg_json *j, char bracket); /* '}' or ']' */
void lg_json_key(struct lg_json *j, const char *key);
void lg_json_str(struct lg_json *j, const char *s);  /* NULL -> null */
void lg_json_str_n(struct lg_json *j, const char *s, size_t n); /* zero bytes and all */
void lg_json_key_str(struct lg_json *j, const char *key, const char *s);
void lg_json_key_num(struct lg_json *j, const char *key, double v, int decimals);
void lg_json_key_int(struct lg_json *j, const char *key, int64_t v);
void lg_json_key_count(struct lg_json *j, const char *key, uint64_t v); /* INT64_MAX at most */
void lg_json_key_id(struct lg_json *j, const char *key, int64_t v);     /* below 0 -> null: not known */
void lg_json_bool(struct lg_json *j, bool v);
void lg_json_int(struct lg_json *j, int64_t v);
void lg_json_null(struct lg_json *j);
/* At most `decimals` digits after the point, trailing zeros dropped. */
void lg_json_num(struct lg_json *j, double v, int decimals);

/* The digits alone, for text reports too: "12.5", "null" for what is not finite. */
const char *lg_num_text(char *buf, size_t size, double v, int decimals);

/* The keys of schema 1 into an object that is open (json.c). */
struct lg_verdict;
void lg_json_verdict(const struct lg_verdict *v, struct lg_json *j);

#endif /* LG_REPORT_JSON_WRITE_H */
