/* SPDX-License-Identifier: Apache-2.0 */
/*
 * code_maps.c - address lists to interned stacks.
 *
 *   space (one a process)  sorted mappings -> file + offset -> frame
 *   kernel                 kallsyms, loaded at the first kernel address
 *   seen                   hash of a whole address list -> stack row: the common case is a
 *                          stack that was there before, which costs one hash and one look-up
 *
 * Kernel frames get their names when they are interned; user frames at the end of the recording
 * (symbols/resolve.c), because reading the symbols of a large library takes tens of
 * milliseconds that belong to nobody while a training run is being watched. For that the file
 * is opened when its first frame appears: later the process, its mount namespace or the file
 * may be gone. What is in a file, its build id included, is read by a process of its own
 * (symbols/symbol_child.h): its writer may be anybody.
 *
 * `seen` never answers for an older layout of a process, because the layout's version is part of
 * the key. A 64-bit hash is trusted there: among 2^18 stacks (the cache's bound) two collide once
 * in 10^8 recordings.
 */
#include "record/code_maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/alloc.h"
#include "base/map.h"
#include "record/address_space.h"
#include "record/job_spec.h"
#include "record/procfs.h"
#include "record/pythons.h"
#include "store/kernel_names.h"
#include "symbols/elf_symbols.h"
#include "symbols/kallsyms.h"
#include "symbols/open_foreign.h"
#include "symbols/resolve.h"
#include "symbols/symbol_child.h"

#define MAP_FILE "/tmp/perf-%d.map" /* where JITs write it, in the mount namespace of their own */
#define SEEN_MAX (1u << 18)
#define KEPT_FDS 256      /* beyond it the path is opened again at the end */
#define DEPTH_MAX 512

enum dso_kind { DSO_FILE, DSO_JIT, DSO_OTHER };

struct dso {
	lg_str name, build_id;
	enum dso_kind kind;
	bool trusted; /* the job runs it, root, or who records */
	int fd;      /* -1 = not kept */
	int32_t pid; /* JIT: whose perf map ... */
	uid_t owner; /* ... and who that is; -1 = not known */
};

struct lg_addrs {
	struct lg_session *s;
	struct lg_builder *b;
	struct lg_kallsyms *kallsyms;
	bool kallsyms_tried;
	uint64_t not_looked; /* files that others mounted, or that they keep from being looked at */
	struct lg_spaces spaces;
	struct dso *dso;
	size_t n_dso, dso_cap, n_fd, n_jit_fd;
	struct lg_pythons *pythons;
	struct lg_symbol_child *child; /* NULL: it could not be confined, so there is none */
	struct lg_symbol_child *spare; /* for a fork of the recorder; NULL = it will not be forked */
	struct lg_map dso_by_key; /* hash of name and file identity */
	struct lg_map kframe;     /* kernel address -> frame */
	struct lg_map seen;
	lg_str s_kernel, s_unknown;
};

int lg_addrs_new(struct lg_addrs **ret, struct lg_session *s, struct lg_error *err)
{
	struct lg_addrs *a = lg_calloc(1, sizeof *a);
	bool forks = lg_session_options(s)->ring_ns > 0;
	struct lg_error why;

	if (!a)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	a->s = s;
	a->b = a->spaces.b = lg_session_builder(s);
	/* Before there is any event, and anything to hide from it. */
	if (lg_symbol_child_new(&a->child, &why)) {
		lg_add_diag_now(a->b, LG_DIAG_NAMES_LOST, lg_monotonic_ns(), 1, "%s: user functions have no names",
				why.message);
		lg_session_say(s, "without names of user functions: %s", why.message);
	}
	if (a->child && forks && lg_symbol_child_new(&a->spare, &why))
		lg_session_say(s, "without names of user functions in what triggers write: %s", why.message);
	a->s_kernel = lg_intern(a->b, "[kernel.kallsyms]");
	a->s_unknown = lg_intern(a->b, "[unknown]");
	a->pythons = lg_pythons_new(a->b, forks);
	if (!a->pythons) {
		lg_addrs_free(a);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	*ret = a;
	return 0;
}

void lg_addrs_free(struct lg_addrs *a)
{
	if (!a)
		return;
	lg_spaces_done(&a->spaces);
	lg_pythons_free(a->pythons);
	lg_symbol_child_free(a->child);
	lg_symbol_child_free(a->spare);
	for (size_t i = 0; i < a->n_dso; i++)
		if (a->dso[i].fd >= 0)
			close(a->dso[i].fd);
	lg_free(a->dso);
	lg_map_done(&a->dso_by_key);
	lg_map_done(&a->kframe);
	lg_map_done(&a->seen);
	lg_kallsyms_free(a->kallsyms);
	lg_free(a);
}

/* -- what the sources and the session tell -- */

void lg_addrs_map(struct lg_addrs *a, int32_t pid, uint64_t start, uint64_t len, uint64_t pgoff,
		  uint64_t inode, const char *name)
{
	struct lg_space *p = pid > 0 ? lg_space_get(&a->spaces, pid) : NULL;
	struct lg_mapping m = { .start = start, .end = start + len, .pgoff = pgoff, .inode = inode };

	if (!p || !len || m.end < start)
		return;
	lg_builder_for(a->b, pid);
	m.name = lg_intern(a->b, name);
	lg_space_put(&a->spaces, p, &m);
}

void lg_session_map(struct lg_session *s, int32_t pid, uint64_t start, uint64_t len, uint64_t pgoff,
		    uint64_t inode, const char *name, int64_t ts)
{
	(void)ts; /* records come in time order: each changes the layout from here on */
	lg_addrs_map(lg_session_addrs(s), pid, start, len, pgoff, inode, name);
}

void lg_addrs_read_now(struct lg_addrs *a, int32_t pid)
{
	struct lg_space *p = pid > 0 ? lg_space_get(&a->spaces, pid) : NULL;

	if (p)
		lg_space_fill(&a->spaces, p);
}

/* "NSpid:	4711	17": a JIT knows itself by the innermost one. */
static int pid_of_itself(int32_t pid)
{
	char path[32], status[4096], *ns, *end, *last;

	snprintf(path, sizeof path, "/proc/%d/status", pid);
	if (lg_proc_read(path, status, sizeof status) <= 0 || !(ns = strstr(status, "\nNSpid:")))
		return pid;
	end = strchr(ns + 1, '\n');
	if (end)
		*end = 0;
	last = strrchr(ns, '\t');
	return (int)strtol(last ? last : ns + 7, NULL, 10);
}

static uid_t owner_of(int32_t pid)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof path, "/proc/%d", pid);
	return stat(path, &st) ? (uid_t)-1 : st.st_uid;
}

/* Who changes the user without another program is taken for who it was. Where no job is named, anybody
 * says of himself that he trains (RANK in the environment), and where one is described, that he is of it. */
static bool is_trusted(struct lg_addrs *a, struct lg_space *p)
{
	const struct lg_record_options *o = lg_session_options(a->s);
	bool named = lg_session_child(a->s) || (o->n_pids && !(o->job && lg_job_is_joined(o->job)));
	char path[32], text[4096];
	struct lg_proc_status st;

	if (named && lg_session_is_job(a->s, p->pid))
		return true;
	if (!p->user_known) {
		p->user_known = true;
		p->uid = (uid_t)-1;
		snprintf(path, sizeof path, "/proc/%d/status", p->pid);
		if (lg_proc_read(path, text, sizeof text) > 0) {
			lg_proc_parse_status(text, &st);
			p->uid = st.uid;
		}
	}
	return !p->uid || p->uid == geteuid();
}

/* The descriptor of a look; one that told nothing for what others mounted is counted. */
static int looked_at(struct lg_addrs *a, int fd)
{
	a->not_looked += fd < 0 && (errno == EXDEV || errno == EAGAIN);
	return fd;
}

/* Anyone may write a file of that name for any process: only its own user and root are believed. */
static int open_perf_map(struct lg_addrs *a, const struct dso *d)
{
	char path[48];
	struct stat st;
	int fd;

	snprintf(path, sizeof path, MAP_FILE, pid_of_itself(d->pid));
	fd = looked_at(a, lg_foreign_look_seen(d->pid, path, LG_FOREIGN_NO_LINK, d->trusted, &st));
	if (fd < 0) {
		snprintf(path, sizeof path, MAP_FILE, d->pid);
		fd = lg_foreign_look_seen(getpid(), path, LG_FOREIGN_NO_LINK, false, &st);
	}
	if (fd >= 0 && st.st_uid && st.st_uid != d->owner && st.st_uid != geteuid()) {
		close(fd);
		fd = -1;
	}
	return lg_foreign_open(fd);
}

void lg_addrs_fork(struct lg_addrs *a, int64_t ts, int32_t ppid, int32_t pid)
{
	lg_space_fork(&a->spaces, ppid, pid);
	lg_pythons_fork(a->pythons, ts, ppid, pid);
}

void lg_addrs_exec(struct lg_addrs *a, int64_t ts, int32_t pid)
{
	lg_space_exec(&a->spaces, pid);
	lg_pythons_exec(a->pythons, ts, pid);
}

void lg_addrs_exit(struct lg_addrs *a, int64_t ts, int32_t pid)
{
	for (size_t k = 0; k < a->n_dso; k++)
		if (a->dso[k].kind == DSO_JIT && a->dso[k].pid == pid && a->dso[k].fd < 0 &&
		    a->n_jit_fd < KEPT_FDS) {
			a->dso[k].fd = open_perf_map(a, &a->dso[k]);
			a->n_jit_fd += a->dso[k].fd >= 0;
		}
	lg_space_exit(&a->spaces, ts, pid);
}

_Static_assert(LG_SESSION_PYTHON == LG_BPF_PYTHON_FRAMES, "room for what a record holds");

/* -- files -- */

/*
 * The mapping's own file where its path leads to another by now, or to nothing. Looking it up takes the
 * target's mmap_lock for a moment, so the path comes first; where the kernel does not tell the mapped
 * inode, what stands at the path is taken for it.
 */
static int look_at_mapped(struct lg_addrs *a, struct lg_space *p, const struct lg_mapping *m,
			  const char *name, struct stat *ret)
{
	bool trusted = is_trusted(a, p);
	int fd = looked_at(a, lg_foreign_look_seen(p->pid, name, 0, trusted, ret)), own;
	struct stat st;

	if (fd >= 0 ? !m->inode || m->inode == ret->st_ino : errno == EXDEV || errno == EAGAIN)
		return fd;
	own = looked_at(a, lg_foreign_look_mapped(p->pid, m->start, m->end, trusted, &st));
	if (own < 0)
		return fd; /* numbers of inodes differ between the two views of an overlay, as well */
	if (fd >= 0)
		close(fd);
	*ret = st;
	return own;
}

static uint32_t dso_add(struct lg_addrs *a, uint64_t key, const struct dso *d)
{
	if (lg_grow(&a->dso, &a->dso_cap, a->n_dso + 1, sizeof *a->dso) ||
	    lg_map_set(&a->dso_by_key, key, (uint32_t)a->n_dso + 1))
		return 0;
	a->dso[a->n_dso] = *d;
	return (uint32_t)++a->n_dso;
}

/* A file that was not seen before; looked: it, closed here; -1 = it cannot be read. */
static uint32_t new_dso(struct lg_addrs *a, uint64_t key, int looked, const struct stat *st, lg_str name)
{
	struct lg_trace *t = lg_builder_trace(a->b);
	uint64_t by_name = XXH3_64bits(&name, sizeof name);
	struct dso d = { .name = name, .kind = DSO_FILE, .fd = lg_foreign_open(looked) };
	char id[LG_BUILD_ID_HEX] = "", other[4200];
	uint32_t i;

	if (d.fd >= 0) {
		if (a->child && lg_symbol_child_build_id(a->child, d.fd, st->st_uid, id))
			d.build_id = lg_intern(a->b, id);
		if (lg_map_get(&a->dso_by_key, by_name)) {
			/* Another file of this name is known: frames must not mix. */
			snprintf(other, sizeof other, "%s#%.8s", lg_string(t, name), *id ? id : "2");
			d.name = lg_intern(a->b, other);
		} else if (lg_map_set(&a->dso_by_key, by_name, 1)) {
			close(d.fd);
			return 0;
		}
		if (a->n_fd < KEPT_FDS || d.name != name) {
			a->n_fd++;
		} else {
			close(d.fd);
			d.fd = -1;
		}
	}
	i = dso_add(a, key, &d);
	if (!i && d.fd >= 0)
		close(d.fd);
	return i;
}

static uint32_t dso_of_file(struct lg_addrs *a, struct lg_space *p, const struct lg_mapping *m)
{
	/* key: name, device, inode. The same path in two containers is two files. */
	uint64_t key[3] = { m->name, 0, 0 }, h;
	struct stat st;
	const char *name = lg_string(lg_builder_trace(a->b), m->name);
	char other[4200];
	int looked = look_at_mapped(a, p, m, name, &st);
	uint32_t i;

	if (looked < 0 && (errno == EXDEV || (errno == EAGAIN && !is_trusted(a, p)))) {
		/* Not the file that we have of this name. */
		snprintf(other, sizeof other, "%s#unseen", name);
		key[0] = lg_intern(a->b, other);
	}

	if (looked >= 0) {
		key[1] = st.st_dev;
		key[2] = st.st_ino;
	}
	h = XXH3_64bits(key, sizeof key);
	i = lg_map_get(&a->dso_by_key, h);
	if (!i)
		return new_dso(a, h, looked, &st, (lg_str)key[0]);
	if (looked >= 0)
		close(looked);
	return i;
}

static uint32_t dso_of(struct lg_addrs *a, struct lg_space *p, const struct lg_mapping *m)
{
	const char *name = lg_string(lg_builder_trace(a->b), m->name);
	struct dso d = { .name = m->name, .kind = DSO_OTHER, .fd = -1, .pid = p->pid };
	bool jit = !strncmp(name, "//anon", 6) || !strncmp(name, "[anon", 5) ||
		   !strncmp(name, "/memfd:", 7) || !strncmp(name, "/dev/zero", 9) ||
		   !strcmp(name, "[heap]") || !strncmp(name, "[stack", 6);
	char path[64];
	uint64_t h;
	uint32_t i;

	if (name[0] == '/' && !jit)
		return dso_of_file(a, p, m);
	if (jit) {
		snprintf(path, sizeof path, MAP_FILE, p->pid);
		d.name = lg_intern(a->b, path);
		d.kind = DSO_JIT;
	}
	h = XXH3_64bits(&d.name, sizeof d.name) + 1;
	i = lg_map_get(&a->dso_by_key, h);
	if (!i && jit)
		d.owner = owner_of(p->pid);
	return i ? i : dso_add(a, h, &d);
}

/* -- frames and stacks -- */

static lg_frm kernel_frame(struct lg_addrs *a, uint64_t addr)
{
	lg_frm f = lg_map_get(&a->kframe, addr);
	struct lg_frame_row row = { .pc = addr, .dso = a->s_kernel, .kind = LG_FRAME_KERNEL };
	const char *name = NULL, *module = "";

	if (f)
		return f;
	if (!a->kallsyms_tried) {
		struct lg_error err;
		int rc = lg_kallsyms_load(&a->kallsyms, "/proc/kallsyms", &err);

		a->kallsyms_tried = true;
		if (rc)
			lg_add_diag_now(a->b, rc == LG_E_PERM ? LG_DIAG_NO_PERMISSION : LG_DIAG_NO_FEATURE,
					lg_monotonic_ns(), 1, "kernel functions have no names: %s",
					err.message);
	}
	if (a->kallsyms)
		name = lg_kallsyms_find(a->kallsyms, addr, &module);
	if (name)
		row.name = lg_intern(a->b, name);
	if (*module)
		row.dso = lg_intern(a->b, module);
	f = lg_intern_frame(a->b, &row);
	if (f)
		(void)!lg_map_set(&a->kframe, addr, f);
	return f;
}

void lg_addrs_ksymbol(struct lg_addrs *a, uint64_t addr, uint64_t len, const char *name)
{
	if (!a->kallsyms)
		return; /* not loaded yet: it will be in the file */
	if (len)
		(void)!lg_kallsyms_add(a->kallsyms, addr, len, name);
	else
		lg_kallsyms_drop(a->kallsyms, addr);
	/* Frames interned before keep their name; addresses may be used again from here on. */
	lg_map_done(&a->kframe);
	lg_map_done(&a->seen);
}

/* 0 when no mapping covers addr. */
static lg_frm user_frame(struct lg_addrs *a, struct lg_space *p, uint64_t addr)
{
	struct lg_frame_row row = { .kind = LG_FRAME_USER };
	struct lg_mapping *m = lg_space_find(p, addr);

	if (!m)
		return 0;
	if (!m->dso)
		m->dso = dso_of(a, p, m);
	if (!m->dso)
		return 0;
	if (!a->dso[m->dso - 1].trusted)
		a->dso[m->dso - 1].trusted = is_trusted(a, p);
	row.dso = a->dso[m->dso - 1].name;
	row.build_id = a->dso[m->dso - 1].build_id;
	row.pc = a->dso[m->dso - 1].kind == DSO_JIT ? addr : addr - m->start + m->pgoff;
	return lg_intern_frame(a->b, &row);
}

/*
 * A stack taken at a tracepoint ends in the plumbing that led to the recorder; what the thread
 * was doing ends above it.
 */
static bool is_plumbing(const struct lg_addrs *a, lg_frm f)
{
	return lg_is_plumbing(lg_string(lg_builder_trace(a->b), lg_builder_trace(a->b)->frame.name[f]),
			      LG_PLUMBING_RECORDED);
}

/* Where Python's frames stand: native frames of the function that runs them are theirs. */
struct mixer {
	struct lg_addrs *a;
	const lg_frm *python;
	const uint64_t *told;
	size_t n_python, next;
	struct lg_python_range eval;
};

/* The frames that one call of the interpreter ran; all that are left, where none is known to. */
static size_t put_python(struct mixer *m, lg_frm *frames, size_t n, bool all)
{
	while (m->next < m->n_python && n < DEPTH_MAX) {
		size_t i = m->next++;

		if (m->python[i])
			frames[n++] = m->python[i];
		if (!all && (m->told[i] & LG_BPF_PYTHON_ENTRY))
			break;
		/* The mark of one that has none of its own. */
		if (!all && m->next < m->n_python && !(m->told[m->next] & LG_BPF_PYTHON_CODE)) {
			m->next++;
			break;
		}
	}
	return n;
}

static lg_frm user_or_unknown(struct lg_addrs *a, struct lg_space *p, const uint64_t *user, size_t i)
{
	/* Callers' addresses are where they go on: the call is just before it. */
	lg_frm f = p ? user_frame(a, p, user[i] - (i ? 1 : 0)) : 0;

	if (f || i)
		return f; /* no code there: the chain of frame pointers was broken */
	return lg_intern_frame(a->b, &(struct lg_frame_row){ .pc = user[i], .dso = a->s_unknown });
}

static lg_stk build(struct lg_addrs *a, struct lg_space *p, const struct lg_addresses *of, struct mixer *m)
{
	const uint64_t *kernel = of->kernel;
	size_t n_kernel = of->n_kernel, n = 0, first = 0;
	lg_frm frames[2 * DEPTH_MAX];
	lg_stk stk = 0;

	for (size_t i = 0; i < of->n_user; i++) {
		lg_frm f;

		if (m->next < m->n_python && of->user[i] >= m->eval.lo && of->user[i] < m->eval.hi) {
			n = put_python(m, frames, n, false);
			continue;
		}
		f = user_or_unknown(a, p, of->user, i);
		if (!f)
			break;
		frames[n++] = f;
	}
	n = put_python(m, frames, n, true);
	while (n)
		stk = lg_intern_stack(a->b, stk, frames[--n]);
	while (n_kernel && is_plumbing(a, kernel_frame(a, *kernel))) {
		kernel++; /* the next one is a return address, as if it were a caller's */
		n_kernel--;
		first = 1;
	}
	for (size_t i = n_kernel; i-- > 0;)
		stk = lg_intern_stack(a->b, stk, kernel_frame(a, kernel[i] - (i || first ? 1 : 0)));
	return stk;
}

static struct lg_space *whole_space(struct lg_addrs *a, int32_t pid, uint64_t addr)
{
	struct lg_space *p = pid > 0 ? lg_space_get(&a->spaces, pid) : NULL;

	if (!p)
		return NULL;
	lg_space_fill(&a->spaces, p);
	if (!lg_space_find(p, addr))
		lg_space_read(&a->spaces, p); /* a record was lost, or memory became code */
	return p;
}

lg_stk lg_addrs_stack(struct lg_addrs *a, const struct lg_addresses *told)
{
	struct lg_addresses of = *told;
	lg_frm python[LG_BPF_PYTHON_FRAMES];
	struct mixer m = { .a = a, .python = python, .told = of.python };
	struct lg_space *p = NULL;
	/* Whoever is sampled chooses the addresses: by a known hash also whose stack is taken for his. */
	uint64_t h = lg_map_secret;
	lg_stk stk;

	of.n_kernel = of.n_kernel < DEPTH_MAX ? of.n_kernel : DEPTH_MAX;
	of.n_user = of.n_user < DEPTH_MAX ? of.n_user : DEPTH_MAX;
	m.n_python = of.n_python < LG_BPF_PYTHON_FRAMES ? of.n_python : LG_BPF_PYTHON_FRAMES;
	if (!of.n_kernel && !of.n_user && !m.n_python)
		return 0;
	if (of.n_kernel)
		h = XXH3_64bits_withSeed(of.kernel, of.n_kernel * sizeof *of.kernel, h);
	if (of.n_user) {
		p = whole_space(a, of.pid, of.user[0]);
		h = XXH3_64bits_withSeed(of.user, of.n_user * sizeof *of.user, h ^ (p ? p->version : 0));
	}
	if (m.n_python) {
		/* By what they are, not by where: another function may lie there by now. */
		lg_pythons_frames(a->pythons, of.pid, of.python, m.n_python, lg_monotonic_ns(), python);
		m.eval = lg_pythons_eval(a->pythons, of.pid);
		h = XXH3_64bits_withSeed(python, m.n_python * sizeof *python, h ^ m.eval.lo);
	}
	stk = lg_map_get(&a->seen, h);
	if (stk)
		return stk;
	stk = build(a, p, &of, &m);
	if (a->seen.n >= SEEN_MAX)
		lg_map_done(&a->seen);
	if (stk)
		(void)!lg_map_set(&a->seen, h, stk);
	return stk;
}

lg_stk lg_session_stack(struct lg_session *s, const struct lg_addresses *of)
{
	return lg_addrs_stack(lg_session_addrs(s), of);
}

/* -- interpreters -- */

/* Once for each process: what started later has the hook from who started it, or declines it itself. */
static void attach_hook(struct lg_session *s, int32_t pid, uint64_t base, const struct lg_say_exports *e)
{
	struct lg_addrs *a = lg_session_addrs(s);
	const char *script = lg_session_options(s)->attach;
	struct lg_error err;

	if (script && lg_session_will_mark(s, pid, owner_of(pid)) &&
	    lg_pythons_attach(a->pythons, pid, base, e, script, &err))
		lg_add_diag_now(a->b, LG_DIAG_MARKS_OFF, lg_monotonic_ns(), 1, "pid %d: %s", pid, err.message);
}

const struct lg_bpf_python_layout *lg_session_python(struct lg_session *s, int32_t pid, uint64_t *ret_gil)
{
	struct lg_addrs *a = lg_session_addrs(s);
	const struct lg_bpf_python_layout *found = lg_pythons_layout(a->pythons, pid);
	bool look = !found && a->child && !lg_session_options(s)->no_python;
	struct lg_space *p = look ? lg_space_get(&a->spaces, pid) : NULL;

	if (p)
		lg_space_fill(&a->spaces, p);
	for (size_t i = 0; p && i < p->n && !found; i++) {
		const struct lg_mapping *m = &p->map[i];
		const char *name = lg_string(lg_builder_trace(a->b), m->name);
		struct lg_say_exports e;
		struct stat st;
		int fd;

		if (name[0] != '/' || !lg_is_python_file(name))
			continue; /* not each library is asked what it exports */
		fd = lg_foreign_open(look_at_mapped(a, p, m, name, &st));
		if (fd < 0)
			continue;
		if (lg_symbol_child_exports(a->child, fd, st.st_uid, &e) && e.at[LG_EXPORT_RUNTIME]) {
			attach_hook(s, pid, m->start - m->pgoff, &e);
			if (lg_pythons_add(a->pythons, pid, name, m->start - m->pgoff, &e, owner_of(pid)))
				found = lg_pythons_layout(a->pythons, pid);
		}
		close(fd);
	}
	*ret_gil = found ? lg_pythons_gil(a->pythons, pid) : 0;
	return found;
}

void lg_session_python_sample(struct lg_session *s, int32_t tid, int64_t ts, const uint64_t *frames, size_t n,
			      uint8_t gil)
{
	lg_pythons_sample(lg_session_addrs(s)->pythons, tid, ts, frames, n, gil);
}

size_t lg_session_take_python(struct lg_session *s, int32_t tid, int64_t ts, uint64_t *frames,
			      uint8_t *ret_gil)
{
	return lg_pythons_take(lg_session_addrs(s)->pythons, tid, ts, frames, ret_gil);
}

size_t lg_session_python_asleep(struct lg_session *s, int32_t pid, int32_t tid, uint64_t *frames)
{
	return lg_pythons_asleep(lg_session_addrs(s)->pythons, pid, tid, frames);
}

/* -- names -- */

void lg_addrs_lend(struct lg_addrs *a)
{
	if (a->spare)
		lg_symbol_child_lend(a->spare);
	lg_pythons_lend(a->pythons);
}

void lg_addrs_apart(struct lg_addrs *a)
{
	a->child = a->spare;
	lg_pythons_apart(a->pythons);
}

static int resolve_all(struct lg_addrs *a, struct lg_symbolizer_stats *st, struct lg_error *err)
{
	struct lg_symbolizer *sym = NULL;
	int rc = lg_symbolizer_new(&sym, a->b, a->child, err);

	for (size_t i = 0; !rc && i < a->n_dso; i++) {
		struct dso *d = &a->dso[i];

		if (d->trusted && (rc = lg_symbolizer_trust(sym, d->name)))
			break;
		if (d->kind == DSO_JIT) {
			if (d->fd < 0)
				d->fd = open_perf_map(a, d);
			rc = d->fd < 0 ? 0 : lg_symbolizer_perf_map(sym, d->name, d->fd);
		} else if (d->fd >= 0) {
			rc = lg_symbolizer_file(sym, d->name, d->fd);
		} else {
			continue;
		}
		d->fd = -1; /* the symbolizer's now */
	}
	if (!rc)
		rc = lg_pythons_resolve(a->pythons, sym);
	if (!rc)
		rc = lg_symbolizer_run(sym, lg_monotonic_ns(), st, err);
	lg_symbolizer_free(sym);
	return rc;
}

void lg_addrs_resolve(struct lg_addrs *a, bool all, int64_t little_ns)
{
	struct lg_symbolizer_stats st = { 0 };
	struct lg_error err;

	/*
	 * Nothing on the way: one large library costs more than any sensible little_ns. Frames
	 * keep file, offset and build id, so that a recording which was killed can still be
	 * resolved by its reader.
	 */
	(void)little_ns;
	if (!all)
		return;
	if (resolve_all(a, &st, &err)) {
		lg_add_diag_now(a->b, LG_DIAG_UNRESOLVED, lg_monotonic_ns(), 1, "%s", err.message);
		return;
	}
	if (st.named < st.frames)
		lg_add_diag_now(a->b, LG_DIAG_UNRESOLVED, lg_monotonic_ns(), st.frames - st.named,
				"%zu of %zu user addresses lie in no function of their file's symbol "
				"table (%zu files, %zu not there, %zu replaced since)",
				st.frames - st.named, st.frames, st.dsos, st.no_file,
				st.other_build);
	if (a->not_looked)
		lg_add_diag_now(a->b, LG_DIAG_UNRESOLVED, lg_monotonic_ns(), a->not_looked,
				"%llu files were not looked at: who runs those processes decides what is mounted there, or "
				"keeps the answer back",
				(unsigned long long)a->not_looked);
	if (a->spaces.failed)
		lg_add_diag_now(a->b, LG_DIAG_UNRESOLVED, lg_monotonic_ns(), a->spaces.failed,
				"the mappings of %llu processes could not be read",
				(unsigned long long)a->spaces.failed);
}
