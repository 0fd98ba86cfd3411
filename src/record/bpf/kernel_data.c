/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_data.c - which static lock is at an address, and which frames are tracing itself.
 *
 * Data symbols (types d D b B) name locks; without CONFIG_KALLSYMS_ALL there are hardly any and
 * locks keep their class as name. Of the functions only those are kept that stand between a
 * tracepoint and a BPF program.
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

struct range {
	uint64_t start, end;
};

struct lg_kernel_data {
	struct symbol *symbols;
	size_t n, cap;
	struct range *tracing;
	size_t n_tracing, cap_tracing;
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

/* bpf_trace_run3(), __bpf_trace_x(), __traceiter_x(), __mmap_lock_do_trace_released() ... */
static bool is_tracing(const char *name)
{
	return !strncmp(name, "bpf_trace_run", 13) || !strncmp(name, "__bpf_trace_", 12) ||
	       !strncmp(name, "__traceiter_", 12) || !strncmp(name, "__mmap_lock_do_trace_", 21);
}

static int add_tracing(struct lg_kernel_data *d, uint64_t addr)
{
	if (lg_grow(&d->tracing, &d->cap_tracing, d->n_tracing + 1, sizeof *d->tracing))
		return LG_E_NOMEM;
	d->tracing[d->n_tracing++] = (struct range){addr, addr + MAX_SIZE};
	return 0;
}

static int by_start(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

bool lg_kernel_data_is_tracing(const struct lg_kernel_data *d, uint64_t pc)
{
	size_t lo = 0, hi = d->n_tracing;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (d->tracing[mid].start <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && pc < d->tracing[lo - 1].end;
}

int lg_kernel_data_load(struct lg_kernel_data **ret)
{
	struct lg_kernel_data *d = lg_calloc(1, sizeof *d);
	char line[512], type, name[256];
	bool open = false; /* the newest tracing function's end is not known yet */
	uint64_t addr;
	int r = 0;
	FILE *in;

	if (!d)
		return LG_E_NOMEM;
	in = fopen("/proc/kallsyms", "re");
	while (in && !r && fgets(line, sizeof line, in)) {
		/* kptr_restrict shows zeros: nothing to find then. */
		if (sscanf(line, "%" SCNx64 " %c %255s", &addr, &type, name) != 3 || !addr)
			continue;
		/* The file is in the order of addresses, but for modules. */
		if (open && addr > d->tracing[d->n_tracing - 1].start) {
			if (addr < d->tracing[d->n_tracing - 1].end)
				d->tracing[d->n_tracing - 1].end = addr;
			open = false;
		}
		if (strchr("dDbB", type)) {
			r = add(d, addr, name);
		} else if (is_tracing(name)) {
			r = add_tracing(d, addr);
			open = true;
		}
	}
	if (in)
		fclose(in);
	if (r) {
		lg_kernel_data_free(d);
		return r;
	}
	if (d->n)
		qsort(d->symbols, d->n, sizeof *d->symbols, by_address);
	if (d->n_tracing)
		qsort(d->tracing, d->n_tracing, sizeof *d->tracing, by_start);
	*ret = d;
	return 0;
}

void lg_kernel_data_free(struct lg_kernel_data *d)
{
	if (!d)
		return;
	lg_free(d->symbols);
	lg_free(d->tracing);
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
