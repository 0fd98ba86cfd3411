/* SPDX-License-Identifier: Apache-2.0 */
/* test_json_scan.c - ends of values, exact numbers, windows at every block size, damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

#include "import/json/json_events.h"

/* Scanners may read behind the text: give them a padded copy. */
static const char *padded(const char *s)
{
	static char buf[65536 + LG_JSON_PAD];

	memset(buf, 0, sizeof buf);
	memcpy(buf, s, strlen(s));
	return buf;
}

static void finds_the_end_of_an_object(void **state)
{
	static const struct {
		const char *text;
		enum lg_json_found found;
		size_t n;
	} cases[] = {
		{ "{}", LG_JSON_OK, 2 },
		{ "{\"a\":1}, {", LG_JSON_OK, 7 },
		{ "{\"a\":\"}\"}x", LG_JSON_OK, 9 },
		{ "{\"a\":\"\\\"}\"}x", LG_JSON_OK, 11 },
		{ "{\"a\":\"\\\\\"}x", LG_JSON_OK, 10 },
		{ "{\"a\" : {\"b\":{}}}", LG_JSON_OK, 16 },
		{ "{\"a\":1", LG_JSON_END, 0 },
		{ "{\"a\":\"", LG_JSON_END, 0 },
		{ "{\"a\":{\"b\":1}, {\"c\":1}}", LG_JSON_ODD, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		/* At every distance from a 64-byte block's edge. */
		for (size_t pad = 0; pad < 130; pad++) {
			char text[512], *fill = text;
			const char *p, *end = NULL;

			fill += sprintf(fill, "{\"");
			for (size_t k = 0; k < pad; k++)
				*fill++ = k % 7 ? '{' : '}';
			strcpy(fill, "\":");
			strcat(fill, cases[i].text);
			if (cases[i].found == LG_JSON_OK)
				strcpy(fill + 2 + cases[i].n, "}");
			p = padded(text);
			assert_int_equal(lg_json_object(p, p + strlen(p), &end), cases[i].found);
			if (cases[i].found == LG_JSON_OK)
				assert_int_equal(end - p, strlen(p));
		}
	}
}

static void long_runs_of_backslashes_keep_their_parity(void **state)
{
	(void)state;
	for (size_t n = 0; n < 200; n++) {
		char text[512];
		size_t k = (size_t)sprintf(text, "{\"k\":\"");
		const char *p, *end = NULL;
		size_t want;

		memset(text + k, '\\', n);
		k += n;
		/* Odd: the quote is escaped and the string goes on to the next one. */
		want = k + (size_t)sprintf(text + k, n % 2 ? "\"}\"}" : "\"}");
		p = padded(text);
		assert_int_equal(lg_json_object(p, p + strlen(p), &end), LG_JSON_OK);
		assert_int_equal(end - p, want);
	}
}

static void checks_by_the_letter(void **state)
{
	static const struct {
		const char *text;
		enum lg_json_found found;
		size_t at;
	} cases[] = {
		{ "{\"a\": [1, {\"b\": null}, \"x\"]}", LG_JSON_OK, 0 },
		{ "{\"a\": nan, \"b\": -inf}", LG_JSON_OK, 0 },
		{ "{\"a\": 1 \"b\": 2}", LG_JSON_ODD, 8 },
		{ "{\"a\" 1}", LG_JSON_ODD, 5 },
		{ "{\"a\": {\"b\": 1}, {\"ph\": 2}}", LG_JSON_ODD, 16 },
		{ "{\"a\": [1, 2}", LG_JSON_ODD, 11 },
		{ "{\"a\": \"x}, {", LG_JSON_END, 0 },
		{ "[[[[", LG_JSON_END, 0 },
		{ "{\"a\": \001}", LG_JSON_ODD, 6 },
	};
	char deep[300];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const char *p = padded(cases[i].text), *at = NULL;

		assert_int_equal(lg_json_check(p, p + strlen(p), &at), cases[i].found);
		if (cases[i].found == LG_JSON_OK)
			assert_int_equal(at - p, strlen(cases[i].text));
		else if (cases[i].found == LG_JSON_ODD)
			assert_int_equal(at - p, cases[i].at);
	}
	memset(deep, '[', sizeof deep - 1);
	deep[sizeof deep - 1] = 0;
	{
		const char *p = padded(deep), *at;

		assert_int_equal(lg_json_check(p, p + strlen(p), &at), LG_JSON_ODD);
	}
}

static unsigned dice(uint32_t *seed, unsigned sides)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (*seed >> 16) % sides;
}

/* Arrays by masks end where they end by the letter, wherever 64 bytes begin and wherever the text ends. */
static void finds_the_end_of_an_array(void **state)
{
	static const char *const bits[] = { "[", "]", "\"a]b\"", "\"\\\"[\"", "\"\\\\\"", "1", "{}", ",", " ", "\"\"",
					    "[]", "\"[[[\"" };
	uint32_t seed = 5;
	size_t whole = 0;

	(void)state;
	for (int round = 0; round < 200000; round++) {
		char text[512 + LG_JSON_PAD];
		size_t n = 1 + dice(&seed, 40), len;
		const char *q, *end, *letter;
		struct lg_slice s;
		int depth = 1;

		memset(text, ']', sizeof text); /* behind the end: must not be looked at */
		len = (size_t)sprintf(text, "[");
		while (n-- && depth && len < 480) {
			const char *b = bits[dice(&seed, 12)];

			depth += !strcmp(b, "[") - !strcmp(b, "]");
			len += (size_t)sprintf(text + len, "%s", b);
		}
		while (depth-- > 0)
			len += (size_t)sprintf(text + len, "]");
		text[len] = ']';
		end = text + len;
		/* By the letter, commas aside: the first bracket that closes all. */
		letter = NULL;
		depth = 0;
		bool esc = false;
		for (const char *p = text; p < end && !letter; p++) {
			if (*p == '"') {
				for (p++; *p != '"'; p++)
					if (*p == '\\') {
						esc = true;
						p++;
					}
			} else if (*p == '[') {
				depth++;
			} else if (*p == ']' && !--depth) {
				letter = p + 1;
			}
		}
		q = lg_json_value(text, end, &s);
		assert_ptr_equal(q, letter);
		if (!q)
			continue;
		whole++;
		assert_int_equal(s.n, q - text);
		assert_int_equal(s.esc, esc);
		/* Cut anywhere it does not end. */
		assert_null(lg_json_value(text, text + 1 + dice(&seed, (unsigned)(q - text) - 1), &s));
	}
	assert_true(whole > 100000);
	/* A backslash outside a string is no JSON. */
	{
		char odd[256] = "[1, \\\"]\", 2]";
		struct lg_slice s;

		assert_null(lg_json_value(odd, odd + strlen(odd), &s));
	}
}

static void numbers_are_exact(void **state)
{
	static const struct {
		const char *text;
		int scale;
		int64_t want;
		bool ok;
	} cases[] = {
		{ "0", 3, 0, true },
		{ "1", 3, 1000, true },
		{ "1.5", 3, 1500, true },
		{ "-0.001", 3, -1, true },
		{ "0.0019", 3, 1, true },
		{ "1419247332972.313", 3, 1419247332972313, true },
		/* 19 digits: a double would be off by a hundred. */
		{ "1716345678901234.567", 3, 1716345678901234567, true },
		{ "9223372036854775.807", 3, INT64_MAX, true },
		{ "9223372036854775.808", 3, 0, false },
		{ "9223372036854775807", 0, INT64_MAX, true },
		{ "99999999999999999999", 0, 0, false },
		{ "1.6e3", 3, 1600000, true },
		{ "1623142623460180", 3, 1623142623460180000, true },
		{ "1623142623460180.25", 3, 1623142623460180250, true },
		{ "12345678", 0, 12345678, true },
		{ "123456789.5", 3, 123456789500, true },
		{ "1234567812345678", 0, 1234567812345678, true },
		{ "1234567:", 0, 0, false },
		{ "1234567/", 0, 0, false },
		{ "-9223372036854775807", 0, -INT64_MAX, true },
		{ "9223372036854775808", 0, 0, false },
		{ "9223372036854776", 3, 0, false },
		{ "18446744073709551617", 0, 0, false },
		{ "1844674407370955161.7", 3, 0, false },
		{ "1.7163456789012345e15", 3, 1716345678901234500, true },
		{ "25e-1", 3, 2500, true },
		{ "1e-400", 3, 0, true },
		{ "0e999999999", 3, 0, true },
		{ "1e999999999", 3, 0, false },
		{ "", 3, 0, false },
		{ "-", 3, 0, false },
		{ "abc", 3, 0, false },
		{ "12x", 3, 0, false },
		{ "1.2.3", 3, 0, false },
		{ "null", 3, 0, false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct lg_slice s = { .p = cases[i].text, .n = (uint32_t)strlen(cases[i].text) };
		int64_t got = -7;

		if (lg_json_fixed(&s, cases[i].scale, &got) != cases[i].ok)
			fail_msg("%s: %s", cases[i].text, cases[i].ok ? "refused" : "accepted");
		if (cases[i].ok && got != cases[i].want)
			fail_msg("%s: %lld", cases[i].text, (long long)got);
	}
	assert_false(lg_json_fixed(&(struct lg_slice){ 0 }, 0, &(int64_t){ 0 }));
	/* The quick way says the same, whatever stands behind the slice. */
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (const char *behind = "\",}5.e"; *behind; behind++) {
			char text[128];
			size_t n = strlen(cases[i].text);
			struct lg_slice s = { .p = text, .n = (uint32_t)n };
			int64_t got = -7;

			memset(text, *behind, sizeof text);
			memcpy(text, cases[i].text, n);
			if (lg_json_decimal(&s, cases[i].scale, &got) != cases[i].ok ||
			    (cases[i].ok && got != cases[i].want))
				fail_msg("%s before %c: %lld", cases[i].text, *behind, (long long)got);
		}
	assert_false(lg_json_decimal(&(struct lg_slice){ 0 }, 0, &(int64_t){ 0 }));
}

/* Every count of digits before and behind the point. */
static void digits_of_any_number_are_exact(void **state)
{
	(void)state;
	for (int whole = 1; whole <= 20; whole++)
		for (int behind = 0; behind <= 10; behind++) {
			char text[128] = { 0 };
			int64_t quick = 0, exact = 0;
			struct lg_slice s = { .p = text };
			bool ok;

			for (int i = 0; i < whole; i++)
				text[i] = (char)('0' + (7 * i + whole + 1) % 10);
			if (behind)
				text[whole] = '.';
			for (int i = 0; i < behind; i++)
				text[whole + 1 + i] = (char)('0' + (3 * i + whole) % 10);
			s.n = (uint32_t)strlen(text);
			text[s.n] = ',';
			for (int scale = 0; scale <= 4; scale++) {
				ok = lg_json_fixed(&s, scale, &exact);
				assert_int_equal(lg_json_decimal(&s, scale, &quick), ok);
				if (ok)
					assert_int_equal(quick, exact);
			}
		}
}

static void undoes_escapes(void **state)
{
	static const char *const cases[][2] = {
		{ "a\\\"b\\\\c\\/d", "a\"b\\c/d" },
		{ "\\u0041\\u00e9\\u20ac", "A\xc3\xa9\xe2\x82\xac" },
		{ "\\ud83d\\ude00", "\xf0\x9f\x98\x80" },
		{ "\\ud83d!", "\xef\xbf\xbd!" },
		{ "a\\tb\\nc", "a b c" },
		{ "\\u00zz", "u00zz" },
		{ "end\\", "end\\" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct lg_slice s = { .p = cases[i][0], .n = (uint32_t)strlen(cases[i][0]), .esc = 1 };
		char buf[64];
		size_t n = lg_json_decode(&s, buf);

		assert_true(n <= s.n);
		buf[n] = 0;
		assert_string_equal(buf, cases[i][1]);
	}
}

/* -- events -- */

static char *trace_text(size_t events, size_t *ret_n)
{
	char *text = malloc(events * 200 + 300), *o = text;

	o += sprintf(o, "{\"schemaVersion\": 1, \"x\": {\"deep\": [{\"a\": \"}]\"}]}, "
			"\"traceEvents\": [\n");
	for (size_t i = 0; i < events; i++)
		o += sprintf(o, "%s{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"op %zu\", \"pid\": 1, "
				"\"tid\": 2,\n \"ts\": %zu.%03zu, \"dur\": 1,\n \"args\": {\"k\": \"v,{\"}}",
			     i ? ",\n" : "", i, i, i % 1000);
	o += sprintf(o, "],\n\"after\": 12345}\n");
	*ret_n = (size_t)(o - text);
	return text;
}

struct seen {
	size_t events, fields, in_order;
	struct lg_events r; /* closed */
};

static struct seen walk(const void *data, size_t n, size_t block)
{
	struct lg_error err = { 0 };
	struct lg_json_source *src;
	struct seen s = { 0 };
	struct lg_event e;
	int rc;

	assert_int_equal(lg_json_source_memory(&src, data, n, block, &err), 0);
	lg_events_start(&s.r, src, "test");
	while ((rc = lg_events_next(&s.r, &e, &err)) > 0) {
		char want[32];

		if (rc == LG_ITEM_FIELD) {
			s.fields++;
			continue;
		}
		sprintf(want, "op %zu", s.events++);
		s.in_order += lg_slice_is(&e.name, want, strlen(want)) && e.ph == 'X' &&
			      LG_SLICE_IS(&e.args, "{\"k\": \"v,{\"}");
	}
	if (rc)
		s.events = SIZE_MAX;
	lg_events_close(&s.r);
	return s;
}

static void windows_of_any_size_give_the_same_events(void **state)
{
	size_t n;
	char *text = trace_text(300, &n);

	(void)state;
	for (size_t block = 1; block < 400; block += block < 70 ? 1 : 37) {
		struct seen s = walk(text, n, block);

		assert_int_equal(s.events, 300);
		assert_int_equal(s.in_order, 300);
		assert_int_equal(s.fields, 3);
		assert_int_equal(s.r.n_damaged, 0);
		assert_int_equal(s.r.truncated, LG_NO_OFFSET);
	}
	free(text);
}

static void reads_compressed_text(void **state)
{
	size_t n, zn, gn;
	char *text = trace_text(5000, &n);
	uint8_t *z = malloc(ZSTD_compressBound(n)), *g = malloc(2 * n);
	z_stream s = { 0 };
	struct seen seen;

	(void)state;
	zn = ZSTD_compress(z, ZSTD_compressBound(n), text, n, 3);
	seen = walk(z, zn, 4096);
	assert_int_equal(seen.in_order, 5000);
	/* Two gzip members, the second begun inside an event; then padding. */
	gn = 0;
	for (int half = 0; half < 2; half++) {
		memset(&s, 0, sizeof s);
		assert_int_equal(deflateInit2(&s, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
		s.next_in = (uint8_t *)text + (half ? n / 2 : 0);
		s.avail_in = (uInt)(half ? n - n / 2 : n / 2);
		s.next_out = g + gn;
		s.avail_out = (uInt)(2 * n - gn);
		assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
		gn += s.total_out;
		deflateEnd(&s);
	}
	memset(g + gn, 0, 512);
	for (size_t block = 100; block < 100000; block *= 7) {
		seen = walk(g, gn + 512, block);
		assert_int_equal(seen.in_order, 5000);
		assert_int_equal(seen.r.n_damaged, 0);
	}
	/* Cut off: what is there is read, and the cut is known. */
	seen = walk(g, gn / 3, 4096);
	assert_in_range(seen.events, 500, 2500);
	assert_int_equal(seen.in_order, seen.events);
	assert_int_not_equal(seen.r.truncated, LG_NO_OFFSET);
	seen = walk(z, zn - 5, 4096);
	assert_int_not_equal(seen.events, SIZE_MAX);
	free(z);
	free(g);
	free(text);
}

static void a_cut_anywhere_loses_only_what_is_behind_it(void **state)
{
	size_t n;
	char *text = trace_text(12, &n);

	(void)state;
	for (size_t cut = 1; cut + 2 < n; cut++) {
		struct seen s = walk(text, cut, 64);
		size_t whole = 0;

		assert_int_not_equal(s.events, SIZE_MAX);
		for (char *p = text; (p = strstr(p, "}}")) && p + 2 <= text + cut; p += 2)
			whole += p > strstr(text, "traceEvents");
		assert_int_equal(s.in_order, whole);
		assert_int_equal(s.events, whole);
		assert_true(s.r.truncated != LG_NO_OFFSET || s.r.n_damaged);
		assert_true(s.r.truncated == LG_NO_OFFSET || s.r.truncated <= cut);
	}
	free(text);
}

/* Any byte of one event overwritten or taken away: its neighbours survive. */
static void damage_is_confined_to_its_event(void **state)
{
	static const char with[] = { '"', '{', '}', '\\', ',', ' ', 0, '[', ']', ':' };
	size_t n, lost_most = 0;
	char *text = trace_text(40, &n), *copy = malloc(n + 1);
	char *from = strstr(text, "op 20\"") - 38, *to = strstr(text, "op 21\"") - 38;

	(void)state;
	for (char *at = from; at < to; at++) {
		for (size_t w = 0; w <= sizeof with; w++) {
			struct lg_error err = { 0 };
			struct lg_json_source *src;
			struct lg_events r;
			struct lg_event e;
			size_t k = (size_t)(at - text), m = n, good = 0;
			int rc;

			memcpy(copy, text, n);
			if (w < sizeof with)
				copy[k] = with[w];
			else
				memmove(copy + k, copy + k + 1, --m - k);
			assert_int_equal(lg_json_source_memory(&src, copy, m, 512, &err), 0);
			lg_events_start(&r, src, "test");
			while ((rc = lg_events_next(&r, &e, &err)) > 0)
				good += rc == LG_ITEM_EVENT && LG_SLICE_STARTS(&e.name, "op ");
			assert_int_equal(rc, 0);
			lg_events_close(&r);
			if (40 - good > lost_most)
				lost_most = 40 - good;
			if (good < 37)
				fail_msg("byte %zu '%c' as %zu: only %zu of 40 events", k, *at, w,
					 good);
		}
	}
	assert_true(lost_most >= 1); /* the test does damage */
	free(copy);
	free(text);
}

/*
 * Members in any order and with any spaces: what stood between them in the events before must never be
 * taken for what stands there now.
 */
static void members_are_what_is_written(void **state)
{
	enum { EVENTS = 4000, MEMBERS = 9 };
	static const char *const keys[MEMBERS] = { "ph", "name", "cat", "pid", "tid", "ts", "dur", "args", "other" };
	static const char *const gaps[] = { "", " ", "\n  ", "\t", "                                    " };
	char *text = malloc(EVENTS * 800), *o = text;
	uint32_t seed = 9;
	struct lg_json_source *src;
	struct lg_error err = { 0 };
	struct lg_events r;
	struct lg_event e;
	size_t n = 0;

	(void)state;
	o += sprintf(o, "[");
	for (int i = 0; i < EVENTS; i++) {
		/* A few ways of writing that come again, and some that do not. */
		uint32_t way = dice(&seed, 4) ? dice(&seed, 5) : dice(&seed, 1000);
		unsigned first = way % MEMBERS;

		o += sprintf(o, "%s{", i ? "," : "");
		for (unsigned k = 0; k < MEMBERS; k++) {
			unsigned m = (first + k * (way % 2 ? 1 : 2)) % MEMBERS;

			if (k && !dice(&seed, 6)) /* left out, but never all */
				continue;
			o += sprintf(o, "%s%s\"%s\"%s:%s", k ? "," : "", gaps[way % 5], keys[m],
				     gaps[(way + 1) % 5], gaps[(way + 2) % 5]);
			if (m == 0)
				o += sprintf(o, "\"X\"");
			else if (m == 7)
				o += sprintf(o, "{\"k\": \"}%d\"}", i);
			else if (m == 1 || m == 2 || way % 3 == 0)
				o += sprintf(o, "\"%s %d%s\"", keys[m], i, way % 7 ? "" : "\\\"");
			else
				o += sprintf(o, "%d", i * 10 + (int)m);
			o += sprintf(o, "%s", gaps[(way + 3) % 5]);
		}
		o += sprintf(o, "}");
	}
	o += sprintf(o, "]");
	assert_int_equal(lg_json_source_memory(&src, text, (size_t)(o - text), 0, &err), 0);
	lg_events_start(&r, src, "test");
	seed = 9; /* the same again */
	while (lg_events_next(&r, &e, &err) == LG_ITEM_EVENT) {
		uint32_t way = dice(&seed, 4) ? dice(&seed, 5) : dice(&seed, 1000);
		unsigned first = way % MEMBERS;
		const struct lg_slice *at[MEMBERS] = { NULL,   &e.name, &e.cat,	 &e.pid, &e.tid,
						       &e.ts, &e.dur,	&e.args, NULL };
		bool has[MEMBERS] = { false };
		char want[64];

		for (unsigned k = 0; k < MEMBERS; k++)
			if (!k || dice(&seed, 6))
				has[(first + k * (way % 2 ? 1 : 2)) % MEMBERS] = true;
		assert_int_equal(e.ph, has[0] ? 'X' : 0);
		for (unsigned m = 1; m < 8; m++) {
			if (!has[m]) {
				assert_null(at[m]->p);
				continue;
			}
			if (m == 7)
				sprintf(want, "{\"k\": \"}%zu\"}", n);
			else if (m == 1 || m == 2 || way % 3 == 0)
				sprintf(want, "%s %zu%s", keys[m], n, way % 7 ? "" : "\\\"");
			else
				sprintf(want, "%zu", n * 10 + m);
			assert_int_equal(at[m]->n, strlen(want));
			assert_memory_equal(at[m]->p, want, strlen(want));
			assert_int_equal(at[m]->esc, want[strlen(want) - 1] == '"');
		}
		n++;
	}
	assert_int_equal(n, EVENTS);
	assert_int_equal(r.n_damaged, 0);
	lg_events_close(&r);
	free(text);
}

static void refuses_what_is_no_json(void **state)
{
	static const char *const cases[] = { "", "   \n", "hello", ("\x7f" "ELF"), "12" };

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_int_equal(walk(cases[i], strlen(cases[i]), 64).events, SIZE_MAX);
	/* And reads what is, whatever it means. */
	assert_int_equal(walk("{}", 2, 64).events, 0);
	assert_int_equal(walk("[]", 2, 64).events, 0);
	assert_int_equal(walk("\xef\xbb\xbf[{\"ph\":\"i\"}", 14, 64).events, 1);
}

static void an_endless_value_does_not_take_memory(void **state)
{
	size_t n = 40u << 20;
	char *text = malloc(n), *o = text;
	struct seen s;

	(void)state;
	o += sprintf(o, "{\"huge\": [");
	memset(o, '1', n - (size_t)(o - text));
	for (char *p = o; p < text + n - 400; p += 10)
		*p = ',';
	o = text + n - 300;
	memset(o, ' ', 300);
	o += sprintf(o, "], \"traceEvents\": [{\"ph\": \"X\", \"name\": \"op 0\", "
			"\"args\": {\"k\": \"v,{\"}}]}");
	s = walk(text, (size_t)(o - text), 0);
	assert_int_equal(s.in_order, 1);
	assert_int_equal(s.r.truncated, LG_NO_OFFSET);
	free(text);
}

/* What a walk over all items gives, in one number; *ret_n items, the slow reader naps now and then. */
static uint64_t digest(struct lg_events *r, size_t stop_at, bool slow, size_t *ret_n, int *ret_rc)
{
	const struct timespec nap = { .tv_nsec = 2000000 };
	struct lg_error err = { 0 };
	uint64_t h = 14695981039346656037u;
	struct lg_event e;

	for (*ret_n = 0; *ret_n < stop_at && (*ret_rc = lg_events_next(r, &e, &err)) > 0; ++*ret_n) {
		const struct lg_slice *all[] = { &e.name, &e.ts, &e.args };

		for (size_t i = 0; i < 3; i++)
			for (size_t k = 0; all[i]->p && k < all[i]->n; k++)
				h = (h ^ (unsigned char)all[i]->p[k]) * 1099511628211u;
		h = (h ^ (uint64_t)*ret_rc ^ (uint64_t)e.ts_ns) * 1099511628211u;
		if (slow && *ret_n % 997 == 0)
			nanosleep(&nap, NULL);
	}
	return h;
}

/* Blocks that are filled before they are wanted: as many as there are, and the text stays in order. */
static void blocks_made_early_are_the_same(void **state)
{
	struct lg_json_source *src;
	struct lg_error err = { 0 };
	const char *p = NULL, *end = NULL;
	char text[1000], got[1000];
	size_t n = 0, early = 0;
	int rc;

	(void)state;
	for (size_t i = 0; i < sizeof text; i++)
		text[i] = (char)('a' + i * 7 % 26);
	assert_int_equal(lg_json_source_memory(&src, text, sizeof text, 50, &err), 0);
	while (lg_json_source_help(src))
		early++;
	assert_in_range(early, 2, sizeof text / 50 - 1); /* bounded */
	while ((rc = lg_json_source_more(src, NULL, &p, &end, &err)) > 0) {
		assert_true(n + (size_t)(end - p) <= sizeof got);
		memcpy(got + n, p, (size_t)(end - p));
		n += (size_t)(end - p);
		if (n % 3)
			early += lg_json_source_help(src);
	}
	assert_int_equal(rc, 0);
	assert_false(lg_json_source_help(src));
	assert_int_equal(n, sizeof text);
	assert_memory_equal(got, text, n);
	lg_json_source_close(src);
}

/* plain or, with packed, as gzip. */
static void write_text(const char *name, const char *text, size_t n, bool packed)
{
	gzFile f = gzopen(name, packed ? "wb1" : "wbT");

	assert_non_null(f);
	assert_int_equal(gzwrite(f, text, (unsigned)n), (int)n);
	assert_int_equal(gzclose(f), Z_OK);
}

static void a_thread_ahead_reads_the_same(void **state)
{
	/* Lengths of arguments: below and above what is kept in front of a block, above a block. */
	static const size_t lengths[] = { 10, 300, 70000, 10, 600000, 1500000, 40 };
	size_t n = 40u << 20, at = 0;
	char *text = malloc(n), name[] = "/tmp/laggard-ahead-XXXXXX";
	int fd = mkstemp(name);

	(void)state;
	assert_non_null(text);
	assert_true(fd >= 0);
	at += (size_t)sprintf(text, "{\"before\": 1, \"traceEvents\": [");
	for (size_t i = 0; i < 30000; i++) {
		size_t len = i % 1500 == 7 ? lengths[i / 1500 % 7] : 40 + i % 200;

		at += (size_t)sprintf(text + at, "%s{\"ph\": \"X\", \"name\": \"op %zu\", \"ts\": %zu.5, "
				      "\"args\": {\"k\": \"", i ? ",\n" : "", i, 1600000000000000 + i);
		memset(text + at, 'a' + (int)(i % 26), len);
		at += len;
		at += (size_t)sprintf(text + at, "\"}}");
		if (i == 20000)
			text[at - 2] = ' '; /* damage */
	}
	assert_true(at < n);
	for (int round = 0; round < 6; round++) {
		struct lg_error err = { 0 };
		struct lg_json_source *src;
		struct lg_events a, b;
		/* The last rounds leave in the middle, once with the queue full. */
		size_t stop = round < 3 ? SIZE_MAX : (size_t)round * 3000 - 8999, n_a, n_b;
		int rc_a = 0, rc_b = 0;
		uint64_t h;

		write_text(name, text, at, round % 2); /* cut off */
		assert_int_equal(lg_json_source_memory(&src, text, at, 0, &err), 0);
		lg_events_start(&a, src, "test");
		h = digest(&a, stop, false, &n_a, &rc_a);
		assert_int_equal(lg_events_open(&b, name, &err), 0);
		assert_true(digest(&b, stop, round == 1, &n_b, &rc_b) == h);
		if (round >= 4)
			usleep(20000);
		assert_non_null(b.ahead);
		assert_int_equal(n_a, n_b);
		assert_int_equal(rc_a, rc_b);
		if (stop == SIZE_MAX) {
			assert_true(n_a > 29990);
			assert_int_equal(a.n_damaged, b.n_damaged);
			assert_int_equal(a.n_events, b.n_events);
			assert_true(a.truncated == b.truncated && b.truncated != LG_NO_OFFSET);
			assert_true(a.skipped == b.skipped && a.first_damaged == b.first_damaged);
		}
		lg_events_close(&a);
		lg_events_close(&b);
	}
	close(fd);
	unlink(name);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_the_end_of_an_object),
		cmocka_unit_test(long_runs_of_backslashes_keep_their_parity),
		cmocka_unit_test(checks_by_the_letter),
		cmocka_unit_test(finds_the_end_of_an_array),
		cmocka_unit_test(members_are_what_is_written),
		cmocka_unit_test(numbers_are_exact),
		cmocka_unit_test(digits_of_any_number_are_exact),
		cmocka_unit_test(undoes_escapes),
		cmocka_unit_test(windows_of_any_size_give_the_same_events),
		cmocka_unit_test(reads_compressed_text),
		cmocka_unit_test(a_cut_anywhere_loses_only_what_is_behind_it),
		cmocka_unit_test(damage_is_confined_to_its_event),
		cmocka_unit_test(refuses_what_is_no_json),
		cmocka_unit_test(an_endless_value_does_not_take_memory),
		cmocka_unit_test(blocks_made_early_are_the_same),
		cmocka_unit_test(a_thread_ahead_reads_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
