/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/command.h"
#include "import/import.h"
#include "symbols/open_foreign.h"

enum { FOLDERS_DEEP = 16 };

static int nomem(struct lg_error *err)
{
	return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

/* Takes path over. */
static int keep(struct lg_paths *p, char *path, bool perhaps, struct lg_error *err)
{
	if (!path || lg_grow(&p->path, &p->cap, p->n + 1, sizeof *p->path) ||
	    lg_grow(&p->perhaps, &p->cap_perhaps, p->n + 1, sizeof *p->perhaps)) {
		lg_free(path);
		return nomem(err);
	}
	p->perhaps[p->n] = perhaps;
	p->path[p->n++] = path;
	return 0;
}

int lg_paths_unread(struct lg_paths *p, const char *path, const char *why, struct lg_error *err)
{
	size_t n = strlen(path) + strlen(why) + sizeof ": ";
	char *text = lg_calloc(n, 1);

	if (!text || lg_grow(&p->unread, &p->cap_unread, p->n_unread + 1, sizeof *p->unread) ||
	    lg_grow(&p->unread_name, &p->cap_unread_name, p->n_unread + 1, sizeof *p->unread_name)) {
		lg_free(text);
		return nomem(err);
	}
	snprintf(text, n, "%s: %s", path, why);
	p->unread_name[p->n_unread] = strlen(path);
	p->unread[p->n_unread++] = text;
	lg_say("%s is left out: %s", path, why);
	return 0;
}

/* "json" of "a/b.json.gz: why", of n characters; *ret_n: how many these are. */
static const char *kind_of_name(const char *path, size_t n, size_t *ret_n)
{
	const char *base = memrchr(path, '/', n), *dot;

	base = base ? base + 1 : path;
	n -= (size_t)(base - path);
	for (;;) {
		dot = memrchr(base, '.', n);
		*ret_n = dot ? n - (size_t)(dot + 1 - base) : 0;
		if (!dot || (strncmp(dot, ".gz", 3) && strncmp(dot, ".zst", 4)))
			return dot ? dot + 1 : base;
		n = (size_t)(dot - base);
	}
}

static bool is_missed(const struct lg_paths *p, const char *text, size_t n)
{
	size_t k, of;
	const char *kind = kind_of_name(text, n, &k), *base = memrchr(text, '/', n), *other;

	if (memmem(base ? base : text, n - (size_t)(base ? base - text : 0), "rank", 4) ||
	    (k == 3 && !strncmp(kind, "log", 3)))
		return true;
	for (size_t i = 0; k && i < p->n; i++) {
		other = kind_of_name(p->path[i], strlen(p->path[i]), &of);
		if (of == k && !strncmp(other, kind, k))
			return true;
	}
	return false;
}

size_t lg_paths_missed(const struct lg_paths *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n_unread; i++)
		n += is_missed(p, p->unread[i], p->unread_name[i]);
	return n;
}

struct found {
	char *path;
	enum lg_import_known known;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct found *)a)->path, ((const struct found *)b)->path);
}

static char *inside(const char *folder, const char *name)
{
	size_t n = strlen(folder), m = strlen(name);
	char *path = lg_calloc(n + m + 2, 1);

	if (path)
		snprintf(path, n + m + 2, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name);
	return path;
}

/* What lies in a folder and those in it, in no order. */
struct listing {
	struct found *v;
	size_t n, cap, n_left_out;
	struct lg_paths *of; /* where folders that cannot be read are noted */
};

static int list(struct listing *l, const char *folder, int depth, struct lg_error *err);

/* Also behind a link, but neither a device nor a pipe, nor a file of the kernel's own (/proc/kmsg). */
static bool is_file(const char *path)
{
	struct stat st;
	int fd = lg_foreign_look(AT_FDCWD, path, 0, &st);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Takes path over. A link to a folder is not followed: it may lead to what is listed already. */
static int list_one(struct listing *l, char *path, int depth, struct lg_error *err)
{
	struct stat link;
	bool whole = path && (is_file(path) || lg_import_is_folder(path));
	int rc = 0;

	if (whole && !lg_grow(&l->v, &l->cap, l->n + 1, sizeof *l->v)) {
		l->v[l->n] = (struct found){ path, lg_import_knows(path) };
		l->n_left_out += l->v[l->n++].known == LG_IMPORT_NO;
		return 0;
	}
	if (!path || whole)
		rc = nomem(err);
	else if (!lstat(path, &link) && S_ISDIR(link.st_mode) && depth < FOLDERS_DEEP)
		rc = list(l, path, depth + 1, err);
	lg_free(path);
	return rc;
}

static int list(struct listing *l, const char *folder, int depth, struct lg_error *err)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	int rc = 0;

	if (!d && depth)
		return lg_paths_unread(l->of, folder, strerror(errno), err);
	if (!d)
		return lg_fail_errno(err, errno, "cannot open %s", folder);
	while (!rc && (e = readdir(d)))
		if (e->d_name[0] != '.')
			rc = list_one(l, inside(folder, e->d_name), depth, err);
	closedir(d);
	return rc;
}

static int add_folder(struct lg_paths *p, const char *folder, struct lg_error *err)
{
	struct listing l = { .of = p };
	int rc = list(&l, folder, 0, err);
	struct found *f = l.v;
	size_t n = l.n, n_left_out = l.n_left_out;

	if (!rc && n == n_left_out)
		rc = lg_fail(err, LG_E_NOTFOUND, LG_NO_OFFSET, "%s holds no trace%s", folder,
			     n ? " of a kind that laggard reads" : "");
	if (!rc)
		qsort(f, n, sizeof *f, by_name);
	for (size_t i = 0; i < n; i++) {
		if (!rc && f[i].known != LG_IMPORT_NO) {
			rc = keep(p, f[i].path, f[i].known == LG_IMPORT_PERHAPS, err);
			continue;
		}
		if (!rc)
			rc = lg_paths_unread(p, f[i].path, "no trace of a kind that laggard reads", err);
		lg_free(f[i].path);
	}
	lg_free(f);
	return rc;
}

int lg_paths_add(struct lg_paths *p, const char *path, struct lg_error *err)
{
	struct stat st;

	if (!stat(path, &st) && S_ISDIR(st.st_mode) && !lg_import_is_folder(path))
		return add_folder(p, path, err);
	return keep(p, lg_strdup(path), false, err);
}

/* run.lag -> run-rank0-4711-profile-1.json: is name that, of the recording whose stem it has n bytes of? */
static bool is_profile(const char *name, const char *stem, size_t n)
{
	size_t m = strlen(name);

	return !strncmp(name, stem, n) && name[n] == '-' && strstr(name + n, "-profile-") && m > 5 &&
	       !strcmp(name + m - 5, ".json");
}

/*
 * What record --profiler wrote beside a recording, by its owner, belongs to it, and is read with it. A folder
 * that cannot be listed has none.
 */
static int add_profiles(struct lg_paths *p, const char *recording, struct lg_error *err)
{
	const char *slash = strrchr(recording, '/'), *stem = slash ? slash + 1 : recording;
	size_t n = strlen(stem);
	char *folder = lg_strdup(recording);
	struct stat own, st;
	struct dirent **e;
	int n_found, rc = folder ? 0 : nomem(err);

	if (folder)
		folder[stem - recording] = 0;
	if (rc || n < 5 || strcmp(stem + n - 4, ".lag") || stat(recording, &own) || !S_ISREG(own.st_mode)) {
		lg_free(folder);
		return rc;
	}
	n_found = scandir(*folder ? folder : ".", &e, NULL, alphasort);
	for (int i = 0; i < n_found; i++) {
		bool is = !rc && is_profile(e[i]->d_name, stem, n - 4);
		char *path = !is ? NULL : *folder ? inside(folder, e[i]->d_name) : lg_strdup(e[i]->d_name);

		if (path && !lstat(path, &st) && S_ISREG(st.st_mode) && st.st_uid == own.st_uid &&
		    !lg_paths_find(p, path))
			rc = keep(p, path, true, err);
		else
			lg_free(path);
		free(e[i]);
	}
	if (n_found >= 0)
		free(e);
	lg_free(folder);
	return rc;
}

int lg_paths_operands(struct lg_paths *p, char **operands, size_t n, struct lg_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++)
		rc = lg_paths_add(p, operands[i], err);
	for (size_t i = 0, files = p->n; i < files && !rc; i++)
		rc = add_profiles(p, p->path[i], err);
	if (rc)
		lg_paths_done(p);
	return rc;
}

/* Where a file that does not exist yet would lie. */
static const char *last_part(const char *path, struct stat *ret_folder)
{
	const char *base = strrchr(path, '/');
	char folder[4096];
	int n = base ? snprintf(folder, sizeof folder, "%.*s/", (int)(base - path), path)
		     : snprintf(folder, sizeof folder, ".");

	if (n < 0 || (size_t)n >= sizeof folder || stat(folder, ret_folder))
		return NULL;
	return base ? base + 1 : path;
}

bool lg_same_file(const char *a, const char *b)
{
	struct stat x, y;
	int no_a = stat(a, &x), no_b = stat(b, &y);
	const char *p, *q;

	if (!no_a && !no_b)
		return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
	if (!no_a || !no_b)
		return false;
	p = last_part(a, &x);
	q = last_part(b, &y);
	return p && q && !strcmp(p, q) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

const char *lg_paths_find(const struct lg_paths *p, const char *out)
{
	for (size_t i = 0; i < p->n; i++)
		if (lg_same_file(p->path[i], out))
			return p->path[i];
	return NULL;
}

int lg_paths_refuse(const struct lg_paths *p, const struct lg_command *cmd, const char *option,
		    const char *out)
{
	return lg_paths_find(p, out) ? lg_usage(cmd, "%s %s would replace what is to be read", option, out) : -1;
}

void lg_paths_done(struct lg_paths *p)
{
	for (size_t i = 0; i < p->n; i++)
		lg_free(p->path[i]);
	lg_free(p->path);
	for (size_t i = 0; i < p->n_unread; i++)
		lg_free(p->unread[i]);
	lg_free(p->unread);
	lg_free(p->unread_name);
	lg_free(p->perhaps);
	*p = (struct lg_paths){ 0 };
}
