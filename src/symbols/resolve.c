/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/resolve.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/map.h"
#include "symbols/demangle.h"
#include "symbols/elf_symbols.h"
#include "symbols/perf_map.h"

#define NAME_BYTES 1024 /* templates of torch reach many kB: the head says what it is */
#define DEBUG_DIR "/usr/lib/debug"

enum dso_kind { DSO_ELF, DSO_PERF_MAP };

struct dso_file {
	enum dso_kind kind;
	int fd;
};

struct lg_symbolizer {
	struct lg_builder *b;
	struct dso_file *file;
	size_t n, cap;
	struct lg_map by_dso; /* dso -> index + 1 */
};

int lg_symbolizer_new(struct lg_symbolizer **ret, struct lg_builder *b, struct lg_error *err)
{
	struct lg_symbolizer *s = lg_calloc(1, sizeof *s);

	if (!s)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	s->b = b;
	*ret = s;
	return 0;
}

void lg_symbolizer_free(struct lg_symbolizer *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++)
		close(s->file[i].fd);
	lg_free(s->file);
	lg_map_done(&s->by_dso);
	lg_free(s);
}

static int add_file(struct lg_symbolizer *s, lg_str dso, int fd, enum dso_kind kind)
{
	if (fd < 0 || lg_map_get(&s->by_dso, dso)) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	if (lg_grow(&s->file, &s->cap, s->n + 1, sizeof *s->file) ||
	    lg_map_set(&s->by_dso, dso, (uint32_t)s->n + 1)) {
		close(fd);
		return LG_E_NOMEM;
	}
	s->file[s->n++] = (struct dso_file){ kind, fd };
	return 0;
}

int lg_symbolizer_file(struct lg_symbolizer *s, lg_str dso, int fd)
{
	return add_file(s, dso, fd, DSO_ELF);
}

int lg_symbolizer_perf_map(struct lg_symbolizer *s, lg_str dso, int fd)
{
	return add_file(s, dso, fd, DSO_PERF_MAP);
}

struct want {
	lg_str dso;
	lg_frm frame;
	uint64_t pc;
};

static int by_dso_pc(const void *a, const void *b)
{
	const struct want *x = a, *y = b;

	if (x->dso != y->dso)
		return x->dso < y->dso ? -1 : 1;
	return x->pc < y->pc ? -1 : x->pc > y->pc;
}

/* The vDSO is in no file, but every process of one kernel (and word size) has the same. */
static int open_vdso(struct lg_elf **ret, struct lg_error *err)
{
	const ElfW(Ehdr) *h = (const ElfW(Ehdr) *)getauxval(AT_SYSINFO_EHDR);
	size_t n;

	if (!h)
		return lg_fail(err, LG_E_NOTFOUND, LG_NO_OFFSET, "no vDSO");
	/* Section headers are the last thing in it (arch/x86/entry/vdso: linked by ld). */
	n = h->e_shoff + (size_t)h->e_shnum * h->e_shentsize;
	return lg_elf_open_memory(ret, h, n, err);
}

static int open_elf(struct lg_symbolizer *s, const struct want *w, struct lg_elf **ret,
		    struct lg_symbolizer_stats *st, struct lg_error *err)
{
	struct lg_trace *t = lg_builder_trace(s->b);
	const char *path = lg_string(t, w->dso), *id = lg_string(t, t->frame.build_id[w->frame]);
	uint32_t i = lg_map_get(&s->by_dso, w->dso);
	struct stat file;
	int fd, rc;

	if (!i && !strcmp(path, "[vdso]"))
		return open_vdso(ret, err);
	if (!i && path[0] != '/')
		return lg_fail(err, LG_E_NOTFOUND, LG_NO_OFFSET, "%s is no file", path);
	fd = i ? s->file[i - 1].fd : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return lg_fail_errno(err, errno, "%s", path);
	/* A device that was mapped executable must not be read. */
	rc = fstat(fd, &file) || !S_ISREG(file.st_mode)
		     ? lg_fail(err, LG_E_NOTFOUND, LG_NO_OFFSET, "%s is no regular file", path)
		     : lg_elf_open(ret, fd, DEBUG_DIR, err);
	if (!i)
		close(fd);
	if (!rc && *id && *lg_elf_build_id(*ret) && strcmp(id, lg_elf_build_id(*ret))) {
		st->other_build++;
		lg_elf_free(*ret);
		return lg_fail(err, LG_E_NOTFOUND, LG_NO_OFFSET, "%s has been replaced", path);
	}
	return rc;
}

/* Frames come sorted by pc: the same symbol repeats, its name is made once. */
struct namer {
	const char *raw;
	lg_str name;
};

static void name_frame(struct lg_symbolizer *s, struct namer *n, lg_frm frame, const char *raw,
		       struct lg_symbolizer_stats *st)
{
	char buf[NAME_BYTES];

	if (!raw)
		return;
	if (raw != n->raw) {
		n->raw = raw;
		n->name = lg_intern(s->b, lg_demangle(raw, buf, sizeof buf));
	}
	lg_frame_set_name(s->b, frame, n->name, 0, 0);
	st->named++;
}

static int name_group(struct lg_symbolizer *s, const struct want *w, size_t n,
		      struct lg_symbolizer_stats *st)
{
	uint32_t i = lg_map_get(&s->by_dso, w->dso);
	struct namer namer = { 0 };
	struct lg_perf_map *map = NULL;
	struct lg_elf *elf = NULL;
	struct lg_error why;
	int rc;

	st->dsos++;
	if (i && s->file[i - 1].kind == DSO_PERF_MAP)
		rc = lg_perf_map_open(&map, s->file[i - 1].fd, &why);
	else
		rc = open_elf(s, w, &elf, st, &why);
	if (rc) {
		st->no_file++;
		return rc == LG_E_NOMEM ? rc : 0;
	}
	for (size_t k = 0; k < n; k++) {
		uint64_t vaddr, offset;

		if (map)
			name_frame(s, &namer, w[k].frame, lg_perf_map_find(map, w[k].pc), st);
		else if (lg_elf_vaddr(elf, w[k].pc, &vaddr))
			name_frame(s, &namer, w[k].frame, lg_elf_find(elf, vaddr, &offset), st);
	}
	lg_perf_map_free(map);
	lg_elf_free(elf);
	return 0;
}

int lg_symbolizer_run(struct lg_symbolizer *s, struct lg_symbolizer_stats *ret,
		      struct lg_error *err)
{
	struct lg_trace *t = lg_builder_trace(s->b);
	struct lg_symbolizer_stats st = { 0 };
	struct want *want = NULL;
	size_t cap = 0;
	int rc = 0;

	for (size_t f = 1; f < t->frame.n; f++) {
		if (t->frame.name[f] || !t->frame.dso[f] || t->frame.kind[f] != LG_FRAME_USER)
			continue;
		if (lg_grow(&want, &cap, st.frames + 1, sizeof *want)) {
			lg_free(want);
			return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		}
		want[st.frames++] = (struct want){ t->frame.dso[f], (lg_frm)f, t->frame.pc[f] };
	}
	if (st.frames)
		qsort(want, st.frames, sizeof *want, by_dso_pc);
	for (size_t i = 0, end; i < st.frames && !rc; i = end) {
		for (end = i + 1; end < st.frames && want[end].dso == want[i].dso; end++)
			;
		rc = name_group(s, want + i, end - i, &st);
	}
	lg_free(want);
	if (rc)
		return lg_fail(err, rc, LG_NO_OFFSET, "out of memory");
	*ret = st;
	return 0;
}
