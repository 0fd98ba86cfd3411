/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdio.h>
#include <string.h>

#include "base/agree.h"
#include "base/alloc.h"

struct lg_arena_block {
	struct lg_arena_block *next;
	size_t used, cap;
	void *adopted; /* instead of data */
	_Alignas(16) unsigned char data[];
};

enum { BLOCK_BYTES = 64 * 1024 };

void *lg_arena_alloc(struct lg_arena *a, size_t n, size_t size)
{
	struct lg_arena_block *b = a->head;
	size_t bytes;
	void *p;

	if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX / 2)
		goto fail;
	bytes = (bytes + 15) & ~(size_t)15;
	if (!b || b->cap - b->used < bytes) {
		size_t cap = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;

		b = lg_calloc(1, sizeof *b + cap);
		if (!b)
			goto fail;
		b->cap = cap;
		b->next = a->head;
		a->head = b;
	}
	p = b->data + b->used;
	b->used += bytes;
	return p;
fail:
	a->failed = 1;
	return NULL;
}

void *lg_arena_room(struct lg_arena *a, void *v, size_t n, size_t size)
{
	void *more;

	if (n & (n - 1)) /* neither 0 nor a power of two: not full */
		return v;
	more = lg_arena_alloc(a, n ? 2 * n : 1, size);
	if (more && n)
		memcpy(more, v, n * size);
	return more;
}

void *lg_arena_adopt(struct lg_arena *a, void *p)
{
	struct lg_arena_block *b = p ? lg_calloc(1, sizeof *b) : NULL;

	if (!b) {
		a->failed |= p != NULL;
		lg_free(p);
		return NULL;
	}
	b->adopted = p;
	/* Behind the first: that one may have room left. */
	if (a->head) {
		b->next = a->head->next;
		a->head->next = b;
	} else {
		a->head = b;
	}
	return p;
}

void *lg_arena_readopt(struct lg_arena *a, void *old, void *p)
{
	struct lg_arena_block *b = a->head;

	while (b && (!old || b->adopted != old))
		b = b->next;
	if (!b || !p)
		return lg_arena_adopt(a, p);
	lg_free(old);
	return b->adopted = p;
}

const char *lg_arena_printf(struct lg_arena *a, const char *fmt, ...)
{
	va_list ap;
	char *p;
	int n;

	va_start(ap, fmt);
	n = lg_vagree(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return "";
	p = lg_arena_alloc(a, (size_t)n + 1, 1);
	if (!p)
		return "";
	va_start(ap, fmt);
	lg_vagree(p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return p;
}

const char *lg_arena_strdup(struct lg_arena *a, const char *s)
{
	size_t n = strlen(s) + 1;
	char *p = lg_arena_alloc(a, n, 1);

	if (!p)
		return "";
	memcpy(p, s, n);
	return p;
}

void lg_arena_join(struct lg_arena *a, struct lg_arena *b)
{
	struct lg_arena_block **end = &b->head;

	while (*end)
		end = &(*end)->next;
	/* Behind the first: that one may have room left. */
	*end = a->head ? a->head->next : NULL;
	*(a->head ? &a->head->next : &a->head) = b->head;
	a->failed |= b->failed;
	*b = (struct lg_arena){ 0 };
}

void lg_arena_done(struct lg_arena *a)
{
	while (a->head) {
		struct lg_arena_block *next = a->head->next;

		lg_free(a->head->adopted);
		lg_free(a->head);
		a->head = next;
	}
	a->failed = 0;
}
