/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comms_rules.c - collectives that nothing hides, that are too small, or that a rank never entered.
 */
#include <math.h>
#include <stdlib.h>

#include "analyse/device/device_rules.h"
#include "analyse/flight/flight.h"
#include "timeline/comm_match.h"
#include "timeline/traffic.h"

enum { RANKS_TOLD = 16 };

/* Are most collectives DDP's? Its reducer orders them from the threads of autograd, not the main one. */
static bool by_ddp(const struct lg_case *c, const struct lg_gpu_run *r)
{
	size_t n = 0, behind = 0;
	bool ddp = false;

	for (size_t i = 0; i < c->scene.n_span_names && !ddp; i++)
		ddp = !strcmp(lg_string(c->t, c->scene.span_names[i]), "DistributedDataParallel.forward");
	LG_EACH_WHILE(ddp, w, r->work, r->n_work)
		if (w->class == LG_GPU_COMM && w->call != LG_NO_ROW) {
			n++;
			behind += w->caller != r->main;
		}
	return n && behind * 2 > n;
}

/* Mean ns that a rank waits for others in collectives: no transfer. The one late rank waits for nobody. */
static double waits_of(const struct lg_gpu *g)
{
	if (!g->late || g->critical)
		return 0;
	if (g->late->one)
		return g->late->ns;
	if (g->late->ns <= 0)
		return (double)g->late->caused;
	/* The few, or in turn the one, of n that are late do not wait. */
	return fmin((double)g->late->caused, g->late->ns *
		    (double)(g->n - LG_MAX(g->late->n_late, 1)) / (double)g->n);
}

/* The advice of an exposed collective: that of DDP's gradients is the rule's own. */
static const char *advice_for(const struct lg_gpu_run *r, enum lg_traffic k)
{
	if (k == LG_TRAFFIC_PAIRS)
		return "send_recv";
	if (k == LG_TRAFFIC_EXCHANGE)
		return "all_to_all";
	if (k == LG_TRAFFIC_UNTOLD)
		return "point_to_point";
	if (r->scope == LG_SHOWS_INFERENCE)
		return "tensor_parallel";
	return k == LG_TRAFFIC_SHARDS ? "shards" : NULL;
}

struct comm_counts {
	int64_t kernel_ns;        /* in the window */
	size_t n, shared;         /* kernels in the window; of them: begin while others run */
	size_t n_known, n_small;  /* with a size; below MEGABYTES */
	size_t ordered;           /* by calls in the window */
	uint64_t bytes;
};

static struct comm_counts count_comms(const struct lg_trace *t, const struct lg_gpu_run *r)
{
	struct comm_counts n = { 0 };
	int64_t last_compute = 0;

	LG_EACH(w, r->work, r->n_work) {
		uint64_t bytes;

		/* A kernel may reach over the window's edges: of the time alone is told what lies inside. */
		if (w->class == LG_GPU_COMM && w->end > r->from && w->ts < r->to)
			n.kernel_ns += LG_MIN(w->end, r->to) - LG_MAX(w->ts, r->from);
		/* The host runs ahead: what a step orders may run after the window. */
		n.ordered += w->class == LG_GPU_COMM && w->call != LG_NO_ROW &&
			     w->called >= lg_gpu_asked_from(r) && w->called < r->to;
		if (w->ts < r->from || w->ts >= r->to)
			continue;
		if (w->class != LG_GPU_COMM) {
			last_compute = LG_MAX(w->end, last_compute);
			continue;
		}
		n.shared += w->ts < last_compute;
		bytes = lg_coll_bytes(t, w->span);
		n.n_known += bytes > 0;
		n.bytes += bytes;
		n.n_small += bytes && bytes < LG_N_COMMS_SMALL_MESSAGES_MEGABYTES * UINT64_C(1000000);
		n.n++;
	}
	n.ordered = LG_MAX(n.ordered, r->n_comm);
	return n;
}

/* By size where it is known, else by a length that is mostly latency. */
static bool are_small(const struct lg_gpu_run *r, const struct comm_counts *n)
{
	return n->ordered >= LG_N_COMMS_SMALL_MESSAGES_MANY * (r->n_steps ? r->n_steps : 1) &&
	       (n->n_known ? n->n_small * 2 > n->n_known
			   : r->comm_ns / (int64_t)r->n_comm < LG_N_COMMS_SMALL_MESSAGES_SHORT);
}

static void exposed_evidence(struct lg_case *c, struct lg_finding *f, const struct lg_gpu *g,
			     const struct lg_gpu_run *r, const struct comm_counts *n)
{
	lg_evidence(c, f, LG_SAYS_COMMS_EXPOSED_KERNELS, r->n_comm, lg_ms(n->kernel_ns), 100 *
		    (double)r->by[LG_GPU_BY_COMM] / (double)(n->kernel_ns ? n->kernel_ns : 1));
	if (n->n_known)
		lg_evidence(c, f, LG_SAYS_COMMS_EXPOSED_SIZE, lg_ms(n->bytes) / (double)n->n_known,
			    n->n_known);
	lg_evidence(c, f, LG_SAYS_COMMS_EXPOSED_UNDER_KERNELS, n->shared, n->n);
	lg_gpu_moments(c, f, r, LG_GPU_BIT(LG_GPU_BY_COMM), 3, "collective alone");
	if (g->n == 1)
		lg_evidence_against(c, f, LG_SAYS_COMMS_EXPOSED_ONE_RANK);
}

/* What is exposed, by kinds that each want advice of their own. */
static void tell_kinds(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r, double share)
{
	struct lg_exposed_kind kind[LG_TRAFFIC_MAX];
	size_t n = lg_exposed_kinds(&c->scene, r, kind);
	const char *list = "";
	struct lg_loss_part *part = lg_arena_alloc(&c->v->arena, n, sizeof *part);

	for (size_t i = 0; part && i < n; i++) {
		const char *detail = advice_for(r, kind[i].is), *says;
		struct lg_loss_part *last = i ? &part[f->n_loss_parts - 1] : NULL;

		says = lg_text(c, "%s (%.0f %%)", kind[i].op, 100 * kind[i].share);
		list = lg_text(c, "%s%s%s", list, i ? ", " : "", says);
		if (last && last->detail == detail)
			last->says = lg_text(c, "%s, %s", last->says, says);
		else
			part[f->n_loss_parts++] = (struct lg_loss_part){ .says = says, .detail = detail };
	}
	f->detail = advice_for(r, kind[0].is);
	f->loss_parts = part;
	if (n < 2 || f->n_loss_parts < 2)
		f->n_loss_parts = 0;
	if (n < 2)
		list = kind[0].share > 0.5 ? lg_text(c, "most of it in %s", kind[0].op) : "";
	lg_title(c, f, LG_SAYS_COMMS_EXPOSED_TITLE, share * 100, *list ? ", " : "", n > 1 ?
		 "of it in " : "", list);
}

/* Whose work the stages of a pipeline wait for. Transfers take as long on all ranks; this is no transfer. */
static void name_long_stage(struct lg_case *c, struct lg_finding *f, const struct lg_gpu *g, double share)
{
	struct lg_long_stage s;

	if (!f->detail || strcmp(f->detail, "send_recv") || f->n_loss_parts || !lg_long_stage(g, &s))
		return;
	f->detail = "uneven_stages";
	f->culprit.relation = LG_RELATION_RANK;
	f->culprit.rank = s.run->rank;
	f->culprit.pid = c->t->process.pid[s.run->prc];
	f->culprit.function = NULL;
	LG_KEEP(x, f->victims, f->n_victims, x->rank != s.run->rank);
	lg_title(c, f, LG_SAYS_COMMS_EXPOSED_LONG_STAGE, share * 100, s.run->rank, s.own_ms,
		 s.others_ms);
	if (s.replicas)
		lg_evidence(c, f, LG_SAYS_COMMS_EXPOSED_LONG_STAGES, s.replicas, s.replicas == 1 ?
			    " has" : "s have", s.run->rank);
	for (size_t i = 0; i < g->n && i < RANKS_TOLD; i++) {
		const struct lg_gpu_run *r = &g->run[i];
		double step = lg_ms(lg_gpu_wall(r)) / (double)r->n_steps;
		double stands = lg_ms(r->by[LG_GPU_BY_COMM]) / (double)r->n_steps;

		lg_evidence(c, f, LG_SAYS_COMMS_EXPOSED_STAGE_OF, r->rank, step - stands, stands);
	}
	if (g->n > RANKS_TOLD)
		lg_evidence(c, f, LG_SAYS_COMMS_EXPOSED_MORE_STAGES, g->n - RANKS_TOLD);
}

static void exposed(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_gpu_loss l = lg_gpu_lost(g, LG_GPU_BIT(LG_GPU_BY_COMM));
	const struct lg_gpu_run *r = l.worst;
	double wait = l.ms > 0 ? fmin(waits_of(g) / 1e6 / l.ms, 1) : 0;
	struct comm_counts n;
	struct lg_finding *f;
	bool small;

	if (!r || !r->n_comm)
		return;
	if (l.ms > 0)
		wait = fmin(wait + (g->slow_link ? g->slow_link->mean : 0) / 1e6 / l.ms, 1);
	l.ms *= 1 - wait;
	l.share *= 1 - wait;
	n = count_comms(c->t, r);
	small = are_small(r, &n);
	f = lg_gpu_idles(c, g, small ? LG_R_COMMS_SMALL_MESSAGES : LG_R_COMMS_EXPOSED, &l,
			 small ? LG_N_COMMS_SMALL_MESSAGES_FLOOR : LG_N_COMMS_EXPOSED_FLOOR, 0.9);
	if (!f)
		return;
	/* The last bucket has nothing left to hide under: a job that hides all others is a good one. */
	if (l.share < LG_N_COMMS_EXPOSED_TAIL &&
	    (double)r->by[LG_GPU_BY_COMM] < LG_N_COMMS_EXPOSED_HIDDEN * (double)r->comm_ns) {
		f->ordinary = true;
		lg_cap(f, LG_CAP_ORDINARY);
		lg_evidence_against(c, f, LG_SAYS_COMMS_EXPOSED_LAST_ONE, 100 - 100 *
				    (double)r->by[LG_GPU_BY_COMM] / (double)r->comm_ns);
	}
	if (!small) {
		tell_kinds(c, f, r, l.share);
		name_long_stage(c, f, g, l.share);
	} else {
		lg_title(c, f, LG_SAYS_COMMS_SMALL_MESSAGES_TITLE, n.ordered / (r->n_steps ?
			 r->n_steps : 1), lg_gpu_a_step(r), (double)r->comm_ns / (double)r->n_comm /
			 1e3, l.share * 100);
		if (by_ddp(c, r))
			f->detail = "ddp_buckets";
	}
	exposed_evidence(c, f, g, r, &n);
}

/* ---- what logs and dumps say (marks) ---- */

/* The operation and size of a watchdog line: what has to be equal on all ranks. */
static bool same_call(const char *a, const char *b)
{
	static const char *const keys[] = { "OpType=", "NumelIn=", "NumelOut=" };

	for (size_t k = 0; k < 3; k++) {
		const char *x = strstr(a, keys[k]), *y = strstr(b, keys[k]);
		size_t n;

		if (!x || !y)
			continue;
		x += strlen(keys[k]);
		y += strlen(keys[k]);
		n = strcspn(x, ", )");
		if (n != strcspn(y, ", )") || strncmp(x, y, n))
			return false;
	}
	return true;
}

/*
 * Which group a watchdog's line is of: "[PG ID 2 PG GUID 5(TP) Rank 1]" (the id is the process's own, the GUID
 * is the group's name on all ranks), before torch 2.5 "[PG 5 (TP) Rank 1]". Before 2.2 it is not told: *ret_n = 0.
 */
static const char *group_of(const char *line, size_t *ret_n)
{
	const char *at = *line == '[' ? line + 1 : line, *end = *line == '[' ? strchr(at, ']') : NULL;
	const char *name = end && !strncmp(at, "PG ", 3) ? memmem(at, (size_t)(end - at), "PG GUID ", 8) : NULL;
	const char *rank = end ? memmem(at, (size_t)(end - at), " Rank ", 6) : NULL;

	*ret_n = 0;
	if (!rank || strncmp(at, "PG ", 3))
		return at;
	at = name ? name + 8 : at + 3;
	*ret_n = rank > at ? (size_t)(rank - at) : 0;
	return at;
}

/* May two watchdogs' lines of one number be of two groups? Each group counts for itself. */
static bool other_group(const char *a, const char *b)
{
	size_t n, k;
	const char *x = group_of(a, &n), *y = group_of(b, &k);

	return n && k && (n != k || memcmp(x, y, n));
}

/* Another rank's timeout of v[0..n) under the same number, in another operation; t->mark.n = none. */
static size_t parted_from(const struct lg_trace *t, const uint32_t *v, size_t n, size_t i)
{
	const char *text = lg_string(t, t->mark.text[i]);

	for (size_t k = 0; k < n; k++) {
		const char *other = lg_string(t, t->mark.text[v[k]]);

		if (t->mark.value[v[k]] == t->mark.value[i] &&
		    lg_rank_of_mark(t, v[k]) != lg_rank_of_mark(t, i) && !other_group(other, text) &&
		    !same_call(other, text))
			return v[k];
	}
	return t->mark.n;
}

/* "ALLREDUCE of 80 elements" of a watchdog's line. */
static const char *op_type(struct lg_case *c, const char *line)
{
	const char *at = strstr(line, "OpType="), *numel = strstr(line, "NumelIn=");
	int n = at ? (int)strcspn(at + 7, ", )") : 0, k = numel ? (int)strcspn(numel + 8, ", )") : 0;

	return !at ? "another operation"
	       : numel ? lg_text(c, "%.*s of %.*s elements", n, at + 7, k, numel + 8)
		       : lg_text(c, "%.*s", n, at + 7);
}

static bool one_place(const struct lg_trace *t, size_t a, size_t b)
{
	return t->mark.value[a] == t->mark.value[b] &&
	       !other_group(lg_string(t, t->mark.text[a]), lg_string(t, t->mark.text[b]));
}

/* How many ranks of v[0..n) call at line i's place what it calls (same), or something else: *ret_one. A rank
 * counts once. */
static size_t ranks_there(const struct lg_trace *t, const uint32_t *v, size_t n, size_t i, bool same,
			  size_t *ret_one)
{
	uint8_t seen[4096] = { 0 };
	size_t ranks = 0;

	for (size_t k = 0; k < n; k++) {
		int32_t rank = lg_rank_of_mark(t, v[k]);

		if (rank < 0 || rank >= 4096 || seen[rank] || !one_place(t, v[k], i) ||
		    same_call(lg_string(t, t->mark.text[v[k]]), lg_string(t, t->mark.text[i])) != same)
			continue;
		seen[rank] = 1;
		*ret_one = v[k];
		ranks++;
	}
	return ranks;
}

/* Most ranks are right, as a rule: the few that call something else are named. */
static void name_odd(struct lg_case *c, struct lg_finding *f, const uint32_t *v, size_t n, size_t a, size_t b)
{
	const struct lg_trace *t = c->t;
	size_t one = 0, other = 0, n_a = ranks_there(t, v, n, a, true, &one), n_b;

	n_b = ranks_there(t, v, n, a, false, &other);
	if (n_a < n_b) { /* of the others all have to agree, and b is one of them */
		one = b;
		n_a = ranks_there(t, v, n, b, true, &one);
		n_b = ranks_there(t, v, n, b, false, &other);
	}
	if (n_b != 1 || n_a < 3)
		return;
	f->culprit.rank = lg_rank_of_mark(t, other);
	lg_title(c, f, LG_SAYS_COMMS_MISMATCH_ONE_RANK_CALLS, f->culprit.rank, op_type(c,
		 lg_string(t, t->mark.text[other])), n_a, op_type(c, lg_string(t,
		 t->mark.text[one])));
	lg_evidence_against(c, f, LG_SAYS_COMMS_MISMATCH_WHO_IS_ALONE, f->culprit.rank);
}

/* The sequences part: torch's own check says so, or the watchdogs of two ranks waited in different
 * operations under one number. */
static void mismatch(struct lg_case *c)
{
	enum { LINES_MAX = 8192 }; /* a few of each rank */
	const struct lg_trace *t = c->t;
	struct lg_finding *f = NULL;
	LG_AUTOFREE uint32_t *timeout = lg_calloc(LG_MIN(t->mark.n, LINES_MAX), sizeof *timeout);
	size_t n = 0, n_timeouts = 0, sure = 0, parted[2] = { t->mark.n, t->mark.n };

	if (lg_failed(c, timeout ? 0 : LG_E_NOMEM))
		return;
	for (size_t i = 0; i < t->mark.n; i++) {
		size_t other = t->mark.n, told[2];

		if (lg_is_mark(t, i, "log.watchdog_timeout")) {
			if (n_timeouts < LINES_MAX)
				other = parted_from(t, timeout, n_timeouts, i);
			if (n_timeouts < LINES_MAX)
				timeout[n_timeouts++] = (uint32_t)i;
			if (other == t->mark.n)
				continue;
		} else if (!lg_is_mark(t, i, "log.collective_mismatch")) {
			continue;
		}
		f = f ? f : lg_flight_finding(c, LG_R_COMMS_MISMATCH, 0.95, -1);
		f->title = LG_SAYS_COMMS_MISMATCH_TITLE;
		(void)group_of(lg_string(t, t->mark.text[i]), &told[0]);
		(void)group_of(lg_string(t, t->mark.text[other < t->mark.n ? other : i]), &told[1]);
		sure += other == t->mark.n || (told[0] && told[1]);
		if (other < t->mark.n && parted[0] == t->mark.n) {
			parted[0] = other;
			parted[1] = i;
		} else if (other < t->mark.n && one_place(t, i, parted[0])) {
			continue; /* the first pair says it */
		}
		if (++n > 4)
			continue;
		if (other < t->mark.n)
			lg_evidence_add(c, f, t->mark.ts[other], 0, "rank %d: %s", lg_rank_of_mark(t, other),
					lg_string(t, t->mark.text[other]));
		lg_evidence_add(c, f, t->mark.ts[i], 0, "rank %d: %s", lg_rank_of_mark(t, i), lg_string(t,
				t->mark.text[i]));
	}
	if (f && parted[0] < t->mark.n)
		name_odd(c, f, timeout, n_timeouts, parted[0], parted[1]);
	if (f && !sure) {
		f->confidence = 0.75;
		lg_evidence_against(c, f, LG_SAYS_COMMS_MISMATCH_NO_GROUP);
	}
}

/* Where those wait that a watchdog reports: in one collective, in several, or it is not told. */
enum place { PLACE_UNKNOWN, PLACE_ONE, PLACE_MANY };

static enum place place_of(const struct lg_trace *t)
{
	size_t first = t->mark.n;

	LG_EACH_MARK(i, t, "log.watchdog_timeout") {
		const char *a, *b;

		first = first < t->mark.n ? first : i;
		a = lg_string(t, t->mark.text[first]);
		b = lg_string(t, t->mark.text[i]);
		if (t->mark.value[i] != t->mark.value[first] || other_group(a, b) || !same_call(a, b))
			return PLACE_MANY;
	}
	return first < t->mark.n ? PLACE_ONE : PLACE_UNKNOWN;
}

/* Who waited until a timeout, and who did not. */
struct timeouts {
	uint8_t said[4096];
	int32_t world;
	int32_t named, first; /* by torch, or the first that is silent; the first that complains */
	size_t n, silent, complain;
	bool whole; /* the size of the world is told, not guessed */
};

/* Logs seldom tell the size of the world: there are at least the ranks that they name, and those below.
 * Two that complain may be all of their group. */
static void who_is_silent(const struct lg_trace *t, struct timeouts *w)
{
	for (int32_t k = 4095; k >= 0; k--) {
		w->complain += w->said[k];
		w->first = w->said[k] ? k : w->first;
	}
	w->whole = w->world > 0;
	for (size_t i = 1; !w->whole && w->complain >= 3 && i < t->process.n; i++) {
		int32_t rank = t->process.rank[i];

		w->world = rank >= w->world && rank < 4096 ? rank + 1 : w->world;
	}
	for (int32_t k = 0; k < w->world && k < 4096; k++)
		if (!w->said[k]) {
			if (w->named < 0 && !w->silent)
				w->named = k;
			w->silent++;
		}
}

/* "ranks 5, 6", where few of those that the logs tell of are silent; else NULL. */
static const char *few_silent(struct lg_case *c, const struct timeouts *w)
{
	enum { FEW = 8 };
	const char *list = NULL;

	if (w->silent < 2 || w->silent > FEW || w->silent * 4 > w->complain)
		return NULL;
	for (int32_t k = 0; k < w->world && k < 4096; k++)
		if (!w->said[k])
			list = list ? lg_text(c, "%s, %d", list, k) : lg_text(c, "ranks %d", k);
	return list;
}

/* No rank is accused: what is known is where those wait that report. */
static void say_hang(struct lg_case *c, struct lg_finding *f, const struct timeouts *w)
{
	enum place place = place_of(c->t);
	struct lg_arena *a = &c->v->arena;
	const char *silent = few_silent(c, w);

	f->title = LG_SAYS_COMMS_MISSING_RANK_TITLE;
	if (place == PLACE_MANY) {
		f->title = LG_SAYS_COMMS_MISSING_RANK_DIFFERENT_PLACES;
	} else if (place == PLACE_ONE && w->complain > 1) {
		bool all = w->whole && !w->silent;

		f->detail = "hang";
		if (silent)
			lg_evidence(c, f, LG_SAYS_COMMS_MISSING_RANK_SILENT_RANKS, w->complain,
				    silent);
		lg_title(c, f, LG_SAYS_COMMS_MISSING_RANK_SAME_PLACE, all ? "all " : "",
			 w->complain, all ? " of the job" : ", all that report,", all ? "" : silent
			 ? lg_arena_printf(a, LG_SAYS_COMMS_MISSING_RANK_OR_SILENT, silent) :
			 LG_SAYS_COMMS_MISSING_RANK_OR_NO_LOG);
		f->culprit.relation = all ? LG_RELATION_HARDWARE : LG_RELATION_RANK;
		if (all)
			return;
	} else if (w->complain == 1) {
		lg_title(c, f, LG_SAYS_COMMS_MISSING_RANK_ONE_COMPLAINS, w->first);
	}
	lg_evidence_against(c, f, LG_SAYS_COMMS_MISSING_RANK_NOT_TOLD);
}

/* Somebody waited until a timeout. Whoever does not complain is the one to look at. */
static void missing(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	struct timeouts w = { .named = -1, .first = -1 };
	struct lg_finding *f = NULL;
	bool by_name;

	if (lg_is_told(c, LG_R_COMMS_MISSING_RANK)) /* dumps know more than watchdogs */
		return;
	for (size_t i = 0; i < t->mark.n; i++) {
		bool barrier = lg_is_mark(t, i, "log.barrier_timeout");
		int32_t rank = lg_rank_of_mark(t, i), world = t->process.world[t->thread.prc[t->mark.thr[i]]];

		if (!barrier && !lg_is_mark(t, i, "log.watchdog_timeout") && !lg_is_mark(t, i, "log.gloo_timeout"))
			continue;
		f = f ? f : lg_flight_finding(c, LG_R_COMMS_MISSING_RANK, barrier ? 0.9 : 0.75, -1);
		if (barrier && t->mark.value[i] >= 0 && t->mark.value[i] < 4096)
			w.named = (int32_t)t->mark.value[i];
		if (rank >= 0 && rank < 4096)
			w.said[rank] = 1;
		w.world = LG_MAX(world, w.world);
		if (++w.n <= 4)
			lg_evidence_add(c, f, t->mark.ts[i], 0, "%s", lg_string(t, t->mark.text[i]));
	}
	if (!f)
		return;
	by_name = w.named >= 0;
	who_is_silent(t, &w);
	if (!by_name && !w.whole && w.world)
		f->confidence *= 0.85; /* how many ranks there are is guessed */
	/* One silent rank is an accusation; many only mean that their logs are not here. */
	if (w.named >= 0 && (w.silent <= 1 || f->confidence > 0.8)) {
		f->culprit.rank = w.named;
		lg_title(c, f, LG_SAYS_COMMS_MISSING_RANK_NEVER_ARRIVED, w.named);
		if (w.silent)
			lg_evidence(c, f, LG_SAYS_COMMS_MISSING_RANK_ONE_SILENT, w.complain,
				    w.named);
	} else {
		say_hang(c, f, &w);
	}
}

int lg_find_comms(struct lg_case *c, struct lg_gpu *g)
{
	exposed(c, g);
	if (lg_find_flight(c) || lg_find_sequences(c))
		return c->failed = LG_E_NOMEM;
	mismatch(c);
	missing(c);
	return c->failed;
}
