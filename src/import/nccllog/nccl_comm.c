/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_comm.c - how a communicator is set up, as one rank tells of it.
 *
 * The lines between "... - Init START" and "... - Init COMPLETE" (before NCCL 2.18 there is only the latter)
 * come from one thread each, and most of them do not say of which communicator they are. So what a thread
 * said is kept until the line that names the communicator.
 *
 * Mark nccl.comm (value: its number of ranks), text: key=value, separated by tabs: rank, dev (NVML's index,
 * or the bus id in hexadecimal where NCCL names devices by that), nodes, local (ranks on this host), id, net,
 * coll, p2p, nvls (channels), bw, total (of the topology, GB/s), nth (communicators of that size which this
 * process has already), again (how often the same rank was set up before on this device), life (of the
 * process: a container's next one has the same pid).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "import/nccllog/nccl_parts.h"

enum { PENDING_MAX = 1 << 18 };

struct lg_nccl_pending {
	uint32_t process; /* index */
	uint8_t named;    /* its rank is known */
	int32_t rank, nranks, nodes, local, coll, p2p, nvls; /* 0 or -1 = not told */
	char dev[20];
	lg_str net, id;
	double bw, total;
	uint64_t comm;
	int64_t ts;
};

static struct lg_nccl_pending blank(uint32_t process)
{
	return (struct lg_nccl_pending){ .process = process, .rank = -1, .coll = -1, .p2p = -1, .nvls = -1 };
}

static uint64_t mix(uint64_t a, uint64_t b)
{
	return lg_mix64(a ^ lg_mix64(b));
}

/* What the thread that wrote the line is setting up. */
static struct lg_nccl_pending *pending_of(struct lg_nccl_log *l, const struct lg_nccl_process *p, int tid)
{
	uint32_t index = (uint32_t)(p - l->p);
	uint64_t key = (uint64_t)index << 32 | (uint32_t)tid;
	uint32_t at = lg_map_get(&l->by_thread, key);

	if (at)
		return &l->pending[at - 1];
	if (l->n_pending == PENDING_MAX) {
		l->left_out++;
		return NULL;
	}
	if (lg_grow(&l->pending, &l->cap_pending, l->n_pending + 1, sizeof *l->pending) ||
	    lg_map_set(&l->by_thread, key, (uint32_t)l->n_pending + 1)) {
		lg_builder_fail(l->b);
		return NULL;
	}
	l->pending[l->n_pending++] = blank(index);
	return &l->pending[l->n_pending - 1];
}

static uint64_t size_key(const struct lg_nccl_process *p, int32_t nranks)
{
	return mix(mix(p->prc, p->life), (uint64_t)nranks);
}

static void told(struct lg_nccl_log *l, struct lg_nccl_pending *c, int64_t ts)
{
	struct lg_nccl_process *p = &l->p[c->process];
	const struct lg_trace *t = lg_builder_trace(l->b);
	uint64_t size = size_key(p, c->nranks);
	uint64_t who = mix(p->host, (uint64_t)c->nranks << 32 | (uint32_t)c->rank);
	uint32_t nth = lg_map_get(&l->alive, size), again;
	lg_str net = c->net ? c->net : p->net;
	char text[512];

	for (const char *d = c->dev; *d; d++)
		who = mix(who, (unsigned char)*d);
	who = mix(who, nth);
	again = *c->dev ? lg_map_get(&l->times, who) : 0;
	if (lg_map_set(&l->alive, size, nth + 1) || lg_map_set(&l->times, who, again + 1))
		lg_builder_fail(l->b);
	p->comms++;
	snprintf(text, sizeof text,
		 "rank=%d\tdev=%s\tnodes=%d\tlocal=%d\tid=%s\tnet=%s\tcoll=%d\tp2p=%d\tnvls=%d\tbw=%.1f\ttotal=%.1f\t"
		 "nth=%u\tagain=%u\tlife=%u", c->rank, c->dev, c->nodes, c->local, lg_string(t, c->id), lg_string(t, net),
		 c->coll, c->p2p, c->nvls, c->bw, c->total, nth, again, p->life);
	lg_nccl_mark(l, p->thr, "nccl.comm", c->nranks, text, ts);
}

/* "... comm 0x7f rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 1b000 commId 0x54fe - Init START" */
static void name(struct lg_nccl_log *l, struct lg_nccl_pending *c, const char *m, long rank, long nranks)
{
	const char *bus = strstr(m, " busId "), *id = strstr(m, " commId ");
	long dev;

	c->named = 1;
	c->rank = (int32_t)rank;
	c->nranks = (int32_t)nranks;
	if (lg_nccl_number(m, " nvmlDev ", &dev))
		snprintf(c->dev, sizeof c->dev, "%ld", dev);
	else if (bus)
		snprintf(c->dev, sizeof c->dev, "%.*s", (int)strspn(bus + 7, "0123456789abcdef"), bus + 7);
	else if (lg_nccl_number(m, " cudaDev ", &dev))
		snprintf(c->dev, sizeof c->dev, "%ld", dev);
	if (id)
		c->id = lg_intern_n(l->b, id + 8, strspn(id + 8, "0123456789abcdefx"));
}

/* "comm %p rank %d nranks %d ..." and what is said about it. */
static int named_line(struct lg_nccl_log *l, struct lg_nccl_process *p, const struct lg_nccl_line *line,
		      const char *at, int64_t ts)
{
	const char *m = line->msg;
	struct lg_nccl_pending *c;
	long rank, nranks, nodes, local;
	uint64_t size;
	uint32_t alive;
	lg_str net;

	if (!lg_nccl_number(at, " rank ", &rank) ||
	    (!lg_nccl_number(at, " nranks ", &nranks) && !lg_nccl_number(at, " nRanks ", &nranks)) || rank < 0 ||
	    nranks <= rank)
		return 0;
	if (strstr(at, "Destroy COMPLETE") || strstr(at, "Abort COMPLETE")) {
		size = size_key(p, (int32_t)nranks);
		alive = lg_map_get(&l->alive, size);
		if (alive > 1 && lg_map_set(&l->alive, size, alive - 1))
			lg_builder_fail(l->b);
		else if (alive == 1)
			lg_map_remove(&l->alive, size);
		return 1;
	}
	if (lg_nccl_number(at, " nNodes ", &nodes) && lg_nccl_number(at, " localRanks ", &local)) {
		c = pending_of(l, p, line->tid);
		if (c && nodes > 0 && local > 0) {
			c->nodes = (int32_t)nodes;
			c->local = (int32_t)local;
			p->nodes = c->nodes > p->nodes ? c->nodes : p->nodes;
		}
		return 1;
	}
	if (!strstr(at, "Init START") && !strstr(at, "Init COMPLETE"))
		return 0;
	c = pending_of(l, p, line->tid);
	if (!c)
		return 1;
	if (strstr(at, "Init START")) {
		/* The one before did not end: what is known of it is told at the end of the log. */
		if (c->named && c->coll >= 0)
			told(l, c, c->ts);
		/* The network is chosen before that line. */
		net = c->named ? 0 : c->net;
		*c = blank(c->process);
		c->net = net;
	}
	name(l, c, m, rank, nranks);
	c->ts = ts;
	if (strstr(at, "Init COMPLETE")) {
		told(l, c, ts);
		*c = blank(c->process);
	}
	return 1;
}

/* "24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer" */
static int channels(struct lg_nccl_log *l, struct lg_nccl_process *p, const struct lg_nccl_line *line,
		    const char *at)
{
	struct lg_nccl_pending *c;
	const char *from;
	long coll = strtol(line->msg, NULL, 10), v;
	static const char *const words[] = { " p2p channels,", " nvls channels," };

	if (coll <= 0 || coll > INT32_MAX || !strstr(at, " p2p channels"))
		return 0;
	lg_nccl_fact(l, p, "nccl.channels", line->msg, strlen(line->msg));
	c = pending_of(l, p, line->tid);
	if (!c)
		return 1;
	c->coll = (int32_t)coll;
	for (int i = 0; i < 2; i++) {
		from = strstr(at, words[i]);
		if (!from)
			continue;
		while (from > at && from[-1] >= '0' && from[-1] <= '9')
			from--;
		v = strtol(from, NULL, 10);
		if (v >= 0 && v < INT32_MAX)
			*(i ? &c->nvls : &c->p2p) = (int32_t)v;
	}
	return 1;
}

/* "=== System : maxBw 240.0 totalBw 240.0 ===", before 2.12 maxWidth and totalWidth */
static int system_line(struct lg_nccl_log *l, struct lg_nccl_process *p, const struct lg_nccl_line *line)
{
	struct lg_nccl_pending *c;
	double bw, total;
	const char *at;

	if (strncmp(line->msg, "=== System : max", 16) || !strstr(line->msg + 16, " ==="))
		return 0;
	at = line->msg + 16;
	bw = strtod(at + strcspn(at, " "), NULL);
	if (!(bw > 0 && bw < 1e6))
		return 1;
	lg_nccl_factf(l, p, "nccl.max_bw", "%.1f", bw);
	at = strstr(line->msg, " total");
	total = at ? strtod(at + 6 + strcspn(at + 6, " "), NULL) : 0;
	c = pending_of(l, p, line->tid);
	if (c) {
		c->bw = bw;
		c->total = total > 0 && total < 1e6 ? total : 0;
	}
	return 1;
}

int lg_nccl_comm(struct lg_nccl_log *l, struct lg_nccl_process *p, const struct lg_nccl_line *line,
		 int64_t ts)
{
	const char *m = line->msg, *at;
	struct lg_nccl_pending *c;
	size_t n;

	if (!strncmp(m, "Using network ", 14)) {
		n = strcspn(m + 14, "\r\n");
		while (n && m[14 + n - 1] == ' ')
			n--;
		n = n < 64 ? n : 64;
		lg_nccl_fact(l, p, "nccl.net", m + 14, n);
		p->net = lg_intern_n(l->b, m + 14, n);
		c = pending_of(l, p, line->tid);
		if (c)
			c->net = p->net;
		return 1;
	}
	if ((at = strstr(m, " coll channels, ")))
		return channels(l, p, line, at);
	if (*m == '=')
		return system_line(l, p, line);
	at = strstr(m, "comm 0x");
	return at && named_line(l, p, line, at, ts);
}

void lg_nccl_comm_finish(struct lg_nccl_log *l)
{
	for (size_t i = 0; i < l->n_pending; i++)
		if (l->pending[i].named && l->pending[i].coll >= 0)
			told(l, &l->pending[i], l->pending[i].ts);
}
