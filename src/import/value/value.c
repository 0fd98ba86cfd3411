/* SPDX-License-Identifier: Apache-2.0 */
#include "import/value/value.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"

enum { SMALL_INTS = 1 << 16, VALUES_MAX = 1 << 28 };
enum { WALKED_MAX = 16 }; /* pairs of a dictionary that is simply walked */
enum { KEY_MAX = 64 };    /* bytes: a pickle may hold one long key many times, and nobody asks for such */

int lg_doc_init(struct lg_doc *d, struct lg_error *err)
{
	*d = (struct lg_doc){ 0 };
	d->small_int = lg_calloc(SMALL_INTS, sizeof *d->small_int);
	if (!d->small_int || lg_grow(&d->v, &d->cap, 64, sizeof *d->v)) {
		lg_doc_done(d);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	d->v[0] = (struct lg_value){ .kind = LG_NULL };
	d->n = 1;
	return 0;
}

void lg_doc_done(struct lg_doc *d)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->v[i].kind == LG_LIST || d->v[i].kind == LG_DICT)
			lg_free(d->v[i].items);
	lg_free(d->v);
	lg_free(d->small_int);
	lg_arena_done(&d->text);
	lg_map_done(&d->large);
	*d = (struct lg_doc){ 0 };
}

uint32_t lg_value_new(struct lg_doc *d, enum lg_value_kind kind)
{
	uint32_t v = d->free;

	if (v) {
		d->free = d->v[v].n;
		d->v[v] = (struct lg_value){ .kind = (uint16_t)kind };
		return v;
	}
	if (d->n >= VALUES_MAX || lg_grow(&d->v, &d->cap, d->n + 1, sizeof *d->v))
		return 0;
	d->v[d->n] = (struct lg_value){ .kind = (uint16_t)kind };
	return (uint32_t)d->n++;
}

enum { GIVE_BACK_DEPTH = 4 }; /* what lies deeper stays until the document goes */

static bool is_container(const struct lg_value *x)
{
	return x->kind == LG_LIST || x->kind == LG_DICT;
}

static void give_back(struct lg_doc *d, uint32_t v, unsigned depth);

static void empty(struct lg_doc *d, uint32_t v, unsigned depth)
{
	uint32_t n = d->v[v].kind == LG_DICT ? d->v[v].n * 2 : d->v[v].n;
	uint32_t *items = d->v[v].items;

	d->v[v].items = NULL;
	d->v[v].n = 0;
	for (uint32_t i = 0; depth && i < n; i++)
		give_back(d, items[i], depth - 1);
	lg_free(items);
}

static void give_back(struct lg_doc *d, uint32_t v, unsigned depth)
{
	const struct lg_value *x = &d->v[v];

	if (!v || x->kept || (x->kind == LG_INT && x->i >= 0 && x->i < SMALL_INTS))
		return;
	if (is_container(x))
		empty(d, v, depth);
	d->v[v] = (struct lg_value){ .kind = LG_NULL, .kept = 1, .n = d->free };
	d->free = v;
}

void lg_value_give_back(struct lg_doc *d, uint32_t v)
{
	give_back(d, v, GIVE_BACK_DEPTH);
}

void lg_value_take(struct lg_doc *d, uint32_t v, int64_t made)
{
	if (!is_container(&d->v[v]))
		return;
	empty(d, v, GIVE_BACK_DEPTH);
	d->v[v].kind = LG_TAKEN;
	d->v[v].i = made;
}

uint32_t lg_value_new_int(struct lg_doc *d, int64_t i)
{
	uint32_t v;

	if (i >= 0 && i < SMALL_INTS && d->small_int[i])
		return d->small_int[i];
	v = lg_value_new(d, LG_INT);
	if (v)
		d->v[v].i = i;
	if (v && i >= 0 && i < SMALL_INTS)
		d->small_int[i] = v;
	return v;
}

/* Room doubles whenever the number of entries is a power of two, so that no capacity is kept. */
static int room(struct lg_value *c, size_t have)
{
	uint32_t *p;

	if ((have & (have - 1)) || (have && have < 4))
		return 0;
	p = lg_realloc(have ? c->items : NULL, have ? have * 2 : 4, sizeof *p);
	if (!p)
		return LG_E_NOMEM;
	c->items = p;
	return 0;
}

int lg_value_push(struct lg_doc *d, uint32_t list, uint32_t item)
{
	struct lg_value *c = &d->v[list];

	if (room(c, c->n))
		return LG_E_NOMEM;
	c->items[c->n++] = item;
	return 0;
}

int lg_value_put(struct lg_doc *d, uint32_t dict, uint32_t key, uint32_t item)
{
	struct lg_value *c = &d->v[dict];
	size_t have = (size_t)c->n * 2;

	if (room(c, have)) /* even, and a power of two before it is full: two entries fit */
		return LG_E_NOMEM;
	c->items[have] = key;
	c->items[have + 1] = item;
	c->n++;
	return 0;
}

static uint64_t pair_hash(uint32_t dict, const char *key, size_t n)
{
	return XXH3_64bits_withSeed(key, n, lg_map_secret ^ lg_mix64(dict));
}

/* A dump may name one dictionary as all of its entries: walking it for each of them would never end. */
int lg_doc_index(struct lg_doc *d)
{
	for (uint32_t dict = 1; dict < d->n; dict++) {
		const struct lg_value *c = &d->v[dict];

		for (uint32_t i = 0; c->kind == LG_DICT && c->n > WALKED_MAX && i < c->n; i++) {
			const struct lg_value *key = &d->v[c->items[2 * i]];

			if (key->kind == LG_TEXT && key->n <= KEY_MAX &&
			    lg_map_set(&d->large, pair_hash(dict, key->s, key->n), i + 1))
				return LG_E_NOMEM;
		}
	}
	return 0;
}

static bool is_key(const struct lg_doc *d, const struct lg_value *dict, uint32_t i, const char *key, size_t n)
{
	const struct lg_value *name = &d->v[dict->items[2 * i]];

	return name->kind == LG_TEXT && name->n == n && !memcmp(name->s, key, n);
}

uint32_t lg_value_get(const struct lg_doc *d, uint32_t dict, const char *key)
{
	const struct lg_value *c = &d->v[dict];
	size_t k = strlen(key);

	if (c->kind != LG_DICT)
		return 0;
	/* The last of equal keys wins, as everywhere. */
	if (c->n > WALKED_MAX && k <= KEY_MAX) {
		uint32_t at = lg_map_get(&d->large, pair_hash(dict, key, k));

		if (!at)
			return 0;
		if (is_key(d, c, at - 1, key, k))
			return c->items[2 * at - 1];
	}
	for (uint32_t i = c->n; i-- > 0;)
		if (is_key(d, c, i, key, k))
			return c->items[2 * i + 1];
	return 0;
}

uint32_t lg_value_at(const struct lg_doc *d, uint32_t list, uint32_t i)
{
	const struct lg_value *c = &d->v[list];

	return c->kind == LG_LIST && i < c->n ? c->items[i] : 0;
}

uint32_t lg_value_count(const struct lg_doc *d, uint32_t v)
{
	return d->v[v].kind == LG_LIST || d->v[v].kind == LG_DICT ? d->v[v].n : 0;
}

const char *lg_value_key(const struct lg_doc *d, uint32_t dict, uint32_t i)
{
	const struct lg_value *c = &d->v[dict];

	return c->kind == LG_DICT && i < c->n ? lg_value_text(d, c->items[2 * i]) : "";
}

uint32_t lg_value_item(const struct lg_doc *d, uint32_t dict, uint32_t i)
{
	const struct lg_value *c = &d->v[dict];

	return c->kind == LG_DICT && i < c->n ? c->items[2 * i + 1] : 0;
}

const char *lg_value_text(const struct lg_doc *d, uint32_t v)
{
	return d->v[v].kind == LG_TEXT ? d->v[v].s : "";
}

int64_t lg_value_int(const struct lg_doc *d, uint32_t v, int64_t otherwise)
{
	const struct lg_value *x = &d->v[v];
	char *end;
	int64_t i;

	switch (x->kind) {
	case LG_INT:
	case LG_BOOL:
		return x->i;
	case LG_REAL:
		if (!(x->d > -9.2e18 && x->d < 9.2e18))
			return otherwise;
		return (int64_t)x->d;
	case LG_TEXT:
		i = strtoll(x->s, &end, 10);
		return end > x->s && !*end ? i : otherwise;
	default:
		return otherwise;
	}
}

double lg_value_real(const struct lg_doc *d, uint32_t v, double otherwise)
{
	const struct lg_value *x = &d->v[v];

	if (x->kind == LG_REAL)
		return x->d;
	if (x->kind == LG_INT || x->kind == LG_BOOL)
		return (double)x->i;
	return otherwise;
}

int lg_value_is(const struct lg_doc *d, uint32_t v, enum lg_value_kind kind)
{
	return d->v[v].kind == (uint32_t)kind;
}
