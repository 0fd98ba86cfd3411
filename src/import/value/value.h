/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.h - small documents as trees: JSON, and pickles of plain data.
 *
 * For formats that are read whole because their parts refer to each other (speedscope, py-spy's
 * dump, the Flight Recorder); the large ones are streamed elsewhere. The pickle reader knows the
 * opcodes that build numbers, strings, lists, tuples and dicts; whatever would look up or call
 * something is refused, so nothing in a file can run. A value may be shared by several parents (a
 * pickle's memo); hostile ones may even hold themselves: walk by known paths only.
 *
 * A large pickle is streamed: items of its lists are given to a taker as soon as they are whole, which
 * makes rows of them and takes them out of the tree.
 */
#ifndef LG_IMPORT_VALUE_VALUE_H
#define LG_IMPORT_VALUE_VALUE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"

/* LG_TAKEN: a taker has made something of it, of which `i` tells. */
enum lg_value_kind { LG_NULL, LG_BOOL, LG_INT, LG_REAL, LG_TEXT, LG_LIST, LG_DICT, LG_TAKEN };

struct lg_value {
	uint16_t kind; /* enum lg_value_kind */
	uint16_t kept; /* pickles: other places may hold it as well */
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
	uint32_t free;       /* first of the values that were given back, linked by n */
	struct lg_arena text; /* pickles: copies of strings */
	const char *cut;     /* NULL, or why the document ends early; what came before is there */
	uint64_t cut_at;     /* byte */
	struct lg_map large; /* dict and key -> pair + 1, of dictionaries that are too long to be walked */
};

void lg_doc_done(struct lg_doc *d);
/* text (n bytes, text[n] == 0) is changed in place and must outlive d. */
int lg_doc_json(struct lg_doc *d, char *text, size_t n, struct lg_error *err) LG_MUST_CHECK;
/* As above for a pickle; p need not outlive d. */
int lg_doc_pickle(struct lg_doc *d, const char *p, size_t n, struct lg_error *err) LG_MUST_CHECK;

/* Which list an item is of: so many lists deep below the dictionary's key ("": below the root), and where
 * the list stands in the one around it. */
struct lg_pickle_place {
	const char *key;
	uint32_t depth, index;
};
/*
 * A dictionary that is an item of a list is whole. True: rows were made of it, or it is of no use, and it
 * is not put into the list. It may come again where the taker said false.
 */
typedef bool lg_pickle_taker(void *ctx, struct lg_doc *d, const struct lg_pickle_place *place,
			     uint32_t item);
struct lg_source;
/* A pickle as it is read. packed: bytes of the file, which bound the memory and the time that it may take. */
int lg_doc_pickle_stream(struct lg_doc *d, struct lg_source *s, uint64_t packed, lg_pickle_taker *take,
			 void *ctx, struct lg_error *err) LG_MUST_CHECK;
/* What a list or dictionary holds is given back; v itself stays, for whoever refers to it, as LG_TAKEN with
 * what was made of it. */
void lg_value_take(struct lg_doc *d, uint32_t v, int64_t made);

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
/* v is not needed any more, as far as nobody else holds it. */
void lg_value_give_back(struct lg_doc *d, uint32_t v);
/* When all is built: look-ups then take as long in a large dictionary as in a small one. 0 or LG_E_NOMEM. */
int lg_doc_index(struct lg_doc *d) LG_MUST_CHECK;

#endif /* LG_IMPORT_VALUE_VALUE_H */
