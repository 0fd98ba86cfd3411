/* SPDX-License-Identifier: Apache-2.0 */
#include "record/pythons.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/alloc.h"
#include "base/map.h"
#include "record/python_layout.h"
#include "record/session.h"
#include "symbols/python_code.h"
#include "symbols/resolve.h"

#define DUMP_BYTES_MAX ((size_t)32 << 20) /* of all copies */
#define OBJECTS_MAX (1u << 20)            /* the wider part of a frame's pc would hold more */
#define PROCESSES_MAX 16384
#define CODES_MAX (1u << 18)  /* addresses remembered; beyond it each is looked up anew */
#define TRUST_NS 2000000000   /* an address whose object was looked at is believed for so long */
/* From the program at a sampling event to the time that the kernel writes into its sample. */
#define SAMPLE_NS 200000
#define SAMPLED_MAX 65536
#define OBJECT_TYPE 8         /* in any object, behind its count of references */
#define HEAD_BYTES 216        /* of a code object: all that python_layout.c points at */
/* nptl/descr.h of glibc: the first block of keys lies in the thread's descriptor, 16 bytes each. */
#define GLIBC_KEYS_AT 0x310
#define GLIBC_FIRST_KEYS 32
/* pycore_debug_offsets.h: "xdebugpy", version, free_threaded. */
#define DEBUG_COOKIE "xdebugpy"

struct process {
	int32_t pid;
	uint32_t life;   /* no other process has it, nor this pid before */
	uint32_t parent; /* the life that it was forked from; 0 = none */
	int64_t found; /* when it was looked at, or forked */
	const struct lg_python_layout *of;
	unsigned minor;
	struct lg_bpf_python_layout walk;
	struct lg_python_range eval;
	uint64_t code_type; /* the type of code objects; 0 = not known */
	uint32_t dump;
	bool gone; /* executed another program */
};

struct code { /* what was seen at an address */
	uint32_t object; /* number + 1; 0 = could not be read */
	int64_t looked;
	uint64_t head; /* hash of what must not change */
};

struct dump { /* copies of one user's */
	uid_t owner;
	int fd;
	lg_str dso;
	uint32_t n;
};

struct sampled {
	int64_t ts;
	size_t n;
	uint64_t told[LG_BPF_PYTHON_FRAMES];
};

struct lg_pythons {
	struct lg_builder *b;
	struct process *process;
	size_t n, cap;
	struct lg_map by_pid;
	uint32_t lives;
	struct code *code;
	size_t n_code, cap_code;
	struct lg_map by_address, by_content;
	struct dump dump[16];
	size_t n_dump, bytes;
	struct sampled *sampled; /* by thread; one that died leaves its place to be used by its number */
	size_t n_sampled, cap_sampled;
	struct lg_map by_tid;
	uint64_t unread, over;
	bool said_version;
	uint8_t record[sizeof(struct lg_python_object) + 2 * LG_PYTHON_STRING_MAX + LG_PYTHON_TABLE_MAX + 8];
};

struct lg_pythons *lg_pythons_new(struct lg_builder *b)
{
	struct lg_pythons *p = lg_calloc(1, sizeof *p);

	if (p)
		p->b = b;
	return p;
}

void lg_pythons_free(struct lg_pythons *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_dump; i++)
		if (p->dump[i].fd >= 0)
			close(p->dump[i].fd);
	lg_free(p->process);
	lg_free(p->code);
	lg_free(p->sampled);
	lg_map_done(&p->by_tid);
	lg_map_done(&p->by_pid);
	lg_map_done(&p->by_address);
	lg_map_done(&p->by_content);
	lg_free(p);
}

/* Bytes read; fewer than n where a page is not there. */
static size_t read_memory(int32_t pid, uint64_t at, void *buf, size_t n)
{
	struct iovec to = { buf, n }, from = { (void *)(uintptr_t)at, n };
	ssize_t got = process_vm_readv(pid, &to, 1, &from, 1, 0);

	if (got >= 0 || n <= 4096 - at % 4096)
		return got > 0 ? (size_t)got : 0;
	/* One element is read whole or not at all: up to the end of its first page, then. */
	to.iov_len = from.iov_len = 4096 - at % 4096;
	got = process_vm_readv(pid, &to, 1, &from, 1, 0);
	return got > 0 ? (size_t)got : 0;
}

static struct process *process_of(struct lg_pythons *p, int32_t pid)
{
	uint32_t i = lg_map_get(&p->by_pid, (uint32_t)pid);

	return i && !p->process[i - 1].gone ? &p->process[i - 1] : NULL;
}

static bool put_process(struct lg_pythons *p, const struct process *what)
{
	uint32_t i = lg_map_get(&p->by_pid, (uint32_t)what->pid);

	if (!i) {
		if (p->n >= PROCESSES_MAX || lg_grow(&p->process, &p->cap, p->n + 1, sizeof *p->process) ||
		    lg_map_set(&p->by_pid, (uint32_t)what->pid, (uint32_t)p->n + 1))
			return false;
		i = (uint32_t)++p->n;
	}
	p->process[i - 1] = *what;
	p->process[i - 1].life = ++p->lives;
	return true;
}

/* -- which interpreter -- */

static void say_once(struct lg_pythons *p, const char *name, const char *why)
{
	if (!p->said_version)
		lg_add_diag_now(p->b, LG_DIAG_NO_FEATURE, lg_monotonic_ns(), 1, "%s: %s; its stacks are native ones only",
				name, why);
	p->said_version = true;
}

/* ".../python3.11", ".../libpython3.8.so.1.0": before 3.11 no variable tells. */
static unsigned minor_of_name(const char *name)
{
	const char *slash = strrchr(name, '/'), *at = strstr(slash ? slash : name, "python3.");

	return at ? (unsigned)strtoul(at + 8, NULL, 10) : 0;
}

static unsigned minor_of(int32_t pid, const char *name, uint64_t base, const struct lg_say_exports *e)
{
	uint64_t version;

	if (e->at[LG_EXPORT_VERSION] &&
	    read_memory(pid, base + e->at[LG_EXPORT_VERSION], &version, sizeof version) == sizeof version)
		return version >> 24 == 3 ? version >> 16 & 0xff : 0; /* PY_VERSION_HEX */
	return minor_of_name(name);
}

static bool has_gil(int32_t pid, uint64_t runtime)
{
	uint64_t head[3];

	return read_memory(pid, runtime, head, sizeof head) != sizeof head ||
	       memcmp(head, DEBUG_COOKIE, sizeof head[0]) != 0 || !head[2];
}

static uint32_t dump_of(struct lg_pythons *p, uid_t owner)
{
	char name[32];

	for (uint32_t i = 0; i < p->n_dump; i++)
		if (p->dump[i].owner == owner)
			return i + 1;
	if (p->n_dump == sizeof p->dump / sizeof *p->dump)
		return 0;
	if (p->n_dump)
		snprintf(name, sizeof name, "[python of %u]", (unsigned)owner);
	else
		snprintf(name, sizeof name, "[python]");
	p->dump[p->n_dump] = (struct dump){ .owner = owner, .fd = memfd_create("laggard-python", MFD_CLOEXEC),
					    .dso = lg_intern(p->b, name) };
	return p->dump[p->n_dump].fd >= 0 ? (uint32_t)++p->n_dump : 0;
}

bool lg_pythons_add(struct lg_pythons *p, int32_t pid, const char *name, uint64_t base,
		    const struct lg_say_exports *e, uid_t owner)
{
	uint64_t runtime = base + e->at[LG_EXPORT_RUNTIME];
	struct process q = { .pid = pid, .minor = minor_of(pid, name, base, e), .found = lg_monotonic_ns() };
	int32_t key;

	q.of = lg_python_layout(q.minor);
	if (!q.of) {
		say_once(p, name, "this version of Python is not known");
		return false;
	}
	if (!has_gil(pid, runtime)) {
		say_once(p, name, "a build without the GIL keeps its frames elsewhere");
		return false;
	}
	if (read_memory(pid, runtime + q.of->tls_key, &key, sizeof key) != sizeof key || key < 0 ||
	    key >= GLIBC_FIRST_KEYS)
		return false; /* not initialised yet, or another C library */
	q.dump = dump_of(p, owner);
	if (!q.dump) {
		say_once(p, name, "too many users");
		return false;
	}
	q.walk = q.of->walk;
	q.walk.tls = GLIBC_KEYS_AT + 16 * key + 8;
	if (e->at[LG_EXPORT_CODE])
		q.code_type = base + e->at[LG_EXPORT_CODE];
	if (e->at[LG_EXPORT_EVAL])
		q.eval = (struct lg_python_range){ base + e->at[LG_EXPORT_EVAL],
						   base + e->at[LG_EXPORT_EVAL] + e->size[LG_EXPORT_EVAL] };
	return put_process(p, &q);
}

void lg_pythons_fork(struct lg_pythons *p, int64_t ts, int32_t parent, int32_t pid)
{
	const struct process *of = process_of(p, parent);
	struct process child;

	lg_pythons_exec(p, ts, pid); /* whoever had the number before */
	if (!of || parent == pid || process_of(p, pid))
		return;
	child = *of;
	child.pid = pid;
	child.found = ts;
	child.parent = of->life;
	(void)put_process(p, &child);
}

void lg_pythons_exec(struct lg_pythons *p, int64_t ts, int32_t pid)
{
	struct process *q = process_of(p, pid);

	if (q && q->found <= ts)
		q->gone = true;
}

const struct lg_bpf_python_layout *lg_pythons_layout(struct lg_pythons *p, int32_t pid)
{
	struct process *q = process_of(p, pid);

	return q ? &q->walk : NULL;
}

struct lg_python_range lg_pythons_eval(struct lg_pythons *p, int32_t pid)
{
	struct process *q = process_of(p, pid);

	return q ? q->eval : (struct lg_python_range){ 0 };
}

/* -- code objects -- */

static uint64_t word_at(const uint8_t *head, uint16_t at)
{
	uint64_t v;

	memcpy(&v, head + at, sizeof v);
	return v;
}

/* What tells one object from another that got its memory. */
static uint64_t identity(const struct process *q, const uint8_t *head)
{
	uint64_t v[4] = { word_at(head, q->of->code.file), word_at(head, q->of->code.name),
			  word_at(head, q->of->code.table), 0 };

	memcpy(&v[3], head + q->of->code.line, 4);
	return XXH3_64bits(v, sizeof v);
}

/* A PyBytes: refcount, type, size, hash, then the bytes. */
static uint32_t read_bytes(int32_t pid, uint64_t at, uint8_t *out)
{
	uint64_t head[4];
	size_t n;

	if (read_memory(pid, at, head, sizeof head) != sizeof head)
		return 0;
	n = head[2] < LG_PYTHON_TABLE_MAX ? (size_t)head[2] : LG_PYTHON_TABLE_MAX;
	return (uint32_t)read_memory(pid, at + sizeof head, out, n);
}

/* A str as it lies there: the process that reads symbols makes text of it. */
static uint32_t read_string(int32_t pid, uint64_t at, uint8_t *out)
{
	uint64_t head[3];
	size_t n;

	if (read_memory(pid, at, head, sizeof head) != sizeof head)
		return 0;
	/* The head, and as many characters of the widest kind; behind its end is what it may not read. */
	n = head[2] < 255 ? 72 + 4 * (size_t)head[2] : LG_PYTHON_STRING_MAX;
	return (uint32_t)read_memory(pid, at, out, n < LG_PYTHON_STRING_MAX ? n : LG_PYTHON_STRING_MAX);
}

/* The number of the object + 1; 0 = no room. */
static uint32_t keep(struct lg_pythons *p, struct dump *d, struct lg_python_object *o)
{
	size_t n = sizeof *o + o->n_name + o->n_file + o->n_table;
	uint64_t h;
	uint32_t i;

	o->bytes = (uint32_t)((n + 7) & ~(size_t)7);
	memset(p->record + n, 0, o->bytes - n);
	memcpy(p->record, o, sizeof *o);
	h = XXH3_64bits_withSeed(p->record, o->bytes, lg_map_secret ^ d->owner);
	i = lg_map_get(&p->by_content, h);
	if (i)
		return i;
	if (p->bytes + o->bytes > DUMP_BYTES_MAX || d->n >= OBJECTS_MAX ||
	    write(d->fd, p->record, o->bytes) != (ssize_t)o->bytes) {
		p->over++;
		return 0;
	}
	p->bytes += o->bytes;
	i = ++d->n;
	return lg_map_set(&p->by_content, h, i) ? 0 : i;
}

static uint32_t copy_object(struct lg_pythons *p, const struct process *q, const uint8_t *head)
{
	struct lg_python_object o = { .minor = q->minor, .code_units = q->of->code.units };
	uint8_t *at = p->record + sizeof o;

	memcpy(&o.first_line, head + q->of->code.line, sizeof o.first_line);
	o.n_name = read_string(q->pid, word_at(head, q->of->code.name), at);
	o.n_file = read_string(q->pid, word_at(head, q->of->code.file), at + o.n_name);
	if (!o.n_name || !o.n_file)
		return 0;
	o.n_table = read_bytes(q->pid, word_at(head, q->of->code.table), at + o.n_name + o.n_file);
	return keep(p, &p->dump[q->dump - 1], &o);
}

static uint64_t place(uint32_t life, uint64_t address)
{
	return lg_mix64(address) ^ lg_mix64(life);
}

/* What a fork has from its parent is known at once: many a child is gone before it could be read. */
static struct code *code_at(struct lg_pythons *p, const struct process *q, uint64_t address)
{
	uint64_t key = place(q->life, address);
	uint32_t i = lg_map_get(&p->by_address, key), old = 0;

	if (i)
		return &p->code[i - 1];
	if (q->parent)
		old = lg_map_get(&p->by_address, place(q->parent, address));
	if (p->n_code >= CODES_MAX) {
		lg_map_done(&p->by_address);
		p->n_code = 0;
	}
	if (lg_grow(&p->code, &p->cap_code, p->n_code + 1, sizeof *p->code) ||
	    lg_map_set(&p->by_address, key, (uint32_t)p->n_code + 1))
		return NULL;
	p->code[p->n_code] = old ? p->code[old - 1] : (struct code){ .looked = INT64_MIN };
	return &p->code[p->n_code++];
}

static void look_again(struct lg_pythons *p, const struct process *q, uint64_t address, struct code *c)
{
	uint8_t head[HEAD_BYTES];
	uint64_t id;

	if (read_memory(q->pid, address, head, sizeof head) != sizeof head)
		return; /* the process is gone: what was known of it stays true */
	id = identity(q, head);
	if (c->object && id == c->head)
		return;
	c->head = id;
	/* What a module ran once is freed behind it, and another object may lie there by now. */
	c->object = q->code_type && word_at(head, OBJECT_TYPE) != q->code_type ? 0 : copy_object(p, q, head);
}

lg_frm lg_pythons_frame(struct lg_pythons *p, int32_t pid, uint64_t told, int64_t now)
{
	uint64_t address = told & LG_BPF_PYTHON_CODE, units = told >> LG_BPF_PYTHON_UNITS;
	struct process *q = process_of(p, pid);
	struct code *c = q ? code_at(p, q, address) : NULL;

	if (!c)
		return 0;
	if (c->looked == INT64_MIN || now - c->looked > TRUST_NS) {
		look_again(p, q, address, c);
		c->looked = now;
	}
	p->unread += !c->object;
	if (!c->object)
		return 0;
	return lg_intern_frame(p->b, &(struct lg_frame_row){
		.pc = (uint64_t)(c->object - 1) << 16 | units, .dso = p->dump[q->dump - 1].dso,
		.kind = LG_FRAME_PYTHON });
}

void lg_pythons_sample(struct lg_pythons *p, int32_t tid, int64_t ts, const uint64_t *told, size_t n)
{
	uint32_t i = lg_map_get(&p->by_tid, (uint32_t)tid);
	struct sampled *s;

	if (!i) {
		if (p->n_sampled >= SAMPLED_MAX) {
			lg_map_done(&p->by_tid);
			p->n_sampled = 0;
		}
		if (lg_grow(&p->sampled, &p->cap_sampled, p->n_sampled + 1, sizeof *p->sampled) ||
		    lg_map_set(&p->by_tid, (uint32_t)tid, (uint32_t)p->n_sampled + 1))
			return;
		i = (uint32_t)++p->n_sampled;
	}
	s = &p->sampled[i - 1];
	s->ts = ts;
	s->n = n < LG_BPF_PYTHON_FRAMES ? n : LG_BPF_PYTHON_FRAMES;
	memcpy(s->told, told, s->n * sizeof *told);
}

size_t lg_pythons_take(struct lg_pythons *p, int32_t tid, int64_t ts, uint64_t *told)
{
	uint32_t i = lg_map_get(&p->by_tid, (uint32_t)tid);
	struct sampled *s = i ? &p->sampled[i - 1] : NULL;
	size_t n;

	if (!s || ts < s->ts || ts > s->ts + SAMPLE_NS)
		return 0;
	n = s->n;
	memcpy(told, s->told, n * sizeof *told);
	s->n = 0;
	return n;
}

int lg_pythons_resolve(struct lg_pythons *p, struct lg_symbolizer *s)
{
	int rc = 0;

	if (p->unread)
		lg_add_diag_now(p->b, LG_DIAG_UNRESOLVED, lg_monotonic_ns(), p->unread,
				"Python frames whose code was gone when it was to be read");
	if (p->over)
		lg_add_diag_now(p->b, LG_DIAG_NAMES_LOST, lg_monotonic_ns(), p->over,
				"Python functions are too many: the rest has no names");
	for (size_t i = 0; i < p->n_dump && !rc; i++) {
		rc = lg_symbolizer_python(s, p->dump[i].dso, p->dump[i].fd, p->dump[i].owner);
		p->dump[i].fd = -1; /* the symbolizer's now */
	}
	return rc;
}
