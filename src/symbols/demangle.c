/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The printer of libiberty walks a name's tree and hands out what it writes piece by piece. A name of 200
 * bytes can stand for 2^60 (each part says "twice the one before"), so the walk is left, by a jump, as soon as
 * the buffer is full: work and memory are bounded by its size, not by the name. (It allocates nothing on
 * its heap, so nothing is lost by the jump; names beyond 1024 bytes it refuses by itself.)
 */
#include "symbols/demangle.h"

#include <setjmp.h>
#include <string.h>

/* libiberty/demangle.h, whose folder differs from one distribution to the other. */
enum { DMGL_PARAMS = 1, DMGL_TYPES = 16 };
typedef void demangle_callback(const char *text, size_t n, void *self);
int cplus_demangle_v3_callback(const char *mangled, int options, demangle_callback *callback, void *self);

struct printed {
	char *buf;
	size_t n, size;
	jmp_buf full;
};

static void print(const char *text, size_t n, void *self)
{
	struct printed *p = self;

	if (n >= p->size - p->n) {
		memcpy(p->buf + p->n, text, p->size - p->n);
		longjmp(p->full, 1);
	}
	memcpy(p->buf + p->n, text, n);
	p->n += n;
}

static bool cxx_demangle(const char *name, char *buf, size_t size)
{
	struct printed p = { .buf = buf, .size = size };

	if (setjmp(p.full)) {
		memcpy(buf + size - 4, "...", 4);
		return true;
	}
	if (!cplus_demangle_v3_callback(name, DMGL_PARAMS | DMGL_TYPES, print, &p))
		return false;
	buf[p.n] = 0;
	return true;
}

const char *lg_demangle(const char *name, char *buf, size_t size)
{
	if (name[0] != '_' || (name[1] != 'Z' && name[1] != 'R') || size < 4)
		return name;
	if (lg_rust_demangle(name, buf, size))
		return buf;
	return name[1] == 'Z' && cxx_demangle(name, buf, size) ? buf : name;
}
