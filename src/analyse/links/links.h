/* SPDX-License-Identifier: Apache-2.0 */
/*
 * links.h - what NCCL's logs tell of the ways between devices, host by host, and which host has worse ones
 * than the others or than it had itself (comms.degraded_link).
 *
 * Nothing is held against what hardware should do: only like against like, or against what NCCL found
 * itself. A pair of devices is compared with the same pair of other hosts, a communicator with others of its
 * shape or with itself before a restart.
 */
#ifndef LG_ANALYSE_LINKS_LINKS_H
#define LG_ANALYSE_LINKS_LINKS_H
#include "analyse/case.h"
#include "base/map.h"

/* In the order of cause and effect: a host's first kind is the one to look at. */
enum lg_link_kind {
	LG_LINK_NETWORK,   /* 1 = a network, 0 = plain sockets */
	LG_LINK_TRANSPORT, /* between two devices of a host: enum lg_link_way */
	LG_LINK_GDR,       /* adapter and device reach each other directly: 1, 0 */
	LG_LINK_ADAPTERS,  /* how many */
	LG_LINK_SPEED,     /* of an adapter, Mbit/s */
	LG_LINK_NVLS,      /* multicast: 1, 0 */
	LG_LINK_TOPOLOGY,  /* bandwidth that NCCL found, GB/s */
	LG_LINK_CHANNELS,  /* of a communicator */
	LG_LINK_KINDS
};
enum lg_link_way { LG_WAY_NONE, LG_WAY_NET, LG_WAY_SHM, LG_WAY_INDIRECT, LG_WAY_DIRECT };

/* A communicator as one rank told of it (mark nccl.comm). */
struct lg_link_comm {
	uint32_t mark;
	lg_prc prc;
	lg_str host;
	int32_t nranks, rank, nodes, local, coll, nvls, nth, again, life;
	double bw, total;
	uint64_t dev, id; /* hashes; 0 = not told */
	bool socket, has_net;
	uint32_t next; /* index + 1 of the process's one before it */
};

/* One thing that is compared. unit: who has it, a host or a communicator. */
struct lg_link_sample {
	uint8_t kind;
	bool strict;   /* units need not be alike: only few against many */
	uint64_t key, unit;
	double value;
	lg_str host, a; /* a: for words, by kind */
	lg_prc prc;
};

/* A unit that has less than most. */
struct lg_link_short {
	uint32_t sample, usual_sample;
	double usual;
	uint32_t n_usual, n_units; /* units that have the usual value; all */
};

struct lg_link_host {
	lg_str name;
	uint32_t kinds;       /* bit k: some short of that kind */
	int32_t local, nranks; /* of its largest communicator; 0 = not told */
};

struct lg_links {
	struct lg_link_comm *comm;
	struct lg_link_sample *sample;
	struct lg_link_short *less;
	struct lg_link_host *host;
	size_t n_comm, cap_comm, n_sample, cap_sample, n_less, cap_less, n_host, cap_host;
	struct lg_link_env {
		uint32_t row, setting; /* of meta; which setting */
	} *env; /* settings that may explain something */
	size_t n_env, cap_env;
	struct lg_map by_host; /* name -> index + 1 */
	struct lg_map by_process, places; /* process -> its newest comm + 1; communicator and rank -> host */
	size_t n_pairs[LG_WAY_DIRECT + 1]; /* by way, all hosts */
	size_t n_tests, n_compared, n_undecided; /* results of nccl-tests; things that were compared, and
						  * those in which no value is that of most */
};

/* ---- arguments of a line ---- */
bool lg_link_is(const char *args, const char *key, const char *value); /* link_facts.c */
double lg_link_number(const char *args, const char *key, double otherwise);
uint64_t lg_link_hash(uint64_t h, const char *s, size_t n);
/* Its text; "" = not there. */
const char *lg_link_arg(struct lg_case *c, const char *args, const char *key); /* link_words.c */

/* ---- link_facts.c ---- */
int lg_links_read(struct lg_case *c, struct lg_links *l) LG_MUST_CHECK;
/* link_words.c: l->env. */
int lg_link_read_settings(struct lg_case *c, struct lg_links *l) LG_MUST_CHECK;
void lg_links_done(struct lg_links *l);
/* Index of a host, UINT32_MAX = none of that name. */
uint32_t lg_link_host_of(const struct lg_links *l, lg_str name);
/* ---- link_words.c ---- */
/* "nodeB", "nodeA, nodeB and 3 more" of those hosts whose flag is set. */
const char *lg_link_hosts_text(struct lg_case *c, const struct lg_links *l, const uint8_t *is);
/* " (rank 3)", " (ranks 8-15)"; "" where none is known. *ret_one: the only one, else -1. */
const char *lg_link_ranks_text(struct lg_case *c, const struct lg_links *l, const uint8_t *is,
			       int32_t *ret_one);
const char *lg_link_value_text(struct lg_case *c, const struct lg_links *l, uint32_t sample);
/* What the samples are of: "devices 0>1, 1>2"; "" where the host is all there is to say. */
const char *lg_link_of_text(struct lg_case *c, const struct lg_links *l, const uint32_t *sample, size_t n);
/*
 * A setting of the environment that explains it: processes flagged 1 have it, those flagged 2 have not, and
 * it does such a thing. NULL = none. *ret_key: its name alone; *ret_peers: what the others have.
 */
const char *lg_link_setting(struct lg_case *c, const struct lg_links *l, const uint8_t *flag,
			    enum lg_link_kind kind, const char **ret_key, const char **ret_peers);
/* What else only one side says, as evidence of f; setting: said already, or NULL. */
void lg_link_differences(struct lg_case *c, struct lg_finding *f, const uint8_t *flag, const char *setting);

/* ---- link_speed.c: results of nccl-tests, and events of adapters ---- */
int lg_find_link_speed(struct lg_case *c, struct lg_links *l) LG_MUST_CHECK;
int lg_find_link_events(struct lg_case *c) LG_MUST_CHECK;
/* A blank finding of this rule. */
struct lg_finding *lg_link_finding(struct lg_case *c, const char *detail, double confidence);

/* ---- link_rules.c ---- */
int lg_find_links(struct lg_case *c) LG_MUST_CHECK;

/* ---- link_paths.c: one host's own topology, which needs no peer to be compared with ---- */
void lg_find_link_paths(struct lg_case *c);

#endif /* LG_ANALYSE_LINKS_LINKS_H */
