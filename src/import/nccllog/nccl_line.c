/* SPDX-License-Identifier: Apache-2.0 */
#include "import/nccllog/nccl_line.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "import/nccllog/nccl_parts.h"

enum { PID_MAX = 4194304, SAME_PID_MAX = 64, NOTES_MAX = 24 };

/* Where " NCCL INFO " or " NCCL WARN " begins; NULL = nowhere. */
static const char *header_in(const char *text)
{
	const char *at = text;

	while ((at = strstr(at, " NCCL "))) {
		if (!strncmp(at + 6, "INFO ", 5) || !strncmp(at + 6, "WARN ", 5))
			return at;
		at += 5;
	}
	return NULL;
}

static int is_name(char c)
{
	return isalnum((unsigned char)c) || (c && strchr("._-<>", c));
}

/* The number that ends before p and follows a colon; p moves to the colon. 0 = none. */
static int number_before(const char *text, const char **p, int max)
{
	const char *q = *p;
	int v = 0, digit = 1;

	while (q > text && isdigit((unsigned char)q[-1]) && *p - q < 8) {
		v += (*--q - '0') * digit;
		digit *= 10;
	}
	if (q == *p || q == text || q[-1] != ':' || v > max)
		return 0;
	*p = q - 1;
	return v;
}

/*
 * Several processes and the program's own output write to one stream: the text before a name may be the
 * beginning of a line that this one broke off ("  8388608 float sum  -1mew0:4711:4720 [0] NCCL INFO ..."). Not
 * so where nothing is before it, or what launchers put there ("[rank0]: ", "3: ", "(worker) ").
 */
static int is_glued(const char *text, const char *name)
{
	while (name > text && isspace((unsigned char)name[-1]))
		name--;
	return name > text && !strchr(":])>", name[-1]);
}

/* What stands before " NCCL INFO ": "mew0:64904:64921 [1]", whatever is before that; before " NCCL WARN "
 * the place in NCCL's source follows it. */
static int parse(const char *text, struct lg_nccl_line *l)
{
	const char *at = header_in(text), *p;
	size_t n;

	*l = (struct lg_nccl_line){ .gpu = -1 };
	if (!at)
		return 0;
	l->warn = at[6] == 'W';
	l->msg = at + 11;
	p = at;
	if (l->warn && p > text && p[-1] != ']') {
		const char *place = p;

		while (place > text && place[-1] != ' ')
			place--;
		while (place > text && place[-1] == ' ')
			place--;
		if (place > text && place[-1] == ']')
			p = place;
	}
	if (p > text && p[-1] == ']') {
		while (p > text && p[-1] != '[')
			p--;
		l->gpu = (int)strtol(p, NULL, 10);
		p -= p > text;
		while (p > text && p[-1] == ' ')
			p--;
	}
	l->tid = number_before(text, &p, PID_MAX);
	l->pid = l->tid ? number_before(text, &p, PID_MAX) : 0;
	if (!l->pid)
		return 0;
	for (n = 0; p - n > text && is_name(p[-1 - (ptrdiff_t)n]) && n < LG_NCCL_HOST_BYTES;)
		n++;
	if (!n || n >= LG_NCCL_HOST_BYTES)
		return 0;
	memcpy(l->host, p - n, n);
	l->name = p - n;
	l->glued = is_glued(text, l->name);
	return 1;
}

/* The process of that pid whose host's name this one ends with: what stands before it is of another line.
 * NULL = none. */
static struct lg_nccl_process *known_end(struct lg_nccl_log *l, const char *host, int32_t pid)
{
	uint32_t at = lg_map_get(&l->by_pid, (uint64_t)pid);
	size_t n = strlen(host);

	for (int i = 0; at && i < SAME_PID_MAX; i++, at = l->p[at - 1].same_pid) {
		const char *old = lg_string(lg_builder_trace(l->b), l->p[at - 1].host);
		size_t k = strlen(old);

		if (k <= n && !strcmp(host + n - k, old))
			return &l->p[at - 1];
	}
	return NULL;
}

struct lg_nccl_process *lg_nccl_process_of(struct lg_nccl_log *l, const char *host, int32_t pid)
{
	lg_str name = lg_intern(l->b, host);
	uint64_t key = (uint64_t)name << 32 | (uint32_t)pid;
	uint32_t at = lg_map_get(&l->by_name, key), other;
	struct lg_nccl_process *p;
	struct lg_process_row row;

	if (at)
		return &l->p[at - 1];
	other = lg_map_get(&l->by_pid, (uint64_t)pid);
	if (lg_grow(&l->p, &l->cap, l->n + 1, sizeof *l->p) ||
	    lg_map_set(&l->by_name, key, (uint32_t)l->n + 1) ||
	    lg_map_set(&l->by_pid, (uint64_t)pid, (uint32_t)l->n + 1)) {
		lg_builder_fail(l->b);
		return NULL;
	}
	p = &l->p[l->n++];
	*p = (struct lg_nccl_process){ .pid = pid, .rank = -1, .host = name, .same_pid = other };
	if (other) {
		/* A life of its own: the builder knows one of a pid at a time. */
		row = (struct lg_process_row){ .start = INT64_MIN, .end = INT64_MAX, .pid = pid, .rank = -1,
					       .local_rank = -1, .host = name };
		p->prc = lg_process_add(l->b, &row);
		p->thr = lg_thread_add(l->b, &(struct lg_thread_row){ .start = INT64_MIN, .end = INT64_MAX,
								      .tid = pid, .prc = p->prc,
								      .flags = LG_THREAD_MAIN });
		return p;
	}
	p->prc = lg_process_get(l->b, pid);
	row = lg_process_read(l->b, p->prc);
	row.host = name;
	lg_process_write(l->b, p->prc, &row);
	p->thr = lg_thread_get(l->b, pid, pid);
	return p;
}

void lg_nccl_fact(struct lg_nccl_log *l, const struct lg_nccl_process *p, const char *key, const char *value,
		  size_t n)
{
	lg_str k = lg_intern(l->b, key), v = lg_intern_n(l->b, value, n);
	uint64_t id = lg_mix64((uint64_t)k << 32 | v) ^ lg_mix64(p->prc);

	if (!v || lg_map_get(&l->seen, id | 1))
		return;
	if (lg_map_set(&l->seen, id | 1, 1))
		lg_builder_fail(l->b);
	lg_add_meta(l->b, &(struct lg_meta_row){ .ts = INT64_MIN, .prc = p->prc, .key = k, .value = v });
}

void lg_nccl_factf(struct lg_nccl_log *l, const struct lg_nccl_process *p, const char *key, const char *fmt,
		   ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	lg_nccl_fact(l, p, key, text, strlen(text));
}

void lg_nccl_mark(struct lg_nccl_log *l, lg_thr thr, const char *name, int64_t value, const char *text,
		  int64_t ts)
{
	char cut[1024];

	snprintf(cut, sizeof cut, "%s", text);
	lg_add_mark(l->b, &(struct lg_mark_row){ .ts = ts, .value = value, .name = lg_intern(l->b, name),
						 .thr = thr, .text = lg_intern(l->b, cut) });
}

int lg_nccl_number(const char *m, const char *word, long *ret)
{
	const char *at = strstr(m, word);
	char *end;
	long v;

	if (!at)
		return 0;
	at += strlen(word);
	v = strtol(at, &end, 10);
	if (end == at || v < INT32_MIN || v > INT32_MAX)
		return 0;
	*ret = v;
	return 1;
}

/* Numbers end with a full stop ("... by environment to 1."), texts (names, lists) do not. */
static void settings(struct lg_nccl_log *l, const struct lg_nccl_process *p, const char *m)
{
	const char *set = strstr(m, " set by environment to ");
	char key[80];
	size_t n;

	if (!set || strncmp(m, "NCCL_", 5) || set - m > 60)
		return;
	snprintf(key, sizeof key, "env.%.*s", (int)(set - m), m);
	set += strlen(" set by environment to ");
	n = strcspn(set, "\r\n");
	if (n > 1 && set[n - 1] == '.' && strspn(set, "-0123456789") == n - 1)
		n--;
	lg_nccl_fact(l, p, key, set, n);
}

/* What NCCL says about a way that it cannot take. */
static void notes(struct lg_nccl_log *l, struct lg_nccl_process *p, const char *m)
{
	static const char *const words[] = {
		"NET/IB : No device found", "P2P is disabled between connected GPUs", "Could not enable P2P between",
		"Legacy IPC not supported", "Failed to bind NVLink SHARP", "(no module", "No plugin found",
		"peer query failed", "ACS", "IOMMU",
	};

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strstr(m, words[i])) {
			if (p->notes < NOTES_MAX) {
				p->notes++;
				lg_nccl_factf(l, p, "nccl.note", "%.200s", m);
			}
			return;
		}
}

/* NCCL's own watch over its processes (2.24 and later) reports those that do not answer. */
static int is_ras_report(const char *m)
{
	return !strncmp(m, "RAS ", 4) && (strstr(m, " as DEAD") || strstr(m, " stuck timeout ") ||
					  strstr(m, " timeout warning ") || strstr(m, " retry timeout "));
}

static void ranks(struct lg_nccl_process *p, const char *m)
{
	const char *at = strstr(m, " rank ");
	int rank, world;

	if (!at || sscanf(at, " rank %d nranks %d", &rank, &world) != 2 || rank < 0 || world <= rank)
		return;
	/* Other communicators (sub-groups) number their ranks anew: the largest one is the world. */
	if (world < p->world)
		return;
	if (p->rank >= 0 && world == p->world && p->rank != rank)
		p->rank = -2;
	else if (p->rank != -2 || world > p->world)
		p->rank = rank;
	p->world = world;
}

static void message(struct lg_nccl_log *l, struct lg_nccl_process *p, const struct lg_nccl_line *line,
		    int64_t ts)
{
	static const struct {
		const char *before, *key;
	} facts[] = {
		{ "NCCL version ", "dist.nccl" }, { "cudaDriverVersion ", "cuda.driver" },
	};
	const char *m = line->msg, *at;
	double s;

	p->lines++;
	if (line->warn) {
		p->warnings++;
		lg_nccl_mark(l, p->thr, "nccl.warn", line->gpu, m, ts);
		lg_nccl_link_event(l, p, m, ts);
		notes(l, p, m);
		return;
	}
	for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
		if (!strncmp(m, facts[i].before, strlen(facts[i].before))) {
			at = m + strlen(facts[i].before);
			/* Told once in a process's life: a container's next one has the same pid. */
			if (i == 1 && p->comms) {
				p->life++;
				p->comms = 0;
			}
			lg_nccl_fact(l, p, facts[i].key, at, strcspn(at, " \r\n"));
			return;
		}
	if (!strncmp(m, "Init timings", 12) && (at = strstr(m, " total "))) {
		s = strtod(at + 7, NULL);
		ranks(p, m);
		if (s >= 0 && s < 1e6)
			lg_nccl_mark(l, p->thr, "nccl.init", (int64_t)(s * 1e6), m, ts);
	} else if (strstr(m, ": opCount ")) {
		p->collectives++;
	} else if (is_ras_report(m)) {
		lg_nccl_mark(l, p->thr, "nccl.ras", line->gpu, m, ts);
	} else if (!lg_nccl_link(l, p, m)) {
		if (strstr(m, " nranks "))
			ranks(p, m);
		if (!lg_nccl_comm(l, p, line, ts)) {
			settings(l, p, m);
			notes(l, p, m);
		}
	}
}

int lg_nccl_take(struct lg_nccl_log *l, const char *text, int64_t ts)
{
	struct lg_nccl_process *p;
	struct lg_nccl_line line;
	int torn = 0;

	if (!parse(text, &line))
		return lg_nccl_test(l, text, ts);
	l->lines++;
	/* Another line begins inside this one: only the last one is whole. */
	while (header_in(line.msg)) {
		text = line.msg;
		torn = 1;
		if (!parse(text, &line))
			break;
	}
	l->torn += (uint64_t)torn;
	p = line.glued || torn ? known_end(l, line.host, line.pid) : NULL;
	if (torn && !p)
		return 1;
	if (p && !torn)
		lg_nccl_test_piece(l, text, (size_t)(line.name - text) + strlen(line.host) -
						    strlen(lg_string(lg_builder_trace(l->b), p->host)));
	if (!p)
		p = lg_nccl_process_of(l, line.host, line.pid);
	if (!p)
		return 1;
	if (!l->host) {
		l->host = p->host;
		lg_meta_set(l->b, 0, "host.name", line.host);
	}
	message(l, p, &line, ts);
	return 1;
}

static void count(struct lg_nccl_log *l, const struct lg_nccl_process *p, const char *key, uint64_t n)
{
	if (n)
		lg_meta_setf(l->b, p->prc, key, "%llu", (unsigned long long)n);
}

void lg_nccl_finish(struct lg_nccl_log *l)
{
	static const char *const via[] = { "nccl.via.p2p", "nccl.via.shm", "nccl.via.net", "nccl.via.other" };

	lg_nccl_comm_finish(l);
	lg_nccl_link_finish(l);
	for (size_t i = 0; i < l->n; i++) {
		struct lg_nccl_process *p = &l->p[i];
		struct lg_process_row row = lg_process_read(l->b, p->prc);

		for (int k = 0; k < LG_NCCL_TRANSPORTS; k++)
			count(l, p, via[k], p->via[k]);
		count(l, p, "nccl.collectives", p->collectives);
		count(l, p, "nccl.warnings", p->warnings);
		if (p->gdr_on || p->gdr_off)
			lg_meta_set(l->b, p->prc, "nccl.gdr", !p->gdr_off ? "on" : p->gdr_on ? "mixed" : "off");
		if (p->world && row.rank < 0) {
			row.world = p->world;
			row.rank = p->rank >= 0 ? p->rank : row.rank;
			row.role = LG_ROLE_RANK;
			lg_process_write(l->b, p->prc, &row);
		}
	}
	if (l->torn)
		lg_add_diag_now(l->b, LG_DIAG_NOT_UNDERSTOOD, INT64_MIN, l->torn,
				"lines of NCCL were broken off by others and left out");
	if (l->left_out)
		lg_add_diag_now(l->b, LG_DIAG_PARTIAL, INT64_MIN, l->left_out,
				"connections or communicators of NCCL beyond what is kept");
}

void lg_nccl_done(struct lg_nccl_log *l)
{
	lg_map_done(&l->by_name);
	lg_map_done(&l->by_pid);
	lg_map_done(&l->seen);
	lg_map_done(&l->by_thread);
	lg_map_done(&l->alive);
	lg_map_done(&l->times);
	lg_map_done(&l->by_link);
	lg_free(l->pending);
	lg_free(l->link);
	lg_free(l->p);
}
