/* SPDX-License-Identifier: Apache-2.0 */
#include "import/nccllog/nccl_line.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { PID_MAX = 4194304, HOST_BYTES = 65 };

struct line {
	char host[HOST_BYTES];
	int pid, tid, gpu;
	int warn;
	const char *msg;
};

/* What stands before " NCCL INFO ": "mew0:64904:64921 [1]", whatever is before that. */
static int parse(const char *text, struct line *l)
{
	const char *at = strstr(text, " NCCL INFO "), *from, *p;
	int used = 0;

	*l = (struct line){ .gpu = -1 };
	if (!at) {
		at = strstr(text, " NCCL WARN ");
		l->warn = at != NULL;
	}
	if (!at)
		return 0;
	l->msg = at + 11;
	/* "[1]" and "host:pid:tid" have no spaces inside */
	from = at;
	if (from > text && from[-1] == ']') {
		while (from > text && from[-1] != '[')
			from--;
		l->gpu = (int)strtol(from, NULL, 10);
		from -= from > text;
		while (from > text && from[-1] == ' ')
			from--;
	}
	for (p = from; p > text && !isspace((unsigned char)p[-1]);)
		p--;
	if (sscanf(p, "%64[^: ]:%d:%d%n", l->host, &l->pid, &l->tid, &used) != 3 || !used || l->pid <= 0 ||
	    l->pid > PID_MAX || l->tid <= 0 || l->tid > PID_MAX)
		return 0;
	return 1;
}

static struct lg_nccl_process *process_of(struct lg_nccl_log *l, const struct line *line)
{
	uint32_t at = lg_map_get(&l->by_pid, (uint64_t)line->pid);
	struct lg_process_row row;

	if (at)
		return &l->p[at - 1];
	if (lg_grow(&l->p, &l->cap, l->n + 1, sizeof *l->p))
		return NULL;
	l->p[l->n] = (struct lg_nccl_process){ .prc = lg_process_get(l->b, line->pid), .pid = line->pid,
					       .rank = -1 };
	row = lg_process_read(l->b, l->p[l->n].prc);
	row.host = lg_intern(l->b, line->host);
	lg_process_write(l->b, l->p[l->n].prc, &row);
	(void)lg_thread_get(l->b, line->pid, line->pid);
	l->n++;
	if (lg_map_set(&l->by_pid, (uint64_t)line->pid, (uint32_t)l->n))
		return NULL;
	return &l->p[l->n - 1];
}

/* A fact once for each process. */
static void fact(struct lg_nccl_log *l, const struct lg_nccl_process *p, const char *key, const char *value,
		 size_t n)
{
	lg_str k = lg_intern(l->b, key), v = lg_intern_n(l->b, value, n);
	uint64_t id = lg_mix64((uint64_t)k << 32 | v) ^ lg_mix64(p->prc);

	if (!v || lg_map_get(&l->seen, id | 1))
		return;
	(void)!lg_map_set(&l->seen, id | 1, 1);
	lg_add_meta(l->b, &(struct lg_meta_row){ .ts = INT64_MIN, .prc = p->prc, .key = k, .value = v });
}

static void mark(struct lg_nccl_log *l, const struct line *line, const char *name, int64_t value,
		 const char *text, int64_t ts)
{
	char cut[1024];

	snprintf(cut, sizeof cut, "%s", text);
	lg_add_mark(l->b, &(struct lg_mark_row){ .ts = ts, .value = value, .name = lg_intern(l->b, name),
						 .thr = line ? lg_thread_get(l->b, line->pid, line->pid) : 0,
						 .text = lg_intern(l->b, cut) });
}

/* "via P2P/direct pointer", "via SHM/direct/direct", "via NET/IB/0/GDRDMA" */
static void connection(struct lg_nccl_process *p, const char *via)
{
	if (!strncmp(via, "P2P", 3))
		p->via[LG_NCCL_P2P]++;
	else if (!strncmp(via, "SHM", 3))
		p->via[LG_NCCL_SHM]++;
	else if (!strncmp(via, "NET", 3))
		p->via[LG_NCCL_NET]++;
	else
		p->via[LG_NCCL_OTHER]++;
	if (!strncmp(via, "NET", 3))
		strstr(via, "GDRDMA") ? p->gdr_on++ : p->gdr_off++;
}

static void settings(struct lg_nccl_log *l, const struct lg_nccl_process *p, const char *m)
{
	const char *set = strstr(m, " set by environment to ");
	char key[80];

	if (!set || strncmp(m, "NCCL_", 5) || set - m > 60)
		return;
	snprintf(key, sizeof key, "env.%.*s", (int)(set - m), m);
	set += strlen(" set by environment to ");
	fact(l, p, key, set, strcspn(set, "\r\n"));
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

static void message(struct lg_nccl_log *l, struct lg_nccl_process *p, const struct line *line, int64_t ts)
{
	static const struct {
		const char *before, *key;
	} facts[] = {
		{ "NCCL version ", "dist.nccl" }, { "cudaDriverVersion ", "cuda.driver" },
		{ "Using network ", "nccl.net" }, { "=== System : maxBw ", "nccl.max_bw" },
	};
	const char *m = line->msg, *at;
	double s;

	p->lines++;
	if (line->warn) {
		p->warnings++;
		mark(l, line, "nccl.warn", line->gpu, m, ts);
		return;
	}
	for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
		if ((at = strstr(m, facts[i].before)) && (at == m || i == 3)) {
			at += strlen(facts[i].before);
			fact(l, p, facts[i].key, at, strcspn(at, " \r\n"));
			return;
		}
	if ((at = strstr(m, " via ")) && !strncmp(m, "Channel ", 8)) {
		connection(p, at + 5);
	} else if (strstr(m, " coll channels, ")) {
		fact(l, p, "nccl.channels", m, strlen(m));
	} else if (strstr(m, "GPU Direct RDMA Disabled")) {
		p->gdr_off++;
	} else if (strstr(m, "GPU Direct RDMA Enabled")) {
		p->gdr_on++;
	} else if (strstr(m, ": opCount ")) {
		p->collectives++;
	} else if (!strncmp(m, "Init timings", 12) && (at = strstr(m, " total "))) {
		s = strtod(at + 7, NULL);
		ranks(p, m);
		if (s >= 0 && s < 1e6)
			mark(l, line, "nccl.init", (int64_t)(s * 1e6), m, ts);
	} else if (strstr(m, " nranks ")) {
		ranks(p, m);
	} else {
		settings(l, p, m);
	}
}

/* nccl-tests: "  8388608   2097152   float   sum   -1   133.4   62.88   62.88   0 ..." */
static int result(struct lg_nccl_log *l, const char *text, int64_t ts)
{
	const char *avg = strstr(text, "# Avg bus bandwidth");
	long long size, count;
	char type[16], op[16], out[128];
	int root;
	double us, alg, bus;

	if (avg && (avg = strchr(avg, ':'))) {
		lg_meta_set(l->b, 0, "nccl.busbw_avg", avg + 1 + strspn(avg + 1, " "));
		l->results++;
		return 1;
	}
	if (sscanf(text, " %lld %lld %15s %15s %d %lf %lf %lf", &size, &count, type, op, &root, &us, &alg, &bus) !=
		    8 || size <= 0 || count <= 0 || !isalpha((unsigned char)*type))
		return 0;
	snprintf(out, sizeof out, "%s %s: %.2f us, algbw %.2f GB/s, busbw %.2f GB/s", type, op, us, alg, bus);
	mark(l, NULL, "nccl.bandwidth", size, out, ts);
	l->results++;
	return 1;
}

int lg_nccl_take(struct lg_nccl_log *l, const char *text, int64_t ts)
{
	struct lg_nccl_process *p;
	struct line line;

	if (!parse(text, &line))
		return result(l, text, ts);
	p = process_of(l, &line);
	if (!p)
		return 1;
	if (!l->host) {
		l->host = lg_intern(l->b, line.host);
		lg_meta_set(l->b, 0, "host.name", line.host);
	}
	l->lines++;
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
}

void lg_nccl_done(struct lg_nccl_log *l)
{
	lg_map_done(&l->by_pid);
	lg_map_done(&l->seen);
	lg_free(l->p);
}
