/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memsnap.c - see memsnap.h. Values of the pickle become events, segments and blocks as soon as they
 * are whole.
 */
#include "import/memsnap/memsnap.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "import/memsnap/snap_rows.h"
#include "import/source/file_rank.h"
#include "import/source/frame.h"
#include "import/source/source.h"
#include "import/source/stamp.h"
#include "import/value/value.h"

enum { FRAMES_MAX = 512, NOTES_MAX = 1 << 20, NESTED_MAX = 256 };
enum { WORDS_CACHED = 1 << 12 };

/* Keys of the dictionaries, and the words that are values of "action" and "state". */
#define KEYS(K) \
	K(action) K(addr) K(size) K(stream) K(time_us) K(frames) K(device) K(address) K(total_size) \
	K(segment_type) K(segment_pool_id) K(is_expandable) K(blocks) K(state) K(requested_size) \
	K(history) K(real_size) K(name) K(filename) K(line) K(stage) K(device_free)
#define K(name) KEY_##name,
enum key { KEY_none, KEYS(K) N_KEYS };
#undef K
#define K(name) #name,
static const char *const keys[] = { "", KEYS(K) };
#undef K

/* As enum lg_snap_action counts them. */
static const char *const actions[] = { "", "alloc", "free_requested", "free_completed", "segment_alloc",
				       "segment_free", "segment_map", "segment_unmap", "snapshot", "oom" };
enum { UNKNOWN = 255 };

struct note {
	int64_t ts;
	lg_str name;
	bool begins;
};

struct snap {
	struct lg_builder *b;
	struct lg_snap_rows rows;
	struct lg_doc *d;
	/* What a text means, by its value: a file says the same few words all the time. */
	struct word {
		uint32_t v;
		uint8_t key, action; /* UNKNOWN: not looked up */
	} words[WORDS_CACHED];
	struct note *note;
	size_t n_note, cap_note;
	uint64_t n_segments, n_events, odd, deep;
	bool is_list; /* the oldest: segments only */
};

/* The place of a text that stays; scrap for one that does not. */
static struct word *word_of(struct snap *s, uint32_t v, struct word *scrap)
{
	struct word *w = s->d->v[v].kept ? &s->words[v % WORDS_CACHED] : scrap;

	if (w == scrap || w->v != v)
		*w = (struct word){ .v = v, .key = UNKNOWN, .action = UNKNOWN };
	return w;
}

static uint8_t look_up(const char *text, const char *const *list, uint8_t n)
{
	for (uint8_t i = 1; i < n; i++)
		if (!strcmp(text, list[i]))
			return i;
	return 0;
}

static enum key key_of(struct snap *s, uint32_t v)
{
	struct word scrap, *w = word_of(s, v, &scrap);

	if (w->key == UNKNOWN)
		w->key = look_up(lg_value_text(s->d, v), keys, N_KEYS);
	return w->key;
}

static enum lg_snap_action action_of(struct snap *s, uint32_t v)
{
	struct word scrap, *w = word_of(s, v, &scrap);

	if (w->action == UNKNOWN)
		w->action = look_up(lg_value_text(s->d, v), actions, sizeof actions / sizeof *actions);
	return w->action;
}

/* The values of a dictionary by key; 0 where one is missing. */
static void read_dict(struct snap *s, uint32_t dict, uint32_t ret[N_KEYS])
{
	const struct lg_value *c = &s->d->v[dict];

	memset(ret, 0, N_KEYS * sizeof *ret);
	for (uint32_t i = 0; c->kind == LG_DICT && i < c->n; i++)
		ret[key_of(s, c->items[2 * i])] = c->items[2 * i + 1];
	ret[KEY_none] = 0;
}

static uint64_t number(const struct snap *s, uint32_t v)
{
	int64_t i = lg_value_int(s->d, v, 0);

	return i > 0 ? (uint64_t)i : 0;
}

static bool is_python(const char *file)
{
	size_t n = strlen(file);

	return *file == '<' || (n > 3 && !strcmp(file + n - 3, ".py"));
}

static lg_frm frame_of(struct snap *s, uint32_t v)
{
	uint32_t f[N_KEYS];
	const char *name, *file;
	uint32_t line;
	lg_frm frm;

	if (lg_value_is(s->d, v, LG_TAKEN))
		return (lg_frm)s->d->v[v].i;
	read_dict(s, v, f);
	name = lg_value_text(s->d, f[KEY_name]);
	file = lg_value_text(s->d, f[KEY_filename]);
	line = (uint32_t)number(s, f[KEY_line]);
	if (is_python(file))
		frm = lg_frame_python(s->b, name, file, line);
	else
		frm = lg_intern_frame(s->b,
				      &(struct lg_frame_row){
					      .name = lg_intern(s->b, name),
					      .line = line,
					      .kind = LG_FRAME_USER,
					      .file = strcmp(file, "??") ? lg_intern(s->b, file) : 0 });
	lg_value_take(s->d, v, frm);
	return frm;
}

/* A list of frames, innermost first; several events hold the same one. */
static lg_stk stack_of(struct snap *s, uint32_t v)
{
	uint32_t n = lg_value_count(s->d, v);
	lg_stk stk = 0;

	if (lg_value_is(s->d, v, LG_TAKEN))
		return (lg_stk)s->d->v[v].i;
	if (n > FRAMES_MAX) {
		s->deep++;
		n = FRAMES_MAX;
	}
	while (n-- > 0)
		stk = lg_intern_stack(s->b, stk, frame_of(s, lg_value_at(s->d, v, n)));
	lg_value_take(s->d, v, stk);
	return stk;
}

static int64_t time_of(const struct snap *s, uint32_t v)
{
	int64_t us = lg_value_int(s->d, v, -1);

	return us > 0 && us < INT64_MAX / 2000 ? us * 1000 : INT64_MIN;
}

static void add_note(struct snap *s, int64_t ts, const char *name, const char *stage)
{
	bool begins = !strcmp(stage, "START");

	if (ts == INT64_MIN || (!begins && strcmp(stage, "END")) || s->n_note >= NOTES_MAX)
		return;
	if (LG_APPEND(s->note, s->n_note, s->cap_note,
		      (struct note){ ts, lg_intern(s->b, name), begins }))
		lg_builder_fail(s->b);
}

/* The first form of annotations: an event whose one frame has the stage as its function and the name as
 * its file. */
static void inline_note(struct snap *s, const uint32_t f[N_KEYS])
{
	uint32_t k[N_KEYS];

	read_dict(s, lg_value_at(s->d, f[KEY_frames], 0), k);
	add_note(s, time_of(s, f[KEY_time_us]), lg_value_text(s->d, k[KEY_filename]),
		 lg_value_text(s->d, k[KEY_name]));
}

static bool take_event(struct snap *s, uint32_t item, uint32_t device)
{
	struct lg_snap_event e;
	uint32_t f[N_KEYS];

	read_dict(s, item, f);
	e.action = action_of(s, f[KEY_action]);
	if (e.action == LG_SNAP_NONE) {
		if (!strcmp(lg_value_text(s->d, f[KEY_action]), "user_defined"))
			inline_note(s, f);
		else
			s->odd++;
		return true;
	}
	e.addr = number(s, f[e.action == LG_SNAP_OOM ? KEY_device_free : KEY_addr]);
	e.size = number(s, f[KEY_size]);
	e.stream = lg_value_int(s->d, f[KEY_stream], 0);
	e.ts = time_of(s, f[KEY_time_us]);
	e.stack = stack_of(s, f[KEY_frames]);
	lg_snap_event(&s->rows, device, &e);
	s->n_events++;
	return true;
}

/* One block. Older files tell its address and frames in its history, or leave the address to be counted
 * up. */
static uint64_t take_block(struct snap *s, uint32_t item, int64_t device, int64_t stream, uint64_t addr)
{
	struct lg_snap_block k = { .stream = stream };
	uint32_t f[N_KEYS], h[N_KEYS];
	const char *state;

	read_dict(s, item, f);
	read_dict(s, lg_value_at(s->d, f[KEY_history], 0), h);
	state = lg_value_text(s->d, f[KEY_state]);
	k.state = !strcmp(state, "inactive")	       ? LG_SNAP_INACTIVE
		  : !strcmp(state, "active_allocated") ? LG_SNAP_ALLOCATED
						       : LG_SNAP_PENDING;
	k.size = number(s, f[KEY_size]);
	k.addr = f[KEY_address] ? number(s, f[KEY_address]) : addr;
	k.requested = f[KEY_requested_size] ? number(s, f[KEY_requested_size])
		      : h[KEY_real_size]    ? number(s, h[KEY_real_size])
					    : k.size;
	k.stack = stack_of(s, f[KEY_frames] ? f[KEY_frames] : h[KEY_frames]);
	if (k.size > INT64_MAX / 2 || k.requested > INT64_MAX / 2)
		s->odd++;
	else
		lg_snap_block(&s->rows, device, &k);
	return k.addr + k.size;
}

static lg_str pool_of(struct snap *s, uint32_t v)
{
	char text[48];

	if (lg_value_count(s->d, v) != 2)
		return 0;
	snprintf(text, sizeof text, "%lld, %lld",
		 (long long)lg_value_int(s->d, lg_value_at(s->d, v, 0), 0),
		 (long long)lg_value_int(s->d, lg_value_at(s->d, v, 1), 0));
	return lg_intern(s->b, text);
}

static bool take_segment(struct snap *s, uint32_t item)
{
	struct lg_snap_segment g;
	uint32_t f[N_KEYS], n;
	int64_t device;
	uint64_t addr;

	read_dict(s, item, f);
	if (!f[KEY_blocks])
		return false; /* it is not whole yet */
	device = lg_value_int(s->d, f[KEY_device], -1);
	g = (struct lg_snap_segment){
		.addr = number(s, f[KEY_address]),
		.size = number(s, f[KEY_total_size]),
		.stream = lg_value_int(s->d, f[KEY_stream], 0),
		.stack = stack_of(s, f[KEY_frames]),
		.pool = pool_of(s, f[KEY_segment_pool_id]),
		.type = lg_intern(s->b, lg_value_int(s->d, f[KEY_is_expandable], 0)
						? "expandable"
						: lg_value_text(s->d, f[KEY_segment_type]))
	};
	s->n_segments++;
	if (g.size > INT64_MAX / 2) {
		s->odd++;
		return true;
	}
	lg_snap_segment(&s->rows, device, &g);
	addr = g.addr;
	n = lg_value_count(s->d, f[KEY_blocks]);
	for (uint32_t i = 0; i < n; i++)
		addr = take_block(s, lg_value_at(s->d, f[KEY_blocks], i), device, g.stream, addr);
	/* A hostile file may give the same blocks to a million segments. */
	lg_value_take(s->d, f[KEY_blocks], 0);
	return true;
}

static bool take_note(struct snap *s, uint32_t item)
{
	uint32_t f[N_KEYS];

	read_dict(s, item, f);
	add_note(s, time_of(s, f[KEY_time_us]), lg_value_text(s->d, f[KEY_name]),
		 lg_value_text(s->d, f[KEY_stage]));
	return true;
}

static bool take(void *ctx, struct lg_doc *d, const struct lg_pickle_place *place, uint32_t item)
{
	struct snap *s = ctx;

	s->d = d;
	if (place->depth == 2 && !strcmp(place->key, "device_traces"))
		return take_event(s, item, place->index);
	if (place->depth != 1)
		return false;
	if (!strcmp(place->key, "external_annotations"))
		return take_note(s, item);
	return (!*place->key || !strcmp(place->key, "segments")) && take_segment(s, item);
}

/* Annotations come as begins and ends; those of one name follow one another, or lie in each other. */
static void add_notes(struct snap *s, lg_thr thr)
{
	struct note *stack = NULL;
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < s->n_note; i++) {
		const struct note *k = &s->note[i];
		const char *name = lg_string(lg_builder_trace(s->b), k->name);
		size_t at = n;

		if (k->begins) {
			if (LG_APPEND(stack, n, cap, *k))
				lg_builder_fail(s->b);
			continue;
		}
		/* Not far: of ends without a begin each would walk all that is open. */
		while (at && n - at < NESTED_MAX && stack[at - 1].name != k->name)
			at--;
		if (!at || stack[at - 1].name != k->name || k->ts < stack[at - 1].ts)
			continue;
		lg_add_span(s->b, &(struct lg_span_row){ .ts = stack[at - 1].ts,
							 .dur = k->ts - stack[at - 1].ts,
							 .thr = thr,
							 .name = k->name,
							 .kind = !strncmp(name, "ProfilerStep", 12)
									 ? LG_SPAN_STEP
									 : LG_SPAN_NOTE });
		n = at - 1; /* what began inside and has no end is dropped */
	}
	lg_free(stack);
}

static void settings(struct snap *s)
{
	uint32_t of = lg_value_get(s->d, s->d->root, "allocator_settings");
	static const char *const names[] = { "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
					     "max_split_size", "garbage_collection_threshold",
					     "expandable_segments" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		uint32_t v = lg_value_get(s->d, of, names[i]);
		char key[64], text[32];

		if (!v)
			continue;
		snprintf(key, sizeof key, "allocator.%s", names[i]);
		snprintf(text, sizeof text, "%g", lg_value_real(s->d, v, 0));
		lg_meta_set(s->b, 0, key,
			    lg_value_is(s->d, v, LG_TEXT) ? lg_value_text(s->d, v) : text);
	}
}

static int finish(struct snap *s, const char *damage, struct lg_error *err)
{
	const struct lg_doc *d = s->d;
	if (!s->n_segments && !s->n_events && !lg_value_get(d, d->root, "segments"))
		return lg_fail(err, LG_E_FORMAT, 0,
			       "this pickle holds no snapshot of a device's memory");
	lg_meta_set(s->b, 0, "trace.format", "memory snapshot");
	lg_snap_end(&s->rows);
	add_notes(s, lg_thread_unnumbered(s->b, s->rows.prc, "", 1));
	settings(s);
	lg_time_base(s->b, s->n_events && s->rows.timed ? LG_TIME_REALTIME : LG_TIME_NONE,
		     s->rows.first, 1000000, "memory snapshot");
	if (s->odd || s->rows.odd)
		lg_add_diag_now(
			s->b, LG_DIAG_NOT_UNDERSTOOD, s->rows.last, s->odd + s->rows.odd,
			"events, segments and blocks of a snapshot of another kind than those known");
	if (s->deep)
		lg_add_diag_now(s->b, LG_DIAG_STACK_TRUNCATED, s->rows.last, s->deep,
				"stacks of more than %d frames", FRAMES_MAX);
	if (d->cut || damage)
		lg_add_diag_now(s->b, LG_DIAG_FILE_TRUNCATED, s->rows.last, 1,
				"byte %llu: %s; what came before is kept",
				(unsigned long long)d->cut_at, damage ? damage : d->cut);
	return lg_builder_failed(s->b) ? lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory") : 0;
}

static int run(const char *path, struct lg_builder *b, struct lg_error *err)
{
	LG_AUTOFREE struct snap *s = lg_calloc(1, sizeof *s);
	struct lg_source *src;
	struct lg_doc d;
	struct stat st;
	int rc = s ? lg_source_open(&src, path, err)
		   : lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");

	if (rc)
		return rc;
	s->b = b;
	s->d = &d;
	lg_snap_begin(&s->rows, b, lg_process_unnumbered(b, "", lg_file_rank(path), 0));
	rc = lg_doc_pickle_stream(&d, src, stat(path, &st) ? 0 : (uint64_t)st.st_size, take, s, err);
	if (!rc) {
		s->d = &d;
		rc = finish(s, lg_source_damage(src), err);
		lg_doc_done(&d);
	}
	lg_snap_done(&s->rows);
	lg_free(s->note);
	lg_source_close(src);
	return rc;
}

static int sniff(const struct lg_head *h)
{
	if (h->n_text < 4 || (uint8_t)h->text[0] != 0x80 || h->text[1] < 2 || h->text[1] > 5)
		return 0;
	return lg_head_has(h, "total_size") || lg_head_has(h, "device_traces") || lg_head_has(h, "segments") ? 94 : 0;
}

const struct lg_importer lg_import_memsnap = {
	.name = "memory snapshot",
	.summary = "snapshot of a GPU's memory",
	.sniff = sniff,
	.run = run,
};
