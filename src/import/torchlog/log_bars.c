/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_bars.c - tqdm's progress bars: which of them count steps, and how long those took.
 *
 * A job draws bars for whatever takes long, most of them before its first step. A bar's own words tell what
 * it counts, and a loss behind its rate is a training's, whatever it is called. A bar without words may be a
 * training's (Hugging Face's Trainer) or anything else, so step lines and bars that say more go before it:
 * each kind has counters of its own name, and the analysis takes the surest.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "import/torchlog/torchlog.h"

enum {
	BARS_MAX = 4096,
	INDEX_MAX = 64,
	WINDOW_S = 10,
	BLURRED_MAX = 40,
	HELD_MAX = 40,
};
#define SMOOTHING 0.3 /* tqdm's */

struct lg_log_bar {
	int32_t index;
	enum lg_log_bar_kind kind;
	int64_t done; /* of its last line; -1 = none yet */
	int64_t ts;   /* of that line; INT64_MIN = not told */
	int64_t told, told_at; /* the step up to which times are given, and its elapsed seconds */
	int64_t base; /* elapsed seconds from which the rate's sum is held against the clock */
	double said;  /* that sum, in s */
	double usual; /* the last rate that agreed, in s */
	int blurred;  /* so many lines until the rate is believed again */
	int64_t held[HELD_MAX]; /* lines at which the clock has not moved since */
	size_t n_held;
};

/*
 * Preparations, by their verb. The libraries that say so: transformers ("Loading checkpoint shards", "Loading
 * weights"), vLLM ("Loading safetensors checkpoint shards", "Capturing CUDA graph shapes"), SGLang ("Multi-thread
 * loading shards", "Capturing batches", "Compiling num tokens"), diffusers ("Loading pipeline components"),
 * huggingface_hub ("Fetching 4 files", "Downloading shards", "Upload"), datasets ("Map", "Filter", "Flattening the
 * indices", "Casting the dataset", "Saving the dataset", "Creating parquet from Arrow format", "Resolving data
 * files", "Extracting data files"), TRL ("Tokenizing train dataset", "Applying chat template", "Adding EOS",
 * "Packing", "Truncating", "Converting"), AutoGPTQ ("Quantizing"), Ultralytics ("train: Scanning", "Caching
 * images"), mergekit ("Merging").
 */
static const char *const preparations[] = {
	"loading", "capturing", "compiling", "fetching", "downloading", "download", "uploading", "upload",
	"flattening", "casting", "saving", "creating", "resolving", "extracting", "tokenizing", "tokenising",
	"encoding", "preprocessing", "applying", "adding", "packing", "truncating", "converting", "quantizing",
	"scanning", "caching", "merging", "reading", "writing", "shuffling", "sorting", "indexing", "unpacking",
	"copying", "initializing", "materializing", "deduplicating", NULL };
/* datasets': a noun elsewhere */
static const char *const at_first[] = { "map", "filter", NULL };
/* Lightning: "Validation DataLoader 0", "Sanity Checking", "Predicting"; Accelerate's and one's own loops */
static const char *const evaluations[] = {
	"val", "valid", "eval", "dev", "test", "testing", "tests", "sanity", "inference", NULL };
static const char *const evaluation_stems[] = { "validat", "evaluat", "predict", "generat", "sampling", NULL };
/* Lightning: "Epoch 3"; "Training", "Train Epoch", "Steps", "Iteration" of one's own loops */
static const char *const loops[] = { "train", "epoch", "step", "iter", "pretrain", "finetun", "fitting", "batch", NULL };

static bool is_word(const char *const *list, bool begins, const char *word)
{
	for (; *list; list++)
		if (begins ? !strncmp(word, *list, strlen(*list)) : !strcmp(word, *list))
			return true;
	return false;
}

/* The next word of letters in small ones, of up to n - 1; NULL at the end. */
static const char *next_word(const char *p, const char *end, char *ret, size_t n)
{
	size_t k = 0;

	while (p < end && !isalpha((unsigned char)*p))
		p++;
	if (p == end)
		return NULL;
	for (; p < end && isalpha((unsigned char)*p); p++)
		if (k + 1 < n)
			ret[k++] = (char)tolower((unsigned char)*p);
	ret[k] = 0;
	return p;
}

/* What the bar counts by the words before it, and by what stands behind its rate. */
static enum lg_log_bar_kind kind_of(const char *text, const char *end, const char *postfix)
{
	enum lg_log_bar_kind kind = LG_LOG_BAR_UNNAMED;
	bool loop = false, evaluates = false, prepares = false, doing = false, first = true;
	char word[24];

	for (const char *p = text; (p = next_word(p, end, word, sizeof word)); first = false) {
		size_t k = strlen(word);

		prepares |= is_word(preparations, false, word) || (first && is_word(at_first, false, word));
		evaluates |= is_word(evaluations, false, word) || is_word(evaluation_stems, true, word);
		loop |= is_word(loops, true, word);
		doing |= k > 4 && !strcmp(word + k - 3, "ing");
	}
	if (strcasestr(postfix, "loss"))
		kind = evaluates ? LG_LOG_BAR_ASIDE : LG_LOG_BAR_LOOP;
	else if (prepares)
		kind = LG_LOG_BAR_SETUP;
	else if (evaluates || (doing && !loop))
		kind = LG_LOG_BAR_ASIDE;
	else if (loop)
		kind = LG_LOG_BAR_LOOP;
	return kind;
}

/* "12/100 [00:10<01:20,  1.10it/s" as a bar has it. */
struct numbers {
	const char *at, *rate; /* where the first begins, and the rate */
	long long done, total;
	int64_t elapsed; /* s; -1 = not told */
	double ms;       /* of a step by the rate; NaN for "?it/s" */
};

/*
 * Which bar it is, by whose it is and by the words before it ("Epoch 3", "Validation") or, where there are none,
 * by its length: what a validation takes is no slow step of the training. NULL: out of memory, or of bars.
 */
static struct lg_log_bar *bar_of(struct lg_torchlog *l, const struct lg_log_line *line, const char *end,
				 long long total)
{
	uint64_t key = 0;
	uint32_t at;

	for (const char *p = line->msg; p < end; p++)
		if (isalpha((unsigned char)*p))
			key = lg_mix64(key ^ (unsigned char)*p);
	key = key ? key : lg_mix64((uint64_t)total);
	key = lg_mix64(key ^ (uint64_t)lg_torchlog_thread(l, line)) | 1;
	at = lg_map_get(&l->bar_of, key);
	if (!at && l->n_bar < BARS_MAX) {
		at = (uint32_t)l->n_bar + 1;
		if (lg_grow(&l->bar, &l->cap_bar, at, sizeof *l->bar) || lg_map_set(&l->bar_of, key, at)) {
			lg_builder_fail(l->b);
			return NULL;
		}
		l->bar[l->n_bar++] = (struct lg_log_bar){ .index = at < INDEX_MAX ? (int32_t)at : INDEX_MAX,
							  .done = -1, .ts = INT64_MIN };
	}
	return at ? &l->bar[at - 1] : NULL;
}

/*
 * How many lines the rate stays wrong behind one that is off by so many seconds: of what a line brings, 0.3
 * goes into the rate, and a line later 0.7 of that is left, until it is a tenth of a usual step.
 */
static int lines_blurred(double off, double usual)
{
	double lines = log(SMOOTHING / (1 - SMOOTHING) * off / (usual / 10)) / -log(1 - SMOOTHING);

	return lines >= 1 ? (int)fmin(lines, BLURRED_MAX) : 0;
}

/*
 * Seconds that each step since the last value took; 0 = not known yet. The rate is exact to a hundredth but
 * smoothed (tqdm's EMA): one stall of 30 s makes the next ten steps look slow. The elapsed time is not, but
 * in whole seconds. So the rate is believed as long as the two agree, within a second and what the rate lags
 * behind; where they part it is the clock, a step each time that it moves, until the rate has forgotten.
 */
static double seconds_of(struct lg_log_bar *bar, const struct numbers *of)
{
	double rate = of->ms / 1000, steps = (double)(of->done - bar->told), off, s;

	if (of->elapsed < 0)
		return rate;
	off = fabs((double)(of->elapsed - bar->base) - bar->said - rate * steps);
	if (!bar->blurred && off <= 1 + rate * steps / 4) {
		bar->usual = rate;
		bar->said += rate * steps;
		if (of->elapsed - bar->base >= WINDOW_S) { /* or the rate's rounding adds up */
			bar->base = of->elapsed;
			bar->said = 0;
		}
		return rate;
	}
	if (bar->blurred)
		bar->blurred--;
	else if (isfinite(off))
		bar->blurred = lines_blurred(off, bar->usual > 0 ? bar->usual : rate);
	s = (double)(of->elapsed - bar->told_at) / steps;
	if (s > 0) {
		bar->base = of->elapsed;
		bar->said = 0;
	}
	return s;
}

/* s for each step: also for those whose lines the clock did not tell apart. */
static void tell(struct lg_torchlog *l, const struct lg_log_line *line, struct lg_log_bar *bar,
		 const char *name, double s)
{
	struct lg_log_line one = *line;

	for (size_t i = 0; i < bar->n_held; i++) {
		one.ts = bar->held[i];
		lg_torchlog_counter(l, &one, name, "ms", bar->index, s * 1000);
	}
	lg_torchlog_counter(l, line, name, "ms", bar->index, s * 1000);
	bar->n_held = 0;
}

/* The same number again is the bar drawn anew; a smaller one, or an earlier time, is its next round. */
static void step_of(struct lg_torchlog *l, const struct lg_log_line *line, struct lg_log_bar *bar,
		    const struct numbers *of)
{
	static const char *const names[] = { [LG_LOG_BAR_ASIDE] = "log.aside_ms",
					     [LG_LOG_BAR_UNNAMED] = "log.bar_ms",
					     [LG_LOG_BAR_LOOP] = "log.step_ms" };
	bool anew = bar->done < 0 || of->done < bar->done || of->elapsed < bar->told_at;
	double s;

	if (of->done == 0 || (!anew && of->done == bar->done)) {
		l->known++;
		if (!anew)
			return;
	} else if (bar->kind >= LG_LOG_BAR_UNNAMED) {
		lg_torchlog_mark_step(l, line, of->done);
	} else {
		l->known++;
	}
	if (anew) {
		bar->base = of->elapsed;
		bar->said = bar->blurred = 0;
		bar->n_held = 0;
	}
	s = of->done == 0 ? 0 : anew ? of->ms / 1000 : seconds_of(bar, of);
	if (s > 0 && s < 1e6) {
		tell(l, line, bar, names[bar->kind], s);
		if (bar->kind >= LG_LOG_BAR_UNNAMED && of->done == bar->done + 1)
			lg_torchlog_span(l, line, of->done, (int64_t)(s * 1e9), bar->ts);
	}
	if (!anew && !(s > 0) && bar->n_held < HELD_MAX)
		bar->held[bar->n_held++] = lg_torchlog_now(l, line);
	if (s > 0 || anew) {
		bar->told = of->done;
		bar->told_at = of->elapsed;
	}
	bar->done = of->done;
	bar->ts = line->ts;
}

/* "09:58<", "1:09:58<" */
static int64_t elapsed_of(const char *p, const char *end)
{
	int64_t s = 0;

	for (int i = 0; i < 3 && isdigit((unsigned char)*p); i++) {
		char *q;
		long v = strtol(p, &q, 10);

		if (v > 1000000 || q > end)
			return -1;
		s = s * 60 + v;
		if (q == end)
			return i ? s : -1;
		if (*q != ':')
			return -1;
		p = q + 1;
	}
	return -1;
}

static bool numbers_at(const char *text, const char *bracket, struct numbers *ret)
{
	enum { RATE_WITHIN = 80 };
	const char *p = bracket, *eta = memchr(p, '<', strnlen(p, RATE_WITHIN));
	char *unit, *slash;
	double rate;

	while (p > text && (isdigit((unsigned char)p[-1]) || p[-1] == '/'))
		p--;
	ret->at = p;
	ret->done = strtoll(p, &slash, 10);
	ret->total = *slash == '/' ? strtoll(slash + 1, NULL, 10) : -1;
	if (!eta || slash == p || ret->done < 0 || ret->total < ret->done || ret->done > LG_LOG_STEPS_MAX)
		return false;
	ret->elapsed = elapsed_of(bracket + 2, eta);
	ret->rate = memchr(eta, ',', strnlen(eta, RATE_WITHIN));
	if (!ret->rate)
		return false;
	rate = strtod(ret->rate + 1, &unit);
	unit += strspn(unit, " ?");
	ret->ms = !(rate > 0) ? (double)NAN : *unit == 's' ? rate * 1000 : 1000 / rate;
	return !strncmp(unit, "it/s", 4) || !strncmp(unit, "s/it", 4);
}

bool lg_torchlog_bar_counts(const struct lg_torchlog *l, int64_t step)
{
	for (size_t i = 0; i < l->n_bar; i++) {
		const struct lg_log_bar *bar = &l->bar[i];

		if (bar->kind >= LG_LOG_BAR_UNNAMED && (bar->done == step || bar->done == step - 1))
			return true;
	}
	return false;
}

/* " 12%|#2  | 12/100 [00:10<01:20,  1.10it/s, loss=2.3]" */
enum lg_log_bar_kind lg_torchlog_bar(struct lg_torchlog *l, const struct lg_log_line *line)
{
	enum lg_log_bar_kind kind;
	struct lg_log_bar *bar;
	struct numbers of;
	const char *b = line->msg;

	while ((b = strstr(b, " [")) && !numbers_at(line->msg, b, &of))
		b++;
	if (!b)
		return LG_LOG_BAR_NONE;
	kind = kind_of(line->msg, of.at, of.rate);
	bar = kind == LG_LOG_BAR_SETUP ? NULL : bar_of(l, line, of.at, of.total);
	if (!bar) {
		l->known++;
		return kind;
	}
	bar->kind = kind > bar->kind ? kind : bar->kind;
	step_of(l, line, bar, &of);
	return bar->kind;
}
