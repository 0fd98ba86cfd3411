/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io.c - a wait for a disk: whose request it was, and who else kept that disk busy.
 *
 * What a thread waits for is in its own stack: below the frame of a system call that writes or syncs it
 * waits for its own bytes, and no other program has to exist for that. Somebody else is named only
 * where the numbers say so: a disk that was busy in those seconds, most of whose bytes were not the job's,
 * and one process that had at least half of those read or written. Bytes that stayed in the page cache are
 * nobody's fault: only what the device moved counts (record/disks.c).
 */
#include "analyse/host/causes.h"

#include "analyse/chains/culprit.h"
#include "base/upper_bound.h"

#define ROW_COVERS_NS INT64_C(1200000000) /* a second, and a late drain */

/* Does a row that ends at ts count time of one of the waits? They are in time order. */
static bool counts(const struct lg_cause_sum *s, int64_t ts)
{
	size_t lo = 0, hi = s->n_pieces;

	LG_BISECT(lo, hi, mid, s->pieces[mid]->ts < ts);
	return lo && s->pieces[lo - 1]->ts + s->pieces[lo - 1]->dur > ts - ROW_COVERS_NS;
}

struct load {
	double *of_prc; /* bytes */
	double *bytes, *busy_ns; /* by disk */
	size_t n_disks;
	double seconds; /* that the rows in question count */
};

enum { DISKS_MAX = 64 };

static const char *text_after(const char *text, const char *prefix)
{
	size_t n = strlen(prefix);

	return strncmp(text, prefix, n) ? NULL : text + n;
}

static void add_up(struct lg_case *c, const struct lg_cause_sum *s, struct load *l, const char **names)
{
	const struct lg_counter_tab *k = &c->t->counter;
	int64_t last = INT64_MIN;

	for (size_t i = 0; i < k->n; i++) {
		const char *name = lg_string(c->t, c->t->track.name[k->track[i]]), *disk;
		bool busy = false;
		size_t at = 0;

		if (strncmp(name, "io.", 3) && strncmp(name, "disk.", 5))
			continue;
		if (!counts(s, k->ts[i]))
			continue;
		if (k->ts[i] != last) {
			l->seconds += 1; /* about: a second each, the last one less */
			last = k->ts[i];
		}
		if (!strcmp(name, "io.read") || !strcmp(name, "io.written")) {
			l->of_prc[c->t->track.prc[k->track[i]]] += k->value[i];
			continue;
		}
		busy = !strncmp(name, "disk.busy ", 10);
		disk = busy ? name + 10 : text_after(name, "disk.read ");
		disk = disk ?: text_after(name, "disk.written ");
		if (!disk)
			continue;
		while (at < l->n_disks && strcmp(names[at], disk))
			at++;
		if (at == DISKS_MAX)
			continue;
		if (at == l->n_disks)
			names[l->n_disks++] = disk;
		(busy ? l->busy_ns : l->bytes)[at] += k->value[i];
	}
}

static const char *bytes_text(struct lg_case *c, double n)
{
	return n >= 1e9 ? lg_text(c, "%.1f GB", n / 1e9) : lg_text(c, "%.0f MB", n / 1e6);
}

/* The disk with nearly all of the work in those seconds; DISKS_MAX: several, or none was seen. */
static size_t the_disk(const struct load *l)
{
	double all = 0;
	size_t best = 0;

	for (size_t i = 0; i < l->n_disks; i++) {
		all += l->busy_ns[i];
		if (l->busy_ns[i] > l->busy_ns[best])
			best = i;
	}
	return all > 0 && l->busy_ns[best] >= LG_N_HOST_IO_WAIT_ONE * all ? best : DISKS_MAX;
}

static void tell(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s,
		 struct lg_io_story *st, struct load *l, const char **names)
{
	const struct lg_process_tab *p = &c->t->process;
	double own = 0, rest, share;
	size_t at = the_disk(l);
	lg_prc top = 0;

	for (lg_prc i = 1; i < p->n; i++) {
		if (lg_in_job(c, i) || (!st->by_job && i == c->t->thread.prc[s->victim]))
			own += l->of_prc[i];
		else if (l->of_prc[i] > l->of_prc[top])
			top = i;
	}
	if (at == DISKS_MAX)
		return;
	st->disk = lg_arena_strdup(&c->v->arena, names[at]);
	share = l->busy_ns[at] / 1e9 / l->seconds;
	lg_evidence(c, f, LG_SAYS_HOST_IO_WAIT_DISK, l->seconds, st->disk,
		    bytes_text(c, l->bytes[at]), 100 * (share > 1 ? 1 : share), bytes_text(c, own));
	rest = l->bytes[at] - own;
	if (!top || rest < 1e6 * LG_N_HOST_IO_WAIT_MEGABYTES || l->of_prc[top] < rest / 2 ||
	    rest < own * LG_N_HOST_IO_WAIT_TIMES || share < LG_N_HOST_IO_WAIT_BUSY || !c->idx->main_of[top])
		return;
	st->other = c->idx->main_of[top];
	lg_evidence(c, f, LG_SAYS_HOST_IO_WAIT_OTHER, lg_thread_text(c, st->other),
		    bytes_text(c, l->of_prc[top]), bytes_text(c, rest));
}

void lg_io_tell(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s, struct lg_io_story *st)
{
	static const char *const details[] = { [LG_IO_READ] = "own_read", [LG_IO_WRITE] = "own_write",
					       [LG_IO_SYNC] = "own_sync" };
	const struct lg_trace *t = c->t;
	const char *names[DISKS_MAX];
	double busy[DISKS_MAX] = { 0 }, bytes[DISKS_MAX] = { 0 };
	struct load l = { .bytes = bytes, .busy_ns = busy };
	const struct lg_piece *longest = lg_longest_piece(s);

	*st = (struct lg_io_story){ .by_job = lg_in_job(c, t->thread.prc[s->victim]) };
	st->kind = lg_io_kind_of(c, longest->row, &st->call);
	l.of_prc = lg_scratch(c, t->process.n, sizeof *l.of_prc);
	if (!l.of_prc)
		return;
	add_up(c, s, &l, names);
	tell(c, f, s, st, &l, names);
	lg_free(l.of_prc);
	if (st->other) {
		f->detail = "other_load";
		lg_culprit_identify(c, f, st->other, s->victim);
		return;
	}
	f->detail = details[st->kind];
	if (st->kind) {
		lg_culprit_identify(c, f, longest->of, st->by_job ? longest->of : 0);
		lg_culprit_set_stack(c, f, t->state.stack[longest->row]);
		f->culprit.function = st->call;
	}
}

const char *lg_io_title(struct lg_case *c, const struct lg_finding *f, const struct lg_io_story *st,
			const char *ranks, const char *every)
{
	static const char *const whats[] = { [LG_IO_READ] = "what it read", [LG_IO_WRITE] = "its own writes",
					     [LG_IO_SYNC] = "its own writes to reach the disk" };
	const char *disk = st->disk ? lg_text(c, ", disk %s", st->disk) : "";
	const char *who = f->culprit.comm ? lg_text(c, "%s (pid %d)", f->culprit.comm, f->culprit.pid) : "";

	if (st->other)
		return lg_text(c, LG_SAYS_HOST_IO_WAIT_KEPT_BUSY, ranks, st->disk, who, every);
	if (!st->kind)
		return lg_text(c, "%s waited for a block device%s%s", ranks, disk, every);
	return lg_text(c, "%s waited for %s%s%s (%s%s)%s", ranks, st->by_job ? "" : who,
		       st->by_job ? "" : ", which waited for ", whats[st->kind], st->call, disk, every);
}
