/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "import/perfdata/perf_import.h"
#include "import/perfdata/perf_kcore.h"
#include "import/perfdata/perfdata.h"
#include "symbols/open_foreign.h"

enum {
	EVERY = 256,          /* records between two places of which the least time is known */
	NUMBER_MAX = 1 << 20, /* more threads than any machine has CPUs */
	/* Handing out looks at all that waits: not for less than this, and not before as much came again. */
	WORTH_BYTES = 1 << 20
};

static int nomem(struct lg_error *err)
{
	return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

/* -- which files -- */

bool lg_perfdata_is_folder(const char *folder, char *ret, size_t size)
{
	size_t n = strlen(folder);
	int k = snprintf(ret, size, "%s%sdata", folder, n && folder[n - 1] == '/' ? "" : "/");
	uint8_t head[PD_FILE_HEADER];
	struct stat st;
	bool is = false;
	int fd;

	if (k < 0 || (size_t)k >= size)
		return false;
	fd = lg_foreign_open_path(ret, 0);
	if (fd < 0)
		return false;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && pread(fd, head, sizeof head, 0) == sizeof head)
		is = lg_pd_is_folder(head, sizeof head) ||
		     (lg_pd_sniff(head, sizeof head) && lg_pd_kcore_is_beside(ret));
	close(fd);
	return is;
}

int lg_pd_members_add(struct lg_pd_members *m, const struct lg_pd_member *one)
{
	if (lg_grow(&m->at, &m->cap, m->n + 1, sizeof *m->at))
		return LG_E_NOMEM;
	m->at[m->n++] = *one;
	return 0;
}

void lg_pd_members_done(struct lg_pd_members *m)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->at[i].fd >= 0)
			close(m->at[i].fd);
	lg_free(m->at);
	lg_free(m->cpus);
	lg_map_done(&m->seen);
	*m = (struct lg_pd_members){ 0 };
}

/* "data.7" -> 7; -1 = perf writes no such name. */
static int64_t number_of(const char *name)
{
	char again[24];
	long long n;

	if (strncmp(name, "data.", 5) || name[5] < '0' || name[5] > '9' || strlen(name) > 12)
		return -1;
	n = strtoll(name + 5, NULL, 10);
	snprintf(again, sizeof again, "data.%lld", n);
	return n < NUMBER_MAX && !strcmp(again, name) ? n : -1;
}

static struct lg_pd_member open_member(int folder, const char *name, uint32_t number)
{
	struct lg_pd_member one = { .number = number };
	struct stat st;

	one.fd = lg_foreign_open_at(folder, name);
	one.error = one.fd < 0 ? errno : 0;
	if (one.fd >= 0 && !fstat(one.fd, &st)) {
		one.size = (uint64_t)st.st_size;
		one.error = S_ISREG(st.st_mode) ? 0 : EINVAL;
	}
	if (one.fd >= 0 && (one.error || !one.size)) {
		close(one.fd);
		one.fd = -1;
	}
	return one;
}

static int by_number(const void *a, const void *b)
{
	const struct lg_pd_member *x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

/* Count the gaps, forget the empty ones. */
static void settle_members(struct lg_pd_members *m)
{
	size_t n = 0;
	uint32_t next = 0;

	if (m->n)
		qsort(m->at, m->n, sizeof *m->at, by_number);
	for (size_t i = 0; i < m->n; i++) {
		if (m->at[i].number > next && !m->missing)
			m->first_missing = next;
		m->missing += m->at[i].number - next;
		next = m->at[i].number + 1;
		if (m->at[i].fd >= 0 || m->at[i].error)
			m->at[n++] = m->at[i];
	}
	m->n = n;
	m->end = next;
}

/*
 * u64 nr, then nr times u64 id, index, CPU, thread. Events of perf's own (dummy) may be on more CPUs than it
 * was asked for, for which it has no thread.
 */
int lg_pd_members_index(struct lg_pd *p, const struct lg_pd_record *r)
{
	enum { DUMMY = 9, ENTRY = 32 };
	struct pd_cursor c = { .p = r->p + PD_RECORD_HEADER, .end = r->p + r->size, .swap = p->h.swap };
	struct lg_pd_members *m = &p->members;
	const struct lg_pd_attrs *attrs = &p->h.attrs;

	for (uint64_t n = pd_take_u64(&c); n && pd_left(&c) >= ENTRY; n--) {
		const uint8_t *e = pd_take(&c, ENTRY);
		uint32_t i = lg_map_get(&attrs->by_id, pd_u64(e, c.swap));
		uint64_t cpu = pd_u64(e + 16, c.swap), key = (uint64_t)i << 32 | cpu;

		if (!i || cpu >= NUMBER_MAX || lg_map_get(&m->seen, key) ||
		    (attrs->attr[i - 1].type == PD_TYPE_SOFTWARE && attrs->attr[i - 1].config == DUMMY))
			continue;
		while (m->n_cpus < i) {
			if (lg_grow(&m->cpus, &m->cpus_cap, m->n_cpus + 1, sizeof *m->cpus))
				return LG_E_NOMEM;
			m->cpus[m->n_cpus++] = 0;
		}
		if (lg_map_set(&m->seen, key, 1))
			return LG_E_NOMEM;
		if (++m->cpus[i - 1] > m->wanted)
			m->wanted = m->cpus[i - 1];
	}
	return 0;
}

void lg_pd_members_check(struct lg_pd *p)
{
	struct lg_pd_members *m = &p->members;

	if (!p->h.thread_per_cpu || !m->end || m->wanted <= m->end)
		return;
	if (!m->missing)
		m->first_missing = m->end;
	m->missing += m->wanted - m->end;
}

int lg_pd_members_open(struct lg_pd_members *m, const char *path, struct lg_error *err)
{
	const char *base = strrchr(path, '/');
	LG_AUTOFREE char *folder = lg_strdup(base ? path : ".");
	struct dirent *e;
	DIR *d;
	int rc = 0;

	if (!folder)
		return nomem(err);
	if (strcmp(base ? base + 1 : path, "data"))
		return 0;
	if (base)
		folder[base + 1 - path] = '\0';
	d = opendir(folder);
	if (!d)
		return lg_fail_errno(err, errno, "cannot open %s", folder);
	while (!rc && (e = readdir(d))) {
		int64_t number = number_of(e->d_name);
		struct lg_pd_member one;

		if (number < 0)
			continue;
		one = open_member(dirfd(d), e->d_name, (uint32_t)number);
		rc = lg_pd_members_add(m, &one);
		if (rc && one.fd >= 0)
			close(one.fd);
	}
	closedir(d);
	settle_members(m);
	return rc ? nomem(err) : 0;
}

/* -- what still comes -- */

struct scan {
	struct lg_pd_file *to;
	struct lg_pd_attrs attrs; /* borrowed, with a memory of its own */
	uint64_t n;
};

static int look(void *self, const struct lg_pd_record *r)
{
	struct scan *s = self;
	uint64_t ts = r->type <= PD_KERNEL_MAX ? lg_pd_time_of(&s->attrs, r) : LG_PD_NO_TIME;
	struct lg_pd_file *f = s->to;

	if (!lg_pd_is_timed(ts))
		return 0;
	if (s->n++ % EVERY == 0) {
		if (lg_grow(&f->least, &f->least_cap, f->n_least + 1, sizeof *f->least))
			return LG_E_NOMEM;
		f->least[f->n_least++] = ts;
	} else if (ts < f->least[f->n_least - 1]) {
		f->least[f->n_least - 1] = ts;
	}
	return 0;
}

/* fd is left where it was; start, limit: of the records. */
static int look_through(struct lg_pd *p, struct lg_pd_file *f, uint64_t start, uint64_t limit)
{
	struct scan s = { .to = f, .attrs = p->h.attrs };
	off_t was = lseek(f->in.fd, 0, SEEK_CUR);
	struct lg_pd_file own = { 0 };
	struct lg_pd_record r;
	int rc;

	if (was < 0 || lseek(f->in.fd, (off_t)start, SEEK_SET) < 0)
		return 0; /* it is read in its turn, and waits within the window */
	lg_pd_file_init(&own, &p->pool, f->in.fd, NULL, 0, p->h.swap);
	own.in.pos = start;
	own.in.limit = limit;
	while ((rc = lg_pd_file_next(&own, &r)) > 0) {
		rc = lg_pd_is_compressed(&r) ? lg_pd_file_unpack(&own, &r, look, &s) : look(&s, &r);
		if (rc)
			break;
		(void)lg_pd_stream_skip(&own.in, lg_pd_payload(&r, p->h.swap));
	}
	lg_pd_file_done(&own);
	for (size_t i = f->n_least; i-- > 1;)
		if (f->least[i] < f->least[i - 1])
			f->least[i - 1] = f->least[i];
	(void)lseek(f->in.fd, was, SEEK_SET);
	return rc;
}

/* No record of f that was not read yet is older. */
static uint64_t comes(const struct lg_pd_file *f)
{
	uint64_t i = f->timed / EVERY;

	return f->done || i >= f->n_least ? UINT64_MAX : f->least[i];
}

static struct lg_pd_file *next_file(struct lg_pd *p)
{
	struct lg_pd_file *best = NULL;

	for (size_t i = 0; i < p->n_files; i++) {
		struct lg_pd_file *f = &p->file[i];

		if (!f->done && (!best || comes(f) < comes(best)))
			best = f;
	}
	return best;
}

/* -- the walk -- */

/* Until something else may be known of what comes. */
static int read_some(struct lg_pd *p, struct lg_error *err)
{
	uint64_t place = p->f->timed / EVERY;

	for (int i = 0; i < EVERY && p->f->timed / EVERY == place; i++) {
		int rc = lg_pd_step(p, err);

		if (rc < 0)
			return rc;
		if (!rc) {
			p->f->done = true;
			break;
		}
	}
	return 0;
}

/* What was there before has no time and has to be known first. */
static int read_beginning(struct lg_pd *p, struct lg_error *err)
{
	int rc = 0;

	p->f = &p->file[0];
	while (!rc && !p->f->done && !p->f->timed)
		rc = read_some(p, err);
	return rc;
}

static int hand_out(struct lg_pd *p, const struct lg_pd_file *next, size_t *at_bytes)
{
	int rc;

	if (p->order.bytes < *at_bytes)
		return 0;
	rc = lg_pd_order_until(&p->order, next ? comes(next) : UINT64_MAX);
	*at_bytes = 2 * p->order.bytes > WORTH_BYTES ? 2 * p->order.bytes : WORTH_BYTES;
	return rc;
}

int lg_pd_folder_walk(struct lg_pd *p, struct lg_error *err)
{
	size_t at_bytes = WORTH_BYTES;
	int rc = 0;

	for (size_t i = 0; i < p->n_files && !rc; i++) {
		rc = look_through(p, &p->file[i], i ? 0 : p->h.data_at, p->file[i].in.limit);
		if (rc)
			return nomem(err);
	}
	rc = read_beginning(p, err);
	while (!rc && (p->f = next_file(p))) {
		rc = read_some(p, err);
		if (!rc && hand_out(p, next_file(p), &at_bytes))
			rc = nomem(err);
	}
	p->f = &p->file[0];
	return rc;
}
