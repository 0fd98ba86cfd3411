/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rust_demangle.c - Rust's two manglings, from their descriptions: the v0 grammar of RFC 2603
 * (doc.rust-lang.org/rustc/symbol-mangling/v0.html), and the older one that dresses up as C++.
 *
 * A back reference may name a place that holds back references: output and steps are bounded,
 * since a symbol of 100 bytes can ask for more than memory holds.
 */
#include "symbols/demangle.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 200, STEPS_MAX = 20000, PUNY_MAX = 256 };

struct rust {
	const char *s; /* behind "_R" */
	size_t n, at;
	char *out;
	size_t size, len;
	bool bad, full, quiet; /* quiet: parse only */
	unsigned depth, steps;
	uint64_t bound;        /* lifetimes bound by the binders around */
};

static void put_n(struct rust *r, const char *s, size_t n)
{
	if (r->quiet || r->full || r->bad)
		return;
	if (n > r->size - 1 - r->len) {
		n = r->size - 1 - r->len;
		r->full = true;
	}
	memcpy(r->out + r->len, s, n);
	r->len += n;
}

static void put(struct rust *r, const char *s)
{
	put_n(r, s, strlen(s));
}

static void put_number(struct rust *r, uint64_t v)
{
	char text[24];

	snprintf(text, sizeof text, "%llu", (unsigned long long)v);
	put(r, text);
}

static void put_utf8(struct rust *r, uint32_t c)
{
	char b[16];
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
		r->bad = true;
		return;
	}
	if (c < 0x20 || c == 0x7f) { /* a NUL would end the name */
		n = (size_t)snprintf(b, sizeof b, "\\u{%x}", (unsigned)c);
	} else if (n == 1) {
		b[0] = (char)c;
	} else {
		for (size_t i = n; i-- > 1; c >>= 6)
			b[i] = (char)(0x80 | (c & 0x3f));
		b[0] = (char)((0xf00 >> n & 0xff) | c);
	}
	put_n(r, b, n);
}

static char peek(const struct rust *r)
{
	return r->at < r->n ? r->s[r->at] : 0;
}

static char take(struct rust *r)
{
	if (r->at < r->n)
		return r->s[r->at++];
	r->bad = true;
	return 0;
}

static bool eat(struct rust *r, char c)
{
	if (peek(r) != c)
		return false;
	r->at++;
	return true;
}

/* "_" = 0, "0_" = 1, ... */
static uint64_t base62(struct rust *r)
{
	uint64_t v = 0;

	if (eat(r, '_'))
		return 0;
	while (!r->bad && !eat(r, '_')) {
		char c = take(r);
		unsigned d;

		if (c >= '0' && c <= '9')
			d = (unsigned)(c - '0');
		else if (c >= 'a' && c <= 'z')
			d = 10 + (unsigned)(c - 'a');
		else if (c >= 'A' && c <= 'Z')
			d = 36 + (unsigned)(c - 'A');
		else
			d = 99;
		if (d == 99 || v > (UINT64_MAX - d) / 62)
			r->bad = true;
		else
			v = v * 62 + d;
	}
	if (v == UINT64_MAX)
		r->bad = true;
	return v + 1;
}

/* An optional number after a tag: absent = 0. */
static uint64_t tagged(struct rust *r, char tag)
{
	uint64_t v;

	if (!eat(r, tag))
		return 0;
	v = base62(r);
	if (v == UINT64_MAX)
		r->bad = true;
	return v + 1;
}

struct ident {
	const char *p;
	size_t n;
	bool puny;
};

static struct ident undisambiguated(struct rust *r)
{
	struct ident id = { .puny = eat(r, 'u') };

	if (peek(r) < '0' || peek(r) > '9') {
		r->bad = true;
		return id;
	}
	if (!eat(r, '0'))
		while (peek(r) >= '0' && peek(r) <= '9' && id.n <= r->n)
			id.n = id.n * 10 + (size_t)(take(r) - '0');
	(void)eat(r, '_');
	if (id.n > r->n - r->at) {
		r->bad = true;
		id.n = 0;
		return id;
	}
	id.p = r->s + r->at;
	r->at += id.n;
	return id;
}

/* Punycode (RFC 3492) with '_' as the delimiter. */
static void put_punycode(struct rust *r, struct ident id)
{
	uint32_t cp[PUNY_MAX], i = 0, code = 128, bias = 72;
	size_t n = 0, basic = id.n, at;

	while (basic && id.p[basic - 1] != '_')
		basic--;
	at = basic;
	for (size_t k = 0; k + 1 < basic && n < PUNY_MAX; k++)
		cp[n++] = (uint8_t)id.p[k];
	while (at < id.n && n < PUNY_MAX) {
		uint32_t old = i, w = 1, delta, t;

		for (uint32_t k = 36;; k += 36) {
			char c = at < id.n ? id.p[at++] : 0;
			uint32_t d = c >= 'a' && c <= 'z' ? (uint32_t)(c - 'a')
				     : c >= '0' && c <= '9' ? 26 + (uint32_t)(c - '0') : 99;

			if (d == 99 || d > (UINT32_MAX - i) / w) {
				r->bad = true;
				return;
			}
			i += d * w;
			t = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
			if (d < t)
				break;
			if (w > UINT32_MAX / (36 - t)) {
				r->bad = true;
				return;
			}
			w *= 36 - t;
		}
		delta = (i - old) / (old ? 2 : 700);
		delta += delta / (uint32_t)(n + 1);
		for (bias = 0; delta > 455; bias += 36)
			delta /= 35;
		bias += 36 * delta / (delta + 38);
		if (i / (n + 1) > 0x10ffff - code) {
			r->bad = true;
			return;
		}
		code += i / (uint32_t)(n + 1);
		i %= (uint32_t)(n + 1);
		memmove(cp + i + 1, cp + i, (n - i) * sizeof *cp);
		cp[i++] = code;
		n++;
	}
	for (size_t k = 0; k < n; k++)
		put_utf8(r, cp[k]);
}

static void put_ident(struct rust *r, struct ident id)
{
	if (r->quiet || !id.p)
		return;
	if (id.puny)
		put_punycode(r, id);
	else
		put_n(r, id.p, id.n);
}

static bool enter(struct rust *r)
{
	if (++r->depth > DEPTH_MAX || ++r->steps > STEPS_MAX)
		r->bad = true;
	return !r->bad && !r->full;
}

static void path(struct rust *r, bool in_value);
static void type(struct rust *r);
static void constant(struct rust *r);

/* 'B' was taken: run what at the place it names, which must lie before. */
static void backref(struct rust *r, void (*what)(struct rust *r, bool in_value), bool in_value)
{
	size_t here = r->at - 1;
	uint64_t to = base62(r);
	size_t after = r->at;

	if (r->bad || to >= here) {
		r->bad = true;
		return;
	}
	if (r->quiet)
		return;
	r->at = (size_t)to;
	what(r, in_value);
	r->at = after;
}

static void type_at(struct rust *r, bool in_value)
{
	(void)in_value;
	type(r);
}

static void constant_at(struct rust *r, bool in_value)
{
	(void)in_value;
	constant(r);
}

static void put_lifetime(struct rust *r, uint64_t index)
{
	char name[2] = { 0 };

	put(r, "'");
	if (!index) {
		put(r, "_");
		return;
	}
	if (index > r->bound) {
		r->bad = true;
		return;
	}
	index = r->bound - index;
	if (index < 26) {
		name[0] = (char)('a' + index);
		put(r, name);
	} else {
		put(r, "_");
		put_number(r, index);
	}
}

/* How many lifetimes the binder adds; the caller takes them away again. */
static uint64_t binder(struct rust *r)
{
	uint64_t n = tagged(r, 'G');

	if (n > 1000) { /* each is printed */
		r->bad = true;
		return 0;
	}
	for (uint64_t i = 0; i < n; i++) {
		r->bound++;
		put(r, i ? ", " : "for<");
		put_lifetime(r, 1);
	}
	if (n)
		put(r, "> ");
	return n;
}

static void generic_arg(struct rust *r)
{
	if (eat(r, 'L'))
		put_lifetime(r, base62(r));
	else if (eat(r, 'K'))
		constant(r);
	else
		type(r);
}

static void generic_args(struct rust *r)
{
	for (bool first = true; !r->bad && !r->full && !eat(r, 'E'); first = false) {
		if (!first)
			put(r, ", ");
		generic_arg(r);
	}
}

static void impl_path(struct rust *r)
{
	bool quiet = r->quiet;

	r->quiet = true; /* where the impl stands; the type says it better */
	(void)tagged(r, 's');
	path(r, false);
	r->quiet = quiet;
}

static void nested(struct rust *r, bool in_value)
{
	char ns = take(r), tag[2] = { ns, 0 };
	struct ident id;
	uint64_t dis;

	path(r, in_value);
	dis = tagged(r, 's');
	id = undisambiguated(r);
	if (ns >= 'A' && ns <= 'Z') {
		put(r, "::{");
		put(r, ns == 'C' ? "closure" : ns == 'S' ? "shim" : tag);
		if (id.n) {
			put(r, ":");
			put_ident(r, id);
		}
		put(r, "#");
		put_number(r, dis);
		put(r, "}");
	} else if (ns >= 'a' && ns <= 'z') {
		if (id.n) {
			put(r, "::");
			put_ident(r, id);
		}
	} else {
		r->bad = true;
	}
}

static void path(struct rust *r, bool in_value)
{
	char tag;

	if (enter(r)) {
		switch (tag = take(r)) {
		case 'C':
			(void)tagged(r, 's');
			put_ident(r, undisambiguated(r));
			break;
		case 'N':
			nested(r, in_value);
			break;
		case 'M':
		case 'X':
		case 'Y':
			if (tag != 'Y')
				impl_path(r);
			put(r, "<");
			type(r);
			if (tag != 'M') {
				put(r, " as ");
				path(r, false);
			}
			put(r, ">");
			break;
		case 'I':
			path(r, in_value);
			put(r, in_value ? "::<" : "<");
			generic_args(r);
			put(r, ">");
			break;
		case 'B':
			backref(r, path, in_value);
			break;
		default:
			r->bad = true;
		}
	}
	r->depth--;
}

static const char *basic_type(char c)
{
	static const char *const names[26] = {
		"i8", "bool", "char", "f64", "str", "f32", NULL, "u8", "isize", "usize", NULL, "i32",
		"u32", "i128", "u128", "_", NULL, NULL, "i16", "u16", "()", "...", NULL, "i64",
		"u64", "!"
	};

	return c >= 'a' && c <= 'z' ? names[c - 'a'] : NULL;
}

static void fn_type(struct rust *r)
{
	uint64_t n = binder(r);

	if (eat(r, 'U'))
		put(r, "unsafe ");
	if (eat(r, 'K')) {
		put(r, "extern \"");
		if (eat(r, 'C')) {
			put(r, "C");
		} else {
			struct ident abi = undisambiguated(r);

			for (size_t i = 0; abi.p && i < abi.n; i++) /* '-' is mangled to '_' */
				put_n(r, abi.p[i] == '_' ? "-" : abi.p + i, 1);
		}
		put(r, "\" ");
	}
	put(r, "fn(");
	for (bool first = true; !r->bad && !r->full && !eat(r, 'E'); first = false) {
		if (!first)
			put(r, ", ");
		type(r);
	}
	put(r, ")");
	if (!eat(r, 'u')) {
		put(r, " -> ");
		type(r);
	}
	r->bound -= n;
}

/* A trait of dyn: its associated types join the generic arguments, if there are any. */
static void dyn_trait(struct rust *r)
{
	size_t start = r->at;
	bool open = false;

	/* "I path args E" must stay open for "Item = u8": looked into by hand. */
	if (eat(r, 'I')) {
		path(r, false);
		put(r, "<");
		open = true;
		generic_args(r);
	} else {
		r->at = start;
		path(r, false);
	}
	while (!r->bad && !r->full && eat(r, 'p')) {
		put(r, open ? ", " : "<");
		open = true;
		put_ident(r, undisambiguated(r));
		put(r, " = ");
		type(r);
	}
	if (open)
		put(r, ">");
}

static void dyn_type(struct rust *r)
{
	uint64_t n, lifetime;

	put(r, "dyn ");
	n = binder(r);
	for (bool first = true; !r->bad && !r->full && !eat(r, 'E'); first = false) {
		if (!first)
			put(r, " + ");
		dyn_trait(r);
	}
	r->bound -= n;
	if (!eat(r, 'L')) {
		r->bad = true;
		return;
	}
	lifetime = base62(r);
	if (lifetime) {
		put(r, " + ");
		put_lifetime(r, lifetime);
	}
}

static void reference(struct rust *r, char tag)
{
	put(r, "&");
	if (eat(r, 'L')) {
		uint64_t lifetime = base62(r);

		if (lifetime) {
			put_lifetime(r, lifetime);
			put(r, " ");
		}
	}
	if (tag == 'Q')
		put(r, "mut ");
	type(r);
}

static void tuple(struct rust *r)
{
	size_t n = 0;

	put(r, "(");
	for (; !r->bad && !r->full && !eat(r, 'E'); n++) {
		if (n)
			put(r, ", ");
		type(r);
	}
	put(r, n == 1 ? ",)" : ")");
}

static void type(struct rust *r)
{
	const char *basic = basic_type(peek(r));
	char tag;

	if (enter(r)) {
		tag = take(r);
		switch (tag) {
		case 'A':
		case 'S':
			put(r, "[");
			type(r);
			if (tag == 'A') {
				put(r, "; ");
				constant(r);
			}
			put(r, "]");
			break;
		case 'T':
			tuple(r);
			break;
		case 'R':
		case 'Q':
			reference(r, tag);
			break;
		case 'P':
		case 'O':
			put(r, tag == 'P' ? "*const " : "*mut ");
			type(r);
			break;
		case 'F':
			fn_type(r);
			break;
		case 'D':
			dyn_type(r);
			break;
		case 'B':
			backref(r, type_at, false);
			break;
		default:
			if (basic) {
				put(r, basic);
			} else {
				r->at--;
				path(r, false);
			}
		}
	}
	r->depth--;
}

/* Hex digits up to '_'. What is wider than 64 bits stays hex. */
static void put_hex(struct rust *r, char kind)
{
	size_t from = r->at;
	uint64_t v = 0;

	while ((peek(r) >= '0' && peek(r) <= '9') || (peek(r) >= 'a' && peek(r) <= 'f')) {
		char c = take(r);

		v = v << 4 | (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
	if (!eat(r, '_')) {
		r->bad = true;
	} else if (r->at - 1 - from > 16) {
		put(r, "0x");
		put_n(r, r->s + from, r->at - 1 - from);
	} else if (kind == 'b') {
		put(r, v ? "true" : "false");
	} else if (kind == 'c') {
		put(r, "'");
		put_utf8(r, v > 0x10ffff ? 0x110000 : (uint32_t)v);
		put(r, "'");
	} else {
		put_number(r, v);
	}
}

static void constant(struct rust *r)
{
	char kind;

	if (enter(r)) {
		kind = take(r);
		switch (kind) {
		case 'p':
			put(r, "_");
			break;
		case 'B':
			backref(r, constant_at, false);
			break;
		case 'a': case 's': case 'l': case 'x': case 'n': case 'i': /* signed */
			if (eat(r, 'n'))
				put(r, "-");
			put_hex(r, kind);
			break;
		case 'h': case 't': case 'm': case 'y': case 'o': case 'j': case 'b': case 'c':
			put_hex(r, kind);
			break;
		default: /* structures as constants: not stable Rust */
			r->bad = true;
		}
	}
	r->depth--;
}

/* -- the older mangling: _ZN (length name)* 17h<16 hex digits>E -- */

static bool put_escape(struct rust *r, const char *p, size_t n)
{
	static const struct { const char *code, *text; } table[] = {
		{ "SP", "@" }, { "BP", "*" }, { "RF", "&" }, { "LT", "<" }, { "GT", ">" },
		{ "LP", "(" }, { "RP", ")" }, { "C", "," },
	};
	uint32_t c = 0;

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (strlen(table[i].code) == n && !memcmp(p, table[i].code, n)) {
			put(r, table[i].text);
			return true;
		}
	if (n < 2 || n > 7 || p[0] != 'u')
		return false;
	for (size_t i = 1; i < n; i++) {
		char h = p[i];

		if (!((h >= '0' && h <= '9') || (h >= 'a' && h <= 'f')))
			return false;
		c = c << 4 | (uint32_t)(h <= '9' ? h - '0' : h - 'a' + 10);
	}
	if (c < 0x20 || c == 0x7f)
		return false;
	put_utf8(r, c);
	return true;
}

static void put_legacy(struct rust *r, const char *p, size_t n)
{
	size_t i = n > 1 && p[0] == '_' && p[1] == '$' ? 1 : 0;

	while (i < n) {
		const char *end = p[i] == '$' ? memchr(p + i + 1, '$', n - i - 1) : NULL;

		if (end && put_escape(r, p + i + 1, (size_t)(end - p) - i - 1)) {
			i = (size_t)(end - p) + 1;
		} else if (p[i] == '.' && i + 1 < n && p[i + 1] == '.') {
			put(r, "::");
			i += 2;
		} else {
			put_n(r, p + i, 1);
			i++;
		}
	}
}

static bool is_hash(const char *p, size_t n)
{
	if (n != 17 || p[0] != 'h')
		return false;
	for (size_t i = 1; i < n; i++)
		if (!((p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f')))
			return false;
	return true;
}

static bool legacy(struct rust *r)
{
	bool first = true;

	for (;;) {
		struct ident id;

		if (peek(r) < '1' || peek(r) > '9') /* C++ has qualifiers and templates here */
			return false;
		id.n = 0;
		while (peek(r) >= '0' && peek(r) <= '9' && id.n <= r->n)
			id.n = id.n * 10 + (size_t)(take(r) - '0');
		if (id.n >= r->n - r->at)
			return false;
		id.p = r->s + r->at;
		r->at += id.n;
		if (peek(r) == 'E') {
			/* Without the hash it is C++; behind it only what LLVM adds (".llvm.1"). */
			r->at++;
			return !first && is_hash(id.p, id.n) && (r->full || !r->bad) &&
			       (r->at == r->n || r->s[r->at] == '.');
		}
		if (!first)
			put(r, "::");
		put_legacy(r, id.p, id.n);
		first = false;
	}
}

bool lg_rust_demangle(const char *name, char *buf, size_t size)
{
	struct rust r = { .out = buf, .size = size };
	bool ok;

	if (size < 4)
		return false;
	if (!strncmp(name, "_ZN", 3)) {
		r.s = name + 3;
		r.n = strlen(r.s);
		ok = legacy(&r);
	} else if (!strncmp(name, "_R", 2) && name[2] >= 'A' && name[2] <= 'Z') {
		r.s = name + 2;
		r.n = strcspn(r.s, ".");
		path(&r, true);
		if (!r.bad && !r.full && r.at < r.n) { /* the crate that made the instance */
			r.quiet = true;
			path(&r, false);
		}
		/* Where the output was full, reading stopped just anywhere. */
		ok = r.full || (!r.bad && r.at == r.n && r.len);
	} else {
		return false;
	}
	if (r.full)
		memcpy(buf + size - 4, "...", 3);
	buf[r.full ? size - 1 : r.len] = 0;
	return ok;
}
