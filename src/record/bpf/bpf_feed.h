/* SPDX-License-Identifier: Apache-2.0 */
/* bpf_feed.h - records of the BPF programs to rows of the trace. One thread; times in ns. */
#ifndef LG_RECORD_BPF_FEED_H
#define LG_RECORD_BPF_FEED_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "record/bpf/records.h"

struct lg_session;
struct lg_bpf_feed;

/* What is found out about processes that the programs should know, too. */
struct lg_bpf_watch {
	void (*job)(void *arg, int32_t pid); /* it is of the job and should be watched closely */
	/* Where its Python frames are, and its lock (0: not known); NULL: it runs another program now. */
	void (*python)(void *arg, int32_t pid, const struct lg_bpf_python_layout *layout, uint64_t gil);
	void *arg;
};

int lg_bpf_feed_new(struct lg_bpf_feed **ret, struct lg_session *s, const struct lg_bpf_watch *watch,
		    struct lg_error *err) LG_MUST_CHECK;
void lg_bpf_feed_free(struct lg_bpf_feed *f);
/* A record is whole when its sizes agree; anything else is refused (0) and counted by the caller. */
bool lg_bpf_record_ok(const void *rec, size_t n);
/* One whole record; time order, except that a record's wait may begin long before it. */
void lg_bpf_feed(struct lg_bpf_feed *f, const void *rec, size_t n);
/* The iterator's list of tasks at the start. */
void lg_bpf_feed_start(struct lg_bpf_feed *f, const void *list, size_t n);
/* The iterator's list of open states, last of all. */
void lg_bpf_feed_end(struct lg_bpf_feed *f, const void *list, size_t n, int64_t stopped);
/* Ask the session again which of the known processes are of the job. */
void lg_bpf_feed_jobs(struct lg_bpf_feed *f);

#endif /* LG_RECORD_BPF_FEED_H */
