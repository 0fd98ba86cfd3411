/* SPDX-License-Identifier: Apache-2.0 */
#include "record/job_spec.h"

#include <ctype.h>
#include <errno.h>
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bounded_regex.h"
#include "base/order.h"

enum {
	READ_BUF = 256 << 10, /* of an environment; as record/lives.c reads */
	CMDLINE_MAX = 4096,
	ID_MAX = 512,
	ABOVE_MAX = 64, /* generations between a process and its oldest ancestor that are looked at */
	HEX_ID = 64, HEX_SHORT = 12, /* of a container: whole, and as its runtime shows it */
};

enum kind { SLURM, RAY, CONTAINER, CGROUP, MATCH };

static const struct kind_row {
	const char *name;
	bool cmdline, cgroup, environ; /* what is read to tell */
} kinds[] = {
	[SLURM] = { "slurm", false, true, true },   [RAY] = { "ray", true, false, true },
	[CONTAINER] = { "container", false, true, false }, [CGROUP] = { "cgroup", false, true, false },
	[MATCH] = { "match", true, false, false },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct lg_job_spec {
	enum kind kind;
	char id[ID_MAX];
	char step[64], task[64]; /* of Slurm's job: behind the dot, behind the underscore; "" = all */
	const char *root;
	char *root_copy, *buf;
	regex_t regex;
	bool compiled;
	pid_t self, above[ABOVE_MAX];
	size_t n_above;
};

/* Reading ------------------------------------------------------------------------------------------ */

static ssize_t read_file(struct lg_job_spec *s, pid_t pid, const char *name, size_t size)
{
	char path[512];

	snprintf(path, sizeof path, "%.400s/%d/%s", s->root, (int)pid, name);
	return lg_proc_read(path, s->buf, size);
}

static bool read_stat(struct lg_job_spec *s, pid_t pid, struct lg_proc_stat *ret)
{
	ssize_t n = read_file(s, pid, "stat", 1024);

	return n > 0 && !lg_proc_parse_stat(s->buf, (size_t)n, ret);
}

/* The first variable of that name, as getenv(3) would find it. An entry that the bound cut off is none. */
static const char *variable(const char *text, size_t n, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < n;) {
		const char *end = memchr(text + i, 0, n - i);

		if (!end)
			return NULL;
		if (!strncmp(text + i, name, len) && text[i + len] == '=')
			return text + i + len + 1;
		i = (size_t)(end - text) + 1;
	}
	return NULL;
}

static bool is_variable(const char *text, size_t n, const char *name, const char *value)
{
	const char *v = variable(text, n, name);

	return v && !strcmp(v, value);
}

/* Matching ----------------------------------------------------------------------------------------- */

/* Does the part of a path that begins at p and ends at a slash, a line's or the text's end equal id? */
static bool is_part(const char *p, const char *id)
{
	size_t n = strcspn(p, "/\n");

	return n == strlen(id) && !memcmp(p, id, n);
}

/* Did Slurm put the process into a cgroup of a job? *ret_ours: and of this one. */
static bool in_slurm_cgroup(const struct lg_job_spec *s, const char *cgroup, bool *ret_ours)
{
	bool any = false;

	*ret_ours = false;
	for (const char *p = cgroup; (p = strstr(p, "/job_")); p++) {
		const char *step = p + 5 + strcspn(p + 5, "/\n");

		if (!isdigit((unsigned char)p[5]) || strncmp(step, "/step_", 6))
			continue; /* a folder that happens to be called so */
		any = true;
		if (is_part(p + 5, s->id) && (!*s->step || is_part(step + 6, s->step)))
			*ret_ours = true;
	}
	return any;
}

static bool is_slurm(const struct lg_job_spec *s, const char *cgroup, const char *env, size_t n)
{
	bool ours;

	/* A task of an array has a job id of its own there. */
	if (!*s->task && in_slurm_cgroup(s, cgroup, &ours))
		return ours;
	if (*s->task && (!is_variable(env, n, "SLURM_ARRAY_JOB_ID", s->id) ||
			 !is_variable(env, n, "SLURM_ARRAY_TASK_ID", s->task)))
		return false;
	if (!*s->task && !is_variable(env, n, "SLURM_JOB_ID", s->id))
		return false;
	return !*s->step || is_variable(env, n, "SLURM_STEP_ID", s->step);
}

/* Titles are "ray::Trainer.fit", "ray::train()": NAME is a whole word of it. */
static bool is_ray(const struct lg_job_spec *s, const char *cmdline, const char *env, size_t n)
{
	size_t len = strlen(s->id);

	if (is_variable(env, n, "RAY_JOB_ID", s->id))
		return true;
	if (strncmp(cmdline, "ray::", 5) || strncmp(cmdline + 5, s->id, len))
		return false;
	cmdline += 5 + len;
	return !isalnum((unsigned char)*cmdline) && *cmdline != '_';
}

static size_t hex_run(const char *p)
{
	return strspn(p, "0123456789abcdef");
}

/* Equal, where a path writes the dashes of a pod's id as underscores (systemd). */
static bool same_name(const char *path, const char *id, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (path[i] != id[i] && !(path[i] == '_' && id[i] == '-'))
			return false;
	return true;
}

/* The forms that lg_proc_container() knows, and pods: .../kubepods-burstable-pod<UID>.slice/... */
static bool is_container(const struct lg_job_spec *s, const char *cgroup)
{
	size_t n = strlen(s->id);
	bool hex = n >= HEX_SHORT && hex_run(s->id) == n;

	for (const char *p = strchr(cgroup, '/'); p && *p; p++) {
		bool begins = p > cgroup && (strchr("/.-", p[-1]) || (p - cgroup >= 3 && !strncmp(p - 3, "pod", 3)));

		if (hex && hex_run(p) == HEX_ID && begins && !memcmp(p, s->id, n))
			return true;
		if (!begins || p[-1] == '-' || strnlen(p, n) < n || !same_name(p, s->id, n))
			continue;
		if (p[n] == '/' || p[n] == '\n' || p[n] == '.' || !p[n])
			return true;
	}
	return false;
}

static bool is_below(const char *path, size_t len, const char *group)
{
	size_t n = strlen(group);

	return len >= n && !memcmp(path, group, n) && (len == n || path[n] == '/');
}

/*
 * Lines are "N:CONTROLLERS:PATH". Who copies a path from /sys/fs/cgroup has CONTROLLERS before it where
 * there is a hierarchy for each.
 */
static bool is_cgroup(const struct lg_job_spec *s, const char *text)
{
	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		const char *list, *path;
		size_t len, n_list;

		if (*line == '\n' && !*++line)
			break;
		len = strcspn(line, "\n");
		list = memchr(line, ':', len);
		path = list ? memchr(list + 1, ':', len - (size_t)(list + 1 - line)) : NULL;
		if (!path)
			continue;
		n_list = (size_t)(path - list) - 1;
		path++;
		len -= (size_t)(path - line);
		if (is_below(path, len, s->id) ||
		    (n_list && !strncmp(s->id + 1, list + 1, n_list) && s->id[1 + n_list] == '/' &&
		     is_below(path, len, s->id + 1 + n_list)))
			return true;
	}
	return false;
}

static bool matches(struct lg_job_spec *s, pid_t pid, bool *ret_hidden)
{
	const struct kind_row *k = &kinds[s->kind];
	char cmdline[CMDLINE_MAX] = "";
	LG_AUTOFREE char *cgroup = NULL;
	ssize_t n;

	*ret_hidden = false;
	if (k->cmdline) {
		n = read_file(s, pid, "cmdline", CMDLINE_MAX);
		*ret_hidden |= n == -EACCES || n == -EPERM;
		if (n > 0) {
			n = (ssize_t)lg_proc_join_cmdline(s->buf, (size_t)n);
			memcpy(cmdline, s->buf, (size_t)n + 1);
		}
	}
	if (s->kind == MATCH)
		return *cmdline && !regexec(&s->regex, cmdline, 0, NULL, 0);
	if (k->cgroup) {
		n = read_file(s, pid, "cgroup", READ_BUF);
		*ret_hidden |= n == -EACCES || n == -EPERM;
		cgroup = lg_strdup(n > 0 ? s->buf : "");
		if (!cgroup)
			return false;
	}
	if (s->kind == CONTAINER)
		return is_container(s, cgroup);
	if (s->kind == CGROUP)
		return is_cgroup(s, cgroup);
	n = read_file(s, pid, "environ", READ_BUF);
	*ret_hidden |= n == -EACCES || n == -EPERM;
	if (s->kind == SLURM)
		return is_slurm(s, cgroup ? cgroup : "", s->buf, n > 0 ? (size_t)n : 0);
	return is_ray(s, cmdline, s->buf, n > 0 ? (size_t)n : 0);
}

/* Who asks, or of its kin: what it forked has its command line, in which the expression stands. */
static bool is_ours(struct lg_job_spec *s, pid_t pid)
{
	struct lg_proc_stat st;

	for (size_t i = 0; i < s->n_above; i++)
		if (s->above[i] == pid)
			return true;
	for (int i = 0; i < ABOVE_MAX && pid > 1; i++) {
		if (pid == s->self)
			return true;
		if (!read_stat(s, pid, &st))
			return false;
		pid = st.ppid;
	}
	return false;
}

bool lg_job_takes(struct lg_job_spec *s, pid_t pid)
{
	bool hidden;

	return matches(s, pid, &hidden) && !is_ours(s, pid);
}

/* Making ------------------------------------------------------------------------------------------- */

static int no_id(const struct lg_job_spec *s, const char *want, struct lg_error *err)
{
	return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "%s:%.80s: %s", kinds[s->kind].name, s->id, want);
}

/* ID, ID.STEP, ID_TASK or both. */
static int parse_slurm(struct lg_job_spec *s, struct lg_error *err)
{
	char *dot = strchr(s->id, '.'), *bar;
	bool ok;

	if (dot)
		*dot = 0;
	bar = strchr(s->id, '_');
	if (bar)
		*bar = 0;
	snprintf(s->step, sizeof s->step, "%.63s", dot ? dot + 1 : "");
	snprintf(s->task, sizeof s->task, "%.63s", bar ? bar + 1 : "");
	ok = *s->id && strspn(s->id, "0123456789") == strlen(s->id) && !dot == !*s->step && !bar == !*s->task &&
	     strspn(s->task, "0123456789") == strlen(s->task);
	for (const char *p = s->step; *p; p++)
		ok &= isalnum((unsigned char)*p) != 0;
	return ok ? 0 : no_id(s, "want the number of a job, as ID, ID.STEP or ARRAY_TASK", err);
}

static int parse_container(struct lg_job_spec *s, struct lg_error *err)
{
	size_t n = strlen(s->id);

	if (strspn(s->id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.") != n)
		return no_id(s, "want a container's or a pod's id, or the name of an LXC container", err);
	if (hex_run(s->id) == n && n < HEX_SHORT)
		return no_id(s, "want 12 hexadecimal digits of a container's id at least", err);
	return 0;
}

static int parse_cgroup(struct lg_job_spec *s, struct lg_error *err)
{
	static const char mount[] = "/sys/fs/cgroup";
	size_t n = sizeof mount - 1;

	if (!strncmp(s->id, mount, n) && s->id[n] == '/')
		memmove(s->id, s->id + n, strlen(s->id + n) + 1);
	if (!strncmp(s->id, "/unified/", 9)) /* where version 2 stands beside version 1 */
		memmove(s->id, s->id + 8, strlen(s->id + 8) + 1);
	n = strlen(s->id);
	while (n > 1 && s->id[n - 1] == '/')
		s->id[--n] = 0;
	return s->id[0] == '/' && n > 1 ? 0 : no_id(s, "want a path such as /system.slice/train.service", err);
}

static int parse_match(struct lg_job_spec *s, struct lg_error *err)
{
	char text[128];
	int rc = lg_regex_bounded(s->id, err);

	if (rc)
		return rc;
	rc = regcomp(&s->regex, s->id, REG_EXTENDED | REG_NOSUB);
	if (rc) {
		regerror(rc, &s->regex, text, sizeof text);
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "\"%.80s\" is no extended regular expression: %s",
			       s->id, text);
	}
	s->compiled = true;
	return 0;
}

static int parse(struct lg_job_spec *s, const char *text, struct lg_error *err)
{
	const char *colon = strchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0, k;

	for (k = 0; k < KINDS; k++)
		if (strlen(kinds[k].name) == n && !strncmp(text, kinds[k].name, n))
			break;
	if (!colon || k == KINDS)
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "\"%.80s\": want slurm:ID, ray:NAME, container:ID, "
			       "cgroup:PATH or match:REGEX", text);
	s->kind = (enum kind)k;
	if (!colon[1] || strlen(colon + 1) >= sizeof s->id)
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "%s: wants 1 to %d bytes behind the colon",
			       kinds[k].name, ID_MAX - 1);
	memcpy(s->id, colon + 1, strlen(colon + 1) + 1);
	switch (s->kind) {
	case SLURM: return parse_slurm(s, err);
	case CONTAINER: return parse_container(s, err);
	case CGROUP: return parse_cgroup(s, err);
	case MATCH: return parse_match(s, err);
	case RAY: break;
	}
	return 0;
}

int lg_job_spec_new(struct lg_job_spec **ret, const char *text, const char *root, pid_t self,
		    struct lg_error *err)
{
	struct lg_job_spec *s = lg_calloc(1, sizeof *s);
	struct lg_proc_stat st;
	int rc = 0;

	if (!s || !(s->buf = lg_calloc(READ_BUF, 1)) || !(s->root_copy = lg_strdup(root)))
		rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (!rc)
		rc = parse(s, text, err);
	if (rc) {
		lg_job_spec_free(s);
		return rc;
	}
	s->root = s->root_copy;
	s->self = self;
	/* Process 1 adopts whoever is left: in a container it may be the training program itself. */
	for (pid_t pid = self; s->n_above < ABOVE_MAX && read_stat(s, pid, &st) && st.ppid > 1; pid = st.ppid)
		s->above[s->n_above++] = st.ppid;
	*ret = s;
	return 0;
}

void lg_job_spec_free(struct lg_job_spec *s)
{
	if (!s)
		return;
	if (s->compiled)
		regfree(&s->regex);
	lg_free(s->root_copy);
	lg_free(s->buf);
	lg_free(s);
}

bool lg_job_is_joined(const struct lg_job_spec *s)
{
	return s->kind != CGROUP && s->kind != CONTAINER;
}

/* Finding ------------------------------------------------------------------------------------------ */

struct search {
	struct lg_job_spec *s;
	struct lg_job_found *f;
	bool no_memory;
};

static void look_at(void *arg, int32_t pid)
{
	struct search *h = arg;
	struct lg_job_spec *s = h->s;
	struct lg_job_member m = { .pid = pid, .env = { -1, 0, -1, LG_RANK_NONE } };
	struct lg_proc_stat st;
	bool hidden, ours;
	ssize_t n;

	if (!read_stat(s, pid, &st) || st.flags & LG_PF_KTHREAD || st.state == 'Z' || st.state == 'X')
		return;
	h->f->looked++;
	ours = matches(s, pid, &hidden);
	h->f->hidden += hidden && !ours;
	if (!ours || is_ours(s, pid))
		return;
	m.ppid = st.ppid;
	n = read_file(s, pid, "environ", READ_BUF);
	if (n > 0)
		lg_proc_parse_environ(s->buf, (size_t)n, &m.env, NULL, NULL);
	h->no_memory |= LG_APPEND(h->f->v, h->f->n, h->f->cap, m) != 0;
}

LG_ORDER_BY(cmp_pid, struct lg_job_member, LG_CMP(x->pid, y->pid))
LG_ORDER_BY(cmp_rank, struct lg_job_member, LG_CMP(y->is_rank, x->is_rank) ?:
	    LG_CMP(x->is_rank ? x->env.rank : 0, y->is_rank ? y->env.rank : 0) ?: LG_CMP(x->pid, y->pid))

static bool same_rank(const struct lg_job_member *a, const struct lg_job_member *b)
{
	return a->env.kind == b->env.kind && a->env.rank == b->env.rank;
}

/* Adopted by process 1, while somebody with a parent of the job has the same rank: a daemon of that one. */
static bool is_left_over(const struct lg_job_found *f, const struct lg_job_member *m)
{
	for (size_t i = 0; m->ppid <= 1 && i < f->n; i++)
		if (f->v[i].ppid > 1 && f->v[i].is_rank && same_rank(&f->v[i], m))
			return true;
	return false;
}

/* Loader workers inherit the rank; srun's number is a node's where torchrun's is below it (lives.c). */
static void choose_ranks(struct lg_job_found *f)
{
	enum lg_rank_kind best = LG_RANK_NONE;

	qsort(f->v, f->n, sizeof *f->v, cmp_pid);
	for (size_t i = 0; i < f->n; i++) {
		struct lg_job_member *m = &f->v[i], key = { .pid = m->ppid };
		const struct lg_job_member *up = bsearch(&key, f->v, f->n, sizeof *f->v, cmp_pid);

		m->is_rank = m->env.kind && !(up && same_rank(up, m));
		if (m->is_rank && m->env.kind > best)
			best = m->env.kind;
	}
	for (size_t i = 0; i < f->n; i++) {
		f->v[i].is_rank &= f->v[i].env.kind == best && !is_left_over(f, &f->v[i]);
		f->n_ranks += f->v[i].is_rank;
	}
	qsort(f->v, f->n, sizeof *f->v, cmp_rank);
}

static int nobody(const struct lg_job_spec *s, const struct lg_job_found *f, struct lg_error *err)
{
	char id[300], wanted[512], hidden[96] = "";

	snprintf(id, sizeof id, "%.150s%s%s%s%s", s->id, *s->task ? "_" : "", s->task, *s->step ? "." : "", s->step);
	switch (s->kind) {
	case SLURM:
		snprintf(wanted, sizeof wanted, "of Slurm's job %s (in its cgroup, or with its SLURM_JOB_ID)", id);
		break;
	case RAY:
		snprintf(wanted, sizeof wanted, "with RAY_JOB_ID=%.150s or the title ray::%.150s", id, id);
		break;
	case CONTAINER:
		snprintf(wanted, sizeof wanted, "in a cgroup of container %s", id);
		break;
	case CGROUP:
		snprintf(wanted, sizeof wanted, "in cgroup %s", id);
		break;
	case MATCH:
		snprintf(wanted, sizeof wanted, "whose command line matches \"%s\"", id);
		break;
	}
	if (f->hidden)
		snprintf(hidden, sizeof hidden, ", %zu of which could not be read%s", f->hidden,
			 geteuid() ? " (other users' are for root to read)" : "");
	return lg_fail(err, LG_E_NOTFOUND, LG_NO_OFFSET, "no process %.300s: looked at %zu process%s%s", wanted,
		       f->looked, f->looked == 1 ? "" : "es", hidden);
}

int lg_job_find(struct lg_job_spec *s, struct lg_job_found *ret, struct lg_error *err)
{
	struct lg_job_found f = { 0 };
	struct search h = { .s = s, .f = &f };

	if (lg_proc_each(s->root, look_at, &h))
		return lg_fail(err, LG_E_IO, LG_NO_OFFSET, "cannot read %.200s", s->root);
	if (h.no_memory) {
		lg_free(f.v);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	if (!f.n)
		return nobody(s, &f, err);
	choose_ranks(&f);
	*ret = f;
	return 0;
}

static void add_text(char *buf, size_t size, const char *fmt, ...) LG_PRINTF(3, 4);
static void add_text(char *buf, size_t size, const char *fmt, ...)
{
	size_t n = strlen(buf);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf + n, size - n, fmt, ap);
	va_end(ap);
}

const char *lg_job_found_text(const struct lg_job_found *f, char *buf, size_t size)
{
	enum { TOLD = 8 };
	bool row = f->n_ranks > 2;
	size_t told = f->n_ranks < TOLD ? f->n_ranks : TOLD;

	snprintf(buf, size, "%zu process%s", f->n, f->n == 1 ? "" : "es");
	if (!f->n_ranks) {
		add_text(buf, size, ", none with a rank in its environment");
		return buf;
	}
	for (size_t i = 1; i < f->n_ranks; i++)
		row &= f->v[i].env.rank == f->v[i - 1].env.rank + 1;
	add_text(buf, size, f->n_ranks == 1 ? ", rank " : ", ranks ");
	if (row)
		add_text(buf, size, "%d to %d", f->v[0].env.rank, f->v[f->n_ranks - 1].env.rank);
	for (size_t i = 0; !row && i < told; i++)
		add_text(buf, size, "%s%d", i ? ", " : "", f->v[i].env.rank);
	add_text(buf, size, "%s (pid%s ", !row && told < f->n_ranks ? " and more" : "", f->n_ranks == 1 ? "" : "s");
	for (size_t i = 0; i < told; i++)
		add_text(buf, size, "%s%d", i ? ", " : "", (int)f->v[i].pid);
	add_text(buf, size, "%s)", told < f->n_ranks ? " ..." : "");
	return buf;
}
