/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.c - pickles of plain data, protocols 2 to 5 (Python's Lib/pickletools.py lists the opcodes).
 *
 * Only opcodes that push data or fill a container are known. GLOBAL, REDUCE, BUILD, INST, OBJ,
 * NEWOBJ, PERSID and the like end the reading with an error: their only use is to run something.
 *
 * It is bounded by the size of the file as it lies on the disk: a few bytes of a packed one may stand for
 * gigabytes of opcodes that say nothing.
 */
#include <string.h>

#include "base/alloc.h"
#include "import/source/source.h"
#include "import/value/value.h"

enum { MARK = 0xffffffff, MEMO_MAX = 1 << 26 };
enum { WINDOW_BYTES = 1 << 18, MEMO_AHEAD = 1 << 16 };
/* Per byte of the file: no honest one packs so well. And what a small file may take in any case. */
enum { OPCODES_A_BYTE = 64, OPCODES_FREE = 1 << 24, VALUES_A_BYTE = 2, VALUES_FREE = 1 << 21,
       TEXT_A_BYTE = 16, TEXT_FREE = 1 << 25 };

/* An item to be left out of its list; what a taker made of other values is told by larger numbers. */
#define DROPPED INT64_MIN

struct pickle {
	struct lg_doc *d;
	struct lg_source *s; /* NULL: all of it is in the window */
	uint8_t *window;     /* to be freed */
	size_t cap_window;
	const uint8_t *start, *p, *end;
	uint64_t before;     /* bytes in front of the window */
	uint64_t opcodes, opcodes_max, values_max, text_room;
	uint32_t *stack, *memo, *marks;
	size_t n_stack, cap_stack, n_memo, cap_memo, n_marks, cap_marks;
	lg_pickle_taker *take;
	void *ctx;
	/* The list that something was last asked of, and where it stands. */
	uint32_t place_list;
	size_t place_pos;
	struct lg_pickle_place place;
};

static uint64_t offset(const struct pickle *k, const uint8_t *p)
{
	return k->before + (uint64_t)(p - k->start);
}

static int push(struct pickle *k, uint32_t v)
{
	if (v == MARK && LG_APPEND(k->marks, k->n_marks, k->cap_marks, (uint32_t)k->n_stack))
		return LG_E_NOMEM;
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

static int push_text(struct pickle *k, const uint8_t *p, size_t n)
{
	struct lg_doc *d = k->d;
	uint32_t v = n < UINT32_MAX ? lg_value_new(d, LG_TEXT) : 0;
	char *text = v ? lg_arena_alloc(&d->text, n + 1, 1) : NULL;

	if (!text)
		return LG_E_NOMEM;
	for (size_t i = 0; i < n; i++)
		text[i] = p[i] ? (char)p[i] : ' ';
	d->v[v].n = (uint32_t)n;
	d->v[v].s = text;
	return push(k, v);
}

static int push_new(struct pickle *k, enum lg_value_kind kind)
{
	uint32_t v = lg_value_new(k->d, kind);

	return v ? push(k, v) : LG_E_NOMEM;
}

static int remember(struct pickle *k, uint64_t at)
{
	/* They are counted up; some may have been left out. */
	if (!k->n_stack || k->stack[k->n_stack - 1] == MARK || at >= MEMO_MAX || at > k->opcodes + MEMO_AHEAD)
		return LG_E_FORMAT;
	if (lg_grow(&k->memo, &k->cap_memo, at + 1, sizeof *k->memo))
		return LG_E_NOMEM;
	while (k->n_memo <= at)
		k->memo[k->n_memo++] = MARK;
	k->memo[at] = k->stack[k->n_stack - 1];
	k->d->v[k->memo[at]].kept = 1;
	return 0;
}

static int recall(struct pickle *k, uint64_t at)
{
	return at < k->n_memo && k->memo[at] != MARK ? push(k, k->memo[at]) : LG_E_FORMAT;
}

/* Index behind the newest mark, which stays; SIZE_MAX when there is none. */
static size_t after_mark(const struct pickle *k)
{
	return k->n_marks ? k->marks[k->n_marks - 1] + (size_t)1 : SIZE_MAX;
}

static void drop_to(struct pickle *k, size_t n)
{
	k->n_stack = n;
	while (k->n_marks && k->marks[k->n_marks - 1] >= n)
		k->n_marks--;
}

/* The list that what stands at pos is for, directly below it or below the mark that its items are behind;
 * SIZE_MAX = none. */
static size_t around(const struct pickle *k, size_t pos, size_t *ret_index)
{
	size_t m = k->n_marks;
	const struct lg_doc *d = k->d;

	while (m && k->marks[m - 1] >= pos)
		m--;
	if (m && k->marks[m - 1]) {
		size_t c = k->marks[m - 1] - (size_t)1;

		if (k->stack[c] != MARK && lg_value_is(d, k->stack[c], LG_LIST)) {
			*ret_index = d->v[k->stack[c]].n + pos - c - 2;
			return c;
		}
	}
	if (!pos || k->stack[pos - 1] == MARK || !lg_value_is(d, k->stack[pos - 1], LG_LIST))
		return SIZE_MAX;
	*ret_index = d->v[k->stack[pos - 1]].n;
	return pos - 1;
}

/* Where the list at pos stands, which is not attached to anything yet. */
static void find_place(struct pickle *k, size_t pos)
{
	enum { DEPTH_MAX = 3 };
	size_t index = 0, at = pos;

	k->place_list = k->stack[pos];
	k->place_pos = pos;
	k->place = (struct lg_pickle_place){ .key = "", .depth = 1 };
	for (; k->place.depth < DEPTH_MAX; k->place.depth++) {
		size_t outer = around(k, at, &index);

		if (outer == SIZE_MAX)
			break;
		if (k->place.depth == 1)
			k->place.index = (uint32_t)index;
		at = outer;
	}
	if (at && k->stack[at - 1] != MARK)
		k->place.key = lg_value_text(k->d, k->stack[at - 1]);
}

/* May the item, of the list at pos, be left out of it? */
static bool taken(struct pickle *k, size_t pos, uint32_t item)
{
	struct lg_doc *d = k->d;

	if (!k->take)
		return false;
	if (d->v[item].kind == LG_TAKEN)
		return d->v[item].i == DROPPED;
	if (d->v[item].kind != LG_DICT)
		return false;
	if (k->place_list != k->stack[pos] || k->place_pos != pos)
		find_place(k, pos);
	return k->take(k->ctx, d, &k->place, item);
}

/* A dictionary on the top of the stack got its items: as a rule all there are. */
static void offer(struct pickle *k)
{
	size_t pos = k->n_stack - 1, index;

	if (k->take && pos)
		pos = around(k, pos, &index);
	if (k->take && k->n_stack > 1 && pos != SIZE_MAX && taken(k, pos, k->stack[k->n_stack - 1]))
		lg_value_take(k->d, k->stack[k->n_stack - 1], DROPPED);
}

static int put_pairs(struct pickle *k, uint32_t to, size_t from, size_t n)
{
	for (size_t i = 0; i + 1 < n; i += 2)
		if (lg_value_put(k->d, to, k->stack[from + i], k->stack[from + i + 1]))
			return LG_E_NOMEM;
	return 0;
}

static int put_items(struct pickle *k, size_t below, size_t from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (taken(k, below, k->stack[from + i]))
			lg_value_give_back(k->d, k->stack[from + i]);
		else if (lg_value_push(k->d, k->stack[below], k->stack[from + i]))
			return LG_E_NOMEM;
	}
	return 0;
}

/* Move stack[from..] into the container below (below the mark, if there is one). */
static int collect(struct pickle *k, size_t from, size_t below, enum lg_value_kind kind)
{
	size_t n = k->n_stack - from;
	int rc;

	if (below == SIZE_MAX || below >= k->n_stack || k->stack[below] == MARK ||
	    !lg_value_is(k->d, k->stack[below], kind))
		return LG_E_FORMAT;
	rc = kind == LG_DICT ? put_pairs(k, k->stack[below], from, n) : put_items(k, below, from, n);
	if (!rc)
		drop_to(k, below + 1);
	return rc;
}

static int collect_marked(struct pickle *k, enum lg_value_kind kind)
{
	size_t from = after_mark(k);
	int rc = from == SIZE_MAX || from < 2 ? LG_E_FORMAT : collect(k, from, from - 2, kind);

	if (!rc && kind == LG_DICT)
		offer(k);
	return rc;
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
		k->n_marks--;
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
		drop_to(k, from - 1);
		return 0;
	}
	case '2':
		if (!k->n_stack || k->stack[k->n_stack - 1] == MARK)
			return LG_E_FORMAT;
		k->d->v[k->stack[k->n_stack - 1]].kept = 1;
		return push(k, k->stack[k->n_stack - 1]);
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
			drop_to(k, 1);
			return;
		}
		to = k->stack[from - 2];
		if (to == MARK || collect(k, from, from - 2, k->d->v[to].kind == LG_DICT ? LG_DICT : LG_LIST))
			drop_to(k, from - 1);
	}
}

static int end_early(struct pickle *k)
{
	k->d->cut = "it ends early";
	k->d->cut_at = offset(k, k->p);
	unwind(k);
	return 0;
}

/* Are n more bytes there? The window grows by what was read, never by what a length says. */
static int fill(struct pickle *k, uint64_t n, bool *ret)
{
	while (k->s && (uint64_t)(k->end - k->p) < n) {
		size_t have = (size_t)(k->end - k->p), got;

		k->before += (uint64_t)(k->p - k->start);
		memmove(k->window, k->p, have);
		if (have == k->cap_window && lg_grow(&k->window, &k->cap_window, have + 1, 1))
			return LG_E_NOMEM;
		got = lg_source_read(k->s, k->window + have, k->cap_window - have);
		k->start = k->p = k->window;
		k->end = k->window + have + got;
		if (!got)
			k->s = NULL;
	}
	*ret = (uint64_t)(k->end - k->p) >= n;
	return 0;
}

static int too_much(uint64_t at, struct lg_error *err)
{
	return lg_fail(err, LG_E_LIMIT, at, "byte %llu of the pickle: it holds more than a file of its size may hold",
		       (unsigned long long)at);
}

static inline int need(struct pickle *k, uint64_t n, bool *ret)
{
	*ret = true;
	return (uint64_t)(k->end - k->p) >= n ? 0 : fill(k, n, ret);
}

/* The opcode at the window's begin, with its argument. 1: go on; 0: it is the end. */
static int next(struct pickle *k, uint8_t *ret_op, struct lg_error *err)
{
	uint64_t at = offset(k, k->p), a;
	const uint8_t *data;
	bool is_there;
	uint8_t op = *ret_op = *k->p++;
	int n = argument_bytes(op), rc;

	if (n < 0)
		return lg_fail(err, LG_E_UNSUPPORTED, at,
			       "byte %llu of the pickle is opcode 0x%02x, which is not plain data: it could run code and is "
			       "refused", (unsigned long long)at, op);
	if (++k->opcodes > k->opcodes_max || k->d->n + k->n_stack > k->values_max)
		return too_much(at, err);
	if (op == '.')
		return 0;
	rc = need(k, (uint64_t)n, &is_there);
	if (rc || !is_there)
		return rc ? lg_fail(err, rc, at, "out of memory") : end_early(k);
	a = little(k->p, (unsigned)n);
	k->p += n;
	if (is_counted(op)) {
		if (a > k->text_room)
			return too_much(at, err);
		k->text_room -= a;
		rc = need(k, a, &is_there);
		if (rc || !is_there)
			return rc ? lg_fail(err, rc, at, "out of memory") : end_early(k);
		k->p += a;
	}
	data = k->p - (is_counted(op) ? a : 0);
	rc = step(k, op, a, data);
	if (rc == LG_E_NOMEM)
		return lg_fail(err, LG_E_NOMEM, at, "out of memory");
	if (rc)
		return lg_fail(err, LG_E_FORMAT, at, "byte %llu of the pickle: opcode 0x%02x has nothing to work on",
			       (unsigned long long)at, op);
	return 1;
}

static int run(struct pickle *k, struct lg_error *err)
{
	bool is_there;
	uint8_t op = 0;
	int rc;

	do {
		rc = need(k, 1, &is_there);
		if (rc)
			return lg_fail(err, rc, LG_NO_OFFSET, "out of memory");
		if (!is_there)
			return end_early(k);
		rc = next(k, &op, err);
	} while (rc > 0);
	if (rc || op != '.' || (k->n_stack == 1 && k->stack[0] != MARK))
		return rc;
	return lg_fail(err, LG_E_FORMAT, offset(k, k->p), "the pickle does not hold one value");
}

static int read_doc(struct pickle *k, uint64_t packed, struct lg_error *err)
{
	struct lg_doc *d = k->d;
	int rc = lg_doc_init(d, err);

	if (rc)
		return rc;
	packed = packed < (uint64_t)1 << 40 ? packed : (uint64_t)1 << 40;
	k->opcodes_max = OPCODES_FREE + packed * OPCODES_A_BYTE;
	k->values_max = VALUES_FREE + packed * VALUES_A_BYTE;
	k->text_room = TEXT_FREE + packed * TEXT_A_BYTE;
	rc = run(k, err);
	if (!rc) {
		d->root = k->n_stack && k->stack[0] != MARK ? k->stack[0] : 0;
		if (lg_doc_index(d))
			rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	lg_free(k->stack);
	lg_free(k->memo);
	lg_free(k->marks);
	lg_free(k->window);
	if (rc)
		lg_doc_done(d);
	return rc;
}

int lg_doc_pickle(struct lg_doc *d, const char *p, size_t n, struct lg_error *err)
{
	const uint8_t *start = (const uint8_t *)p;
	struct pickle k = { .d = d, .start = start, .p = start, .end = start + n };

	return read_doc(&k, n, err);
}

int lg_doc_pickle_stream(struct lg_doc *d, struct lg_source *s, uint64_t packed, lg_pickle_taker *take,
			 void *ctx, struct lg_error *err)
{
	struct pickle k = { .d = d, .s = s, .take = take, .ctx = ctx, .cap_window = WINDOW_BYTES };

	k.window = lg_calloc(WINDOW_BYTES, 1);
	if (!k.window)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	k.start = k.p = k.end = k.window;
	return read_doc(&k, packed, err);
}
