/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/shrunk.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	FILES_MAX = 4096, /* what is mapped beyond that many ends the process as ever */
	PAGES_MAX = 16384
};

static struct {
	_Atomic uintptr_t start, end; /* end 0: free */
} mapped[FILES_MAX];
static _Atomic size_t n_mapped, pages;
static uintptr_t page_bytes;

/*
 * A page of zeros. Each is a mapping of its own, and a process may have so many (vm.max_map_count, 65530):
 * who shortens a file that is read here and there gets the process to that limit, where this fails, and so
 * does every malloc() that maps. Before that the rest of the file is covered at once.
 */
static bool zeros(void *page, uintptr_t start, uintptr_t end)
{
	/* Of what may lie anywhere nobody knows the end. */
	bool one = start < page_bytes || atomic_load(&pages) < PAGES_MAX;
	size_t n = one ? page_bytes : end - (uintptr_t)page;

	return mmap(page, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page;
}

/* Only what a signal handler may do: atomics and system calls. */
static void on_bus(int sig, siginfo_t *si, void *context)
{
	uintptr_t at = (uintptr_t)si->si_addr;
	size_t n = atomic_load(&n_mapped);
	int before = errno;

	(void)context;
	for (size_t i = 0; i < n; i++) {
		void *page = (void *)(at & ~(page_bytes - 1));

		if (at < atomic_load(&mapped[i].start) || at >= atomic_load(&mapped[i].end))
			continue;
		if (zeros(page, atomic_load(&mapped[i].start), atomic_load(&mapped[i].end))) {
			atomic_fetch_add(&pages, 1);
			errno = before;
			return;
		}
	}
	(void)signal(sig, SIG_DFL); /* not ours: the read is done again, and ends the process */
}

void lg_shrunk_guard(void)
{
	struct sigaction old, a = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };

	page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	if (!sigaction(SIGBUS, NULL, &old) && !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL)
		(void)sigaction(SIGBUS, &a, NULL);
}

size_t lg_shrunk_pages(void)
{
	return atomic_load(&pages);
}

void lg_shrunk_watch(const void *p, size_t n)
{
	for (size_t i = 0; i < FILES_MAX; i++) {
		uintptr_t none = 0;

		if (!atomic_compare_exchange_strong(&mapped[i].end, &none, 1))
			continue;
		atomic_store(&mapped[i].start, (uintptr_t)p);
		atomic_store(&mapped[i].end, (uintptr_t)p + n);
		for (size_t have = atomic_load(&n_mapped); have <= i;)
			if (atomic_compare_exchange_strong(&n_mapped, &have, i + 1))
				break;
		return;
	}
}

void lg_shrunk_let_go(const void *p)
{
	size_t n = atomic_load(&n_mapped);

	for (size_t i = 0; p && i < n; i++) {
		uintptr_t end = atomic_load(&mapped[i].end);

		/* Each of two threads that let go of the same address (elf_symbols.c has one for "anywhere")
		 * frees an entry of its own. */
		if (atomic_load(&mapped[i].start) != (uintptr_t)p || end <= 1 ||
		    !atomic_compare_exchange_strong(&mapped[i].end, &end, 1))
			continue;
		atomic_store(&mapped[i].start, 0);
		atomic_store(&mapped[i].end, 0);
		return;
	}
}
