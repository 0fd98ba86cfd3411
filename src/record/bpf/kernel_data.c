/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_data.c - which static lock is at an address.
 *
 * Only data symbols (types d D b B), only once per recording and only when a lock that is no
 * mmap_lock was waited for. Without CONFIG_KALLSYMS_ALL there are hardly any and the locks keep
 * their class as name.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "record/bpf/kernel_data.h"

struct symbol {
	uint64_t addr;
	size_t name; /* offset in names */
};

struct lg_kernel_data {
	struct symbol *symbols;
	size_t n, cap;
	char *names;
	size_t n_names, cap_names;
};

/* No static object of the kernel that carries locks is larger. */
#define MAX_SIZE (1u << 16)

static int by_address(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

static int add(struct lg_kernel_data *d, uint64_t addr, const char *name)
{
	size_t n = strlen(name) + 1;

	if (lg_grow(&d->symbols, &d->cap, d->n + 1, sizeof *d->symbols) ||
	    lg_grow(&d->names, &d->cap_names, d->n_names + n, 1))
		return LG_E_NOMEM;
	memcpy(d->names + d->n_names, name, n);
	d->symbols[d->n++] = (struct symbol){addr, d->n_names};
	d->n_names += n;
	return 0;
}

int lg_kernel_data_load(struct lg_kernel_data **ret)
{
	struct lg_kernel_data *d = lg_calloc(1, sizeof *d);
	char line[512], type, name[256];
	int r = 0;
	FILE *in;

	if (!d)
		return LG_E_NOMEM;
	in = fopen("/proc/kallsyms", "re");
	while (in && !r && fgets(line, sizeof line, in)) {
		uint64_t addr;

		/* kptr_restrict shows zeros: nothing to find then. */
		if (sscanf(line, "%" SCNx64 " %c %255s", &addr, &type, name) == 3 && addr &&
		    strchr("dDbB", type))
			r = add(d, addr, name);
	}
	if (in)
		fclose(in);
	if (r) {
		lg_kernel_data_free(d);
		return r;
	}
	if (d->n)
		qsort(d->symbols, d->n, sizeof *d->symbols, by_address);
	*ret = d;
	return 0;
}

void lg_kernel_data_free(struct lg_kernel_data *d)
{
	if (!d)
		return;
	lg_free(d->symbols);
	lg_free(d->names);
	lg_free(d);
}

const char *lg_kernel_data_find(const struct lg_kernel_data *d, uint64_t addr)
{
	size_t lo = 0, hi = d->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (d->symbols[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	/*
	 * The end of the last symbol is not known, and beyond the last one lies the whole heap: an
	 * address counts only when a further symbol follows.
	 */
	if (!lo || lo == d->n || addr - d->symbols[lo - 1].addr > MAX_SIZE)
		return NULL;
	return d->names + d->symbols[lo - 1].name;
}
