/* SPDX-License-Identifier: Apache-2.0 */
/*
 * import.c - the registry of formats, and several files as one trace.
 *
 * One file is read straight into the trace. Of several, each is read and sealed on its own, moved
 * to the clock of the first and merged.
 */
#include "import/import.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/side_thread.h"
#include "import/chromejson/chromejson.h"
#include "import/flightrec/flightrec.h"
#include "import/folded/folded.h"
#include "import/kineto/kineto.h"
#include "import/join.h"
#include "import/lag/lag.h"
#include "import/memsnap/memsnap.h"
#include "import/nccllog/nccllog.h"
#include "import/nsys/nsys.h"
#include "import/other_run.h"
#include "import/perfdata/perf_header.h"
#include "import/perfdata/perfdata.h"
#include "import/perfscript/perfscript.h"
#include "import/pyspy/pyspy.h"
#include "import/refuse.h"
#include "import/smi/smi.h"
#include "import/source/packing.h"
#include "import/source/source.h"
#include "import/torchlog/torchlog.h"
#include "import/same_rows.h"
#include "import/unpack.h"
#include "store/merge.h"

#define DAY_S 86400.0

bool lg_import_parts_runs;
void (*lg_import_reads)(size_t i, size_t n);

/* A new format is one folder and one line here. */
static const struct lg_importer *const importers[] = {
	&lg_import_lag,
	&lg_import_perfdata,
	&lg_import_perfscript,
	&lg_import_kineto,
	&lg_import_chromejson,
	&lg_import_nsys,
	&lg_import_smi,
	&lg_import_flightrec,
	&lg_import_memsnap,
	&lg_import_pyspy_dump,
	&lg_import_pyspy_trace,
	&lg_import_speedscope,
	&lg_import_folded,
	&lg_import_nccllog,
	&lg_import_torchlog,
};

/* Below this score sniff() takes what it cannot exclude, for run() to say what is wrong with it. */
enum { SCORE_SURE = 40 };
enum { N_IMPORTERS = sizeof importers / sizeof *importers, HEAD_BYTES = 4096 };
/* zstd gives nothing out before a block of up to 128 KiB is whole (RFC 8878, 3.1.1.2.4); frames that are
 * skipped may come before it. */
enum { ZSTD_HEAD_BYTES = (128 << 10) + HEAD_BYTES };

/* An input that is ready to be read by path. */
struct input {
	const char *name;  /* for people */
	const char *path;  /* to open */
	char spool[32];    /* /proc/self/fd/N of a pipe's copy */
	char data[4096];   /* of a folder that is one recording: the file that stands for it */
	int fd;            /* of that copy; -1 */
	uint64_t kept;     /* bytes of it */
	const char *damage; /* why that is not all there is; NULL */
	int pipe;          /* read as it comes, head is gone from it; -1 */
	dev_t dev;
	ino_t ino;
	off_t size;        /* of a file */
	uint8_t *head;     /* first, or allocated: see ZSTD_HEAD_BYTES */
	size_t n_head;
	uint8_t first[HEAD_BYTES];
	struct lg_head look; /* what it begins with, for every format */
	const struct lg_importer *best; /* whose that is, and how surely: best_of() */
	int score;
};

static const struct lg_importer *best_of(const struct lg_head *h, int *ret_score)
{
	const struct lg_importer *best = NULL;

	*ret_score = 0;
	for (size_t i = 0; i < N_IMPORTERS; i++) {
		int score = importers[i]->sniff(h);

		if (score > *ret_score) {
			*ret_score = score;
			best = importers[i];
		}
	}
	return best;
}

static int keep(struct input *in, const void *bytes, size_t n, struct lg_error *err)
{
	in->kept += n;
	if (in->kept > lg_import_room)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET,
			       "%s is no file and holds more than the %llu MiB of it that may be kept in memory: save it "
			       "as a file, or raise --max-memory", in->name, (unsigned long long)(lg_import_room >> 20));
	for (size_t done = 0; done < n;) {
		ssize_t w = write(in->fd, (const char *)bytes + done, n - done);

		if (w < 0 && errno == EINTR)
			w = 0;
		else if (w <= 0)
			return lg_fail_errno(err, w ? errno : ENOSPC, "%s: cannot keep it in memory",
					     in->name);
		done += (size_t)w;
	}
	return 0;
}

/* Most importers open by path and may read twice: what a pipe delivers is kept in memory. */
static int spool(struct input *in, int from, struct lg_error *err)
{
	char buf[65536];
	ssize_t k;
	int rc;

	in->fd = memfd_create("laggard-input", MFD_CLOEXEC);
	if (in->fd < 0)
		return lg_fail_errno(err, errno, "%s: cannot keep it in memory", in->name);
	rc = keep(in, in->head, in->n_head, err);
	while (!rc && (k = read(from, buf, sizeof buf))) {
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return lg_fail_errno(err, errno, "cannot read %s", in->name);
		rc = keep(in, buf, (size_t)k, err);
	}
	snprintf(in->spool, sizeof in->spool, "/proc/self/fd/%d", in->fd);
	in->path = in->spool;
	return rc;
}

static bool can_stream(const struct input *in)
{
	for (size_t i = 0; i < N_IMPORTERS; i++)
		if (importers[i]->streams && importers[i]->streams(in->head, in->n_head))
			return true;
	return false;
}

static void forget_head(struct input *in)
{
	lg_head_done(&in->look);
	if (in->head != in->first)
		lg_free(in->head);
	in->head = in->first;
	in->n_head = 0;
}

static void input_done(struct input *in)
{
	if (in->fd >= 0)
		close(in->fd);
	if (in->pipe >= 0)
		close(in->pipe);
	in->fd = in->pipe = -1;
	forget_head(in);
}

static int read_up_to(struct input *in, int fd, bool seeks, size_t max, struct lg_error *err)
{
	while (in->n_head < max) {
		uint8_t *to = in->head + in->n_head;
		size_t n = max - in->n_head;
		ssize_t k = seeks ? pread(fd, to, n, (off_t)in->n_head) : read(fd, to, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return lg_fail_errno(err, errno, "cannot read %s", in->name);
		if (!k)
			break;
		in->n_head += (size_t)k;
	}
	return 0;
}

static int read_more_of_zstd(struct input *in, int fd, bool seeks, struct lg_error *err)
{
	uint8_t *more = lg_calloc(ZSTD_HEAD_BYTES, 1);

	if (!more)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	memcpy(more, in->first, in->n_head);
	in->head = more;
	return read_up_to(in, fd, seeks, ZSTD_HEAD_BYTES, err);
}

/* The first bytes, and whose they are; of a pipe they are gone from it then. */
static int read_head(struct input *in, int fd, bool seeks, struct lg_error *err)
{
	int rc = read_up_to(in, fd, seeks, HEAD_BYTES, err);

	if (!rc && in->n_head == HEAD_BYTES && lg_is_zstd(in->head, in->n_head))
		rc = read_more_of_zstd(in, fd, seeks, err);
	if (rc)
		return rc;
	if (lg_head_open(&in->look, in->head, in->n_head))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	in->best = best_of(&in->look, &in->score);
	return 0;
}

static int input_open(struct input *in, const char *path, struct lg_error *err)
{
	int fd, rc = 0;
	struct stat st;

	*in = (struct input){ .name = strcmp(path, "-") ? path : "standard input",
			      .path = path,
			      .fd = -1,
			      .pipe = -1 };
	in->head = in->first;
	if (lg_perfdata_is_folder(path, in->data, sizeof in->data))
		in->path = path = in->data;
	fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC)
			       : fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	if (fd < 0 || fstat(fd, &st)) {
		rc = lg_fail_errno(err, errno, "cannot open %s", in->name);
	} else if (S_ISDIR(st.st_mode)) {
		rc = lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET, "%s is a directory: name its files",
			     path);
	} else if (strcmp(path, "-") && S_ISCHR(st.st_mode) && !isatty(fd)) {
		/* /dev/zero never ends. */
		rc = lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET, "%s is a device: name a file", path);
	} else if (!strcmp(path, "-") || !S_ISREG(st.st_mode)) {
		rc = read_head(in, fd, false, err);
		if (!rc && can_stream(in)) {
			in->pipe = fd;
			return 0;
		}
		if (!rc)
			rc = spool(in, fd, err);
	} else {
		in->dev = st.st_dev;
		in->ino = st.st_ino;
		in->size = st.st_size;
		rc = read_head(in, fd, true, err);
	}
	if (fd >= 0)
		close(fd);
	if (rc)
		input_done(in);
	return rc;
}

/* Is this packed, does no format read it as it is, and surely one unpacked? */
static bool is_to_unpack(const struct input *in)
{
	const struct lg_head *out = &in->look;
	struct lg_head inner;
	int score;

	if (!lg_is_packed(in->head, in->n_head) || in->score >= SCORE_SURE)
		return false;
	if (lg_head_open(&inner, (const uint8_t *)out->text,
			 out->n_text < HEAD_BYTES ? out->n_text : HEAD_BYTES))
		return false;
	(void)best_of(&inner, &score);
	lg_head_done(&inner);
	return score >= SCORE_SURE;
}

/* What is packed is unpacked, where its importer does not do that itself. */
static int input_unpack(struct input *in, struct lg_error *err)
{
	int fd, rc;

	if (in->pipe >= 0 || !is_to_unpack(in))
		return 0;
	rc = lg_unpack(in->name, in->path, &fd, &in->damage, err);
	if (rc)
		return rc;
	if (in->fd >= 0) /* what a pipe delivered */
		close(in->fd);
	in->fd = fd;
	snprintf(in->spool, sizeof in->spool, "/proc/self/fd/%d", fd);
	in->path = in->spool;
	forget_head(in);
	return read_head(in, fd, true, err);
}

/* A perf.data, or what one may come out of. */
static bool can_be_perfdata(const char *path)
{
	uint8_t head[8];
	struct stat st;
	ssize_t n;
	int fd;

	/* Opening a pipe to look at it would let its writer through, and closing it end it. */
	if (!strcmp(path, "-") || stat(path, &st) || !S_ISREG(st.st_mode))
		return true;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	n = fd < 0 ? -1 : pread(fd, head, sizeof head, 0);
	if (fd >= 0)
		close(fd);
	return n > 0 && (lg_pd_sniff(head, (size_t)n) || lg_is_packed(head, (size_t)n));
}

void lg_import_before_confined(const char *const *paths, size_t n)
{
	enum { LOOKED_AT = 8 }; /* more would take longer than the clock */
	size_t i = 0;

	while (i < n && i < LOOKED_AT && !can_be_perfdata(paths[i]))
		i++;
	if (i < n)
		lg_perfdata_clock();
}

bool lg_import_is_folder(const char *path)
{
	char data[4096];

	return lg_perfdata_is_folder(path, data, sizeof data);
}

enum lg_import_known lg_import_knows(const char *path)
{
	struct input *in = lg_calloc(1, sizeof *in);
	enum lg_import_known known = LG_IMPORT_NO;
	struct stat st;

	if (lg_import_is_folder(path))
		known = LG_IMPORT_YES;
	else if (in && !stat(path, &st) && S_ISREG(st.st_mode) && !input_open(in, path, NULL)) {
		/* A time at the head of a line, a word of torch's: so do notes and scripts begin. */
		if (in->best)
			known = in->score < SCORE_SURE || in->best == &lg_import_torchlog ? LG_IMPORT_PERHAPS
											  : LG_IMPORT_YES;
		if (known != LG_IMPORT_YES && is_to_unpack(in))
			known = LG_IMPORT_YES;
		input_done(in);
	}
	lg_free(in);
	return known;
}

/* One of the files of a folder that is one recording; what is in it is told by another one there. */
static bool is_part(const struct input *in, char *folder, size_t size)
{
	const char *base = strrchr(in->path, '/');
	int n = base ? snprintf(folder, size, "%.*s", (int)(base - in->path + 1), in->path)
		     : snprintf(folder, size, ".");

	return n >= 0 && (size_t)n < size && !strncmp(base ? base + 1 : in->path, "data.", 5) &&
	       lg_import_is_folder(folder);
}

static const struct lg_importer *find(const struct input *in, struct lg_error *err)
{
	char folder[4096];
	char list[1024] = "";
	size_t n = 0;

	if (in->best)
		return in->best;
	if (is_part(in, folder, sizeof folder)) {
		(void)lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET,
			      "%s is a part of a recording by perf record --threads: name its folder, %s", in->name,
			      folder);
		return NULL;
	}
	for (size_t i = 0; i < N_IMPORTERS && n < sizeof list; i++) {
		int k = snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "",
				 importers[i]->summary);

		n += k > 0 ? (size_t)k : 0;
	}
	(void)lg_refuse_unknown(in->name, &in->look, list, err);
	return NULL;
}

static int read_one(const struct input *in, struct lg_trace **ret, const char **ret_format,
		    struct lg_error *err)
{
	int rc = in->pipe < 0 ? lg_refuse_packed(in->name, in->path, in->head, in->n_head, err) : 0;
	const struct lg_importer *imp = rc ? NULL : find(in, err);
	struct lg_builder *b;

	if (rc)
		return rc;
	if (!imp)
		return LG_E_FORMAT;
	rc = lg_builder_new(&b, err);
	if (rc)
		return rc;
	rc = in->pipe >= 0 ? imp->run_stream(in->pipe, in->head, in->n_head, b, err)
			   : imp->run(in->path, b, err);
	if (rc) {
		/* An importer knows its bytes, not what people call the file. */
		if (err && !strstr(err->message, in->path) && !strstr(err->message, in->name))
			(void)lg_error_prefix(err, "%s: ", in->name);
		lg_builder_free(b);
		return rc;
	}
	if (in->damage)
		lg_add_diag_now(b, LG_DIAG_FILE_TRUNCATED, INT64_MIN, 1, "%s", in->damage);
	*ret_format = imp->name;
	return lg_builder_seal(b, ret, err);
}

/* Events that are gone; the other LOSS rows (a missing permission ...) count no events. */
static int counts_events(uint32_t id)
{
	return id == LG_DIAG_LOST_EVENTS || id == LG_DIAG_LOST_SAMPLES ||
	       id == LG_DIAG_MARKS_LOST || id == LG_DIAG_TABLE_FULL || id == LG_DIAG_OUT_OF_ORDER;
}

static void describe(struct lg_import_info *info, const struct lg_trace *t, int64_t offset)
{
	const char *host = lg_meta_get(t, "host.name");

	snprintf(info->host, sizeof info->host, "%.64s", host);
	info->first = t->first;
	info->last = t->last;
	if (t->first <= t->last) {
		info->first += offset;
		info->last += offset;
	}
	info->rank = lg_rank_of_file(t);
	info->rows_sample = t->sample.n;
	info->rows_state = t->state.n;
	info->rows_span = t->span.n;
	info->rows_counter = t->counter.n;
	info->lost_events = 0;
	for (size_t i = 0; i < t->diag.n; i++)
		if (counts_events(t->diag.id[i]))
			info->lost_events = lg_count_sum(info->lost_events, t->diag.count[i]);
}

/* One file on its way into a trace of its own. */
struct file {
	const char *path;
	struct input in;
	struct lg_trace *t; /* where rc is 0 */
	struct lg_import_info *info;
	struct lg_error err;
	int rc;
};

static void open_file(struct file *f, const char *path, struct lg_import_info *info)
{
	f->path = path;
	f->info = info;
	f->t = NULL;
	f->err = (struct lg_error){ .offset = LG_NO_OFFSET };
	f->rc = input_open(&f->in, path, &f->err);
	if (f->rc)
		return;
	f->rc = input_unpack(&f->in, &f->err);
	if (f->rc)
		input_done(&f->in);
}

static void read_file(void *arg)
{
	struct file *f = arg;

	if (f->rc)
		return;
	f->rc = read_one(&f->in, &f->t, &f->info->format, &f->err);
	input_done(&f->in);
	f->info->path = f->path;
}

/* A key for a file: its name without folders, what would split a key made harmless. */
static const char *key_of(const char *path, char *buf, size_t size)
{
	const char *base = strrchr(path, '/');
	char *p = buf;

	snprintf(buf, size, "%s", base ? base + 1 : path);
	for (; *p; p++)
		if (*p == ' ' || *p == '\t')
			*p = '_';
	return buf;
}

/*
 * What happened at a time: unlike what a log tells of the program (and when that was compiled), it is
 * evidence of that time only.
 */
static bool is_timed(const struct lg_trace *t, bool readings)
{
	bool spans = false;

	for (size_t i = 0; i < t->span.n && !spans; i++)
		spans = t->span.kind[i] != LG_SPAN_COMPILE;
	return spans || t->sample.n || t->state.n || (readings && t->counter.n);
}

/* "264 days before run.json" */
static const char *when(const struct lg_join *j, const char *to, char *buf, size_t size)
{
	const char *base = strrchr(to, '/');
	double s = (double)llabs(j->apart) / 1e9;

	snprintf(buf, size, "%.0f %s %s %.128s", s >= 2 * DAY_S ? s / DAY_S : s >= 7200 ? s / 3600 : s,
		 s >= 2 * DAY_S ? "days" : s >= 7200 ? "hours" : "s", j->apart < 0 ? "before" : "after",
		 base ? base + 1 : to);
	return buf;
}

/* Where a file lies on the reference's clock, and whether the ranks of its run were started anew in it, or
 * count their steps anew, or go on counting them, or themselves go on where a profile() counts anew. */
struct placed {
	struct lg_join join;
	bool anew, renumbered, goes_on, of_profile;
};

/* Of a place in time that is doubtful, or surely another one. */
static void say_place(struct lg_builder *b, const struct placed *at, const struct lg_import_info *info,
		      const char *to)
{
	const struct lg_join *j = &at->join;
	int64_t ts = info->first <= info->last ? info->first : INT64_MIN;
	char text[192];

	if (j->apart && at->goes_on)
		lg_add_diag_now(b, LG_DIAG_PARTIAL, ts, 1, "%s begins %s: what was between them is in neither%s",
				info->path, when(j, to, text, sizeof text),
				at->of_profile ? "; its steps are numbered anew, as by another profile() of the "
						 "same process, whose own counts go on" : "");
	else if (j->apart)
		lg_add_diag_now(b, LG_DIAG_OTHER_TIME, ts, 1, "%s is of another time: %s", info->path,
				when(j, to, text, sizeof text));
	else if (j->other_pace)
		lg_add_diag_now(b, LG_DIAG_PARTIAL, ts, 1,
				"%s: steps of the same numbers do not last as long in it as in %.128s: is it of that run?",
				info->path, to);
	else if (!j->sure)
		lg_add_diag_now(b, LG_DIAG_PARTIAL, ts, 1,
				!strcmp(j->how, "none")
					? "%s: nothing relates its clock to the first file's; its times are "
					  "taken as they are"
				: !strcmp(j->how, "zone")
					? "%s: its times are local and more than one zone fits, or none: they may "
					  "be hours off"
					: "%s: it has no times that relate it to the other files; it is put at "
					  "their start",
				info->path);
}

/*
 * What is more than a day away from a trace is not of the time that is judged, nor, most likely, of that run:
 * only logs that tell of the program (how it was set up, what it compiled) may be from a long job's first
 * day.
 */
static bool is_other_run(const struct placed *at, const struct lg_trace *ref, const struct lg_trace *t)
{
	return (at->anew || at->renumbered || (double)llabs(at->join.apart) > DAY_S * 1e9) &&
	       is_timed(ref, false) && is_timed(t, true);
}

/* Add one input to b, in its place on the clock of ref, or leave it out. *take_t: NULL where g has it now. */
static int add_input(struct lg_merger *g, struct lg_builder *b, const struct lg_trace *ref, const char *to,
		     const struct placed *at, struct lg_trace **take_t, struct lg_import_info *info,
		     struct lg_error *err)
{
	struct lg_trace *t = *take_t;
	struct lg_join j = at->join;
	char file[128], key[160];
	int rc;

	describe(info, t, j.offset);
	if (is_other_run(at, ref, t)) {
		info->other_run = true;
		snprintf(info->left_out, sizeof info->left_out, "it is of another %s: ",
			 at->anew ? "run" : !at->renumbered ? "time"
			 : "run, or profile (the numbers of its steps do not go on)");
		when(&j, to, info->left_out + strlen(info->left_out),
		     sizeof info->left_out - strlen(info->left_out));
		lg_add_diag_now(b, LG_DIAG_OTHER_TIME, INT64_MIN, 1, "%s is left out: %s", info->path,
				info->left_out);
		return 0;
	}
	*take_t = NULL;
	rc = lg_merge_add(g, b, t, j.offset, info->path, err);
	if (rc || ref == t)
		return rc;
	info->join_how = j.how;
	info->join_offset = j.offset;
	info->join_error = j.error;
	info->join_matches = j.matches;
	info->join_sure = j.sure && !j.apart;
	key_of(info->path, file, sizeof file);
	snprintf(key, sizeof key, "join.%s.how", file);
	lg_meta_set(b, 0, key, j.how);
	snprintf(key, sizeof key, "join.%s.offset_ns", file);
	lg_meta_setf(b, 0, key, "%lld", (long long)j.offset);
	snprintf(key, sizeof key, "join.%s.error_ns", file);
	lg_meta_setf(b, 0, key, "%lld", (long long)j.error);
	if (!j.sure && (!strcmp(j.how, "start") || !strcmp(j.how, "none")))
		lg_meta_set(b, 0, "join.unplaced", info->path);
	say_place(b, at, info, to);
	return 0;
}

/* A file that nobody named: if it is no trace, that is noted and 0 returned. */
static int leave_out(struct file *f, bool may_leave)
{
	size_t n = strlen(f->in.name);

	if (f->rc && may_leave && (f->rc == LG_E_FORMAT || f->rc == LG_E_UNSUPPORTED)) {
		const char *why = f->err.message, *list;

		if (!strncmp(why, f->in.name, n) && !strncmp(why + n, ": ", 2))
			why += n + 2;
		/* Nobody named that file: what other files could have been does not matter. */
		list = strstr(why, LG_REFUSE_LIST);
		n = list ? (size_t)(list - why) : strlen(why);
		snprintf(f->info->left_out, sizeof f->info->left_out, "%.*s",
			 (int)(n < sizeof f->info->left_out ? n : sizeof f->info->left_out - 1), why);
		f->info->unread = true;
		f->in.ino = 0;
		f->rc = 0;
	}
	return f->rc;
}

/* Its reader leaves much of a second CPU unused: another one may work beside it. */
static bool goes_beside(const struct file *f)
{
	enum { WORTH_A_THREAD = 1 << 20 };

	return !f->rc && f->in.best && f->in.best->beside && f->in.size >= WORTH_A_THREAD;
}

/* Read path[0], and with it path[1] if that is worth it: returns how many. */
static size_t read_files(struct file f[2], const char *const *path, size_t n, struct lg_import_info *info)
{
	struct lg_side_thread beside;
	struct stat st;
	size_t k = 1;

	open_file(&f[0], path[0], &info[0]);
	/* To open a pipe is to wait for its writer, who may have another one to fill first. */
	if (n > 1 && goes_beside(&f[0]) && !stat(path[1], &st) && S_ISREG(st.st_mode)) {
		open_file(&f[1], path[1], &info[1]);
		k = 2;
	}
	if (k > 1)
		lg_side_thread_start(&beside, goes_beside(&f[1]), read_file, &f[1]);
	read_file(&f[0]);
	if (k > 1)
		lg_side_thread_wait(&beside);
	return k;
}

/* seen: the files before, their places in paths counted from 1. */
static int same_file(struct lg_map *seen, const struct input *in, size_t i, const char *const *paths,
		     struct lg_error *err)
{
	uint64_t key = lg_mix64(in->dev) ^ in->ino;
	uint32_t k = in->ino ? lg_map_get(seen, key) : 0;

	if (k)
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET,
			       "%s and %s are one file: its rows would count twice", paths[k - 1], paths[i]);
	if (in->ino && lg_map_set(seen, key, (uint32_t)i + 1))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	return 0;
}

/* Is file i a copy of one that was added, or of the reference (which will be)? Then it is left out. */
static bool is_copy(struct lg_builder *b, const struct lg_rows_seen *rows, size_t i, size_t ref,
		    const char *const *paths, struct lg_import_info *info)
{
	for (size_t k = 0; i != ref && (k < i || k <= ref); k++) {
		if ((k >= i && k != ref) || !lg_same_rows(&rows[i], &rows[k]) || *info[k].left_out)
			continue;
		snprintf(info[i].left_out, sizeof info[i].left_out, "it has the same rows as %.180s", paths[k]);
		lg_add_diag_now(b, LG_DIAG_TWICE, INT64_MIN, 1, "%s is left out: %s", paths[i],
				info[i].left_out);
		return true;
	}
	return false;
}

/* A log that nobody has written to yet is no reason not to read what lies beside it. */
static bool is_empty(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode) && !st.st_size;
}

static int place(struct lg_trace *const *t, size_t n, const struct lg_trace *ref, struct placed *at,
		 struct lg_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		at[i].join.sure = 1;
		if (t[i] && t[i] != ref)
			rc = lg_join_find(ref, t[i], &at[i].join, err);
	}
	for (size_t i = 0; lg_import_parts_runs && i < n && !rc; i++)
		for (size_t k = 0; t[i] && at[i].join.apart && k < n && !at[i].anew; k++) {
			enum lg_numbers go;

			if (!t[k] || k == i || at[k].join.apart)
				continue;
			at[i].anew = lg_other_run(t[k], t[i]);
			go = at[i].join.apart < 0 ? lg_step_numbers(t[i], t[k]) : lg_step_numbers(t[k], t[i]);
			at[i].renumbered |= go == LG_NUMBERS_ANEW;
			at[i].of_profile |= go == LG_NUMBERS_OF_PROFILE;
			at[i].goes_on |= go == LG_NUMBERS_GO_ON || at[i].of_profile;
		}
	return rc;
}

/* The file with the best clock is the one that the others are placed on. */
static int import_many(const char *const *paths, size_t n, const bool *may_leave_out, struct lg_trace **ret,
		       struct lg_import_info *info, struct lg_error *err)
{
	struct file *file = lg_calloc(2, sizeof *file);
	struct lg_map seen = { 0 };
	struct lg_trace **t = lg_calloc(n, sizeof *t), *ref = NULL;
	struct lg_rows_seen *rows = lg_calloc(n, sizeof *rows);
	struct placed *placed = lg_calloc(n, sizeof *placed);
	struct lg_builder *b = NULL;
	struct lg_merger merger = { 0 };
	const char *to = NULL;
	size_t n_read = 0, n_empty = 0, at = 0, ahead = 0; /* < ahead: read */
	int rc = lg_builder_new(&b, err);

	if (!rc && (!file || !t || !rows || !placed))
		rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	for (size_t i = 0; i < n && !rc; i++) {
		bool unnamed = may_leave_out && may_leave_out[i], empty = !unnamed && is_empty(paths[i]);
		struct file *f = &file[ahead > i];

		if (ahead <= i) {
			if (lg_import_reads)
				lg_import_reads(i, n);
			ahead = i + read_files(file, paths + i, n - i, info + i);
		}
		t[i] = f->t;
		f->t = NULL;
		rc = leave_out(f, unnamed || empty);
		if (rc && err)
			*err = f->err;
		if (!rc && empty)
			lg_add_diag_now(b, LG_DIAG_FILE_TRUNCATED, INT64_MIN, 1, "%s is empty", paths[i]);
		n_empty += !rc && empty;
		if (!rc)
			rc = same_file(&seen, &f->in, i, paths, err);
		n_read += t[i] != NULL;
		if (t[i])
			rows[i] = lg_rows_of(t[i]);
		if (!rc && t[i] && (!ref || lg_join_rank(t[i]) < lg_join_rank(ref))) {
			ref = t[i];
			to = paths[at = i];
		}
	}
	if (!rc && !n_read)
		rc = lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET, "%s: %s; nor is there a trace in the %zu other file%s",
			     paths[0], info[0].left_out, n - 1, n > 2 ? "s" : "");
	if (!rc && ref)
		rc = place(t, n, ref, placed, err);
	for (size_t i = 0; i < n && !rc; i++) {
		if (!t[i])
			continue;
		if (n_read == 1 && !n_empty) { /* as if it were alone */
			describe(&info[i], t[i], 0);
			*ret = t[i];
			t[i] = NULL;
			break;
		}
		if (is_copy(b, rows, i, at, paths, info))
			describe(&info[i], t[i], 0);
		else
			rc = add_input(&merger, b, ref, to, &placed[i], &t[i], &info[i], err);
		info[i].join_to = to;
		if (t[i] && t[i] != ref) {
			lg_trace_free(t[i]);
			t[i] = NULL;
		}
	}
	if (!rc)
		rc = lg_merge_finish(&merger, b, err);
	lg_merger_done(&merger);
	for (size_t i = 0; t && i < n; i++)
		lg_trace_free(t[i]);
	lg_free(t);
	for (size_t i = 0; file && i < 2; i++)
		lg_trace_free(file[i].t);
	lg_free(file);
	lg_map_done(&seen);
	lg_free(rows);
	lg_free(placed);
	if (!rc && n_read + n_empty > 1)
		return lg_builder_seal(b, ret, err);
	lg_builder_free(b);
	return rc;
}

int lg_import(const char *const *paths, size_t n_paths, struct lg_trace **ret,
	      struct lg_import_info *info, struct lg_error *err)
{
	return lg_import_found(paths, n_paths, NULL, ret, info, err);
}

int lg_import_found(const char *const *paths, size_t n_paths, const bool *may_leave_out,
		    struct lg_trace **ret, struct lg_import_info *info, struct lg_error *err)
{
	struct file *f;
	int rc;

	if (!n_paths)
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "no input file");
	memset(info, 0, n_paths * sizeof *info);
	if (n_paths > 1)
		return import_many(paths, n_paths, may_leave_out, ret, info, err);
	f = lg_calloc(1, sizeof *f);
	if (!f)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	open_file(f, paths[0], &info[0]);
	read_file(f);
	rc = f->rc;
	*ret = f->t;
	if (!rc)
		describe(&info[0], f->t, 0);
	else if (err)
		*err = f->err;
	lg_free(f);
	return rc;
}
