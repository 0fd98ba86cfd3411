/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kineto_import.h - state of one import, shared by the files of this folder and by chromejson/, whose
 * ids, names and times are the same.
 */
#ifndef LG_IMPORT_KINETO_IMPORT_H
#define LG_IMPORT_KINETO_IMPORT_H
#include "base/map.h"
#include "import/json/json_events.h"
#include "store/builder.h"

enum kin_cat {
	KIN_UNKNOWN, KIN_OP, KIN_NOTE, KIN_PYTHON, KIN_RUNTIME, KIN_KERNEL, KIN_MEMCPY, KIN_MEMSET,
	KIN_SYNC, KIN_GPU_NOTE, KIN_OVERHEAD, KIN_TRACE, KIN_ARROW
};

/* What a name means; bits of the value cached for each string. */
struct kin_class {
	uint8_t known, kind, stage, flags;
};
enum { KIN_ASYNC = 1, KIN_COMMS = 2 /* record_param_comms */, KIN_INPUTS = 4, KIN_STEP = 8 };

/* The last slice that was looked up, and what it gave: most events repeat it. */
struct kin_memo {
	char text[40];
	uint8_t n;
};

/* As memcmp(a, b, n) == 0 without a call, for what repeats from event to event. */
static inline bool kin_same(const char *a, const char *b, size_t n)
{
	uint64_t x, y, z, w;

	if (n > 16 || n < 8) {
		while (n && *a == *b) {
			a++;
			b++;
			n--;
		}
		return !n;
	}
	memcpy(&x, a, 8);
	memcpy(&y, b, 8);
	memcpy(&z, a + n - 8, 8);
	memcpy(&w, b + n - 8, 8);
	return !((x ^ y) | (z ^ w));
}

struct kin_key {
	int64_t pid, tid;
	uint32_t id;      /* lg_thr or lg_trk */
	uint64_t n_ops;   /* operators on this thread */
	/* The record_param_comms that an annotation inside it belongs to. */
	int64_t comms_ts, comms_end, comms_seq;
	uint64_t comms_bytes;
	lg_str comms_group, comms_args;
	bool steps;
};

/* A call stack that was written out before: operators of one line have the same. */
struct kin_stack {
	char *text;
	size_t cap;
	uint32_t n;
	lg_stk stack;
};
enum { KIN_STACKS = 1024, KIN_RECENT = 1024, KIN_CATS = 4 };

struct kin_name { /* of a process or thread, from a metadata event */
	int64_t pid, tid;
	lg_str name;
	bool process, gpu;
};

struct kin_fact {
	lg_str key, value;
};

/* One end of an arrow. */
struct kin_arrow {
	uint64_t key; /* what category, name and id hash to */
	int64_t ts;   /* without what rows have had added */
	uint32_t order;
	lg_thr thr;
	char ph;
};

/* What the arguments of one event told. */
struct kin_args {
	int64_t correlation, sequence, stream, seq, nelems_in, nelems_out, bytes;
	bool has_correlation, has_sequence, has_stream, has_seq, has_bytes, has_in, has_out;
	uint32_t elem_bytes;
	lg_str group;
	lg_stk stack;
};

/* One report of the allocator. */
struct kin_memory {
	double change, allocated, reserved;
	int64_t device, type;
};

enum { KIN_ARGS = 64 };

struct kineto {
	struct lg_builder *b;
	struct lg_error *err;
	const char *path;
	int64_t base, applied; /* baseTimeNanoseconds; what rows have had added so far */
	bool base_known;
	int64_t last_ts;

	struct kin_class *classes; /* by lg_str */
	size_t classes_cap;
	lg_stk *frames;            /* of python functions by lg_str; 0 = not parsed yet */
	size_t frames_cap;

	struct kin_key *threads, *tracks;
	size_t n_threads, threads_cap, n_tracks, tracks_cap;
	struct lg_map thread_of, track_of; /* hash of pid and tid -> index + 1 */
	struct kin_memo pid_memo, tid_memo, gpu_pid_memo, gpu_tid_memo;
	struct kin_memo cat_memo[KIN_CATS]; /* categories come in turns */
	enum kin_cat cat_last[KIN_CATS];
	uint8_t cat_turn;
	uint32_t thread_last, track_last; /* index */
	/* The device whose memory was reported last (known: one was), and the tracks of its reports. */
	bool memory_known;
	int64_t memory_device;
	lg_trk memory_allocated, memory_reserved;
	uint32_t main_guess;              /* thread index + 1 of the first operator or step */
	int64_t next_tid;                 /* for threads without a number */
	struct lg_map text_id;            /* lg_str of a pid or tid that is a word -> number */

	lg_str recent[KIN_RECENT];        /* by a few bytes of the text: what it was last */
	struct kin_stack *stacks;         /* KIN_STACKS by hash of the text; NULL = none yet */
	struct kin_name *names;
	size_t n_names, names_cap;
	struct kin_arrow *arrows;
	size_t n_arrows, arrows_cap;
	struct kin_fact *facts;
	size_t n_facts, facts_cap;
	int64_t rank, world;               /* -1, 0 = not told */

	struct lg_shape shape[KIN_ARGS];   /* of arguments: behind which one (kineto_args.c) */
	char *buf;                         /* decoded strings and arguments */
	size_t buf_cap, buf_n;

	lg_str str_step, str_alloc, str_reserved, str_change, str_bytes;
	uint64_t n_events, n_gpu, n_bad_time, n_bad_dur, n_no_name, n_unlinked;
	uint64_t n_kineto; /* events of a category that only Kineto writes */
	int failed;        /* sticky LG_E_NOMEM */
};

/* kineto.c */
void kin_done(struct kineto *k);

/* kineto_ids.c */
struct kin_key *kin_thread(struct kineto *k, const struct lg_event *e, enum kin_cat cat);
/* The thread of these ids, NULL where no event had them. */
struct kin_key *kin_known_thread(const struct kineto *k, int64_t pid, int64_t tid);
lg_trk kin_stream(struct kineto *k, const struct lg_event *e);
lg_trk kin_gpu(struct kineto *k, int64_t device);
lg_str kin_text(struct kineto *k, const struct lg_slice *s);
bool kin_number(struct kineto *k, const struct lg_slice *s, int64_t *ret);
void kin_metadata(struct kineto *k, const struct lg_event *e);

/* kineto_names.c */
enum kin_cat kin_category(struct kineto *k, const struct lg_slice *cat);
struct kin_class kin_classify(struct kineto *k, lg_str name, const struct lg_slice *text,
			      enum kin_cat cat);
lg_stk kin_python_frame(struct kineto *k, lg_str name);
lg_stk kin_call_stack(struct kineto *k, const struct lg_slice *s);

/* kineto_args.c */
lg_str kin_args(struct kineto *k, const struct lg_event *e, enum kin_cat cat,
		struct kin_class class, struct kin_args *ret);
/* All of them, behind what is in k->buf. */
void kin_all_args(struct kineto *k, const struct lg_event *e);
void kin_memory_args(struct kineto *k, const struct lg_event *e, struct kin_memory *ret);

/* kineto_events.c */
void kin_event(struct kineto *k, const struct lg_event *e);
bool kin_times(struct kineto *k, const struct lg_event *e, int64_t *ret_ts, int64_t *ret_dur);
void kin_counters(struct kineto *k, const struct lg_event *e);

/* kineto_arrows.c: from operator to operator, as of the forward to the backward pass */
void kin_arrow(struct kineto *k, const struct lg_event *e);
void kin_arrows_pair(struct kineto *k);

/* kineto_facts.c */
void kin_field(struct kineto *k, const struct lg_slice *key, const struct lg_slice *value);
void kin_facts_add(struct kineto *k, lg_prc prc);

/* kineto_finish.c */
void kin_clocks(struct kineto *k);
void kin_names(struct kineto *k);
void kin_diag(struct kineto *k);
int kin_finish(struct kineto *k, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_IMPORT_KINETO_IMPORT_H */
