/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_link.c - by what ranks are connected, the adapters that there are, and what happens to them.
 *
 * Facts of the process: nccl.link (from, to: devices; by: direct, indirect, shm, net; n), of devices of one
 * host; nccl.nic (dev, way, net, gdr, n), connections over the network; nccl.near (from, to, rank, peer,
 * way), those of them whose ranks are near each other, so that they may be of one host; nccl.hca (name),
 * nccl.hcas (how many), nccl.provider (of libfabric), nccl.hca_speed (name, speed in Mbit/s), nccl.hca_gdr
 * (name, gdr, why), nccl.nvls (on, off). Values are key=value, separated by tabs. Mark nccl.link_event: hca,
 * what, fatal.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "import/nccllog/nccl_parts.h"

/* NEAR: ranks of a host follow each other as a rule, and no host has more. */
enum { LINKS_MAX = 1 << 20, LABEL_BYTES = 20, NEAR_RANKS = 16 };
enum kind { NO_KIND, DIRECT, INDIRECT, SHARED, LOCAL_NET, NETWORK, NEAR };

struct lg_nccl_link {
	uint32_t process; /* index */
	uint8_t kind, gdr, send;
	lg_str from, to;  /* NETWORK: device, network */
	int32_t rank, peer; /* NEAR */
	uint64_t n;
};

static void add(struct lg_nccl_log *l, const struct lg_nccl_process *p, const struct lg_nccl_link *x)
{
	uint32_t index = (uint32_t)(p - l->p), at;
	uint64_t key = lg_mix64((uint64_t)x->from << 32 | x->to) ^
		       lg_mix64((uint64_t)(uint32_t)x->rank << 32 | (uint32_t)x->peer) ^
		       lg_mix64((uint64_t)index << 16 | (unsigned)x->kind << 4 | (unsigned)x->gdr << 1 |
				x->send);

	at = lg_map_get(&l->by_link, key);
	if (at) {
		l->link[at - 1].n++;
		return;
	}
	if (l->n_link == LINKS_MAX) {
		l->left_out++;
		return;
	}
	if (lg_grow(&l->link, &l->cap_link, l->n_link + 1, sizeof *l->link) ||
	    lg_map_set(&l->by_link, key, (uint32_t)l->n_link + 1)) {
		lg_builder_fail(l->b);
		return;
	}
	l->link[l->n_link] = *x;
	l->link[l->n_link].process = index;
	l->link[l->n_link++].n = 1;
}

/* "3[1b000]", "3[3]" or, before 2.5, "3": the device as it is named there. NULL = none of these. */
static const char *rank_and_device(const char *p, char dev[LABEL_BYTES], int32_t *ret_rank)
{
	size_t n = strspn(p, "0123456789");

	if (!n || n > 9)
		return NULL;
	*ret_rank = (int32_t)strtol(p, NULL, 10);
	p += n;
	*dev = 0;
	if (*p != '[')
		return p;
	n = strspn(++p, "0123456789abcdef");
	if (!n || n >= LABEL_BYTES || p[n] != ']')
		return NULL;
	memcpy(dev, p, n);
	dev[n] = 0;
	return p + n + 1;
}

static int begins(const char *p, const char *word)
{
	return !strncmp(p, word, strlen(word));
}

/* Only whole names: a line that broke off inside one is no other kind. */
static enum kind kind_of(const char *via)
{
	static const char *const direct[] = { "direct pointer", "IPC", "CUMEM", "MNNVL", "common device" };

	if (begins(via, "P2P/indirect/"))
		return INDIRECT;
	for (size_t i = 0; begins(via, "P2P/") && i < sizeof direct / sizeof *direct; i++)
		if (begins(via + 4, direct[i]))
			return DIRECT;
	if (begins(via, "SHM/direct") || begins(via, "SHM/CE") || begins(via, "direct shared memory"))
		return SHARED;
	return NO_KIND;
}

/* "NET/IB/0/GDRDMA", "NET/IBext_v8/3(2)/GDRDMA/Shared", "NET/Socket/0" */
static void network(struct lg_nccl_log *l, struct lg_nccl_process *p, const char *via, const char *from,
		    const char *to, const int32_t rank[2], int receive)
{
	const char *name = via + 4, *end = strchr(name, '/');
	struct lg_nccl_link x = { .kind = NETWORK, .send = !receive };

	strstr(via, "/GDRDMA") ? p->gdr_on++ : p->gdr_off++;
	if (!end || end == name || end - name > 63 || !isdigit((unsigned char)end[1]))
		return;
	/* All its communicators are of this host: this is a pair of its devices. */
	if (p->nodes == 1 && *from && *to) {
		x = (struct lg_nccl_link){ .kind = LOCAL_NET, .from = lg_intern(l->b, from),
					   .to = lg_intern(l->b, to) };
	} else {
		if (*from && *to && abs(rank[0] - rank[1]) < NEAR_RANKS)
			add(l, p, &(struct lg_nccl_link){
					  .kind = NEAR, .send = !receive, .rank = rank[receive],
					  .peer = rank[!receive], .from = lg_intern(l->b, from),
					  .to = lg_intern(l->b, to) });
		x.gdr = strstr(end, "/GDRDMA") != NULL;
		x.from = lg_intern(l->b, receive ? to : from);
		x.to = lg_intern_n(l->b, name, (size_t)(end - name));
	}
	add(l, p, &x);
}

/* "Channel 00/0 : 3[0] -> 4[1] [send] via NET/IB/0"; before 2.5 "Ring 00 : ..." */
static int connection(struct lg_nccl_log *l, struct lg_nccl_process *p, const char *m)
{
	const char *at = begins(m, "Channel ") ? m + 8 : begins(m, "Ring ") ? m + 5 : NULL;
	const char *via = at ? strstr(at, " via ") : NULL;
	char from[LABEL_BYTES], to[LABEL_BYTES];
	int32_t rank[2];
	enum kind kind;

	if (!via)
		return 0;
	via += 5;
	kind = kind_of(via);
	p->via[begins(via, "P2P") ? LG_NCCL_P2P : begins(via, "NET") ? LG_NCCL_NET
	       : begins(via, "SHM") || kind == SHARED ? LG_NCCL_SHM : LG_NCCL_OTHER]++;
	at += strspn(at, "0123456789/");
	at += strspn(at, " :");
	at = rank_and_device(at, from, &rank[0]);
	if (!at || !begins(at, " -> "))
		return 1;
	at = rank_and_device(at + 4, to, &rank[1]);
	if (!at)
		return 1;
	if (begins(via, "NET/"))
		network(l, p, via, from, to, rank, begins(at, " [receive]"));
	else if (kind && *from && *to)
		add(l, p, &(struct lg_nccl_link){ .kind = (uint8_t)kind, .from = lg_intern(l->b, from),
						  .to = lg_intern(l->b, to) });
	return 1;
}

/* "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>" */
static void adapters(struct lg_nccl_log *l, const struct lg_nccl_process *p, const char *at)
{
	const char *end = strchr(at, ';');
	int n = 0;

	if (!end)
		return; /* broke off: how many there are is not told */
	while ((at = memchr(at, '[', (size_t)(end - at)))) {
		size_t k;

		at++;
		k = strspn(at, "0123456789");
		if (!k || at[k] != ']')
			continue;
		at += k + 1;
		k = strcspn(at, " /;[");
		if (!k || k > 63)
			continue;
		n++;
		lg_nccl_factf(l, p, "nccl.hca", "name=%.*s", (int)k, at);
	}
	if (n)
		lg_nccl_factf(l, p, "nccl.hcas", "%d", n);
}

/* "NET/OFI Selected Provider is efa (found 4 nics)", also "provider is efa, fabric is efa-direct (found ..." */
static void provider(struct lg_nccl_log *l, const struct lg_nccl_process *p, const char *at)
{
	size_t n = strcspn(at, " ,(");
	long nics;

	if (!n || n > 63)
		return;
	lg_nccl_fact(l, p, "nccl.provider", at, n);
	if (lg_nccl_number(at, "(found ", &nics) && nics > 0 && strstr(at, " nics)"))
		lg_nccl_factf(l, p, "nccl.hcas", "%ld", nics);
}

/* "NET/IB: [0] mlx5_0:uverbs0:1/RoCE provider=Mlx5 speed=100000 context=..." */
static void speed(struct lg_nccl_log *l, const struct lg_nccl_process *p, const char *at)
{
	const char *end = strchr(at, ']'), *port;
	long mbit;
	size_t n;

	if (!end || !lg_nccl_number(end, " speed=", &mbit) || mbit <= 0 || !strstr(end, " context="))
		return;
	end += 1 + strspn(end + 1, " ");
	n = strcspn(end, ": ");
	port = strchr(end, '/');
	while (port && port > end && isdigit((unsigned char)port[-1]))
		port--;
	if (n && n < 64)
		lg_nccl_factf(l, p, "nccl.hca_speed", "name=%.*s:%.3s\tspeed=%ld", (int)n, end,
			      port && isdigit((unsigned char)*port) ? (char[2]){ *port, 0 } : "1", mbit);
}

/* "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)" */
static void direct_rdma(struct lg_nccl_log *l, struct lg_nccl_process *p, const char *at)
{
	int on = begins(at, "Enabled");
	const char *name = strchr(at, '\''), *end = name ? strchr(name + 1, '\'') : NULL;

	on ? p->gdr_on++ : p->gdr_off++;
	if (!strstr(at, " for HCA ") || !end || end - name > 64 || end == name + 1)
		return;
	lg_nccl_factf(l, p, "nccl.hca_gdr", "name=%.*s\tgdr=%d%s", (int)(end - name - 1), name + 1, on,
		      strstr(end, "no module") ? "\twhy=no module" : "");
}

/* "GPU/1000 :GPU/1000 (0/5000.0/LOC) GPU/2000 (1/240.0/NVL) CPU/1 (1/24.0/PHB)": hops, GB/s and class of the best
 * path from one device to each other; with NCCL_DEBUG_SUBSYS=GRAPH. */
static int paths(struct lg_nccl_log *l, const struct lg_nccl_process *p, const char *m)
{
	const char *at = strstr(m, " :GPU/");
	char from[LABEL_BYTES], to[LABEL_BYTES], class[8];
	double bw;
	int used = 0;

	if (!at || (size_t)(at - m) >= sizeof from || strcspn(m, " ") != (size_t)(at - m))
		return 0;
	snprintf(from, sizeof from, "%.*s", (int)(at - m), m);
	at += 2;
	while (begins(at, "GPU/") && strcspn(at, " ") < sizeof to) {
		snprintf(to, sizeof to, "%.*s", (int)strcspn(at, " "), at);
		if (sscanf(at + strlen(to), " (%*d/%lf/%7[A-Z0-9])%n", &bw, class, &used) != 2 || !(bw > 0 && bw < 1e6))
			break;
		if (strcmp(from, to))
			lg_nccl_factf(l, p, "nccl.path", "from=%s\tto=%s\tgbps=%.1f\tclass=%s", from, to, bw, class);
		at += strlen(to) + (size_t)used;
		at += strspn(at, " ");
	}
	return 1;
}

int lg_nccl_link(struct lg_nccl_log *l, struct lg_nccl_process *p, const char *m)
{
	const char *at;

	if (*m == 'C' || *m == 'R')
		return connection(l, p, m);
	if (begins(m, "GPU/"))
		return paths(l, p, m);
	if (begins(m, "NET/IB : Using ")) {
		adapters(l, p, m + 15);
		return 1;
	}
	if (begins(m, "NET/OFI Selected ") && (at = strstr(m, "rovider is "))) {
		provider(l, p, at + 11);
		return 1;
	}
	if (begins(m, "NET/IB: [")) {
		speed(l, p, m);
		return 1;
	}
	if ((at = strstr(m, "GPU Direct RDMA "))) {
		direct_rdma(l, p, at + 16);
		return 0; /* its reason may be worth a note */
	}
	if (begins(m, "NVLS multicast support is ")) {
		if (strstr(m, " on dev "))
			lg_nccl_factf(l, p, "nccl.nvls", strstr(m, " is not ") ? "off" : "on");
		return 1;
	}
	return 0;
}

/*
 * Asynchronous events of an adapter; the words changed with the versions:
 *   NET/IB : Got async event : port error                     up to 2.20
 *   NET/IB : mlx5_0:1 Got async event : port error            2.21, 2.22
 *   NET/IB : mlx5_0:1 Got async error event: port error       2.23 to 2.28
 *   NET/IB : mlx5_0:1 Got non-fatal async event: port error(10)   later
 *   NET/IB : mlx5_0:1 async fatal event on QP (0x7f): ...     2.23 and later
 */
void lg_nccl_link_event(struct lg_nccl_log *l, const struct lg_nccl_process *p, const char *m, int64_t ts)
{
	const char *at = strstr(m, "NET/IB : "), *event = strstr(m, "async "), *what;
	int fatal = strstr(m, "async fatal event") != NULL;
	char text[256];
	size_t n = 0, k;

	if (!at || !event || !strstr(event, "event") || !(what = strstr(event, ": ")))
		return;
	at += 9;
	if (!begins(at, "Got ") && !begins(at, "async "))
		n = strcspn(at, " ");
	if (event > what || n > 63)
		return;
	what += 2;
	k = strcspn(what, "(\r\n\t");
	while (k && what[k - 1] == ' ')
		k--;
	snprintf(text, sizeof text, "hca=%.*s\twhat=%.*s\tfatal=%d", (int)n, at, (int)(k < 100 ? k : 100), what,
		 fatal);
	lg_nccl_mark(l, p->thr, "nccl.link_event", 0, text, ts);
}

void lg_nccl_link_finish(struct lg_nccl_log *l)
{
	static const char *const by[] = { [DIRECT] = "direct", [INDIRECT] = "indirect", [SHARED] = "shm",
					  [LOCAL_NET] = "net" };
	const struct lg_trace *t = lg_builder_trace(l->b);

	for (size_t i = 0; i < l->n_link; i++) {
		const struct lg_nccl_link *x = &l->link[i];
		const struct lg_nccl_process *p = &l->p[x->process];

		if (x->kind == NEAR)
			lg_nccl_factf(l, p, "nccl.near", "from=%s\tto=%s\trank=%d\tpeer=%d\tway=%s",
				      lg_string(t, x->from), lg_string(t, x->to), x->rank, x->peer,
				      x->send ? "send" : "receive");
		else if (x->kind == NETWORK)
			lg_nccl_factf(l, p, "nccl.nic", "dev=%s\tway=%s\tnet=%s\tgdr=%d\tn=%llu",
				      lg_string(t, x->from), x->send ? "send" : "receive", lg_string(t, x->to),
				      x->gdr, (unsigned long long)x->n);
		else
			lg_nccl_factf(l, p, "nccl.link", "from=%s\tto=%s\tby=%s\tn=%llu", lg_string(t, x->from),
				      lg_string(t, x->to), by[x->kind], (unsigned long long)x->n);
	}
}
