/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kineto_ids.c - pid and tid, numbers or words, to threads and GPU streams.
 *
 * What a pid means is told by the event's category: "pid": 0 is GPU 0 on a kernel, and "unknown" on
 * a Python function of some versions.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "import/kineto/kineto_import.h"

/* The names of kernels are long, and the same few hundred come again and again: to compare one costs less
 * than to hash it. */
static lg_str recent_text(struct kineto *k, const char *p, size_t n)
{
	const struct lg_trace *t = lg_builder_trace(k->b);
	uint64_t head, tail;
	lg_str *at;

	if (n < sizeof head)
		return lg_intern_n(k->b, p, n);
	memcpy(&head, p, sizeof head);
	memcpy(&tail, p + n - sizeof tail, sizeof tail);
	at = &k->recent[lg_mix64(head + 31 * tail + (uint64_t)n) % KIN_RECENT];
	if (t->str_off[*at + 1] - t->str_off[*at] == n + 1 && !memcmp(lg_string(t, *at), p, n))
		return *at;
	return *at = lg_intern_n(k->b, p, n);
}

/* A string of the file in the pool. */
lg_str kin_text(struct kineto *k, const struct lg_slice *s)
{
	if (!s->p)
		return 0;
	if (!s->esc)
		return recent_text(k, s->p, s->n);
	if (lg_grow(&k->buf, &k->buf_cap, k->buf_n + s->n + 1, 1)) {
		k->failed = LG_E_NOMEM;
		return 0;
	}
	return lg_intern_n(k->b, k->buf + k->buf_n, lg_json_decode(s, k->buf + k->buf_n));
}

/* 7, "7", "stream 7"; other words get numbers below INT32_MIN of their own. */
bool kin_number(struct kineto *k, const struct lg_slice *s, int64_t *ret)
{
	struct lg_slice v = *s;
	lg_str word;
	uint32_t id;

	if (!v.p)
		return false;
	if (v.kind == '"' && LG_SLICE_STARTS(&v, "stream ")) {
		v.p += 7;
		v.n -= 7;
	}
	if (lg_json_fixed(&v, 0, ret))
		return true;
	word = kin_text(k, s);
	id = lg_map_get(&k->text_id, word);
	if (!id) {
		id = (uint32_t)++k->next_tid;
		if (lg_map_set(&k->text_id, word, id))
			k->failed = LG_E_NOMEM;
	}
	*ret = (int64_t)INT32_MIN - id;
	return false;
}

static bool same(const struct kin_memo *m, const struct lg_slice *s)
{
	return s->n == m->n && s->n && kin_same(m->text, s->p, s->n);
}

static void keep(struct kin_memo *m, const struct lg_slice *s)
{
	m->n = 0;
	if (s->p && s->n && s->n <= sizeof m->text) {
		memcpy(m->text, s->p, s->n);
		m->n = (uint8_t)s->n;
	}
}

/* The entry of (pid, tid) in list, NULL when there is none; *ret_h is then where map keeps a new one. */
static struct kin_key *lookup(const struct lg_map *map, struct kin_key *list, int64_t pid,
			      int64_t tid, uint64_t *ret_h)
{
	uint64_t h = lg_mix64((uint64_t)pid ^ lg_map_secret) + (uint64_t)tid;
	uint32_t at;

	for (; (at = lg_map_get(map, h)); h++)
		if (list[at - 1].pid == pid && list[at - 1].tid == tid)
			return &list[at - 1];
	*ret_h = h;
	return NULL;
}

struct kin_key *kin_known_thread(const struct kineto *k, int64_t pid, int64_t tid)
{
	uint64_t h;

	return lookup(&k->thread_of, k->threads, pid, tid, &h);
}

/* The entry of (pid, tid); *ret_new when it was made. NULL without memory. */
static struct kin_key *find(struct kineto *k, struct lg_map *map, struct kin_key **list, size_t *n,
			    size_t *cap, int64_t pid, int64_t tid, bool *ret_new)
{
	uint64_t h;
	struct kin_key *known = lookup(map, *list, pid, tid, &h);

	*ret_new = false;
	if (known)
		return known;
	if (*n >= UINT32_MAX - 1 || lg_grow(list, cap, *n + 1, sizeof **list) ||
	    lg_map_set(map, h, (uint32_t)*n + 1)) {
		k->failed = LG_E_NOMEM;
		return NULL;
	}
	(*list)[*n] = (struct kin_key){ .pid = pid, .tid = tid, .comms_end = INT64_MIN };
	*ret_new = true;
	return &(*list)[(*n)++];
}

static struct kin_key *thread_at(struct kineto *k, int64_t pid, int64_t tid)
{
	bool made;
	struct kin_key *t = find(k, &k->thread_of, &k->threads, &k->n_threads, &k->threads_cap, pid,
				 tid, &made);
	struct lg_thread_row row = { .start = INT64_MIN, .end = INT64_MAX };

	if (!made)
		return t;
	/* Threads are rows as they are: ids beyond 31 bits (pthread handles) keep their low bits. torch
	 * without Kineto writes "CPU functions" in place of a pid: such a process has none. */
	row.tid = (int32_t)(tid & INT32_MAX);
	row.prc = lg_process_get(k->b, pid < 0 ? -1 : (int32_t)(pid & INT32_MAX));
	t->id = lg_thread_add(k->b, &row);
	return t;
}

struct kin_key *kin_thread(struct kineto *k, const struct lg_event *e, enum kin_cat cat)
{
	struct kin_key *t;
	int64_t pid = 0, tid = 0;
	bool number;

	if (k->n_threads && same(&k->pid_memo, &e->pid) && same(&k->tid_memo, &e->tid))
		return &k->threads[k->thread_last];
	number = kin_number(k, &e->pid, &pid);
	(void)kin_number(k, &e->tid, &tid);
	/* Not a process: the profiler's own rows. */
	if (!number && e->pid.p)
		pid = -1;
	/* pid 0, tid 0: the profiler did not know the thread; it profiled the main one. */
	if (cat == KIN_PYTHON && number && !pid && !tid && k->main_guess)
		return &k->threads[k->main_guess - 1];
	t = thread_at(k, pid, tid);
	if (!t)
		return NULL;
	k->thread_last = (uint32_t)(t - k->threads);
	keep(&k->pid_memo, &e->pid);
	keep(&k->tid_memo, &e->tid);
	return t;
}

lg_trk kin_gpu(struct kineto *k, int64_t device)
{
	char name[48];
	bool made;
	struct kin_key *t = find(k, &k->track_of, &k->tracks, &k->n_tracks, &k->tracks_cap, device,
				 INT64_MIN, &made);

	if (made) {
		snprintf(name, sizeof name, "GPU %lld", (long long)device);
		t->id = lg_track_get(k->b, &(struct lg_track_row){
						   .kind = LG_TRACK_GPU,
						   .name = lg_intern(k->b, name),
						   .index = (int32_t)device });
	}
	return t ? t->id : 0;
}

lg_trk kin_stream(struct kineto *k, const struct lg_event *e)
{
	enum { SYNC_ROWS = 1000000 }; /* kineto 2026 draws syncs on stream + 1,000,000 */
	int64_t device = 0, stream = 0;
	struct kin_key *t;
	char name[48];
	lg_trk gpu;
	bool made;

	if (k->n_tracks && same(&k->gpu_pid_memo, &e->pid) && same(&k->gpu_tid_memo, &e->tid))
		return k->tracks[k->track_last].id;
	(void)kin_number(k, &e->pid, &device);
	(void)kin_number(k, &e->tid, &stream);
	if (stream >= SYNC_ROWS)
		stream -= SYNC_ROWS;
	gpu = kin_gpu(k, device);
	t = find(k, &k->track_of, &k->tracks, &k->n_tracks, &k->tracks_cap, device, stream, &made);
	if (!t)
		return 0;
	if (made) {
		snprintf(name, sizeof name, "stream %lld", (long long)stream);
		t->id = lg_track_get(k->b, &(struct lg_track_row){
						   .kind = LG_TRACK_STREAM,
						   .name = lg_intern(k->b, name),
						   .parent = gpu,
						   .index = (int32_t)stream });
	}
	k->track_last = (uint32_t)(t - k->tracks);
	keep(&k->gpu_pid_memo, &e->pid);
	keep(&k->gpu_tid_memo, &e->tid);
	return t->id;
}

/* process_name and thread_name: kept until it is known which ids are processes. */
void kin_metadata(struct kineto *k, const struct lg_event *e)
{
	enum { NAMES_MAX = 1 << 20 };
	struct lg_slice key, value;
	struct kin_name n = { 0 };
	const char *p;

	n.process = LG_SLICE_IS(&e->name, "process_name");
	n.gpu = LG_SLICE_IS(&e->name, "process_labels");
	if ((!n.process && !n.gpu && !LG_SLICE_IS(&e->name, "thread_name")) || !e->args.p ||
	    e->args.kind != '{' || k->n_names >= NAMES_MAX)
		return;
	if (!kin_number(k, &e->pid, &n.pid))
		return;
	(void)kin_number(k, &e->tid, &n.tid);
	p = e->args.p + 1;
	while (lg_json_member(&p, e->args.p + e->args.n, &key, &value)) {
		if (!LG_SLICE_IS(&key, "name") && !LG_SLICE_IS(&key, "labels"))
			continue;
		if (n.gpu && !LG_SLICE_STARTS(&value, "GPU"))
			return;
		n.name = kin_text(k, &value);
	}
	if (!n.name)
		return;
	if (lg_grow(&k->names, &k->names_cap, k->n_names + 1, sizeof n)) {
		k->failed = LG_E_NOMEM;
		return;
	}
	k->names[k->n_names++] = n;
}
