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
 * may be gone.
 *
 * I1  space.map is sorted by start and disjoint.
 * I2  space.version changes with every change of space.map, so `seen` never answers for an
 *     older layout. A 64-bit hash is trusted there: among 2^20 stacks (the cache's bound) two
 *     collide once in 10^7 recordings.
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
#include "symbols/elf_symbols.h"
#include "symbols/kallsyms.h"
#include "symbols/resolve.h"

#define SEEN_MAX (1u << 20)
#define KEPT_FDS 256      /* beyond it the path is opened again at the end */
#define READS_MAX 4       /* of one process's maps: lost mmap records may need another look */
#define DEPTH_MAX 512
#define EXITED_MAX 512        /* address spaces of dead processes kept ... */
#define EXITED_NS 1000000000  /* ... because their last events come after the exit record */

enum dso_kind { DSO_FILE, DSO_JIT, DSO_OTHER };

struct dso {
	lg_str name, build_id;
	enum dso_kind kind;
	int fd;      /* -1 = not kept */
	int32_t pid; /* JIT: whose perf map */
};

struct map {
	uint64_t start, end, pgoff;
	lg_str name;
	uint32_t dso; /* index + 1; 0 = no frame in it yet */
};

struct space {
	int32_t pid, parent; /* parent: forked from it while its mappings were not read */
	struct map *map;
	size_t n, cap;
	uint64_t version;
	int64_t exited; /* 0 = alive */
	uint8_t whole; /* nothing to be read: all mappings were seen or read */
	uint8_t reads;
};

struct lg_addrs {
	struct lg_session *s;
	struct lg_builder *b;
	struct lg_kallsyms *kallsyms;
	bool kallsyms_tried;
	struct space *space;
	size_t n_space, space_cap, n_exited;
	struct lg_map by_pid;
	struct dso *dso;
	size_t n_dso, dso_cap, n_fd;
	struct lg_map dso_by_key; /* hash of name and file identity */
	struct lg_map kframe;     /* kernel address -> frame */
	struct lg_map seen;
	uint64_t versions;
	lg_str s_kernel, s_unknown;
	uint64_t maps_reads, maps_failed;
};

int lg_addrs_new(struct lg_addrs **ret, struct lg_session *s, struct lg_error *err)
{
	struct lg_addrs *a = lg_calloc(1, sizeof *a);

	if (!a)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	a->s = s;
	a->b = lg_session_builder(s);
	a->s_kernel = lg_intern(a->b, "[kernel.kallsyms]");
	a->s_unknown = lg_intern(a->b, "[unknown]");
	*ret = a;
	return 0;
}

void lg_addrs_free(struct lg_addrs *a)
{
	if (!a)
		return;
	for (size_t i = 0; i < a->n_space; i++)
		lg_free(a->space[i].map);
	for (size_t i = 0; i < a->n_dso; i++)
		if (a->dso[i].fd >= 0)
			close(a->dso[i].fd);
	lg_free(a->space);
	lg_free(a->dso);
	lg_map_done(&a->by_pid);
	lg_map_done(&a->dso_by_key);
	lg_map_done(&a->kframe);
	lg_map_done(&a->seen);
	lg_kallsyms_free(a->kallsyms);
	lg_free(a);
}

/* -- address spaces -- */

static struct space *space_get(struct lg_addrs *a, int32_t pid)
{
	uint32_t i = lg_map_get(&a->by_pid, (uint32_t)pid);

	if (i)
		return &a->space[i - 1];
	if (lg_grow(&a->space, &a->space_cap, a->n_space + 1, sizeof *a->space) ||
	    lg_map_set(&a->by_pid, (uint32_t)pid, (uint32_t)a->n_space + 1))
		return NULL;
	a->space[a->n_space] = (struct space){ .pid = pid, .version = ++a->versions };
	return &a->space[a->n_space++];
}

static void space_clear(struct lg_addrs *a, struct space *p)
{
	lg_free(p->map);
	p->map = NULL;
	p->n = p->cap = 0;
	p->parent = 0;
	p->exited = 0;
	p->reads = 0;
	p->whole = 0;
	p->version = ++a->versions;
}

/* First mapping that ends after addr. */
static size_t map_after(const struct space *p, uint64_t addr)
{
	size_t lo = 0, hi = p->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p->map[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int map_insert(struct space *p, size_t at, const struct map *m)
{
	if (lg_grow(&p->map, &p->cap, p->n + 1, sizeof *p->map))
		return LG_E_NOMEM;
	memmove(p->map + at + 1, p->map + at, (p->n - at) * sizeof *p->map);
	p->map[at] = *m;
	p->n++;
	return 0;
}

/* A new mapping replaces what it covers; what sticks out on either side stays. */
static void map_put(struct lg_addrs *a, struct space *p, const struct map *m)
{
	size_t i = map_after(p, m->start), end;

	if (i < p->n && p->map[i].start == m->start && p->map[i].end == m->end &&
	    p->map[i].name == m->name && p->map[i].pgoff == m->pgoff)
		return; /* told by /proc and by a record */
	p->version = ++a->versions;
	if (i < p->n && p->map[i].start < m->start) {
		struct map right = p->map[i];

		p->map[i].end = m->start;
		if (right.end > m->end) {
			right.pgoff += m->end - right.start;
			right.start = m->end;
			if (map_insert(p, i + 1, &right))
				return;
		}
		i++;
	}
	for (end = i; end < p->n && p->map[end].end <= m->end; end++)
		;
	if (end < p->n && p->map[end].start < m->end) {
		p->map[end].pgoff += m->end - p->map[end].start;
		p->map[end].start = m->end;
	}
	memmove(p->map + i, p->map + end, (p->n - end) * sizeof *p->map);
	p->n -= end - i;
	(void)!map_insert(p, i, m); /* out of memory: the frames stay unknown */
}

void lg_addrs_map(struct lg_addrs *a, int32_t pid, uint64_t start, uint64_t len, uint64_t pgoff,
		  const char *name)
{
	struct space *p = pid > 0 ? space_get(a, pid) : NULL;
	struct map m = { .start = start, .end = start + len, .pgoff = pgoff };

	if (!p || !len || m.end < start)
		return;
	m.name = lg_intern(a->b, name);
	map_put(a, p, &m);
}

void lg_session_map(struct lg_session *s, int32_t pid, uint64_t start, uint64_t len, uint64_t pgoff,
		    const char *name, int64_t ts)
{
	(void)ts; /* records come in time order: each changes the layout from here on */
	lg_addrs_map(lg_session_addrs(s), pid, start, len, pgoff, name);
}

/* "7f00-7f10 r-xp 00001000 08:01 1234   /usr/lib/libc.so.6" */
static void read_line(struct lg_addrs *a, struct space *p, char *line)
{
	struct map m;
	char *s = line, *name;
	int fields = 0;

	m = (struct map){ .start = strtoull(s, &s, 16) };
	if (*s++ != '-')
		return;
	m.end = strtoull(s, &s, 16);
	if (*s != ' ' || m.end <= m.start || strnlen(s, 5) < 5 || s[3] != 'x')
		return;
	m.pgoff = strtoull(s + 5, &s, 16);
	for (name = s; *name && fields < 3; fields++) { /* device, inode, then the name */
		name += strspn(name, " ");
		if (fields < 2)
			name += strcspn(name, " ");
	}
	m.name = lg_intern(a->b, *name ? name : "//anon");
	map_put(a, p, &m);
}

static bool read_maps(struct lg_addrs *a, struct space *p)
{
	char path[64], buf[65536];
	size_t have = 0;
	ssize_t got;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/maps", p->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	p->reads++;
	a->maps_reads++;
	if (fd < 0)
		return false;
	while ((got = read(fd, buf + have, sizeof buf - 1 - have)) > 0 ||
	       (got < 0 && errno == EINTR)) {
		char *line = buf, *nl;

		if (got < 0)
			continue;
		have += (size_t)got;
		buf[have] = 0;
		while ((nl = memchr(line, '\n', have - (size_t)(line - buf)))) {
			*nl = 0;
			read_line(a, p, line);
			line = nl + 1;
		}
		have -= (size_t)(line - buf);
		if (have == sizeof buf - 1)
			have = 0; /* no line is that long */
		memmove(buf, line, have);
	}
	close(fd);
	return p->n > 0;
}

static int copy_maps(struct lg_addrs *a, struct space *to, const struct space *from)
{
	struct map *copy = lg_calloc(from->n, sizeof *copy);

	if (!copy)
		return LG_E_NOMEM;
	if (from->n)
		memcpy(copy, from->map, from->n * sizeof *copy);
	lg_free(to->map);
	to->map = copy;
	to->n = to->cap = from->n;
	to->version = ++a->versions;
	return 0;
}

/* The mappings are needed now. */
static void space_fill(struct lg_addrs *a, struct space *p, int depth)
{
	struct space *parent;
	uint32_t i;

	p->whole = 1;
	if (read_maps(a, p))
		return;
	/* Gone already, and forked from a process whose mappings had not been read then. */
	i = p->parent ? lg_map_get(&a->by_pid, (uint32_t)p->parent) : 0;
	parent = i ? &a->space[i - 1] : NULL;
	if (parent && !parent->whole && depth < 8)
		space_fill(a, parent, depth + 1);
	if (!parent || !parent->n || copy_maps(a, p, parent))
		a->maps_failed++;
}

void lg_addrs_read_now(struct lg_addrs *a, int32_t pid)
{
	struct space *p = pid > 0 ? space_get(a, pid) : NULL;

	if (p && !p->whole)
		space_fill(a, p, 0);
}

void lg_addrs_fork(struct lg_addrs *a, int64_t ts, int32_t ppid, int32_t pid)
{
	struct space *p, *parent;

	(void)ts;
	if (pid <= 0 || pid == ppid)
		return;
	p = space_get(a, pid);
	if (!p)
		return;
	space_clear(a, p);
	p->parent = ppid;
	parent = space_get(a, ppid);
	p = space_get(a, pid); /* the array may have moved */
	if (parent && parent->whole && !copy_maps(a, p, parent))
		p->whole = 1;
}

void lg_addrs_exec(struct lg_addrs *a, int64_t ts, int32_t pid)
{
	struct space *p = pid > 0 ? space_get(a, pid) : NULL;

	(void)ts;
	if (!p)
		return;
	space_clear(a, p);
	p->whole = 1; /* a record follows for everything the new image maps */
}

static int open_perf_map(int32_t pid)
{
	char path[96], status[4096], *ns;
	int fd, ns_pid = pid;
	ssize_t n = 0;

	snprintf(path, sizeof path, "/proc/%d/status", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, status, sizeof status - 1);
		close(fd);
	}
	status[n > 0 ? n : 0] = 0;
	/* "NSpid:	4711	17": the JIT knows itself by the innermost one */
	ns = strstr(status, "\nNSpid:");
	if (ns) {
		char *end = strchr(ns + 1, '\n');

		if (end)
			*end = 0;
		ns_pid = atoi(strrchr(ns, '\t') ? strrchr(ns, '\t') : ns + 7);
	}
	snprintf(path, sizeof path, "/proc/%d/root/tmp/perf-%d.map", pid, ns_pid);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) {
		snprintf(path, sizeof path, "/tmp/perf-%d.map", pid);
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	}
	return fd;
}

void lg_addrs_exit(struct lg_addrs *a, int64_t ts, int32_t pid)
{
	uint32_t i = lg_map_get(&a->by_pid, (uint32_t)pid);

	if (!i)
		return;
	for (size_t k = 0; k < a->n_dso; k++)
		if (a->dso[k].kind == DSO_JIT && a->dso[k].pid == pid && a->dso[k].fd < 0)
			a->dso[k].fd = open_perf_map(pid);
	a->space[i - 1].exited = ts;
	a->space[i - 1].whole = 1; /* there is nothing to be read any more */
	a->space[i - 1].reads = READS_MAX;
	if (++a->n_exited <= EXITED_MAX)
		return;
	a->n_exited = 0;
	for (size_t k = 0; k < a->n_space; k++) {
		struct space *p = &a->space[k];

		if (!p->exited || !p->map)
			continue;
		if (p->exited > ts - EXITED_NS) {
			a->n_exited++;
			continue;
		}
		lg_free(p->map);
		p->map = NULL;
		p->n = p->cap = 0;
	}
}

/* -- files -- */

static int open_mapped(int32_t pid, const struct map *m, const char *name)
{
	char path[4352];
	int fd;

	/* Its own mount namespace first; the mapping itself where the file was deleted. */
	snprintf(path, sizeof path, "/proc/%d/root%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		return fd;
	snprintf(path, sizeof path, "/proc/%d/map_files/%llx-%llx", pid,
		 (unsigned long long)m->start, (unsigned long long)m->end);
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

static uint32_t dso_add(struct lg_addrs *a, uint64_t key, const struct dso *d)
{
	if (lg_grow(&a->dso, &a->dso_cap, a->n_dso + 1, sizeof *a->dso) ||
	    lg_map_set(&a->dso_by_key, key, (uint32_t)a->n_dso + 1))
		return 0;
	a->dso[a->n_dso] = *d;
	return (uint32_t)++a->n_dso;
}

static uint32_t dso_of_file(struct lg_addrs *a, int32_t pid, const struct map *m)
{
	struct lg_trace *t = lg_builder_trace(a->b);
	/* key: name, device, inode. The same path in two containers is two files. */
	uint64_t key[3] = { m->name, 0, 0 }, h;
	struct dso d = { .name = m->name, .kind = DSO_FILE, .fd = -1 };
	char id[LG_BUILD_ID_HEX] = "", other[4200];
	struct stat st;
	int fd = open_mapped(pid, m, lg_string(t, m->name));
	uint32_t i;

	if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode)) {
		key[1] = st.st_dev;
		key[2] = st.st_ino;
	}
	h = XXH3_64bits(key, sizeof key);
	i = lg_map_get(&a->dso_by_key, h);
	if (!i && key[2]) {
		uint64_t by_name = XXH3_64bits(&m->name, sizeof m->name);

		if (lg_elf_build_id_of(fd, id))
			d.build_id = lg_intern(a->b, id);
		if (lg_map_get(&a->dso_by_key, by_name)) {
			/* Another file of this name is known: frames must not mix. */
			snprintf(other, sizeof other, "%s#%.8s", lg_string(t, m->name),
				 *id ? id : "2");
			d.name = lg_intern(a->b, other);
		} else if (lg_map_set(&a->dso_by_key, by_name, 1)) {
			close(fd);
			return 0;
		}
		if (a->n_fd < KEPT_FDS || d.name != m->name) {
			d.fd = fd;
			fd = -1;
			a->n_fd++;
		}
	}
	if (!i)
		i = dso_add(a, h, &d);
	if (fd >= 0)
		close(fd);
	return i;
}

static uint32_t dso_of(struct lg_addrs *a, int32_t pid, const struct map *m)
{
	const char *name = lg_string(lg_builder_trace(a->b), m->name);
	struct dso d = { .name = m->name, .kind = DSO_OTHER, .fd = -1, .pid = pid };
	bool jit = !strncmp(name, "//anon", 6) || !strncmp(name, "[anon", 5) ||
		   !strncmp(name, "/memfd:", 7) || !strncmp(name, "/dev/zero", 9) ||
		   !strcmp(name, "[heap]") || !strncmp(name, "[stack", 6);
	char path[64];
	uint64_t h;
	uint32_t i;

	if (name[0] == '/' && !jit)
		return dso_of_file(a, pid, m);
	if (jit) {
		snprintf(path, sizeof path, "/tmp/perf-%d.map", pid);
		d.name = lg_intern(a->b, path);
		d.kind = DSO_JIT;
	}
	h = XXH3_64bits(&d.name, sizeof d.name) + 1;
	i = lg_map_get(&a->dso_by_key, h);
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
static lg_frm user_frame(struct lg_addrs *a, struct space *p, uint64_t addr)
{
	size_t i = map_after(p, addr);
	struct lg_frame_row row = { .kind = LG_FRAME_USER };
	struct map *m;

	if (i >= p->n || p->map[i].start > addr)
		return 0;
	m = &p->map[i];
	if (!m->dso)
		m->dso = dso_of(a, p->pid, m);
	if (!m->dso)
		return 0;
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
	static const char *const prefixes[] = { "__traceiter_", "__bpf_trace_", "perf_trace_",
						"bpf_trace_run", "bpf_prog_",
						"__mmap_lock_do_trace_" };
	const struct lg_trace *t = lg_builder_trace(a->b);
	const char *name = lg_string(t, t->frame.name[f]);

	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

static lg_stk build(struct lg_addrs *a, struct space *p, const uint64_t *kernel, size_t n_kernel,
		    const uint64_t *user, size_t n_user)
{
	lg_frm frames[DEPTH_MAX];
	lg_stk stk = 0;
	size_t n = 0, first = 0;

	for (size_t i = 0; i < n_user; i++) {
		/* Callers' addresses are where they go on: the call is just before it. */
		lg_frm f = p ? user_frame(a, p, user[i] - (i ? 1 : 0)) : 0;

		if (!f && i)
			break; /* no code there: the chain of frame pointers was broken */
		if (!f)
			f = lg_intern_frame(a->b, &(struct lg_frame_row){ .pc = user[i],
									  .dso = a->s_unknown });
		frames[n++] = f;
	}
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

lg_stk lg_addrs_stack(struct lg_addrs *a, int32_t pid, const uint64_t *kernel, size_t n_kernel,
		      const uint64_t *user, size_t n_user)
{
	struct space *p = NULL;
	uint64_t h = 1;
	lg_stk stk;

	if (n_kernel > DEPTH_MAX)
		n_kernel = DEPTH_MAX;
	if (n_user > DEPTH_MAX)
		n_user = DEPTH_MAX;
	if (!n_kernel && !n_user)
		return 0;
	if (n_kernel)
		h = XXH3_64bits(kernel, n_kernel * sizeof *kernel);
	if (n_user && pid > 0 && (p = space_get(a, pid))) {
		size_t i;

		if (!p->whole)
			space_fill(a, p, 0);
		i = map_after(p, user[0]);
		if ((i >= p->n || p->map[i].start > user[0]) && p->reads < READS_MAX)
			read_maps(a, p); /* a record was lost, or it is in code mapped anonymously */
		h = XXH3_64bits_withSeed(user, n_user * sizeof *user, h ^ p->version);
	} else if (n_user) {
		h = XXH3_64bits_withSeed(user, n_user * sizeof *user, h);
	}
	stk = lg_map_get(&a->seen, h);
	if (stk)
		return stk;
	stk = build(a, p, kernel, n_kernel, user, n_user);
	if (a->seen.n >= SEEN_MAX)
		lg_map_done(&a->seen);
	if (stk)
		(void)!lg_map_set(&a->seen, h, stk);
	return stk;
}

lg_stk lg_session_stack(struct lg_session *s, int32_t pid, const uint64_t *kernel, size_t n_kernel,
			const uint64_t *user, size_t n_user)
{
	return lg_addrs_stack(lg_session_addrs(s), pid, kernel, n_kernel, user, n_user);
}

/* -- names -- */

static int resolve_all(struct lg_addrs *a, struct lg_symbolizer_stats *st, struct lg_error *err)
{
	struct lg_symbolizer *sym = NULL;
	int rc = lg_symbolizer_new(&sym, a->b, err);

	for (size_t i = 0; !rc && i < a->n_dso; i++) {
		struct dso *d = &a->dso[i];

		if (d->kind == DSO_JIT) {
			if (d->fd < 0)
				d->fd = open_perf_map(d->pid);
			rc = d->fd < 0 ? 0 : lg_symbolizer_perf_map(sym, d->name, d->fd);
		} else if (d->fd >= 0) {
			rc = lg_symbolizer_file(sym, d->name, d->fd);
		} else {
			continue;
		}
		d->fd = -1; /* the symbolizer's now */
	}
	if (!rc)
		rc = lg_symbolizer_run(sym, st, err);
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
	 * resolved by its reader (lg_symbolizer_run() needs nothing else).
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
	if (a->maps_failed)
		lg_add_diag_now(a->b, LG_DIAG_UNRESOLVED, lg_monotonic_ns(), a->maps_failed,
				"the mappings of %llu processes could not be read",
				(unsigned long long)a->maps_failed);
}
