/* SPDX-License-Identifier: Apache-2.0 */
#include "store/lag_write.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/place.h"
#include "store/lag_chunk.h"

struct lg_writer {
	struct lg_place *place;
	char *name;  /* for people */
	bool kept;   /* what is written so far stays when the rest cannot be */
	struct lg_coder *coder;
	uint64_t bytes, rows; /* bytes: end of the last whole chunk */
	struct lg_dir_entry *dir;
	size_t n_dir, dir_cap;
	int failed, reported; /* failed: sticky LG_E_* */
	struct lg_error err;
};

static int write_all(struct lg_writer *w, const void *buf, size_t n)
{
	const uint8_t *p = buf;
	size_t left = n;

	while (left) {
		ssize_t k = write(lg_place_fd(w->place), p, left);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0) {
			int e = k ? errno : ENOSPC;

			if (w->kept && w->bytes)
				w->failed = lg_fail_errno(&w->err, e,
							  "cannot write %s (its first %llu bytes are whole "
							  "and readable)",
							  w->name, (unsigned long long)w->bytes);
			else
				w->failed = lg_fail_errno(&w->err, e, "cannot write %s", w->name);
			/* Half a chunk tells nothing; where it cannot be cut off the reader skips it.
			 * Of a stream that is another's file we know no offset. */
			if (lg_place_is_file(w->place) &&
			    ftruncate(lg_place_fd(w->place), (off_t)w->bytes))
				return w->failed;
			return w->failed;
		}
		p += k;
		left -= (size_t)k;
	}
	w->bytes += n;
	return 0;
}

/* A sticky failure that is handed to the caller is not reported again by close. */
static int report(struct lg_writer *w, struct lg_error *err)
{
	if (err)
		*err = w->err;
	w->reported = 1;
	return w->failed;
}

static int writer_open(struct lg_writer **ret, const char *path, int live, struct lg_error *err)
{
	struct lg_writer *w = lg_calloc(1, sizeof *w);
	struct lg_lag_header h;
	int rc;

	if (!w)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	w->kept = live;
	w->name = lg_strdup(strcmp(path, "-") ? path : "standard output");
	if (!w->name || lg_coder_new(&w->coder)) {
		rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		goto fail;
	}
	rc = lg_place_open(&w->place, path, err);
	if (rc)
		goto fail;
	lg_lag_header_init(&h, live);
	if (write_all(w, &h, sizeof h)) {
		rc = report(w, err);
		goto fail;
	}
	*ret = w;
	return 0;
fail:
	lg_writer_abort(w);
	return rc;
}

int lg_writer_open(struct lg_writer **ret, const char *path, struct lg_error *err)
{
	return writer_open(ret, path, 1, err);
}

int lg_writer_keep(struct lg_writer *w, struct lg_error *err)
{
	return lg_place_keep(w->place, err);
}

void lg_writer_abort(struct lg_writer *w)
{
	if (!w)
		return;
	lg_place_free(w->place);
	lg_coder_free(w->coder);
	lg_free(w->name);
	lg_free(w->dir);
	lg_free(w);
}

static int put_chunk(struct lg_writer *w, struct lg_chunk_view *v)
{
	if (lg_grow(&w->dir, &w->dir_cap, w->n_dir + 1, sizeof *w->dir))
		return w->failed = lg_fail(&w->err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	/* The view lies in our coder's buffer; the number is known only now. */
	lg_chunk_number((uint8_t *)(uintptr_t)v->p, &v->header, (uint32_t)w->n_dir);
	w->dir[w->n_dir] = (struct lg_dir_entry){ .offset = w->bytes, .header = v->header };
	if (write_all(w, v->p, v->n))
		return w->failed;
	w->n_dir++;
	return 0;
}

static int sink_strings(void *self, const struct lg_trace *t, size_t first, size_t last,
			struct lg_error *err)
{
	struct lg_writer *w = self;
	struct lg_chunk_view v;

	while (!w->failed && first < last) {
		w->failed = lg_code_strings(w->coder, t, first, last, &first, &v, &w->err);
		if (!w->failed)
			(void)put_chunk(w, &v);
	}
	return w->failed ? report(w, err) : 0;
}

static int sink_rows(void *self, const struct lg_table_desc *d, const struct lg_tab *tab,
		     const uint32_t *rows, size_t n, struct lg_error *err)
{
	struct lg_writer *w = self;
	struct lg_chunk_view v;

	for (size_t i = 0; i < n && !w->failed; i += LG_CHUNK_ROWS) {
		size_t k = n - i < LG_CHUNK_ROWS ? n - i : LG_CHUNK_ROWS;

		w->failed = lg_code_rows(w->coder, d, tab, rows ? rows + i : NULL, i, k, &v,
					 &w->err);
		if (!w->failed)
			(void)put_chunk(w, &v);
		if (!w->failed && !d->is_dict)
			w->rows += k;
	}
	return w->failed ? report(w, err) : 0;
}

const struct lg_sink lg_writer_sink = { .strings = sink_strings, .rows = sink_rows };

int lg_writer_close(struct lg_writer *w, struct lg_error *err)
{
	struct lg_lag_trailer t;
	struct lg_chunk_view v;
	int rc;

	if (!w->failed) {
		lg_lag_trailer_init(&t, w->bytes, w->n_dir);
		w->failed = lg_code_directory(w->coder, w->dir, w->n_dir, &v, &w->err);
		if (!w->failed && !put_chunk(w, &v))
			(void)write_all(w, &t, sizeof t);
	}
	{
		struct lg_error late;
		int closed = lg_place_close(w->place, &late);

		if (!closed && (!w->failed || (w->kept && w->bytes)))
			closed = lg_place_keep(w->place, &late);
		if (closed && !w->failed) {
			w->failed = closed;
			w->err = late;
		}
	}
	rc = w->failed && !w->reported ? report(w, err) : 0;
	lg_writer_abort(w);
	return rc;
}

uint64_t lg_writer_bytes(const struct lg_writer *w)
{
	return w->bytes;
}

uint64_t lg_writer_rows(const struct lg_writer *w)
{
	return w->rows;
}

static int save(struct lg_writer *w, const struct lg_trace *t, struct lg_error *err)
{
	size_t n_tab;
	const struct lg_table_desc *d = lg_schema(&n_tab);
	uint32_t *ids;
	int rc = 0;

	if (t->n_str > 1)
		rc = sink_strings(w, t, 1, t->n_str, err);
	for (size_t i = 0; i < n_tab && !rc; i++) {
		const struct lg_tab *tab = lg_trace_table_const(t, &d[i]);

		if (!d[i].is_dict) {
			rc = sink_rows(w, &d[i], tab, NULL, tab->n, err);
			continue;
		}
		/* Row 0 is "none" in every file and is not written. */
		if (tab->n < 2)
			continue;
		ids = lg_calloc(tab->n, sizeof *ids);
		if (!ids)
			return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		for (size_t k = 1; k < tab->n; k++)
			ids[k - 1] = (uint32_t)k;
		rc = sink_rows(w, &d[i], tab, ids, tab->n - 1, err);
		lg_free(ids);
	}
	return rc;
}

int lg_lag_save(const struct lg_trace *t, const char *path, struct lg_error *err)
{
	struct lg_writer *w;
	int rc = writer_open(&w, path, 0, err);

	if (rc)
		return rc;
	rc = save(w, t, err);
	if (!rc)
		return lg_writer_close(w, err);
	lg_writer_abort(w);
	return rc;
}
