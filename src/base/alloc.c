/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"

static _Atomic uint64_t n_calls;
static _Atomic uint64_t fail_at;

enum { PAGE = 4096 }; /* the least of any machine */

static int refused(void)
{
	uint64_t n = atomic_fetch_add_explicit(&n_calls, 1, memory_order_relaxed) + 1;
	uint64_t at = atomic_load_explicit(&fail_at, memory_order_relaxed);

	return at && n == at;
}

void lg_alloc_fail_at(uint64_t n)
{
	atomic_store(&n_calls, 0);
	atomic_store(&fail_at, n);
}

uint64_t lg_alloc_count(void)
{
	return atomic_load(&n_calls);
}

/*
 * Used at random, most of the time goes into finding the page where these have 4 KiB. Not for what is read
 * and written from front to back: a guest whose host takes back free memory (free page reporting of
 * virtio-balloon does, by 2 MiB and more) gets huge pages that the host has yet to find memory for, which
 * costs milliseconds each, while small ones are those that were in use a moment ago.
 */
static void in_huge_pages(void *p, size_t bytes)
{
	uintptr_t from = ((uintptr_t)p + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
	uintptr_t end = ((uintptr_t)p + bytes) & ~(uintptr_t)(PAGE - 1);

	(void)madvise((void *)from, end - from, MADV_HUGEPAGE);
}

void *lg_calloc(size_t n, size_t size)
{
	if (refused())
		return NULL;
	return calloc(n ? n : 1, size ? size : 1);
}

/*
 * Looked at before it is written, a fresh page is the kernel's page of zeros at first, and the write takes a
 * second fault, which interrupts every CPU that runs another thread of this process.
 */
static void write_pages(void *p, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PAGE)
		((volatile unsigned char *)p)[at] = 0;
}

void *lg_calloc_table(size_t n, size_t size)
{
	enum { HUGE = 4 << 20 };
	void *p = lg_calloc(n, size);

	if (!p)
		return NULL;
	/* There is a block: n * size does not overflow. */
	if (n * size >= HUGE)
		in_huge_pages(p, n * size);
	write_pages(p, n * size);
	return p;
}

void *lg_realloc(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes) || refused())
		return NULL;
	return realloc(p, bytes ? bytes : 1);
}

char *lg_strdup(const char *s)
{
	size_t n = strlen(s) + 1;
	char *p = lg_realloc(NULL, n, 1);

	if (p)
		memcpy(p, s, n);
	return p;
}

void lg_free(void *p)
{
	free(p);
}

int lg_grow(void *p, size_t *cap, size_t need, size_t size)
{
	void *old, *new;
	size_t want;

	if (need <= *cap)
		return 0;
	want = *cap ? *cap : 16;
	while (want < need) {
		if (__builtin_mul_overflow(want, (size_t)2, &want))
			return LG_E_NOMEM;
	}
	memcpy(&old, p, sizeof old);
	new = lg_realloc(old, want, size);
	if (!new)
		return LG_E_NOMEM;
	memcpy(p, &new, sizeof new);
	*cap = want;
	return 0;
}
