/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/resolve.h"

#include <elf.h>
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/map.h"
#include "symbols/elf_symbols.h"
#include "symbols/open_foreign.h"
#include "symbols/symbol_child.h"

/*
 * Time and room for names. Files of root, and of who records, may take what they need where those
 * run them, or the job does: they are as trusted as laggard itself, and slow only by their size. Files of
 * other users, and what only other users run, together get what a recording may last beyond its end.
 */
enum { OWN_FILE_MS = 10000, OWN_MS = 30000, FOREIGN_FILE_MS = 1000, FOREIGN_MS = 1400, SAID_MAX = 8 };
#define FILE_NAME_BYTES ((size_t)16 << 20)
#define ALL_NAME_BYTES ((size_t)64 << 20)

struct dso_file {
	enum lg_ask_kind kind; /* LG_ASK_ELF, LG_ASK_PERF_MAP or LG_ASK_PYTHON */
	int fd;
	uid_t owner; /* LG_ASK_PYTHON: whose memory it was; the file is the recorder's */
};

struct lg_symbolizer {
	struct lg_builder *b;
	struct dso_file *file;
	size_t n, cap;
	struct lg_map by_dso; /* dso -> index + 1 */
	struct lg_map trusted;
	struct lg_symbol_child *child;
	struct lg_symbolizer_stats st;
	int64_t own_ms, foreign_ms; /* left */
	size_t name_bytes;          /* left */
	int64_t now_ns;             /* of diag rows */
};

int lg_symbolizer_new(struct lg_symbolizer **ret, struct lg_builder *b, struct lg_symbol_child *child,
		      struct lg_error *err)
{
	struct lg_symbolizer *s = lg_calloc(1, sizeof *s);

	if (!s)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	*s = (struct lg_symbolizer){ .b = b, .child = child, .own_ms = OWN_MS, .foreign_ms = FOREIGN_MS,
				     .name_bytes = ALL_NAME_BYTES };
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
	lg_map_done(&s->trusted);
	lg_free(s);
}

static int add_file(struct lg_symbolizer *s, lg_str dso, int fd, enum lg_ask_kind kind, uid_t owner)
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
	s->file[s->n++] = (struct dso_file){ kind, fd, owner };
	return 0;
}

int lg_symbolizer_file(struct lg_symbolizer *s, lg_str dso, int fd)
{
	return add_file(s, dso, fd, LG_ASK_ELF, 0);
}

int lg_symbolizer_perf_map(struct lg_symbolizer *s, lg_str dso, int fd)
{
	return add_file(s, dso, fd, LG_ASK_PERF_MAP, 0);
}

int lg_symbolizer_python(struct lg_symbolizer *s, lg_str dso, int fd, uid_t owner)
{
	return add_file(s, dso, fd, LG_ASK_PYTHON, owner);
}

int lg_symbolizer_trust(struct lg_symbolizer *s, lg_str dso)
{
	return lg_map_set(&s->trusted, dso, 1);
}

struct want {
	lg_str dso;
	lg_frm frame;
	uint64_t pc;
};

/* Frames of one file. */
struct group {
	const struct want *w;
	size_t n;
	int fd;
	bool ours;    /* fd is to be closed */
	bool trusted; /* file, and who runs it */
	enum lg_ask_kind kind;
	uid_t owner;
};

static int by_dso_pc(const void *a, const void *b)
{
	const struct want *x = a, *y = b;

	if (x->dso != y->dso)
		return x->dso < y->dso ? -1 : 1;
	return x->pc < y->pc ? -1 : x->pc > y->pc;
}

/* Trusted ones first: no other file can take their time. One owner's together: one reader for them. */
static int by_owner(const void *a, const void *b)
{
	const struct group *x = a, *y = b;

	if (x->trusted != y->trusted)
		return x->trusted ? -1 : 1;
	if (x->owner != y->owner)
		return x->owner < y->owner ? -1 : 1;
	return x->w < y->w ? -1 : x->w > y->w;
}

static const char *path_of(const struct lg_symbolizer *s, const struct group *g)
{
	return lg_string(lg_builder_trace(s->b), g->w->dso);
}

/* The vDSO is in no file, but every process of one kernel (and word size) has the same. */
static int name_vdso(struct lg_symbolizer *s, const struct group *g)
{
	const ElfW(Ehdr) *h = (const ElfW(Ehdr) *)getauxval(AT_SYSINFO_EHDR);
	struct lg_elf *elf;

	/* Section headers are the last thing in it (arch/x86/entry/vdso: linked by ld). */
	if (!h || lg_elf_open_memory(&elf, h, h->e_shoff + (size_t)h->e_shnum * h->e_shentsize, NULL))
		return LG_E_NOTFOUND;
	for (size_t i = 0; i < g->n; i++) {
		uint64_t vaddr, offset;
		const char *name = NULL;

		if (lg_elf_vaddr(elf, g->w[i].pc, &vaddr))
			name = lg_elf_find(elf, vaddr, &offset);
		if (!name)
			continue;
		lg_frame_set_name(s->b, g->w[i].frame, lg_intern(s->b, name), 0, 0);
		s->st.named++;
	}
	lg_elf_free(elf);
	return 0;
}

/* What is called so is looked at by who knows whose process it is, or not at all. */
static bool is_perf_map(const char *path)
{
	size_t n = strlen(path);

	return !strncmp(path, "/tmp/perf-", 10) && n > 4 && !strcmp(path + n - 4, ".map");
}

/* The file behind a group; fd -1: there is none that may be read. */
static void find_file(struct lg_symbolizer *s, struct group *g)
{
	uint32_t i = lg_map_get(&s->by_dso, g->w->dso);
	struct stat st;

	g->fd = i ? s->file[i - 1].fd : -1;
	g->kind = i ? s->file[i - 1].kind : LG_ASK_ELF;
	if (!i && path_of(s, g)[0] == '/' && !is_perf_map(path_of(s, g))) {
		g->fd = lg_foreign_open_plain(path_of(s, g), (uid_t)-1);
		g->ours = true;
	}
	g->owner = g->fd >= 0 && !fstat(g->fd, &st) && S_ISREG(st.st_mode) ? st.st_uid : (uid_t)-1;
	g->trusted = (!g->owner || g->owner == geteuid()) && lg_map_get(&s->trusted, g->w->dso);
	if (g->kind == LG_ASK_PYTHON) {
		g->owner = s->file[i - 1].owner;
		g->trusted = !g->owner || g->owner == geteuid();
	}
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

struct naming {
	struct lg_symbolizer *s;
	const struct want *w;
	size_t bytes;
	bool python; /* "function\nfile\nline" */
};

static void take_name(void *self, size_t first, size_t count, const char *name)
{
	struct naming *n = self;
	const char *nl = n->python ? strchr(name, '\n') : NULL, *second = nl ? strchr(nl + 1, '\n') : NULL;
	struct lg_builder *b = n->s->b;
	lg_str str = lg_intern_n(b, name, nl ? (size_t)(nl - name) : strlen(name));
	lg_str file = second ? lg_intern_n(b, nl + 1, (size_t)(second - nl - 1)) : 0;
	uint32_t line = second ? (uint32_t)strtoul(second + 1, NULL, 10) : 0;

	for (size_t i = first; i < first + count; i++)
		lg_frame_set_name(b, n->w[i].frame, str, file, line);
	n->s->st.named += count;
	n->bytes += strlen(name) + 1;
}

/* What became of a file whose names did not all come. */
static void say_lost(struct lg_symbolizer *s, const struct group *g, const struct lg_symbol_end *end)
{
	char why[80];

	if (end->cut)
		snprintf(why, sizeof why, "its names are too many");
	else if (end->signal == SIGBUS)
		snprintf(why, sizeof why, "it shrank while it was read");
	else if (end->signal == SIGALRM || end->signal == SIGXCPU || end->late)
		snprintf(why, sizeof why, "reading it took too long");
	else if (end->stopped)
		snprintf(why, sizeof why, "the process that reads symbols was stopped, or its read hangs");
	else if (end->signal)
		snprintf(why, sizeof why, "the process that read it ended by signal %d", end->signal);
	else
		snprintf(why, sizeof why, "the process that reads symbols is gone");
	if (++s->st.lost <= SAID_MAX)
		lg_add_diag_now(s->b, LG_DIAG_NAMES_LOST, s->now_ns, g->n,
				"%s: %s; its functions have no names, the recording is whole", path_of(s, g), why);
}

/* At most LG_JOB_PCS_MAX of a group. False: this file is done with. */
static bool name_some(struct lg_symbolizer *s, const struct group *g, size_t at, size_t n,
		      const uint64_t *pcs, int64_t *left_ms, int64_t file_ms)
{
	struct lg_trace *t = lg_builder_trace(s->b);
	struct lg_symbol_job job = {
		.kind = g->kind, .fd = g->fd, .owner = g->owner, .pcs = pcs, .n = n,
		.budget_ms = (uint32_t)(*left_ms < file_ms ? *left_ms : file_ms),
		.name_bytes = s->name_bytes < FILE_NAME_BYTES ? s->name_bytes : FILE_NAME_BYTES,
		.build_id = lg_string(t, t->frame.build_id[g->w->frame]),
	};
	struct naming naming = { s, g->w + at, 0, g->kind == LG_ASK_PYTHON };
	struct lg_symbol_end end = { .late = true };
	int64_t began = now_ms();

	if (job.budget_ms)
		lg_symbol_child_names(s->child, &job, take_name, &naming, &end);
	*left_ms -= now_ms() - began;
	if (*left_ms < 0)
		*left_ms = 0;
	s->name_bytes -= naming.bytes;
	s->st.no_file += end.no_file || end.other_build;
	s->st.other_build += end.other_build;
	if (end.signal || end.late || end.gone || end.cut)
		say_lost(s, g, &end);
	return !end.no_file && !end.other_build && !end.signal && !end.late && !end.gone && !end.cut;
}

static int name_group(struct lg_symbolizer *s, const struct group *g)
{
	uint64_t *pcs;

	s->st.dsos++;
	if (g->fd < 0 && !strcmp(path_of(s, g), "[vdso]") && !name_vdso(s, g))
		return 0;
	if (g->owner == (uid_t)-1 || !s->child) {
		s->st.no_file++;
		return 0;
	}
	pcs = lg_calloc(g->n, sizeof *pcs);
	if (!pcs)
		return LG_E_NOMEM;
	for (size_t i = 0; i < g->n; i++)
		pcs[i] = g->w[i].pc;
	for (size_t at = 0, n; at < g->n; at += n) {
		n = g->n - at < LG_JOB_PCS_MAX ? g->n - at : LG_JOB_PCS_MAX;
		if (!name_some(s, g, at, n, pcs + at, g->trusted ? &s->own_ms : &s->foreign_ms,
			       g->trusted ? OWN_FILE_MS : FOREIGN_FILE_MS))
			break;
	}
	lg_free(pcs);
	return 0;
}

static int collect(struct lg_symbolizer *s, struct want **ret)
{
	struct lg_trace *t = lg_builder_trace(s->b);
	struct want *want = NULL;
	size_t cap = 0, n = 0;

	for (size_t f = 1; f < t->frame.n; f++) {
		if (t->frame.name[f] || !t->frame.dso[f] ||
		    (t->frame.kind[f] != LG_FRAME_USER && !lg_map_get(&s->by_dso, t->frame.dso[f])))
			continue;
		if (lg_grow(&want, &cap, n + 1, sizeof *want)) {
			lg_free(want);
			return LG_E_NOMEM;
		}
		want[n++] = (struct want){ t->frame.dso[f], (lg_frm)f, t->frame.pc[f] };
	}
	if (n)
		qsort(want, n, sizeof *want, by_dso_pc);
	s->st.frames = n;
	*ret = want;
	return 0;
}

static int name_all(struct lg_symbolizer *s, const struct want *want)
{
	struct group *group = NULL;
	size_t n = 0, cap = 0;
	int rc = 0;

	for (size_t i = 0, end; i < s->st.frames && !rc; i = end) {
		for (end = i + 1; end < s->st.frames && want[end].dso == want[i].dso; end++)
			;
		rc = lg_grow(&group, &cap, n + 1, sizeof *group);
		if (rc)
			break;
		group[n] = (struct group){ .w = want + i, .n = end - i };
		find_file(s, &group[n++]);
	}
	if (n)
		qsort(group, n, sizeof *group, by_owner);
	for (size_t i = 0; i < n; i++) {
		rc = rc ? rc : name_group(s, &group[i]);
		if (group[i].ours && group[i].fd >= 0)
			close(group[i].fd);
	}
	lg_free(group);
	return rc;
}

int lg_symbolizer_run(struct lg_symbolizer *s, int64_t now_ns, struct lg_symbolizer_stats *ret,
		      struct lg_error *err)
{
	struct want *want = NULL;
	int rc = collect(s, &want);

	s->now_ns = now_ns;
	if (!rc)
		rc = name_all(s, want);
	lg_free(want);
	if (rc)
		return lg_fail(err, rc, LG_NO_OFFSET, "out of memory");
	if (s->st.lost > SAID_MAX)
		lg_add_diag_now(s->b, LG_DIAG_NAMES_LOST, now_ns, s->st.lost - SAID_MAX,
				"%zu more files could not be read: their functions have no names",
				s->st.lost - SAID_MAX);
	*ret = s->st;
	return 0;
}
