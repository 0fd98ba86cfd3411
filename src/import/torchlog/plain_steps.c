/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain_steps.c - step lines of loops of one's own, and of trainers that count within an epoch.
 *
 * Neither names itself: they are told by their form, and only where no framework's line was seen.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "import/torchlog/stated_times.h"
#include "import/torchlog/torchlog.h"

/* "step 10", "iter: 10", "[Iteration #10/500]": the number behind p, which begins a word; -1 = none. */
static long long numbered(const char *p, const char **ret_end)
{
	static const char *const words[] = { "step", "iteration", "iter", "it" };

	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		size_t k = strlen(words[i]), gap;
		long long n;
		char *end;

		if (strncasecmp(p, words[i], k))
			continue;
		gap = strspn(p + k, " \t:=#[");
		if (!gap || gap > 12 || !isdigit((unsigned char)p[k + gap]))
			continue;
		n = strtoll(p + k + gap, &end, 10);
		/* "step 0.1", "step 10ms", "step 3e-4" are no numbers of steps */
		if (isalpha((unsigned char)*end) || (strchr(".,_", *end) && isdigit((unsigned char)end[1])))
			continue;
		*ret_end = end;
		return n;
	}
	return -1;
}

enum { RISING = 8 }; /* so many times without a fall */

/*
 * One that may be of the step or of all steps so far. A total rises with each line, and falls to a half and
 * less where it begins anew; a step's time soon falls by less. Until that is told, none is taken.
 */
static void put_doubtful(struct lg_torchlog *l, const struct lg_log_line *line, int64_t number, double ms,
			 struct lg_log_step *s)
{
	s->rises += ms > s->maybe_ms && s->maybe_ms > 0;
	s->fell |= ms < s->maybe_ms && 2 * ms > s->maybe_ms;
	s->maybe_ms = ms;
	if (!s->fell && s->rises >= RISING)
		lg_torchlog_step_of_total(l, line, number, ms);
	else
		lg_torchlog_step(l, line, number, s->fell ? ms : (double)NAN);
}

static void put(struct lg_torchlog *l, const struct lg_log_line *line, int64_t number,
		const struct lg_stated_times *t)
{
	struct lg_log_step *s = lg_torchlog_last_step(l, lg_torchlog_thread(l, line), number - 1);

	if (s && t->maybe_total)
		put_doubtful(l, line, number, t->ms, s);
	else
		lg_torchlog_step(l, line, number, t->ms);
	lg_torchlog_waited(l, line, t->data_ms);
}

int lg_torchlog_plain_step(struct lg_torchlog *l, const struct lg_log_line *line)
{
	const char *m = line->msg, *end = NULL, *loss, *val;
	struct lg_stated_times t;
	long long n = -1;

	if (l->by_framework || !strstr(m, "oss"))
		return 0;
	for (const char *p = m; *p && n < 0; p++)
		if ((*p | 0x20) == 's' || (*p | 0x20) == 'i')
			n = p > m && isalnum((unsigned char)p[-1]) ? -1 : numbered(p, &end);
	val = strcasestr(m, "val");
	/* "val: n/a": none at this step */
	if (n < 0 || strcasestr(m, "test") || (val && !strcasestr(val, "n/a")))
		return 0;
	loss = strcasestr(m, "loss");
	if (!loss)
		return 0;
	lg_stated_times_of(m, &t);
	put(l, line, n, &t);
	loss += 4;
	loss += strspn(loss, " \t='\":");
	lg_torchlog_counter(l, line, "log.loss", "", -1,
			    isdigit((unsigned char)*loss) || *loss == '-' ? strtod(loss, NULL) : (double)NAN);
	return 1;
}

/* "[ 10/5005]", "[  50/1251 (  4%)]" at p, of which the number is the first. */
static bool counts(const char *p, long long *ret)
{
	char *end;

	p += 1 + strspn(p + 1, " ");
	if (!isdigit((unsigned char)*p))
		return false;
	*ret = strtoll(p, &end, 10);
	if (*end != '/' || !isdigit((unsigned char)end[1 + strspn(end + 1, " ")]))
		return false;
	end += 1 + strspn(end + 1, " ");
	end += strspn(end, "0123456789");
	end += strspn(end, " ");
	return *end == ']' || *end == '(';
}

/* The number behind the epoch's: "Epoch: [1/90][ 10/5005]", "Train: 0 [  50/1251 (  4%)]"; -1 = none. */
static long long in_epoch(const char *m)
{
	const char *p = strcasestr(m, "epoch");
	long long n = -1, found = -1;
	bool epoch = false;

	p = p ? p : !strncasecmp(m, "train", 5) ? m : NULL;
	for (; p && *p && found < 0; p++) {
		if (!strncasecmp(p, "val", 3) || !strncasecmp(p, "test", 4) || !strncasecmp(p, "loss", 4))
			return -1;
		if (*p == '[' && epoch && counts(p, &n))
			found = n;
		epoch |= isdigit((unsigned char)*p) != 0;
	}
	return found;
}

static void end_epoch(struct lg_torchlog *l, struct lg_log_step *s)
{
	static const char *const names[] = { "log.epoch_ms", "log.epoch_data_ms" };

	for (size_t i = 0; i < 2 && s->epoch_at > 0; i++) {
		struct lg_track_row track = { .kind = LG_TRACK_COUNTER, .name = lg_intern(l->b, names[i]),
					      .prc = lg_thread_process(l->b, s->thr), .index = -1,
					      .unit = lg_intern(l->b, "ms") };

		lg_add_counter(l->b,
			       &(struct lg_counter_row){ .ts = s->ts, .track = lg_track_get(l->b, &track),
							 .value = s->epoch[i] * (double)s->epoch_at });
	}
	s->epoch_at = 0;
}

int lg_torchlog_epoch_step(struct lg_torchlog *l, const struct lg_log_line *line)
{
	long long n = in_epoch(line->msg);
	struct lg_stated_times t;
	struct lg_log_step *s;

	if (n < 0 || n > LG_LOG_STEPS_MAX)
		return 0;
	/* MNIST's example counts images in these brackets, and states no time. */
	lg_stated_times_of(line->msg, &t);
	if (isnan(t.ms))
		return 0;
	put(l, line, n, &t);
	s = lg_torchlog_last_step(l, lg_torchlog_thread(l, line), n - 1);
	if (!s || isnan(t.data_mean) || isnan(t.mean))
		return 1;
	if (n < s->epoch_at)
		end_epoch(l, s);
	s->epoch_at = n;
	s->epoch[0] = t.mean;
	s->epoch[1] = t.data_mean;
	s->thr = lg_torchlog_thread(l, line);
	return 1;
}

void lg_torchlog_end_epochs(struct lg_torchlog *l)
{
	for (size_t i = 0; i < l->n_step; i++)
		end_epoch(l, &l->step[i]);
}
