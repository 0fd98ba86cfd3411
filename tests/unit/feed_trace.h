/* SPDX-License-Identifier: Apache-2.0 */
/* feed_trace.h - for the tests of importers: read fixtures and texts, look for rows. */
#ifndef LG_TEST_FEED_TRACE_H
#define LG_TEST_FEED_TRACE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "import/import.h"
#include "store/merge.h"

static inline struct lg_trace *feed_read(const char *path, const char *format)
{
	struct lg_import_info info;
	struct lg_error err = { 0 };
	struct lg_trace *t = NULL;

	if (lg_import(&path, 1, &t, &info, &err))
		fail_msg("%s", err.message);
	assert_string_equal(info.format, format);
	return t;
}

static inline const char *feed_path(const char *name)
{
	static char path[8][512];
	static int i;
	const char *dir = getenv("LG_TEST_DATA");

	i = (i + 1) % 8;
	snprintf(path[i], sizeof path[i], "%s/%s", dir ? dir : "tests/data", name);
	return path[i];
}

static inline struct lg_trace *feed_fixture(const char *name, const char *format)
{
	return feed_read(feed_path(name), format);
}

/* A file of these bytes; the caller unlinks it. */
static inline const char *feed_file(const void *p, size_t n)
{
	static char path[8][64];
	static int i;
	int fd;

	i = (i + 1) % 8;
	strcpy(path[i], "/tmp/laggard-feed-XXXXXX");
	fd = mkstemp(path[i]);
	assert_true(fd >= 0);
	assert_true(write(fd, p, n) == (ssize_t)n);
	close(fd);
	return path[i];
}

static inline struct lg_trace *feed_text(const char *text, const char *format)
{
	const char *path = feed_file(text, strlen(text));
	struct lg_trace *t = feed_read(path, format);

	unlink(path);
	return t;
}

/* The message with which these bytes are refused. */
static inline const char *feed_refused(const void *p, size_t n)
{
	static struct lg_error err;
	const char *path = feed_file(p, n);
	struct lg_import_info info;
	struct lg_trace *t;

	err = (struct lg_error){ 0 };
	assert_true(lg_import(&path, 1, &t, &info, &err) < 0);
	assert_null(strchr(err.message, '\n'));
	unlink(path);
	return err.message;
}

/* Row of the k-th mark of that name; fails when there is none. */
static inline size_t feed_mark(const struct lg_trace *t, const char *name, int k)
{
	for (size_t i = 0; i < t->mark.n; i++)
		if (!strcmp(lg_string(t, t->mark.name[i]), name) && !k--)
			return i;
	fail_msg("no mark %s", name);
	return 0;
}

static inline size_t feed_marks(const struct lg_trace *t, const char *name)
{
	size_t n = 0;

	for (size_t i = 0; i < t->mark.n; i++)
		n += !strcmp(lg_string(t, t->mark.name[i]), name);
	return n;
}

static inline void feed_expect_mark(const struct lg_trace *t, const char *name, int k, int64_t value,
				    const char *text)
{
	size_t i = feed_mark(t, name, k);

	assert_int_equal(t->mark.value[i], value);
	if (text)
		assert_non_null(strstr(lg_string(t, t->mark.text[i]), text));
}

/* Sum and number of the rows of a counter of one index. */
static inline double feed_counter(const struct lg_trace *t, const char *name, int32_t index, size_t *ret_n)
{
	double sum = 0;

	*ret_n = 0;
	for (size_t i = 0; i < t->counter.n; i++)
		if (!strcmp(lg_string(t, t->track.name[t->counter.track[i]]), name) &&
		    t->track.index[t->counter.track[i]] == index) {
			sum += t->counter.value[i];
			++*ret_n;
		}
	return sum;
}

static inline size_t feed_diags(const struct lg_trace *t, uint32_t id)
{
	size_t n = 0;

	for (size_t i = 0; i < t->diag.n; i++)
		n += t->diag.id[i] == id;
	return n;
}

static inline const char *feed_meta(const struct lg_trace *t, const char *key)
{
	for (size_t i = 0; i < t->meta.n; i++)
		if (!strcmp(lg_string(t, t->meta.key[i]), key))
			return lg_string(t, t->meta.value[i]);
	return "";
}

#endif /* LG_TEST_FEED_TRACE_H */
