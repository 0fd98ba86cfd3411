/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shrunk.h - files that get shorter while they are mapped.
 *
 * A page that was mapped and lies beyond the end of its file by now is SIGBUS for who reads it, and who may
 * write to a library that a perf.data names can make that happen. With the guard it reads as zeros.
 * The recorder needs none: its files are read by a process that may die (symbol_child.h).
 */
#ifndef LG_SYMBOLS_SHRUNK_H
#define LG_SYMBOLS_SHRUNK_H
#include <stddef.h>

/* Take SIGBUS of this process, unless it has a handler. Once is enough. Any thread may run into it. */
void lg_shrunk_guard(void);
/* Pages that so far were not there. */
size_t lg_shrunk_pages(void);
/* n bytes at p are a mapped file, from here until they are let go, which is before they are unmapped. */
void lg_shrunk_watch(const void *p, size_t n);
void lg_shrunk_let_go(const void *p);

#endif /* LG_SYMBOLS_SHRUNK_H */
