/* SPDX-License-Identifier: Apache-2.0 */
#include "record/pythons.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/order.h"
#include "record/far_memory.h"
#include "record/python_attach.h"
#include "record/python_layout.h"
#include "record/session.h"
#include "symbols/python_code.h"
#include "symbols/resolve.h"

#define DUMP_BYTES_MAX ((size_t)40 << 20) /* of all copies */
#define OWNER_BYTES_MAX ((size_t)20 << 20) /* of one user's: a storm of his takes nobody else's names */
#define LOOKS_MAX 4000                    /* at objects of one user in a second: 0.1 s of CPU time */
#define WITHHELD_MAX 2                    /* processes of one user whose memory does not come */
#define OBJECTS_MAX (1u << 20)            /* the wider part of a frame's pc would hold more */
#define PROCESSES_MAX 16384
#define CODES_MAX (1u << 18)  /* addresses remembered; beyond it each is looked up anew */
#define TRUST_NS INT64_C(2000000000) /* an address whose object was looked at is believed for so long, */
#define TRUST_DOUBLINGS 5     /* ... and for twice as long each time that the same one lay there still */
/* From the program at a sampling event to the time that the kernel writes into its sample. */
#define SAMPLE_NS 200000
#define SAMPLED_MAX 65536
#define KNOWN 256             /* stacks */
#define NEAR 256              /* addresses among which others are sought that are due, too */
#define OBJECT_TYPE 8         /* in any object, behind its count of references */
#define HEAD_BYTES 216        /* of a code object: all that python_layout.c points at */
/* nptl/descr.h of glibc: the first block of keys lies in the thread's descriptor, 16 bytes each. */
#define GLIBC_KEYS_AT 0x310
#define GLIBC_FIRST_KEYS 32
#define GLIBC_TID_AT 0x2d0    /* in the same: the kernel's number of the thread */
#define THREAD_NEXT 8         /* in a thread's state: that of the one made before */
#define THREADS_MAX 1024      /* of a process that are looked for */
#define ASLEEP_READS_MAX 20000 /* 0.5 s in all */
/* pycore_debug_offsets.h: "xdebugpy", version, free_threaded. */
#define DEBUG_COOKIE "xdebugpy"

/* Of a str: refcount, type, length; of a PyBytes: these, hash, then the bytes. */
enum { STR = 24, BYTES = 32, PARTS = 3 };

struct process {
	int32_t pid;
	uint32_t life;   /* no other process has it, nor this pid before */
	uint32_t parent; /* the life that it was forked from; 0 = none */
	uint64_t runtime; /* _PyRuntime */
	int64_t found; /* when it was looked at, or forked */
	const struct lg_python_layout *of;
	unsigned minor;
	struct lg_bpf_python_layout walk;
	struct lg_python_range eval;
	uint64_t gil;    /* 0 = not known */
	uint64_t code_type; /* the type of code objects; 0 = not known */
	uint32_t dump;
	bool gone; /* executed another program, or gives nothing to read */
};

struct code { /* what was seen at an address */
	uint32_t object; /* number + 1; 0 = could not be read */
	uint32_t life;   /* whose address */
	int64_t looked;
	uint64_t head; /* hash of what must not change */
	/* same: how often in a row the same object lay there, at most so often as doubles the trust */
	uint64_t address : LG_BPF_PYTHON_UNITS, asked : 1, same : 3;
};

struct known { /* a stack that was told lately */
	uint64_t hash;
	int64_t until;
	unsigned unread;
	lg_frm frame[LG_BPF_PYTHON_FRAMES];
};

struct dump { /* copies of one user's */
	uid_t owner;
	int fd;
	lg_str dso;
	uint32_t n;
	size_t bytes;
	unsigned withheld;
	unsigned looks;  /* since */
	int64_t since;
};

struct asleep {
	int32_t tid;
	uint64_t frame; /* the innermost */
};

struct sampled {
	int64_t ts;
	size_t n;
	uint64_t told[LG_BPF_PYTHON_FRAMES];
	uint8_t gil;
};

struct lg_pythons {
	struct lg_builder *b;
	struct lg_far *far, *spare; /* spare: for a fork of the recorder; NULL = it will not be forked */
	struct process *process;
	size_t n, cap;
	struct lg_map by_pid;
	uint32_t lives;
	struct code *code;
	size_t n_code, cap_code;
	struct lg_map by_address, by_content;
	struct known known[KNOWN];
	struct dump dump[16];
	size_t n_dump, bytes;
	struct sampled *sampled; /* by thread; one that died leaves its place to be used by its number */
	size_t n_sampled, cap_sampled;
	struct lg_map by_tid;
	struct asleep *asleep; /* the threads of process asleep_of */
	size_t n_asleep, cap_asleep;
	uint32_t asleep_of;    /* a life */
	unsigned asleep_reads;
	int64_t swept;
	uint64_t unread, over, held_back, untold;
	bool said_version;
	uint8_t record[sizeof(struct lg_python_object) + 2 * LG_PYTHON_STRING_MAX + BYTES +
		       LG_PYTHON_TABLE_MAX + 8];
};

struct lg_pythons *lg_pythons_new(struct lg_builder *b, bool forks)
{
	struct lg_pythons *p = lg_calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->b = b;
	p->far = lg_far_new();
	p->spare = forks ? lg_far_new() : NULL;
	if (!p->far || (forks && !p->spare)) {
		lg_far_free(p->far);
		lg_free(p);
		return NULL;
	}
	return p;
}

void lg_pythons_lend(struct lg_pythons *p)
{
	lg_far_lend(p->spare);
}

/* The copies so far, in a file of its own: the parent goes on writing to the other one. */
static int copy_dump(const struct dump *d)
{
	int fd = memfd_create("laggard-python", MFD_CLOEXEC);
	char buf[1 << 14];

	for (size_t at = 0; fd >= 0 && at < d->bytes;) {
		ssize_t n = pread(d->fd, buf, LG_MIN(sizeof buf, d->bytes - at), (off_t)at);

		if (n <= 0 || write(fd, buf, (size_t)n) != n) {
			close(fd);
			return -1;
		}
		at += (size_t)n;
	}
	return fd;
}

void lg_pythons_apart(struct lg_pythons *p)
{
	struct lg_far *parents = p->far;

	p->far = p->spare;
	p->spare = parents;
	for (size_t i = 0; i < p->n_dump; i++)
		p->dump[i].fd = copy_dump(&p->dump[i]); /* -1: its functions have no names */
}

void lg_pythons_free(struct lg_pythons *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_dump; i++)
		if (p->dump[i].fd >= 0)
			close(p->dump[i].fd);
	lg_far_free(p->far);
	lg_far_free(p->spare);
	lg_free(p->process);
	lg_free(p->code);
	lg_free(p->sampled);
	lg_free(p->asleep);
	lg_map_done(&p->by_tid);
	lg_map_done(&p->by_pid);
	lg_map_done(&p->by_address);
	lg_map_done(&p->by_content);
	lg_free(p);
}

static struct process *process_of(struct lg_pythons *p, int32_t pid)
{
	uint32_t i = lg_map_get(&p->by_pid, (uint32_t)pid);

	return i && !p->process[i - 1].gone ? &p->process[i - 1] : NULL;
}

/* Numbers of processes that are no more; a fork of a Python is one, however short. */
static void forget_dead(struct lg_pythons *p)
{
	size_t n = 0;

	lg_map_done(&p->by_pid);
	for (size_t i = 0; i < p->n; i++) {
		if (p->process[i].gone || (kill(p->process[i].pid, 0) && errno == ESRCH))
			continue;
		p->process[n] = p->process[i];
		if (!lg_map_set(&p->by_pid, (uint32_t)p->process[n].pid, (uint32_t)n + 1))
			n++;
	}
	p->n = n;
}

static bool put_process(struct lg_pythons *p, const struct process *what)
{
	uint32_t i = lg_map_get(&p->by_pid, (uint32_t)what->pid);

	if (!i) {
		int64_t now = p->n >= PROCESSES_MAX ? lg_monotonic_ns() : 0;

		if (now - p->swept > TRUST_NS) {
			p->swept = now;
			forget_dead(p);
		}
		p->untold += p->n >= PROCESSES_MAX;
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

/* False: the process gives nothing any more. */
static bool read_ranges(struct lg_pythons *p, const struct process *q, struct lg_far_range *r, size_t n)
{
	struct dump *d = &p->dump[q->dump - 1];
	unsigned before = lg_far_withheld(p->far);

	if (d->withheld >= WITHHELD_MAX)
		return false;
	if (lg_far_read(p->far, q->pid, r, n))
		return true;
	d->withheld += lg_far_withheld(p->far) - before;
	return false;
}

static bool read_all(struct lg_pythons *p, const struct process *q, uint64_t at, void *to, size_t n)
{
	struct lg_far_range r = { .at = at, .to = to, .n = n };

	return read_ranges(p, q, &r, 1) && r.got == n;
}

/* ".../python3.11", ".../libpython3.8.so.1.0": before 3.11 no variable tells. */
static unsigned minor_of_name(const char *name)
{
	const char *slash = strrchr(name, '/'), *at = strstr(slash ? slash : name, "python3.");

	return at ? (unsigned)strtoul(at + 8, NULL, 10) : 0;
}

static unsigned minor_of(struct lg_pythons *p, const struct process *q, const char *name, uint64_t base,
			 const struct lg_say_exports *e)
{
	uint64_t version;

	if (e->at[LG_EXPORT_VERSION] &&
	    read_all(p, q, base + e->at[LG_EXPORT_VERSION], &version, sizeof version))
		return version >> 24 == 3 ? version >> 16 & 0xff : 0; /* PY_VERSION_HEX */
	return minor_of_name(name);
}

static bool has_gil(struct lg_pythons *p, const struct process *q, uint64_t runtime)
{
	uint64_t head[3];

	return !read_all(p, q, runtime, head, sizeof head) ||
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

/* Since 3.12 each interpreter has one, and points to it: false = it is not made yet. */
static bool find_gil(struct lg_pythons *p, struct process *q)
{
	uint64_t at = q->runtime + q->of->gil;

	if (q->of->gil_of_interpreter &&
	    (!read_all(p, q, q->runtime + q->of->interpreter, &at, sizeof at) || !at ||
	     !read_all(p, q, at + q->of->gil, &at, sizeof at)))
		return false;
	q->gil = at;
	return at;
}

bool lg_pythons_add(struct lg_pythons *p, int32_t pid, const char *name, uint64_t base,
		    const struct lg_say_exports *e, uid_t owner)
{
	uint64_t runtime = base + e->at[LG_EXPORT_RUNTIME];
	struct process q = { .pid = pid, .dump = dump_of(p, owner), .found = lg_monotonic_ns(),
			     .runtime = runtime };
	int32_t key[2];

	if (!q.dump) {
		say_once(p, name, "too many users");
		return false;
	}
	q.minor = minor_of(p, &q, name, base, e);
	q.of = lg_python_layout(q.minor);
	if (!q.of) {
		say_once(p, name, "this version of Python is not known");
		return false;
	}
	if (!has_gil(p, &q, runtime)) {
		say_once(p, name, "a build without the GIL keeps its frames elsewhere");
		return false;
	}
	/* Py_tss_t: is it made yet, and which one (Include/pythread.h). Until it is made it says 0. */
	if (!read_all(p, &q, runtime + q.of->tls_key - sizeof key[0], key, sizeof key) || !key[0] ||
	    key[1] < 0 || key[1] >= GLIBC_FIRST_KEYS)
		return false; /* not initialised yet, or another C library */
	if (!find_gil(p, &q))
		return false;
	q.walk = q.of->walk;
	q.walk.tls = GLIBC_KEYS_AT + 16 * key[1] + 8;
	if (e->at[LG_EXPORT_CODE])
		q.code_type = base + e->at[LG_EXPORT_CODE];
	if (e->at[LG_EXPORT_EVAL])
		q.eval = (struct lg_python_range){ base + e->at[LG_EXPORT_EVAL],
						   base + e->at[LG_EXPORT_EVAL] + e->size[LG_EXPORT_EVAL] };
	return put_process(p, &q);
}

int lg_pythons_attach(struct lg_pythons *p, int32_t pid, uint64_t base, const struct lg_say_exports *e,
		      const char *script, struct lg_error *err)
{
	return lg_python_attach(p->far, pid, base + e->at[LG_EXPORT_RUNTIME], script, err);
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

uint64_t lg_pythons_gil(struct lg_pythons *p, int32_t pid)
{
	struct process *q = process_of(p, pid);

	return q ? q->gil : 0;
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

/* As much as most have of name, file and table is read together with what they say of their length. */
enum { NAME = 256, FILE_NAME = 640, TABLE = BYTES + 2048, GUESS = NAME + FILE_NAME + TABLE };

static void guess_parts(const struct process *q, const uint8_t *head, uint8_t *to, struct lg_far_range *r)
{
	r[0] = (struct lg_far_range){ word_at(head, q->of->code.name), to, NAME, 0 };
	r[1] = (struct lg_far_range){ word_at(head, q->of->code.file), to + NAME, FILE_NAME, 0 };
	r[2] = (struct lg_far_range){ word_at(head, q->of->code.table), to + NAME + FILE_NAME, TABLE, 0 };
}

/*
 * The two strings and the table, one behind the other at `at`, of what was read by a guess; the strings as
 * they lie there: the process that reads symbols makes text of them. A second question only where the guess
 * was too low.
 */
static bool put_parts(struct lg_pythons *p, const struct process *q, struct lg_far_range *r, uint8_t *at,
		      struct lg_python_object *ret)
{
	bool whole = true;
	size_t used = 0;

	if (r[0].got < STR || r[1].got < STR)
		return false;
	for (size_t i = 0; i < PARTS; i++) {
		uint64_t says = i < 2 || r[i].got >= BYTES ? word_at(r[i].to, 16) : 0;
		size_t guess = r[i].n;

		/* The head, and as many characters of the widest kind; behind its end is what it may not
		 * read. */
		if (i == 2)
			r[i].n = says ? BYTES + LG_MIN((size_t)says, LG_PYTHON_TABLE_MAX) : 0;
		else
			r[i].n = LG_MIN(says < 255 ? 72 + 4 * (size_t)says : SIZE_MAX, LG_PYTHON_STRING_MAX);
		whole = whole && (r[i].n <= guess || r[i].got < guess);
	}
	for (size_t i = 0; i < PARTS && !whole; used += r[i++].n)
		r[i].to = at + used;
	if (!whole && (!read_ranges(p, q, r, PARTS) || r[0].got < STR || r[1].got < STR))
		return false;
	ret->n_name = (uint32_t)LG_MIN(r[0].got, r[0].n);
	ret->n_file = (uint32_t)LG_MIN(r[1].got, r[1].n);
	ret->n_table = r[2].got > BYTES && r[2].n ? (uint32_t)(LG_MIN(r[2].got, r[2].n) - BYTES) : 0;
	memmove(at, r[0].to, ret->n_name);
	memmove(at + ret->n_name, r[1].to, ret->n_file);
	memmove(at + ret->n_name + ret->n_file, (uint8_t *)r[2].to + BYTES, ret->n_table);
	return true;
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
	if (p->bytes + o->bytes > DUMP_BYTES_MAX || d->bytes + o->bytes > OWNER_BYTES_MAX ||
	    d->n >= OBJECTS_MAX ||
	    write(d->fd, p->record, o->bytes) != (ssize_t)o->bytes) {
		p->over++;
		return 0;
	}
	p->bytes += o->bytes;
	d->bytes += o->bytes;
	i = ++d->n;
	return lg_map_set(&p->by_content, h, i) ? 0 : i;
}

/* What lies at those addresses, and is not what lay there: as many as one question goes for. */
enum { COPIES = LG_FAR_RANGES / PARTS };

static void copy_objects(struct lg_pythons *p, const struct process *q, struct code **of,
			 const uint8_t **head, size_t n)
{
	struct lg_far_range r[COPIES * PARTS];
	uint8_t guess[COPIES][GUESS];

	for (size_t i = 0; i < n; i++)
		guess_parts(q, head[i], guess[i], r + i * PARTS);
	if (!read_ranges(p, q, r, n * PARTS))
		return;
	for (size_t i = 0; i < n; i++) {
		struct lg_python_object o = { .minor = q->minor, .code_units = q->of->code.units };

		memcpy(&o.first_line, head[i] + q->of->code.line, sizeof o.first_line);
		if (put_parts(p, q, r + i * PARTS, p->record + sizeof o, &o))
			of[i]->object = keep(p, &p->dump[q->dump - 1], &o);
	}
}

static uint64_t place(uint32_t life, uint64_t address)
{
	return lg_mix64(address) ^ lg_mix64(life);
}

/*
 * Number + 1; 0 = no memory. What a fork has from its parent is known at once: many a child is gone before it
 * could be read.
 */
static uint32_t code_at(struct lg_pythons *p, const struct process *q, uint64_t told)
{
	uint64_t address = told & LG_BPF_PYTHON_CODE, key = place(q->life, address);
	uint32_t i = lg_map_get(&p->by_address, key), old = 0;

	if (i)
		return i;
	if (q->parent)
		old = lg_map_get(&p->by_address, place(q->parent, address));
	if (lg_grow(&p->code, &p->cap_code, p->n_code + 1, sizeof *p->code) ||
	    lg_map_set(&p->by_address, key, (uint32_t)p->n_code + 1))
		return 0;
	p->code[p->n_code] = old ? p->code[old - 1] : (struct code){ .looked = INT64_MIN };
	p->code[p->n_code].life = q->life;
	p->code[p->n_code].address = address & LG_BPF_PYTHON_CODE;
	return (uint32_t)++p->n_code;
}

/* Who makes objects faster than they can be read waits for his own names. */
static bool may_look(struct lg_pythons *p, const struct process *q, int64_t now)
{
	struct dump *d = &p->dump[q->dump - 1];

	if (now - d->since > 1000000000) {
		d->since = now;
		d->looks = 0;
	}
	if (d->looks++ < LOOKS_MAX)
		return true;
	p->held_back++;
	return false;
}

static bool is_due(const struct code *c, int64_t now)
{
	return c->looked == INT64_MIN || now - c->looked > TRUST_NS << c->same;
}

/* Not yet, but so soon that a question of its own would cost more. */
static bool is_nearly_due(const struct code *c, int64_t now)
{
	return c->looked == INT64_MIN || now - c->looked > TRUST_NS << c->same >> 1;
}

/* Does another object lie there than the one that is known, if any? */
static bool is_new(const struct process *q, const uint8_t *head, struct code *c)
{
	uint64_t id = identity(q, head);

	if (c->object && id == c->head) {
		if (c->same < TRUST_DOUBLINGS)
			c->same++;
		return false;
	}
	c->same = 0;
	c->head = id;
	c->object = 0;
	/* What a module ran once is freed behind it, and anything may lie there by now. */
	return !q->code_type || word_at(head, OBJECT_TYPE) == q->code_type;
}

static void judge(struct lg_pythons *p, const struct process *q, struct lg_far_range *r, struct code **of,
		  size_t n)
{
	const uint8_t *head[COPIES];
	struct code *copy[COPIES];
	size_t n_copies = 0;

	for (size_t i = 0; i < n; i++) {
		/* Else it is gone: what was known of it stays true. */
		if (r[i].got == HEAD_BYTES && is_new(q, r[i].to, of[i])) {
			head[n_copies] = r[i].to;
			copy[n_copies++] = of[i];
		}
		if (n_copies == COPIES || (n_copies && i + 1 == n)) {
			copy_objects(p, q, copy, head, n_copies);
			n_copies = 0;
		}
	}
}

static void ask_too(struct code *c, struct code **of, size_t *n)
{
	c->asked = 1;
	of[(*n)++] = c;
}

/*
 * A question to the reader costs far more than what is asked: one for all of a stack that are due, and with
 * them go others that will be soon.
 */
static void look(struct lg_pythons *p, struct process *q, const uint32_t *code, size_t n_code, int64_t now)
{
	uint8_t head[LG_FAR_RANGES][HEAD_BYTES];
	struct lg_far_range r[LG_FAR_RANGES];
	struct code *of[LG_FAR_RANGES];
	unsigned withheld = lg_far_withheld(p->far);
	size_t n = 0, n_due;

	for (size_t i = 0; i < n_code; i++) {
		struct code *c = code[i] ? &p->code[code[i] - 1] : NULL;

		if (c && is_due(c, now) && !c->asked)
			ask_too(c, of, &n);
	}
	n_due = n;
	for (size_t i = 1; n_due && i < NEAR && i < p->n_code && n < LG_FAR_RANGES; i++) {
		struct code *c = &p->code[((size_t)(of[0] - p->code) + i) % p->n_code];

		if (c->life == q->life && is_nearly_due(c, now) && !c->asked)
			ask_too(c, of, &n);
	}
	for (size_t i = 0; i < n; i++) {
		r[i] = (struct lg_far_range){ .at = of[i]->address, .to = head[i], .n = HEAD_BYTES };
		of[i]->asked = 0;
	}
	if (!n || !may_look(p, q, now))
		return;
	p->dump[q->dump - 1].looks += (unsigned)n - 1;
	(void)read_ranges(p, q, r, n); /* false: nothing got */
	judge(p, q, r, of, n);
	for (size_t i = 0; i < n; i++)
		/* Of others only what was found is believed: the rest may be there when it is met next. */
		if (i < n_due || (r[i].got == HEAD_BYTES && of[i]->object))
			of[i]->looked = now;
	q->gone = lg_far_withheld(p->far) != withheld;
}

void lg_pythons_frames(struct lg_pythons *p, int32_t pid, const uint64_t *told, size_t n, int64_t now,
		       lg_frm *ret)
{
	struct process *q = process_of(p, pid);
	uint32_t code[LG_BPF_PYTHON_FRAMES] = { 0 };
	uint64_t hash;
	struct known *k;

	_Static_assert(LG_BPF_PYTHON_FRAMES <= LG_FAR_RANGES, "one question for a stack");
	memset(ret, 0, n * sizeof *ret);
	if (!q)
		return;
	hash = XXH3_64bits_withSeed(told, n * sizeof *told, lg_map_secret ^ q->life);
	k = &p->known[hash % KNOWN];
	if (k->hash == hash && now < k->until) {
		p->unread += k->unread;
		memcpy(ret, k->frame, n * sizeof *ret);
		return;
	}
	if (p->n_code + n > CODES_MAX) {
		lg_map_done(&p->by_address);
		p->n_code = 0;
	}
	for (size_t i = 0; i < n; i++)
		code[i] = told[i] & LG_BPF_PYTHON_CODE ? code_at(p, q, told[i]) : 0;
	look(p, q, code, n, now);
	*k = (struct known){ .hash = hash, .until = INT64_MAX };
	for (size_t i = 0; i < n; i++) {
		const struct code *c = code[i] ? &p->code[code[i] - 1] : NULL;

		if (!c)
			continue;
		k->until = LG_MIN(k->until, c->looked == INT64_MIN ? now : c->looked + (TRUST_NS << c->same));
		k->unread += !c->object;
		if (c->object)
			ret[i] = lg_intern_frame(p->b, &(struct lg_frame_row){
				.pc = (uint64_t)(c->object - 1) << 16 | told[i] >> LG_BPF_PYTHON_UNITS,
				.dso = p->dump[q->dump - 1].dso, .kind = LG_FRAME_PYTHON });
	}
	p->unread += k->unread;
	memcpy(k->frame, ret, n * sizeof *ret);
}

void lg_pythons_sample(struct lg_pythons *p, int32_t tid, int64_t ts, const uint64_t *told, size_t n,
		       uint8_t gil)
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
	s->gil = gil;
	s->n = n < LG_BPF_PYTHON_FRAMES ? n : LG_BPF_PYTHON_FRAMES;
	memcpy(s->told, told, s->n * sizeof *told);
}

size_t lg_pythons_take(struct lg_pythons *p, int32_t tid, int64_t ts, uint64_t *told, uint8_t *ret_gil)
{
	uint32_t i = lg_map_get(&p->by_tid, (uint32_t)tid);
	struct sampled *s = i ? &p->sampled[i - 1] : NULL;
	size_t n;

	*ret_gil = 0;
	if (!s || ts < s->ts || ts > s->ts + SAMPLE_NS)
		return 0;
	n = s->n;
	memcpy(told, s->told, n * sizeof *told);
	*ret_gil = n ? s->gil : 0;
	s->n = 0;
	return n;
}

/* -- threads that nobody saw go to sleep -- */

static bool read_asleep(struct lg_pythons *p, const struct process *q, uint64_t at, void *to, size_t n)
{
	return p->asleep_reads++ < ASLEEP_READS_MAX && read_all(p, q, at, to, n);
}

/* The list that the interpreter keeps. It may change meanwhile: what is read then is no code. */
static void list_threads(struct lg_pythons *p, const struct process *q)
{
	const struct lg_bpf_python_layout *l = &q->walk;
	uint64_t at, word[24]; /* of a thread's state */
	struct asleep a;

	p->asleep_of = q->life;
	p->n_asleep = 0;
	if (!read_asleep(p, q, q->runtime + q->of->interpreter, &at, sizeof at) || !at ||
	    !read_asleep(p, q, at + q->of->first_thread, &at, sizeof at))
		return;
	for (size_t n = 0; at && n < THREADS_MAX && read_asleep(p, q, at, word, sizeof word); n++) {
		a.frame = word[l->state_frame / 8];
		if (l->frame_behind != LG_BPF_PYTHON_DIRECT && a.frame &&
		    !read_asleep(p, q, a.frame + l->frame_behind, &a.frame, sizeof a.frame))
			a.frame = 0;
		if (a.frame &&
		    read_asleep(p, q, word[l->state_pthread / 8] + GLIBC_TID_AT, &a.tid, sizeof a.tid) &&
		    LG_APPEND(p->asleep, p->n_asleep, p->cap_asleep, a))
			return;
		at = word[THREAD_NEXT / 8];
	}
}

size_t lg_pythons_asleep(struct lg_pythons *p, int32_t pid, int32_t tid, uint64_t *told)
{
	const struct process *q = process_of(p, pid);
	__u64 word[16];
	uint64_t frame = 0;
	size_t n = 0;

	if (!q)
		return 0;
	if (p->asleep_of != q->life)
		list_threads(p, q);
	for (size_t i = 0; i < p->n_asleep && !frame; i++)
		frame = p->asleep[i].tid == tid ? p->asleep[i].frame : 0;
	while (frame && n < LG_BPF_PYTHON_FRAMES && read_asleep(p, q, frame, word, q->walk.frame_bytes)) {
		told[n++] = lg_bpf_python_told(&q->walk, word);
		frame = word[q->walk.frame_previous];
	}
	return n;
}

int lg_pythons_resolve(struct lg_pythons *p, struct lg_symbolizer *s)
{
	const struct {
		uint64_t n;
		enum lg_diag_id id;
		const char *what;
	} lost[] = {
		{ p->unread, LG_DIAG_UNRESOLVED, "Python frames whose code was gone when it was to be read" },
		{ p->over, LG_DIAG_NAMES_LOST, "Python functions are too many: the rest has no names" },
		{ p->held_back, LG_DIAG_NAMES_LOST,
		  "Python code objects came faster than they are read: some have no names, or older ones" },
		{ p->untold, LG_DIAG_NAMES_LOST, "Python processes are too many: the rest has native frames only" },
		{ lg_far_withheld(p->far), LG_DIAG_NAMES_LOST,
		  "Python processes gave no memory to read: their functions have no names" },
	};
	int rc = 0;

	for (size_t i = 0; i < sizeof lost / sizeof *lost; i++)
		if (lost[i].n)
			lg_add_diag_now(p->b, lost[i].id, lg_monotonic_ns(), lost[i].n, "%s", lost[i].what);
	for (size_t i = 0; i < p->n_dump && !rc; i++) {
		if (p->dump[i].fd < 0)
			continue;
		rc = lg_symbolizer_python(s, p->dump[i].dso, p->dump[i].fd, p->dump[i].owner);
		p->dump[i].fd = -1; /* the symbolizer's now */
	}
	return rc;
}
