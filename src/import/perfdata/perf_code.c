/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_code.h"

#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/alloc.h"
#include "import/perfdata/perf_kcore.h"
#include "symbols/debug_file.h"
#include "symbols/demangle.h"
#include "symbols/elf_symbols.h"
#include "symbols/file_budget.h"
#include "symbols/inlines.h"
#include "symbols/jitdump.h"
#include "symbols/kallsyms.h"
#include "symbols/open_foreign.h"
#include "symbols/options.h"
#include "symbols/perf_map.h"
#include "symbols/shrunk.h"
#include "symbols/unwind.h"

#define DEBUG_DIR "/usr/lib/debug"
#define NAME_BYTES 1024
#define INLINED_MAX 64

enum dso_kind { DSO_FILE, DSO_JIT, DSO_OTHER };

struct lg_pd_dso {
	lg_str name, build_id;
	enum dso_kind kind;
	int32_t pid; /* JIT: whose */
	uint32_t inode;
	bool tried;
	struct lg_elf *elf;
	struct lg_perf_map *jit;
	struct lg_jitdump *dump;
	uint32_t space; /* JIT: its process's */
	uint64_t looked; /* dump: until when its reuse is known to the caches */
};

int lg_pd_code_init(struct lg_pd_code *c, struct lg_builder *b, const struct lg_pd_header *h,
		    struct lg_error *err)
{
	*c = (struct lg_pd_code){ .b = b, .h = h, .reuse_at = UINT64_MAX };
	c->home.trace = lg_builder_trace(b);
	lg_shrunk_guard();
	lg_file_budget_begin();
	c->s_kernel = lg_intern(b, "[kernel.kallsyms]");
	c->s_guest = lg_intern(b, "[guest.kernel.kallsyms]");
	c->s_hypervisor = lg_intern(b, "[hypervisor]");
	c->s_unknown = lg_intern(b, "[unknown]");
	c->unknown = lg_intern_frame(b, &(struct lg_frame_row){ .dso = c->s_unknown,
								.name = c->s_unknown });
	if (lg_builder_failed(b))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	return 0;
}

void lg_pd_code_done(struct lg_pd_code *c)
{
	for (size_t i = 0; i < c->n_dso; i++) {
		lg_elf_free(c->dso[i].elf);
		lg_perf_map_free(c->dso[i].jit);
		lg_jitdump_free(c->dso[i].dump);
	}
	lg_free(c->dso);
	lg_pd_spaces_done(&c->spaces);
	lg_pd_here_done(&c->home);
	lg_map_done(&c->dso_by_key);
	lg_map_done(&c->frame_at);
	lg_map_done(&c->frame_of_name);
	lg_map_done(&c->kernel_at);
	lg_map_done(&c->inlined_at);
	lg_free(c->inlined);
	lg_kallsyms_free(c->core);
	lg_kallsyms_free(c->kallsyms);
	lg_kallsyms_free(c->programs);
}

/* Was this recorded on the machine we are on? Only then do paths mean the same files. */
static bool same_host(const struct lg_pd_header *h)
{
	struct utsname u;

	return !uname(&u) && *h->hostname && !strcmp(u.nodename, h->hostname) &&
	       !strcmp(u.release, h->osrelease);
}

/* Does the file not say on which machine it was made? Its end may be missing. */
static bool is_silent(const struct lg_pd_code *c)
{
	return !*c->h->hostname && !c->closed;
}

uint32_t lg_pd_code_inode(struct lg_pd_code *c, const struct lg_pd_inode *f)
{
	return is_silent(c) && f->ino ? lg_pd_here_inode(&c->home, f) : 0;
}

/* The proof may come late, with a file that was mapped after the first samples: what had no name until then
 * may have one. */
static void prove(struct lg_pd_code *c)
{
	const struct lg_pd_kernel_text k = { c->kernel_ref_name, c->kernel_ref, c->kernel_end };

	if (!is_silent(c))
		return;
	c->home.clockid = c->h->attrs.n ? c->h->attrs.attr[0].clockid : -1;
	if (!lg_pd_here_prove(&c->home, &c->spaces, &k))
		return;
	if (!c->kallsyms && !c->core)
		c->kernel_tried = false;
	c->kernel_version++;
	lg_map_done(&c->kernel_at);
	lg_map_done(&c->frame_at);
	for (size_t i = 0; i < c->n_dso; i++)
		c->dso[i].tried = c->dso[i].elf || c->dso[i].jit || c->dso[i].dump;
	for (size_t i = 0; i < c->spaces.n; i++)
		c->spaces.space[i].version = ++c->spaces.versions;
}

/* -- kernel -- */

/* Build id of the running kernel: the GNU note among /sys/kernel/notes. */
static bool running_build_id(char hex[LG_BUILD_ID_HEX])
{
	uint8_t buf[4096];
	int fd = open("/sys/kernel/notes", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof buf);
	struct pd_cursor c = { .p = buf, .end = buf + (n > 0 ? n : 0) };

	if (fd >= 0)
		close(fd);
	while (pd_left(&c) >= 12) {
		uint32_t n_name = pd_take_u32(&c), n_desc = pd_take_u32(&c);
		uint32_t type = pd_take_u32(&c);
		const uint8_t *name = pd_take(&c, (n_name + 3ull) & ~3ull);
		const uint8_t *desc = pd_take(&c, (n_desc + 3ull) & ~3ull);

		if (!desc)
			return false;
		/* NT_GNU_BUILD_ID */
		if (type != 3 || n_name != 4 || memcmp(name, "GNU", 4) || n_desc > 32)
			continue;
		for (uint32_t i = 0; i < n_desc; i++)
			snprintf(hex + 2 * i, 3, "%02x", desc[i]);
		return true;
	}
	return false;
}

/* The recording's own table: beside it (--kcore), or as older perfs wrote it into the tracing data. */
static bool load_own(struct lg_pd_code *c)
{
	char path[64];
	FILE *f;
	struct lg_error err;

	if (c->kcore)
		c->kallsyms = lg_pd_kcore_take(c->kcore, c->kernel_ref_name, c->kernel_ref);
	if (c->kallsyms || c->h->formats.n_kallsyms < 64)
		return c->kallsyms;
	f = tmpfile();
	if (!f)
		return false;
	if (fwrite(c->h->formats.kallsyms, c->h->formats.n_kallsyms, 1, f) == 1 && !fflush(f)) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(f));
		if (lg_kallsyms_load(&c->kallsyms, path, &err))
			c->kallsyms = NULL;
	}
	fclose(f);
	return c->kallsyms;
}

/*
 * perf keeps a table of every kernel that it recorded: it may be gone since, or of another machine
 * (perf-archive). The core moves as a whole from boot to boot, by whole pages; modules each on their own.
 */
static void load_copy(struct lg_pd_code *c, const char *build_id)
{
	int fd = *c->kernel_ref_name && c->kernel_ref ? lg_build_id_kallsyms_open(build_id) : -1;
	struct lg_error why;
	uint64_t ref;
	bool cut;

	if (fd < 0)
		return;
	if (lg_kallsyms_read(&c->core, fd, "kallsyms", &cut, &why))
		c->core = NULL;
	close(fd);
	if (!c->core)
		return;
	ref = lg_kallsyms_address(c->core, c->kernel_ref_name);
	c->core_shift = (int64_t)(ref - c->kernel_ref);
	if (!ref || c->core_shift & 0xfff) {
		lg_kallsyms_free(c->core);
		c->core = NULL;
	}
}

static void load_live(struct lg_pd_code *c, bool by_id)
{
	struct lg_error err;
	uint64_t ref;

	c->live_due = false;
	if (*c->kernel_ref_name && c->kernel_ref) {
		ref = lg_pd_running_symbol(c->kernel_ref_name);
		if (!ref)
			return;
		/* The kernel moves to another place at each boot (KASLR), modules on their own. */
		c->kernel_shift = (int64_t)(ref - c->kernel_ref);
	}
	c->core_only = c->kernel_shift != 0 || (!by_id && c->home.proof == LG_PD_BY_KERNEL);
	c->same_kernel = true;
	if (lg_kallsyms_load(&c->kallsyms, "/proc/kallsyms", &err))
		c->kallsyms = NULL;
}

static void load_kernel(struct lg_pd_code *c)
{
	const struct lg_trace *t = lg_builder_trace(c->b);
	char running[LG_BUILD_ID_HEX] = "";
	lg_str id = c->kernel_build_id;
	bool same, own;

	prove(c);
	c->kernel_tried = true;
	own = load_own(c);
	if (c->closed)
		return;
	c->same_host = same_host(c->h);
	if (!id)
		id = lg_pd_header_build_id(c->h, c->s_kernel);
	/* The id decides where there is one: the same release is built more than once. */
	if (id)
		same = running_build_id(running) && !strcmp(lg_string(t, id), running);
	else
		same = is_silent(c) ? c->home.proof != LG_PD_UNPROVEN : c->same_host;
	c->same_kernel = same && own;
	if (own)
		return;
	if (id)
		load_copy(c, lg_string(t, id));
	if (same && c->core)
		c->same_kernel = c->live_due = true;
	else if (same)
		load_live(c, id);
}

void lg_pd_code_kernel_map(struct lg_pd_code *c, uint64_t start, uint64_t len, uint64_t pgoff,
			   const char *name, lg_str build_id)
{
	const char *ref = strstr(name, ".kallsyms]");

	/* "[kernel.kallsyms]_stext": pgoff is that symbol's address, start is where text begins */
	if (strncmp(name, "[kernel.kallsyms]", 17) || c->kernel_tried)
		return;
	c->kernel_end = start + len < start ? UINT64_MAX : start + len;
	c->kernel_ref = pgoff;
	snprintf(c->kernel_ref_name, sizeof c->kernel_ref_name, "%s", ref + strlen(".kallsyms]"));
	if (build_id)
		c->kernel_build_id = build_id;
}

void lg_pd_code_ksymbol(struct lg_pd_code *c, uint64_t addr, uint64_t len, const char *name)
{
	if (!c->programs)
		c->programs = lg_kallsyms_new();
	if (!c->programs)
		return;
	if (len)
		(void)!lg_kallsyms_add(c->programs, addr, len, name);
	else
		lg_kallsyms_drop(c->programs, addr);
	c->kernel_version++;
	lg_map_done(&c->kernel_at); /* addresses may be used again from here on */
}

/* One frame for all addresses of a function; sym: the borrowed name in its table. */
static lg_frm function_frame(struct lg_pd_code *c, const char *sym, struct lg_frame_row *row)
{
	uint64_t key = (uint64_t)(uintptr_t)sym;
	lg_frm f = lg_map_get(&c->frame_of_name, key);
	char buf[NAME_BYTES];

	if (f)
		return f;
	row->name = lg_intern(c->b, lg_demangle(sym, buf, sizeof buf));
	f = lg_intern_frame(c->b, row);
	if (f)
		(void)!lg_map_set(&c->frame_of_name, key, f);
	return f;
}

/*
 * Its name in the table that has it; NULL. Of another boot the core is right as a whole, from the first
 * function to those for starting the machine, which lie behind its text; nothing of a module is.
 */
static const char *kernel_symbol(struct lg_pd_code *c, uint64_t addr, const char **ret_module)
{
	const char *name = NULL;

	*ret_module = "";
	if (c->programs)
		name = lg_kallsyms_find(c->programs, addr, ret_module);
	if (name)
		return name;
	if (c->core)
		name = lg_kallsyms_find(c->core, addr + (uint64_t)c->core_shift, ret_module);
	if (name && !**ret_module)
		return name;
	name = NULL;
	if (c->live_due)
		load_live(c, true);
	if (c->kallsyms)
		name = lg_kallsyms_find(c->kallsyms, addr + (uint64_t)c->kernel_shift, ret_module);
	if (name && (!c->core_only || !**ret_module))
		return name;
	*ret_module = "";
	return NULL;
}

static lg_frm kernel_frame(struct lg_pd_code *c, uint64_t addr)
{
	lg_frm f = lg_map_get(&c->kernel_at, addr);
	struct lg_frame_row row = { .pc = addr, .dso = c->s_kernel, .kind = LG_FRAME_KERNEL };
	const char *name, *module;

	if (f)
		return f;
	if (!addr || addr == UINT64_MAX) /* of itself or as a caller: the chain has a hole */
		return c->unknown;
	if (!c->kallsyms && !c->core)
		prove(c);
	if (!c->kernel_tried)
		load_kernel(c);
	name = kernel_symbol(c, addr, &module);
	if (*module) {
		char text[80];

		snprintf(text, sizeof text, "%s%.60s%s", *module == '[' ? "" : "[", module,
			 *module == '[' ? "" : "]");
		row.dso = lg_intern(c->b, text);
	}
	f = name ? function_frame(c, name, &row) : lg_intern_frame(c->b, &row);
	c->frames++;
	c->unnamed += !name;
	if (f)
		(void)!lg_map_set(&c->kernel_at, addr, f);
	return f;
}

/* -- user -- */

static bool is_anonymous(const char *name)
{
	return !strncmp(name, "//anon", 6) || !strncmp(name, "[anon", 5) ||
	       !strncmp(name, "/memfd:", 7) || !strncmp(name, "/dev/zero", 9) ||
	       !strcmp(name, "[heap]") || !strncmp(name, "[stack", 6) ||
	       !strncmp(name, "/anon_hugepage", 14) || !strncmp(name, "/SYSV", 5);
}

/*
 * A JIT that writes a jitdump maps a page of it executable, only to leave its name in the
 * recording (jitdump-specification.txt): ".../jit-4711.dump". 0: it does not.
 */
static lg_str dump_of(const struct lg_pd_code *c, uint32_t space)
{
	const struct lg_pd_layers *l = c->spaces.space[space].l;

	for (size_t i = 0; l && i < l->n; i++) {
		const char *name = lg_string(lg_builder_trace(c->b), l->map[i].name);
		const char *base = strrchr(name, '/');
		size_t n = base ? strlen(base) : 0;

		if (n > 10 && !strncmp(base, "/jit-", 5) && !strcmp(base + n - 5, ".dump"))
			return l->map[i].name;
	}
	return 0;
}

static uint32_t dso_of(struct lg_pd_code *c, int32_t pid, const struct lg_pd_map *m)
{
	const char *name = lg_string(lg_builder_trace(c->b), m->name);
	struct lg_pd_dso d = { .name = m->name, .build_id = m->build_id, .kind = DSO_OTHER };
	char path[64];
	uint64_t key;
	uint32_t i;

	if (is_anonymous(name)) {
		d.space = lg_pd_space_of(&c->spaces, pid);
		d.name = dump_of(c, d.space);
		snprintf(path, sizeof path, "/tmp/perf-%d.map", pid);
		if (!d.name)
			d.name = lg_intern(c->b, path);
		d.kind = DSO_JIT;
		d.pid = pid;
		d.build_id = 0;
	} else if (!strcmp(name, "[vdso]") && m->end <= (uint64_t)UINT32_MAX + 1) {
		/* A 32-bit program has another one; perf, too, calls it that. */
		d.name = lg_intern(c->b, "[vdso32]");
	} else if (name[0] == '/') {
		d.kind = DSO_FILE;
		if (!d.build_id)
			d.build_id = lg_pd_header_build_id(c->h, m->name);
	}
	/* One name, several files: where only the inode tells which is here. */
	d.inode = d.kind == DSO_FILE && !d.build_id && is_silent(c) ? m->inode : 0;
	key = (uint64_t)d.name << 32 | (d.inode ? 1u << 31 | d.inode : d.build_id);
	i = lg_map_get(&c->dso_by_key, key);
	if (i)
		return i;
	if (lg_grow(&c->dso, &c->dso_cap, c->n_dso + 1, sizeof *c->dso) ||
	    lg_map_set(&c->dso_by_key, key, (uint32_t)c->n_dso + 1))
		return 0;
	c->dso[c->n_dso] = d;
	return (uint32_t)++c->n_dso;
}

/* Is fd the file that was recorded? Without a build id, only this machine's own can be. */
static bool is_recorded(struct lg_pd_code *c, const struct lg_pd_dso *d, int fd, const char *id)
{
	char found[LG_BUILD_ID_HEX] = "";
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return false;
	(void)!lg_elf_build_id_of(fd, found);
	if (*id)
		return *found && !strncmp(id, found, strlen(id));
	return is_silent(c) ? lg_pd_home(&c->home, d->inode, fd) : c->same_host;
}

static void open_file(struct lg_pd_code *c, struct lg_pd_dso *d)
{
	const struct lg_trace *t = lg_builder_trace(c->b);
	const char *id = lg_string(t, d->build_id);
	int fd = lg_foreign_open_path(lg_string(t, d->name), 0);
	struct lg_error why;

	if (fd >= 0 && !is_recorded(c, d, fd, id)) {
		close(fd);
		fd = -1;
	}
	if (fd < 0 && *id)
		fd = lg_build_id_open(id);
	if (fd < 0)
		return;
	if (lg_elf_open(&d->elf, fd, DEBUG_DIR, &why))
		d->elf = NULL;
	close(fd);
}

/* In no file, but every process of one kernel (and word size) has the same. */
static void open_vdso(struct lg_pd_dso *d)
{
	const ElfW(Ehdr) *h = (const ElfW(Ehdr) *)getauxval(AT_SYSINFO_EHDR);
	struct lg_error why;

	/* Section headers are the last thing in it (arch/x86/entry/vdso: linked by ld). */
	if (h && lg_elf_open_memory(&d->elf, h, h->e_shoff + (size_t)h->e_shnum * h->e_shentsize, &why))
		d->elf = NULL;
}

/*
 * Anyone may write a file of that name for any process. So only those of whom it concerns are believed: of
 * root, of who asks, and, while it runs, of the process's own user.
 */
static int open_made(struct lg_pd_code *c, const struct lg_pd_dso *d)
{
	int fd = lg_foreign_open_path(lg_string(lg_builder_trace(c->b), d->name), LG_FOREIGN_NO_LINK);
	struct stat st, process;
	char path[32];

	snprintf(path, sizeof path, "/proc/%d", d->pid);
	if (fd < 0 || (!fstat(fd, &st) &&
		       (lg_is_own(st.st_uid) || (!stat(path, &process) && process.st_uid == st.st_uid))))
		return fd;
	close(fd);
	c->strange_maps++;
	return -1;
}

static void open_jit(struct lg_pd_code *c, struct lg_pd_dso *d)
{
	int fd = open_made(c, d);
	struct lg_error why;

	if (fd < 0)
		return;
	if (!lg_jitdump_open(&d->dump, fd, &why)) {
		uint64_t next = lg_jitdump_next_reuse(d->dump, c->now);

		d->looked = c->now;
		c->reuse_at = next < c->reuse_at ? next : c->reuse_at;
	} else if (why.code == LG_E_FORMAT && lg_perf_map_open(&d->jit, fd, &why)) {
		d->jit = NULL;
	}
	close(fd);
}

static void open_dso(struct lg_pd_code *c, struct lg_pd_dso *d)
{
	if (c->closed) {
		d->tried = true;
		return;
	}
	prove(c);
	d->tried = true;
	if (!c->kernel_tried)
		load_kernel(c);
	if (d->kind == DSO_FILE) {
		open_file(c, d);
	} else if (d->kind == DSO_OTHER && c->same_kernel &&
		   !strcmp(lg_string(lg_builder_trace(c->b), d->name), "[vdso]")) {
		open_vdso(d);
	} else if (d->kind == DSO_JIT &&
		   (c->same_host || c->home.proof > LG_PD_BY_KERNEL)) {
		/* (a process number alone is worth nothing in another boot) */
		open_jit(c, d);
	}
}

void lg_pd_code_reused(struct lg_pd_code *c)
{
	c->reuse_at = UINT64_MAX;
	for (size_t i = 0; i < c->n_dso; i++) {
		struct lg_pd_dso *d = &c->dso[i];
		uint64_t next;

		if (!d->dump)
			continue;
		if (lg_jitdump_next_reuse(d->dump, d->looked) <= c->now)
			c->spaces.space[d->space].version = ++c->spaces.versions;
		d->looked = c->now;
		next = lg_jitdump_next_reuse(d->dump, c->now);
		c->reuse_at = next < c->reuse_at ? next : c->reuse_at;
	}
}

static const char *user_symbol(const struct lg_pd_code *c, const struct lg_pd_dso *d, uint64_t at,
			       uint64_t *ret_into)
{
	const char *name;
	uint64_t vaddr;

	*ret_into = 0;
	if (d->dump) {
		name = lg_jitdump_find(d->dump, at, c->now, &vaddr);
		*ret_into = name ? at - vaddr : 0;
		return name;
	}
	if (d->jit)
		return lg_perf_map_find(d->jit, at);
	if (d->elf && lg_elf_vaddr(d->elf, at, &vaddr))
		return lg_elf_find(d->elf, vaddr, ret_into);
	return NULL;
}

bool lg_pd_code_map(struct lg_pd_code *c, uint32_t space, uint64_t addr, struct lg_unwind_map *ret)
{
	struct lg_pd_map *m = lg_pd_space_find(&c->spaces, space, addr);
	struct lg_pd_dso *d;

	if (!m)
		return false;
	if (!m->dso)
		m->dso = dso_of(c, c->spaces.space[space].pid, m);
	d = m->dso ? &c->dso[m->dso - 1] : NULL;
	if (d && !d->tried)
		open_dso(c, d);
	*ret = (struct lg_unwind_map){ m->start, m->end, m->pgoff, d ? d->elf : NULL };
	return true;
}

/*
 * The frame of an address by its debug information, and the list of what is inlined there. row:
 * of the function that has the code. 0: there is none, the symbol alone tells.
 */
static lg_frm source_frame(struct lg_pd_code *c, const struct lg_pd_dso *d, uint64_t key, uint64_t at,
			   const char *sym, struct lg_frame_row *row)
{
	struct lg_source_frame src[INLINED_MAX];
	char buf[NAME_BYTES];
	lg_frm f = 0;
	uint64_t vaddr;
	size_t n = d->elf && lg_elf_vaddr(d->elf, at, &vaddr)
			   ? lg_elf_source(d->elf, vaddr, src, INLINED_MAX) : 0;
	size_t first = c->n_inlined;

	for (size_t i = n; i--;) {
		const char *name = i == n - 1 && sym ? sym : src[i].name;
		struct lg_frame_row r = *row;

		if (!name)
			continue;
		r.name = lg_intern(c->b, lg_demangle(name, buf, sizeof buf));
		if (lg_symbol_options.lines && src[i].file) {
			r.file = lg_intern(c->b, src[i].file);
			r.line = src[i].line;
		}
		if (i == n - 1) {
			f = lg_intern_frame(c->b, &r);
			continue;
		}
		r.kind = LG_FRAME_INLINED;
		if (!f || !lg_symbol_options.inlines)
			continue;
		if (lg_grow(&c->inlined, &c->inlined_cap, c->n_inlined + 1, sizeof *c->inlined))
			return f;
		c->inlined[c->n_inlined++] = lg_intern_frame(c->b, &r);
	}
	if (c->n_inlined > first && first < 1u << 24)
		(void)!lg_map_set(&c->inlined_at, key, (uint32_t)(first << 8 | (c->n_inlined - first)));
	return f;
}

static void set_here(struct lg_pd_code *c, uint64_t key)
{
	uint32_t v = lg_map_get(&c->inlined_at, key);

	c->here = c->inlined + (v >> 8);
	c->n_here = v & 0xff;
}

static uint64_t place_in(const struct lg_pd_dso *d, const struct lg_pd_map *m, uint64_t addr)
{
	return d->kind == DSO_JIT ? addr : addr - m->start + m->pgoff;
}

uint64_t lg_pd_code_place(const struct lg_pd_code *c, uint32_t space, uint64_t addr)
{
	enum { NOWHERE = 1 }; /* no file has so small a number */
	const struct lg_pd_map *m = lg_pd_space_find(&c->spaces, space, addr);
	const struct lg_pd_dso *d;

	if (!m)
		return NOWHERE;
	if (__builtin_expect(!m->dso, 0))
		return 0;
	d = &c->dso[m->dso - 1];
	/* An address of a jitdump is another function at another time. */
	return d->tried && !d->dump ? (uint64_t)m->dso << 44 ^ place_in(d, m, addr) : 0;
}

void lg_pd_code_ahead(const struct lg_pd_code *c, uint64_t place)
{
	lg_map_ahead(&c->frame_at, place);
}

static lg_frm user_frame(struct lg_pd_code *c, uint32_t space, uint64_t addr)
{
	struct lg_pd_map *m = lg_pd_space_find(&c->spaces, space, addr);
	struct lg_frame_row row = { .kind = LG_FRAME_USER, .dso = c->s_unknown, .pc = addr };
	struct lg_pd_dso *d;
	uint64_t at, key, into;
	const char *sym;
	lg_frm f;

	if (!m)
		return c->unknown;
	if (__builtin_expect(!m->dso, 0))
		m->dso = dso_of(c, c->spaces.space[space].pid, m);
	if (!m->dso)
		return 0;
	d = &c->dso[m->dso - 1];
	at = place_in(d, m, addr);
	key = (uint64_t)m->dso << 44 ^ at;
	/* An address of a jitdump is another function at another time. */
	f = d->dump ? 0 : lg_map_get(&c->frame_at, key);
	if (__builtin_expect(f != 0, 1)) {
		if (__builtin_expect(c->n_inlined != 0, 0))
			set_here(c, key);
		return f;
	}
	if (!d->tried)
		open_dso(c, d);
	sym = user_symbol(c, d, at, &into);
	row.dso = d->name;
	row.build_id = d->build_id;
	row.pc = at - into;
	f = lg_symbol_options.inlines || lg_symbol_options.lines
		    ? source_frame(c, d, key, at, sym, &row) : 0;
	c->frames++;
	c->unnamed += !sym && !f;
	if (!f)
		f = sym ? function_frame(c, sym, &row) : lg_intern_frame(c->b, &row);
	if (f)
		(void)!lg_map_set(&c->frame_at, key, f);
	if (c->n_inlined)
		set_here(c, key);
	return f;
}

lg_frm lg_pd_code_frame(struct lg_pd_code *c, enum lg_pd_context ctx, uint32_t space, uint64_t addr)
{
	struct lg_frame_row row = { .pc = addr, .kind = LG_FRAME_USER };

	c->n_here = 0;
	switch (ctx) {
	case LG_PD_USER:
		return user_frame(c, space, addr);
	case LG_PD_KERNEL:
		return kernel_frame(c, addr);
	case LG_PD_GUEST_KERNEL:
		row.dso = c->s_guest;
		row.kind = LG_FRAME_KERNEL;
		break;
	case LG_PD_HYPERVISOR:
		row.dso = c->s_hypervisor;
		row.kind = LG_FRAME_KERNEL;
		break;
	case LG_PD_GUEST_USER:
	default:
		row.dso = c->s_unknown;
		break;
	}
	return lg_intern_frame(c->b, &row);
}
