/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.h - small documents as trees: JSON, and pickles of plain data.
 *
 * For formats that are read whole because their parts refer to each other (speedscope, py-spy's
 * dump, the Flight Recorder); the large ones are streamed elsewhere. The pickle reader knows the
 * opcodes that build numbers, strings, lists, tuples and dicts; whatever would look up or call
 * something is refused, so nothing in a file can run. A value may be shared by several parents (a
 * pickle's memo); hostile ones may even hold themselves: walk by known paths only.
 */
#ifndef LG_IMPORT_VALUE_VALUE_H
#define LG_IMPORT_VALUE_VALUE_H
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/map.h"

enum lg_value_kind { LG_NULL, LG_BOOL, LG_INT, LG_REAL, LG_TEXT, LG_LIST, LG_DICT };

struct lg_value {
	uint32_t kind; /* enum lg_value_kind */
	uint32_t n;    /* text: bytes; list: items; dict: pairs */
	union {
		int64_t i;
		double d;
		const char *s;   /* NUL-terminated */
		uint32_t *items; /* indices into doc->v; dict: key, value, key, value ... */
	};
};

struct lg_doc {
	struct lg_value *v; /* [0] is null: what a failed look-up returns */
	size_t n, cap;
	uint32_t root;
	uint32_t *small_int; /* one shared value per small integer: files hold millions of them */
	char *own_text;      /* pickles: copies of strings */
	size_t own_n, own_cap;
	const char *cut;     /* NULL, or why the document ends early; what came before is there */
	uint64_t cut_at;     /* byte */
	struct lg_map large; /* dict and key -> pair + 1, of dictionaries that are too long to be walked */
};

void lg_doc_done(struct lg_doc *d);
/* text (n bytes, text[n] == 0) is changed in place and must outlive d. */
int lg_doc_json(struct lg_doc *d, char *text, size_t n, struct lg_error *err) LG_MUST_CHECK;
/* As above for a pickle; p must outlive d. */
int lg_doc_pickle(struct lg_doc *d, char *p, size_t n, struct lg_error *err) LG_MUST_CHECK;

/* Look-ups never fail: a missing or wrong value is 0, "" or an empty list. */
uint32_t lg_value_get(const struct lg_doc *d, uint32_t dict, const char *key);
uint32_t lg_value_at(const struct lg_doc *d, uint32_t list, uint32_t i);
uint32_t lg_value_count(const struct lg_doc *d, uint32_t list_or_dict);
const char *lg_value_key(const struct lg_doc *d, uint32_t dict, uint32_t i);
uint32_t lg_value_item(const struct lg_doc *d, uint32_t dict, uint32_t i);
const char *lg_value_text(const struct lg_doc *d, uint32_t v);
/* Numbers in text count, too (thread ids in Flight Recorder dumps). */
int64_t lg_value_int(const struct lg_doc *d, uint32_t v, int64_t otherwise);
double lg_value_real(const struct lg_doc *d, uint32_t v, double otherwise);
int lg_value_is(const struct lg_doc *d, uint32_t v, enum lg_value_kind kind);

/* Inside value/: builders. 0 when memory is exhausted or the document is too large. */
uint32_t lg_value_new(struct lg_doc *d, enum lg_value_kind kind);
uint32_t lg_value_new_int(struct lg_doc *d, int64_t i);
int lg_value_push(struct lg_doc *d, uint32_t list, uint32_t item);
int lg_value_put(struct lg_doc *d, uint32_t dict, uint32_t key, uint32_t item);
int lg_doc_init(struct lg_doc *d, struct lg_error *err);
/* When all is built: look-ups then take as long in a large dictionary as in a small one. 0 or LG_E_NOMEM. */
int lg_doc_index(struct lg_doc *d) LG_MUST_CHECK;

#endif /* LG_IMPORT_VALUE_VALUE_H */
