/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.c - pickles of plain data, protocols 2 to 5 (Python's Lib/pickletools.py lists the opcodes).
 *
 * Only opcodes that push data or fill a container are known. GLOBAL, REDUCE, BUILD, INST, OBJ,
 * NEWOBJ, PERSID and the like end the reading with an error: their only use is to run something.
 */
#include <string.h>

#include "base/alloc.h"
#include "import/value/value.h"

enum { MARK = 0xffffffff, MEMO_MAX = 1 << 26 };

struct pickle {
	struct lg_doc *d;
	const uint8_t *start, *p, *end;
	uint32_t *stack, *memo;
	size_t n_stack, cap_stack, n_memo, cap_memo;
};

static int push(struct pickle *k, uint32_t v)
{
	if (lg_grow(&k->stack, &k->cap_stack, k->n_stack + 1, sizeof *k->stack))
		return LG_E_NOMEM;
	k->stack[k->n_stack++] = v;
	return 0;
}

static uint64_t little(const uint8_t *p, unsigned n)
{
	uint64_t u = 0;

	for (unsigned i = 0; i < n && i < 8; i++)
		u |= (uint64_t)p[i] << (8 * i);
	return u;
}

static int push_int(struct pickle *k, int64_t i)
{
	uint32_t v = lg_value_new_int(k->d, i);

	return v ? push(k, v) : LG_E_NOMEM;
}

/* Sign-extended little endian of any length; what does not fit 64 bits saturates. */
static int push_long(struct pickle *k, const uint8_t *p, size_t n)
{
	uint64_t u = little(p, n < 8 ? (unsigned)n : 8);

	if (n && n < 8 && p[n - 1] & 0x80)
		u |= ~(uint64_t)0 << (8 * n);
	for (size_t i = 8; i < n; i++)
		if (p[i] != (u >> 63 ? 0xff : 0))
			return push_int(k, p[n - 1] & 0x80 ? INT64_MIN : INT64_MAX);
	return push_int(k, (int64_t)u);
}

/* Strings get a NUL of their own: they lie in own_text as offsets until the end (it moves). */
static int push_text(struct pickle *k, const uint8_t *p, size_t n)
{
	struct lg_doc *d = k->d;
	uint32_t v = lg_value_new(d, LG_TEXT);

	if (!v || n > UINT32_MAX || lg_grow(&d->own_text, &d->own_cap, d->own_n + n + 1, 1))
		return LG_E_NOMEM;
	d->v[v].n = (uint32_t)n;
	d->v[v].i = (int64_t)d->own_n;
	for (size_t i = 0; i < n; i++)
		d->own_text[d->own_n++] = p[i] ? (char)p[i] : ' ';
	d->own_text[d->own_n++] = 0;
	return push(k, v);
}

static int push_new(struct pickle *k, enum lg_value_kind kind)
{
	uint32_t v = lg_value_new(k->d, kind);

	return v ? push(k, v) : LG_E_NOMEM;
}

static int remember(struct pickle *k, uint64_t at)
{
	if (!k->n_stack || k->stack[k->n_stack - 1] == MARK || at >= MEMO_MAX)
		return LG_E_FORMAT;
	if (lg_grow(&k->memo, &k->cap_memo, at + 1, sizeof *k->memo))
		return LG_E_NOMEM;
	while (k->n_memo <= at)
		k->memo[k->n_memo++] = MARK;
	k->memo[at] = k->stack[k->n_stack - 1];
	return 0;
}

static int recall(struct pickle *k, uint64_t at)
{
	return at < k->n_memo && k->memo[at] != MARK ? push(k, k->memo[at]) : LG_E_FORMAT;
}

/* Index behind the newest mark, which stays; SIZE_MAX when there is none. */
static size_t after_mark(const struct pickle *k)
{
	size_t i = k->n_stack;

	while (i && k->stack[i - 1] != MARK)
		i--;
	return i ? i : SIZE_MAX;
}

/* Move stack[from..] into the container below (below the mark, if there is one). */
static int collect(struct pickle *k, size_t from, size_t below, enum lg_value_kind kind)
{
	uint32_t to;
	size_t n = k->n_stack - from;

	if (below == SIZE_MAX || below >= k->n_stack || k->stack[below] == MARK)
		return LG_E_FORMAT;
	to = k->stack[below];
	if (!lg_value_is(k->d, to, kind))
		return LG_E_FORMAT;
	if (kind == LG_DICT) {
		for (size_t i = 0; i + 1 < n; i += 2)
			if (lg_value_put(k->d, to, k->stack[from + i], k->stack[from + i + 1]))
				return LG_E_NOMEM;
	} else {
		for (size_t i = 0; i < n; i++)
			if (lg_value_push(k->d, to, k->stack[from + i]))
				return LG_E_NOMEM;
	}
	k->n_stack = below + 1;
	return 0;
}

static int collect_marked(struct pickle *k, enum lg_value_kind kind)
{
	size_t from = after_mark(k);

	return from == SIZE_MAX || from < 2 ? LG_E_FORMAT : collect(k, from, from - 2, kind);
}

/* The last n values, without any mark among them. */
static int collect_last(struct pickle *k, size_t n, enum lg_value_kind kind)
{
	if (k->n_stack < n + 1)
		return LG_E_FORMAT;
	for (size_t i = k->n_stack - n; i < k->n_stack; i++)
		if (k->stack[i] == MARK)
			return LG_E_FORMAT;
	return collect(k, k->n_stack - n, k->n_stack - n - 1, kind);
}

static int tuple(struct pickle *k, size_t n)
{
	uint32_t v = lg_value_new(k->d, LG_LIST);

	if (!v)
		return LG_E_NOMEM;
	if (k->n_stack < n)
		return LG_E_FORMAT;
	for (size_t i = k->n_stack - n; i < k->n_stack; i++) {
		if (k->stack[i] == MARK)
			return LG_E_FORMAT;
		if (lg_value_push(k->d, v, k->stack[i]))
			return LG_E_NOMEM;
	}
	k->n_stack -= n;
	return push(k, v);
}

static int marked_tuple(struct pickle *k)
{
	size_t from = after_mark(k);
	int rc;

	if (from == SIZE_MAX)
		return LG_E_FORMAT;
	rc = tuple(k, k->n_stack - from);
	if (!rc) { /* take the mark away from below the new value */
		k->stack[k->n_stack - 2] = k->stack[k->n_stack - 1];
		k->n_stack--;
	}
	return rc;
}

static int push_real(struct pickle *k, const uint8_t *p)
{
	uint64_t u = __builtin_bswap64(little(p, 8)); /* big endian */
	uint32_t v = lg_value_new(k->d, LG_REAL);

	if (!v)
		return LG_E_NOMEM;
	memcpy(&k->d->v[v].d, &u, 8);
	return push(k, v);
}

static int push_bool(struct pickle *k, int yes)
{
	uint32_t v = lg_value_new(k->d, LG_BOOL);

	if (!v)
		return LG_E_NOMEM;
	k->d->v[v].i = yes;
	return push(k, v);
}

/* Bytes of the fixed argument of an opcode; -1 = not an opcode of data. */
static int argument_bytes(uint8_t op)
{
	switch (op) {
	case '(': case '}': case ']': case ')': case 'u': case 'e': case 's': case 'a': case 't':
	case 'N': case '.': case '0': case '2': case '1': case 0x94: case 0x88: case 0x89:
	case 0x85: case 0x86: case 0x87:
		return 0;
	case 'K': case 'q': case 'h': case 0x80: case 0x8a: case 0x8c: case 'C': case 'U':
		return 1;
	case 'M':
		return 2;
	case 'J': case 'X': case 'r': case 'j': case 'B': case 'T': case 0x8b:
		return 4;
	case 'G': case 0x95: case 0x8d: case 0x8e:
		return 8;
	default:
		return -1;
	}
}

/* Opcodes whose argument is a length that so many bytes follow. */
static int is_counted(uint8_t op)
{
	return op == 'X' || op == 0x8c || op == 0x8d || op == 'C' || op == 'B' || op == 0x8e ||
	       op == 'U' || op == 'T' || op == 0x8a || op == 0x8b;
}

static int step(struct pickle *k, uint8_t op, uint64_t a, const uint8_t *data)
{
	switch (op) {
	case 0x80: case 0x95: /* PROTO, FRAME */
		return 0;
	case '(': return push(k, MARK);
	case '}': return push_new(k, LG_DICT);
	case ']': case ')': return push_new(k, LG_LIST);
	case 'u': return collect_marked(k, LG_DICT);
	case 'e': return collect_marked(k, LG_LIST);
	case 's': return collect_last(k, 2, LG_DICT);
	case 'a': return collect_last(k, 1, LG_LIST);
	case 't': return marked_tuple(k);
	case 0x85: case 0x86: case 0x87: return tuple(k, (size_t)(op - 0x84));
	case 'N': return push(k, 0);
	case 0x88: case 0x89: return push_bool(k, op == 0x88);
	case 'K': case 'M': return push_int(k, (int64_t)a);
	case 'J': return push_int(k, (int32_t)a);
	case 0x8a: case 0x8b: return push_long(k, data, a);
	case 'G': return push_real(k, k->p - 8);
	case 'q': case 'r': return remember(k, a);
	case 0x94: return remember(k, k->n_memo);
	case 'h': case 'j': return recall(k, a);
	case '0': case '1': {
		size_t from = op == '1' ? after_mark(k) : k->n_stack;

		if (!k->n_stack || from == SIZE_MAX)
			return LG_E_FORMAT;
		k->n_stack = from - 1;
		return 0;
	}
	case '2':
		return k->n_stack && k->stack[k->n_stack - 1] != MARK
			       ? push(k, k->stack[k->n_stack - 1]) : LG_E_FORMAT;
	default:
		return push_text(k, data, a);
	}
}

/* A file that ends early: close what is open, from the inside out. */
static void unwind(struct pickle *k)
{
	while (k->n_stack > 1) {
		size_t from = after_mark(k);
		uint32_t to;

		if (from == SIZE_MAX || from < 2) {
			k->n_stack = 1;
			return;
		}
		to = k->stack[from - 2];
		if (to == MARK || collect(k, from, from - 2, k->d->v[to].kind == LG_DICT ? LG_DICT
											  : LG_LIST))
			k->n_stack = from - 1;
	}
}

static int end_early(struct pickle *k)
{
	k->d->cut = "it ends early";
	k->d->cut_at = (uint64_t)(k->p - k->start);
	unwind(k);
	return 0;
}

static int run(struct pickle *k, struct lg_error *err)
{
	while (k->p < k->end) {
		const uint8_t *at = k->p++, *data;
		int n = argument_bytes(*at), rc;
		uint64_t a, more = 0;

		if (n < 0)
			return lg_fail(err, LG_E_UNSUPPORTED, (uint64_t)(at - k->start),
				       "byte %lld of the pickle is opcode 0x%02x, which is not plain data: "
				       "it could run code and is refused",
				       (long long)(at - k->start), *at);
		if (*at == '.') {
			if (k->n_stack == 1 && k->stack[0] != MARK)
				return 0;
			break;
		}
		if (k->end - k->p < n)
			return end_early(k);
		a = little(k->p, (unsigned)n);
		k->p += n;
		data = k->p;
		if (is_counted(*at)) {
			more = a;
			if (more > (uint64_t)(k->end - k->p))
				return end_early(k);
			k->p += more;
		}
		rc = step(k, *at, a, data);
		if (rc == LG_E_NOMEM)
			return lg_fail(err, LG_E_NOMEM, (uint64_t)(at - k->start), "out of memory");
		if (rc)
			return lg_fail(err, LG_E_FORMAT, (uint64_t)(at - k->start),
				       "byte %lld of the pickle: opcode 0x%02x has nothing to work on",
				       (long long)(at - k->start), *at);
	}
	if (k->p >= k->end)
		return end_early(k);
	return lg_fail(err, LG_E_FORMAT, (uint64_t)(k->p - k->start),
		       "the pickle does not hold one value");
}

int lg_doc_pickle(struct lg_doc *d, char *p, size_t n, struct lg_error *err)
{
	struct pickle k = { .d = d, .start = (const uint8_t *)p, .p = (const uint8_t *)p,
			    .end = (const uint8_t *)p + n };
	int rc = lg_doc_init(d, err);

	if (rc)
		return rc;
	rc = run(&k, err);
	if (!rc) {
		d->root = k.n_stack && k.stack[0] != MARK ? k.stack[0] : 0;
		for (size_t i = 1; i < d->n; i++)
			if (d->v[i].kind == LG_TEXT)
				d->v[i].s = d->own_text + d->v[i].i;
		if (lg_doc_index(d))
			rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	lg_free(k.stack);
	lg_free(k.memo);
	if (rc)
		lg_doc_done(d);
	return rc;
}
