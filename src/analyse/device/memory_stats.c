/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_stats.c - what the allocator of device memory counts of itself (memory_stats(), memory_summary(),
 * the hook under record --memory), where no snapshot tells more.
 *
 * inactive_split_bytes is what lies idle in segments that hold something else as well: what mem.fragmentation
 * of a snapshot is about. Between steps such memory is a cache; what was reserved at most and never
 * allocated, at most, was of no use even then.
 */
#include <math.h>

#include "analyse/finders.h"
#include "base/words.h"
#include "memory/memory.h"

enum what { ALLOCATED, ALLOCATED_PEAK, RESERVED, RESERVED_PEAK, INACTIVE, RETRIES, OOMS, WHATS };

static const char *const names[WHATS] = {
	[ALLOCATED] = "memory allocated", [ALLOCATED_PEAK] = "memory allocated peak",
	[RESERVED] = "memory reserved",	  [RESERVED_PEAK] = "memory reserved peak",
	[INACTIVE] = "memory inactive",	  [RETRIES] = "memory retries",
	[OOMS] = "memory ooms",
};

/* Of one device of one process: the largest values. */
struct stats {
	double most[WHATS]; /* NAN: not told */
	double first_retries;
	int64_t ts[WHATS]; /* of the first reading of it */
	lg_prc prc;
	int32_t index;
};

/* A counter's track that tells of one of them. */
struct told {
	lg_trk gpu, track;
	size_t what;
};

LG_ORDER_BY(by_device, struct told, LG_CMP(x->gpu, y->gpu) ?: LG_CMP(x->track, y->track))

/* Of devices of which there is no snapshot, which tells more. */
static int find_told(struct lg_case *c, struct told **ret, size_t *ret_n)
{
	const struct lg_track_tab *t = &c->t->track;
	LG_AUTOFREE bool *has_snapshot = lg_scratch(c, t->n, sizeof *has_snapshot);
	size_t cap = 0;

	for (size_t i = 0; has_snapshot && c->v->memory && i < c->v->memory->n_devices; i++)
		has_snapshot[t->parent[c->v->memory->device[i].track]] = true;
	for (lg_trk k = 1; has_snapshot && k < t->n; k++) {
		lg_trk gpu = t->parent[k];
		size_t i = 0;

		if (t->kind[k] != LG_TRACK_COUNTER || t->kind[gpu] != LG_TRACK_GPU || has_snapshot[gpu])
			continue;
		while (i < WHATS && strcmp(lg_string(c->t, t->name[k]), names[i]) != 0)
			i++;
		if (i < WHATS && lg_failed(c, LG_APPEND(*ret, *ret_n, cap, (struct told){ gpu, k, i })))
			break;
	}
	LG_SORT(*ret, *ret_n, by_device);
	return c->failed;
}

static void read_stats(const struct lg_case *c, const struct told *told, size_t n, struct stats *s)
{
	*s = (struct stats){ .prc = c->t->track.prc[told->gpu], .index = c->t->track.index[told->gpu],
			     .first_retries = NAN };
	for (size_t i = 0; i < WHATS; i++)
		s->most[i] = NAN;
	LG_EACH(x, told, n)
		LG_LISTED(row, c->idx->counter, x->track) {
			double v = c->t->counter.value[row];

			if (x->what == RETRIES && isnan(s->first_retries))
				s->first_retries = v;
			if (v > s->most[x->what] || isnan(s->most[x->what])) {
				s->most[x->what] = v;
				s->ts[x->what] = c->t->counter.ts[row];
			}
		}
	s->most[ALLOCATED_PEAK] = fmax(s->most[ALLOCATED_PEAK], s->most[ALLOCATED]);
	s->most[RESERVED_PEAK] = fmax(s->most[RESERVED_PEAK], s->most[RESERVED]);
}

static struct lg_finding *about(struct lg_case *c, const struct stats *s, enum lg_rule_id rule,
				const char *detail)
{
	struct lg_finding *f = lg_finding_about(c, rule, LG_STAGE_NONE, LG_RELATION_SELF, 0.9);

	f->culprit.rank = c->t->process.rank[s->prc];
	f->detail = detail;
	return f;
}

static const char *which(struct lg_case *c, const struct stats *s)
{
	return s->index < 0 ? "" : lg_text(c, " of device %d", s->index);
}

static void say_ooms(struct lg_case *c, const struct stats *s)
{
	struct lg_finding *f = about(c, s, LG_R_MEM_OOM, "counted");

	lg_cap(f, LG_CAP_UNMEASURED); /* the program went on, or it could not have said so */
	lg_title(c, f, LG_SAYS_MEM_OOM_BY_COUNT, s->most[OOMS], which(c, s));
	lg_evidence_add(c, f, s->ts[OOMS], 0, LG_SAYS_MEM_OOM_BY_WHOM);
}

static void say_retries(struct lg_case *c, const struct stats *s)
{
	struct lg_finding *f = about(c, s, LG_R_GPU_ALLOCATOR_SYNC, "retries");

	lg_cap(f, LG_CAP_UNMEASURED);
	lg_title(c, f, LG_SAYS_MEM_CHURN_RETRIES, s->most[RETRIES], which(c, s));
	lg_evidence_add(c, f, s->ts[RETRIES], 0, LG_SAYS_MEM_CHURN_RETRIES_ROSE, s->first_retries,
			s->most[RETRIES]);
}

static void say_pieces(struct lg_case *c, const struct stats *s)
{
	double unused = s->most[RESERVED_PEAK] - s->most[ALLOCATED_PEAK];
	struct lg_finding *f;
	char a[LG_BYTES_TEXT], b[LG_BYTES_TEXT], d[LG_BYTES_TEXT];

	/* Comparisons with what is not told are false. */
	if (!(unused >= LG_N_MEM_FRAGMENTATION_IDLE * s->most[RESERVED_PEAK]) ||
	    !(s->most[INACTIVE] >= LG_N_MEM_FRAGMENTATION_IDLE * s->most[RESERVED_PEAK]) ||
	    !(fmin(unused, s->most[INACTIVE]) >= (double)((uint64_t)LG_N_MEM_FRAGMENTATION_MIB << 20)))
		return;
	f = about(c, s, LG_R_MEM_FRAGMENTATION, "counted");
	lg_title(c, f, LG_SAYS_MEM_FRAGMENTATION_BY_COUNT, which(c, s), lg_bytes_text(s->most[INACTIVE], a));
	lg_evidence_add(c, f, s->ts[INACTIVE], 0, LG_SAYS_MEM_FRAGMENTATION_PEAKS,
			lg_bytes_text(s->most[RESERVED_PEAK], b), lg_bytes_text(s->most[ALLOCATED_PEAK], d));
	lg_evidence_against(c, f, LG_SAYS_MEM_FRAGMENTATION_NO_STACKS);
}

int lg_find_memory_stats(struct lg_case *c)
{
	LG_AUTOFREE struct told *told = NULL;
	size_t n = 0;

	if (find_told(c, &told, &n))
		return c->failed;
	LG_EACH_RUN(i, j, 0, n, told[j].gpu == told[i].gpu) {
		struct stats s;

		read_stats(c, &told[i], j - i, &s);
		if (s.most[OOMS] > 0 && !lg_is_told(c, LG_R_MEM_OOM))
			say_ooms(c, &s);
		if (s.most[RETRIES] > 0 && !lg_is_told(c, LG_R_GPU_ALLOCATOR_SYNC))
			say_retries(c, &s);
		say_pieces(c, &s);
	}
	return c->failed;
}
