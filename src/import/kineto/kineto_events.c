/* SPDX-License-Identifier: Apache-2.0 */
/* kineto_events.c - one event to one row. */
#include "import/kineto/kineto_import.h"

/* Longer than a week: CUPTI's end time was 0 or overflowed. */
#define DUR_MAX (7ll * 86400 * 1000000000)

bool kin_times(struct kineto *k, const struct lg_event *e, int64_t *ret_ts, int64_t *ret_dur)
{
	int64_t ts, dur = 0;

	ts = e->ts_ns;
	if (!e->ts_read || ts < 0 || ts > INT64_MAX / 2) {
		k->n_bad_time++;
		return false;
	}
	if (e->dur.p) {
		dur = e->dur_ns;
		if (!e->dur_read || dur < 0 || dur > DUR_MAX) {
			k->n_bad_dur++;
			return false;
		}
	}
	*ret_ts = ts + k->applied;
	*ret_dur = dur;
	if (*ret_ts > k->last_ts)
		k->last_ts = *ret_ts;
	return true;
}

/* "ProfilerStep#17": 17. */
static int64_t step_number(const struct lg_slice *s)
{
	struct lg_slice v = { .p = s->p + 13, .n = s->n - 13 };
	int64_t n;

	return lg_json_fixed(&v, 0, &n) ? n : -1;
}

static void gpu_span(struct kineto *k, const struct lg_event *e, enum kin_cat cat,
		     struct lg_span_row *r, struct kin_class c)
{
	struct kin_args a = { .seq = -1 };

	r->track = kin_stream(k, e);
	r->args = kin_args(k, e, cat, c, &a);
	r->seq = a.has_correlation ? a.correlation : 0;
	r->bytes = a.has_bytes && a.bytes > 0 ? (uint64_t)a.bytes : 0;
	r->group = a.group;
	if (c.flags & KIN_ASYNC)
		r->flags |= LG_SPAN_ASYNC;
	k->n_gpu += cat != KIN_GPU_NOTE && cat != KIN_SYNC;
}

/* An annotation like nccl:all_reduce is inside the record_param_comms that knows its arguments. */
static void from_comms(const struct kin_key *t, struct lg_span_row *r)
{
	r->seq = -1;
	if (r->ts < t->comms_ts || r->ts > t->comms_end)
		return;
	r->seq = t->comms_seq;
	r->group = t->comms_group;
	r->bytes = t->comms_bytes;
	if (t->comms_args)
		r->args = t->comms_args;
}

static void host_span(struct kineto *k, const struct lg_event *e, enum kin_cat cat,
		      struct lg_span_row *r, struct kin_class c)
{
	struct kin_args a = { .seq = -1 };
	struct kin_key *t = kin_thread(k, e, cat);

	if (!t)
		return;
	r->thr = t->id;
	if (cat == KIN_PYTHON) {
		r->stack = kin_python_frame(k, r->name);
		return;
	}
	r->args = kin_args(k, e, cat, c, &a);
	if (cat == KIN_RUNTIME) {
		r->seq = a.has_correlation ? a.correlation : 0;
		return;
	}
	t->n_ops++;
	r->stack = a.stack;
	r->seq = a.has_sequence ? a.sequence : -1;
	if (c.flags & KIN_STEP) {
		r->name = k->str_step;
		r->seq = step_number(&e->name);
		t->steps = true;
		k->main_guess = (uint32_t)(t - k->threads) + 1;
	} else if (!k->main_guess || (t->pid == t->tid && !k->threads[k->main_guess - 1].steps &&
				      k->threads[k->main_guess - 1].pid !=
					      k->threads[k->main_guess - 1].tid)) {
		k->main_guess = (uint32_t)(t - k->threads) + 1;
	}
	if (c.flags & KIN_COMMS) {
		r->seq = a.has_seq ? a.seq : -1;
		r->group = a.group;
		r->bytes = a.has_bytes ? (uint64_t)a.bytes : 0;
		t->comms_ts = r->ts;
		t->comms_end = r->ts + r->dur;
		t->comms_seq = r->seq;
		t->comms_group = r->group;
		t->comms_bytes = r->bytes;
		t->comms_args = r->args;
	}
	if (c.kind == LG_SPAN_COLLECTIVE)
		from_comms(t, r);
	if (c.flags & KIN_ASYNC)
		r->flags |= LG_SPAN_ASYNC;
}

static void complete(struct kineto *k, const struct lg_event *e)
{
	struct lg_span_row r = { 0 };
	struct lg_slice name = e->name.p ? e->name : (struct lg_slice){ .p = "" };
	enum kin_cat cat = kin_category(k, &e->cat);
	struct kin_class c;

	/* torch without Kineto (Debian builds it so) writes no categories: EventList.export_chrome_trace()
	 * in torch/autograd/profiler_util.py. */
	if (!e->cat.p && LG_SLICE_IS(&e->pid, "CPU functions"))
		cat = KIN_OP;
	if (cat == KIN_TRACE || cat == KIN_ARROW || !kin_times(k, e, &r.ts, &r.dur))
		return;
	k->n_kineto += cat != KIN_UNKNOWN;
	r.name = kin_text(k, &e->name);
	c = kin_classify(k, r.name, &name, cat);
	r.kind = c.kind;
	r.stage = c.stage;
	switch (cat) {
	case KIN_KERNEL:
	case KIN_MEMCPY:
	case KIN_MEMSET:
	case KIN_SYNC:
	case KIN_GPU_NOTE:
		gpu_span(k, e, cat, &r, c);
		break;
	case KIN_OVERHEAD:
		r.track = lg_track_get(k->b, &(struct lg_track_row){
						     .name = lg_intern(k->b, "profiler overhead"),
						     .index = -1 });
		break;
	default:
		host_span(k, e, cat, &r, c);
	}
	lg_add_span(k->b, &r);
}

static lg_trk counter_track(struct kineto *k, lg_str name, lg_str unit, lg_trk parent)
{
	return lg_track_get(k->b, &(struct lg_track_row){ .kind = LG_TRACK_COUNTER,
							  .name = name,
							  .unit = unit,
							  .parent = parent,
							  .index = -1 });
}

/* Whose memory the last report was about. */
static lg_trk memory_of(struct kineto *k)
{
	return k->memory_device >= 0 ? kin_gpu(k, k->memory_device) : 0;
}

static lg_trk memory_track(struct kineto *k, lg_trk *known, lg_str name)
{
	if (!*known)
		*known = counter_track(k, name, k->str_bytes, memory_of(k));
	return *known;
}

/* The allocator's reports. Before 2022 only the change is told, not the total. */
static void memory(struct kineto *k, const struct lg_event *e)
{
	struct lg_counter_row r = { 0 };
	struct kin_memory m;
	int64_t dur;

	if (e->args.kind != '{' || !kin_times(k, e, &r.ts, &dur))
		return;
	kin_memory_args(k, e, &m);
	m.device = m.type && m.device >= 0 ? m.device : -1; /* of the host */
	if (!k->memory_known || k->memory_device != m.device) {
		k->memory_known = true;
		k->memory_device = m.device;
		k->memory_allocated = k->memory_reserved = 0;
	}
	if (m.allocated >= 0) {
		r.track = memory_track(k, &k->memory_allocated, k->str_alloc);
		r.value = m.allocated;
		lg_add_counter(k->b, &r);
		if (m.reserved >= 0) {
			r.track = memory_track(k, &k->memory_reserved, k->str_reserved);
			r.value = m.reserved;
			lg_add_counter(k->b, &r);
		}
	} else {
		r.track = counter_track(k, k->str_change, k->str_bytes, memory_of(k));
		r.value = m.change;
		lg_add_counter(k->b, &r);
	}
}

static void instant(struct kineto *k, const struct lg_event *e)
{
	struct lg_mark_row r = { 0 };
	int64_t dur;

	if (LG_SLICE_IS(&e->name, "[memory]")) {
		memory(k, e);
		return;
	}
	if (!kin_times(k, e, &r.ts, &dur))
		return;
	r.name = kin_text(k, &e->name);
	if (e->pid.kind != '"' && kin_category(k, &e->cat) != KIN_UNKNOWN) {
		struct kin_key *t = kin_thread(k, e, KIN_OP);

		r.thr = t ? t->id : 0;
	}
	lg_add_mark(k->b, &r);
}

void kin_counters(struct kineto *k, const struct lg_event *e)
{
	struct lg_counter_row r = { 0 };
	struct lg_slice key, v;
	const char *p, *end;
	int64_t dur, device;
	lg_trk gpu = 0;

	if (e->args.kind != '{' || !kin_times(k, e, &r.ts, &dur))
		return;
	p = e->args.p + 1;
	end = e->args.p + e->args.n;
	/* "GPU 0 Counters" */
	if (e->pid.kind == '"' && LG_SLICE_STARTS(&e->pid, "GPU ")) {
		struct lg_slice n = { .p = e->pid.p + 4 };

		while (n.n + 4 < e->pid.n && n.p[n.n] >= '0' && n.p[n.n] <= '9')
			n.n++;
		if (lg_json_fixed(&n, 0, &device))
			gpu = kin_gpu(k, device);
	}
	while (lg_json_member(&p, end, &key, &v)) {
		if (!lg_json_real(&v, &r.value))
			continue;
		r.track = counter_track(k, kin_text(k, &key), 0, gpu);
		lg_add_counter(k->b, &r);
	}
}

void kin_event(struct kineto *k, const struct lg_event *e)
{
	k->n_events++;
	k->buf_n = 0;
	switch (e->ph) {
	case 'X':
		complete(k, e);
		break;
	case 'i':
	case 'I':
		instant(k, e);
		break;
	case 'C':
		kin_counters(k, e);
		break;
	case 's': case 't': case 'f':
		kin_arrow(k, e);
		break;
	case 'M':
		kin_metadata(k, e);
		break;
	default:
		break;
	}
}
