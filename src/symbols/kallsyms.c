/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kallsyms.c - a sorted array of 16-byte entries and one block of names.
 *
 * The file is streamed: a distribution kernel has 200,000 lines in 12 MB, of which the
 * functions' names are about 4 MB.
 */
#include "symbols/kallsyms.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

#define LINE_MAX_BYTES 1024     /* KSYM_NAME_LEN is 512 */
#define FUNCTION_MAX (1u << 20) /* kallsyms has no sizes: farther than this is between functions */
#define NAMES_MAX (1u << 30)

struct sym {
	uint64_t addr;
	uint32_t name, module; /* offsets in names; module 0 = core kernel */
};

struct added {
	uint64_t addr, len;
	char *name;
};

struct lg_kallsyms {
	struct sym *sym;
	size_t n, cap;
	char *names; /* names[0] = 0: offset 0 is "" */
	size_t n_names, names_cap;
	struct added *added;
	size_t n_added, added_cap;
	uint64_t end; /* what lies there or beyond is not known; 0 = no such place */
};

static int put_name(struct lg_kallsyms *k, const char *s, size_t n, uint32_t *ret)
{
	if (k->n_names + n + 1 > NAMES_MAX)
		return LG_E_LIMIT;
	if (lg_grow(&k->names, &k->names_cap, k->n_names + n + 1, 1))
		return LG_E_NOMEM;
	memcpy(k->names + k->n_names, s, n);
	k->names[k->n_names + n] = 0;
	*ret = (uint32_t)k->n_names;
	k->n_names += n + 1;
	return 0;
}

/* As strtoull(), of which a line costs as much as all the rest. */
static uint64_t hex(const char *s, char **ret_end)
{
	uint64_t v = 0;
	size_t n = 0;

	for (; n < 16; n++) {
		unsigned c = (unsigned char)s[n], digit = c - '0';

		if (digit > 9) {
			digit = (c | 0x20) - 'a';
			if (digit > 5)
				break;
			digit += 10;
		}
		v = v << 4 | digit;
	}
	*ret_end = (char *)(uintptr_t)(s + n);
	return v;
}

/* "ffffffff81000000 T name\t[module]": 0, or a negative LG_E_*. Lines that do not fit are not ours. */
static int parse_line(struct lg_kallsyms *k, char *line, bool *ret_hidden)
{
	char *end, *name, *module;
	uint64_t addr = hex(line, &end);
	struct sym s = { .addr = addr };
	int rc;

	if (end == line || end[0] != ' ' || !end[1] || end[2] != ' ' ||
	    ((end[1] | 0x20) != 't' && (end[1] | 0x20) != 'w'))
		return 0;
	if (!addr) {
		*ret_hidden = true;
		return 0;
	}
	name = end + 3;
	module = strchr(name, '\t');
	if (module)
		*module++ = 0;
	if (lg_grow(&k->sym, &k->cap, k->n + 1, sizeof *k->sym))
		return LG_E_NOMEM;
	rc = put_name(k, name, strlen(name), &s.name);
	if (!rc && module && *module) {
		uint32_t last = k->n ? k->sym[k->n - 1].module : 0;

		if (last && !strcmp(k->names + last, module))
			s.module = last;
		else
			rc = put_name(k, module, strlen(module), &s.module);
	}
	if (!rc)
		k->sym[k->n++] = s;
	return rc;
}

static int by_addr(const void *a, const void *b)
{
	const struct sym *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return x->name < y->name ? -1 : x->name > y->name; /* as in the file */
}

/* The kernel's own come in order, those of modules and programs behind them in none. */
static int sort(struct lg_kallsyms *k)
{
	size_t n = 1, n_tail, i;
	struct sym *tail;

	while (n < k->n && by_addr(&k->sym[n - 1], &k->sym[n]) <= 0)
		n++;
	if (n >= k->n)
		return 0;
	n_tail = k->n - n;
	tail = lg_calloc(n_tail, sizeof *tail);
	if (!tail)
		return LG_E_NOMEM;
	memcpy(tail, k->sym + n, n_tail * sizeof *tail);
	qsort(tail, n_tail, sizeof *tail, by_addr);
	for (i = k->n; n_tail;)
		k->sym[--i] = n && by_addr(&k->sym[n - 1], &tail[n_tail - 1]) > 0 ? k->sym[--n]
										    : tail[--n_tail];
	lg_free(tail);
	return 0;
}

/* ret_cut: NULL = the last line may lack its end. */
static int parse(struct lg_kallsyms *k, int fd, const char *path, bool *ret_hidden, bool *ret_cut,
		 struct lg_error *err)
{
	char buf[65536];
	size_t have = 0;

	for (;;) {
		ssize_t got = read(fd, buf + have, sizeof buf - 1 - have);
		char *line = buf, *nl;

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return lg_fail_errno(err, errno, "%s", path);
		if (!got && have && ret_cut)
			*ret_cut = true;
		else if (!got && have)
			buf[have++] = '\n';
		have += (size_t)got;
		buf[have] = 0;
		while ((nl = memchr(line, '\n', have - (size_t)(line - buf)))) {
			int rc;

			*nl = 0;
			rc = parse_line(k, line, ret_hidden);
			if (rc)
				return lg_fail(err, rc, LG_NO_OFFSET, "%s: %s", path,
					       lg_error_text(rc));
			line = nl + 1;
		}
		if (!got)
			return 0;
		have -= (size_t)(line - buf);
		if (have > LINE_MAX_BYTES)
			have = 0; /* no line is that long: not a symbol */
		else
			memmove(buf, line, have);
	}
}

/*
 * A function reaches to the next one. The kernel's own come in order, so that those before the cut are whole;
 * those of modules come in none.
 */
static void forget_uncertain(struct lg_kallsyms *k)
{
	bool modules = false;
	size_t n = 0;

	for (size_t i = 0; i < k->n; i++) {
		modules |= k->sym[i].module != 0;
		if (!k->sym[i].module)
			k->sym[n++] = k->sym[i];
	}
	k->n = n;
	for (size_t i = 0; i < n && !modules; i++)
		k->end = k->sym[i].addr > k->end ? k->sym[i].addr : k->end;
}

struct lg_kallsyms *lg_kallsyms_new(void)
{
	struct lg_kallsyms *k = lg_calloc(1, sizeof *k);
	uint32_t none;

	if (k && !put_name(k, "", 0, &none))
		return k;
	lg_kallsyms_free(k);
	return NULL;
}

static int read_all(struct lg_kallsyms **ret, int fd, const char *path, bool *ret_cut, struct lg_error *err)
{
	struct lg_kallsyms *k = lg_kallsyms_new();
	bool hidden = false;
	int rc;

	if (!k)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	rc = parse(k, fd, path, &hidden, ret_cut, err);
	if (!rc && ret_cut && *ret_cut)
		forget_uncertain(k);
	if (!rc && !k->n)
		rc = hidden ? lg_fail(err, LG_E_PERM, LG_NO_OFFSET,
				      "%s hides its addresses: be root or set kernel.kptr_restrict=0",
				      path)
			    : lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET, "%s has no functions", path);
	if (rc) {
		lg_kallsyms_free(k);
		return rc;
	}
	if (sort(k)) {
		lg_kallsyms_free(k);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	*ret = k;
	return 0;
}

int lg_kallsyms_load(struct lg_kallsyms **ret, const char *path, struct lg_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return lg_fail_errno(err, errno, "cannot open %s", path);
	rc = read_all(ret, fd, path, NULL, err);
	close(fd);
	return rc;
}

int lg_kallsyms_read(struct lg_kallsyms **ret, int fd, const char *name, bool *ret_cut, struct lg_error *err)
{
	*ret_cut = false;
	return read_all(ret, fd, name, ret_cut, err);
}

void lg_kallsyms_free(struct lg_kallsyms *k)
{
	if (!k)
		return;
	for (size_t i = 0; i < k->n_added; i++)
		lg_free(k->added[i].name);
	lg_free(k->added);
	lg_free(k->sym);
	lg_free(k->names);
	lg_free(k);
}

size_t lg_kallsyms_count(const struct lg_kallsyms *k)
{
	return k->n;
}

const char *lg_kallsyms_find(struct lg_kallsyms *k, uint64_t addr, const char **ret_module)
{
	size_t lo = 0, hi = k->n;
	const struct sym *s;

	for (size_t i = 0; i < k->n_added; i++)
		if (addr - k->added[i].addr < k->added[i].len) {
			*ret_module = "";
			return k->added[i].name;
		}
	if (k->end && addr >= k->end)
		return NULL;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (k->sym[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return NULL;
	s = &k->sym[lo - 1];
	if (addr - s->addr >= FUNCTION_MAX)
		return NULL;
	/* Of several names of one address the first in the file, as the kernel itself prints. */
	while (s > k->sym && s[-1].addr == s->addr)
		s--;
	*ret_module = k->names + s->module;
	return k->names + s->name;
}

uint64_t lg_kallsyms_address(const struct lg_kallsyms *k, const char *name)
{
	for (size_t i = 0; i < k->n; i++)
		if (!k->sym[i].module && !strcmp(k->names + k->sym[i].name, name))
			return k->sym[i].addr;
	return 0;
}

int lg_kallsyms_add(struct lg_kallsyms *k, uint64_t addr, uint64_t len, const char *name)
{
	char *copy = lg_strdup(name);

	if (!copy || lg_grow(&k->added, &k->added_cap, k->n_added + 1, sizeof *k->added)) {
		lg_free(copy);
		return LG_E_NOMEM;
	}
	lg_kallsyms_drop(k, addr);
	k->added[k->n_added++] = (struct added){ addr, len, copy };
	return 0;
}

void lg_kallsyms_drop(struct lg_kallsyms *k, uint64_t addr)
{
	for (size_t i = 0; i < k->n_added; i++)
		if (k->added[i].addr == addr) {
			lg_free(k->added[i].name);
			k->added[i] = k->added[--k->n_added];
			return;
		}
}
