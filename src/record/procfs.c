/* SPDX-License-Identifier: Apache-2.0 */
/* procfs.c - parsers of /proc; formats as in Documentation/filesystems/proc.rst and proc(5). */
#include "record/procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/patient.h"

/* Whose lock the kernel takes for it, which may be withheld (base/patient.h); 0 = nobody's. */
static int32_t locked_for(const char *path)
{
	static const char *const free_of[] = { "/status", "/comm", "/cgroup", "/sched", "/schedstat" };
	const char *name = strrchr(path, '/');
	long pid = strncmp(path, "/proc/", 6) ? 0 : strtol(path + 6, NULL, 10);

	for (size_t i = 0; pid && i < sizeof free_of / sizeof *free_of; i++)
		if (!strcmp(name, free_of[i]))
			return 0;
	return pid == getpid() ? 0 : (int32_t)pid;
}

ssize_t lg_proc_read(const char *path, char *buf, size_t size)
{
	int32_t pid = locked_for(path);

	return pid > 0 ? lg_patient_read(pid, path, buf, size) : lg_read_now(path, buf, size);
}

ssize_t lg_proc_read_held(int *held, const char *path, char *buf, size_t size)
{
	if (!*held)
		*held = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) + 1;
	if (!*held || lseek(*held - 1, 0, SEEK_SET) < 0)
		return -errno;
	return lg_read_rest(*held - 1, buf, size);
}

void lg_proc_let_go(int *held)
{
	if (*held)
		close(*held - 1);
	*held = 0;
}

/* comm may hold spaces and parentheses: it ends at the last ')'. Fields count from 1 as in proc(5). */
int lg_proc_parse_stat(const char *text, size_t n, struct lg_proc_stat *ret)
{
	const char *open = memchr(text, '(', n), *end = memrchr(text, ')', n);
	struct lg_proc_stat r = { 0 };
	char *p;
	size_t len;

	if (!open || !end || end < open || (size_t)(end - text) + 3 >= n)
		return LG_E_FORMAT;
	r.pid = (int32_t)strtol(text, NULL, 10);
	len = (size_t)(end - open - 1);
	if (len >= sizeof r.comm)
		len = sizeof r.comm - 1;
	memcpy(r.comm, open + 1, len);
	r.state = end[2];
	p = (char *)(uintptr_t)(end + 3);
	for (int field = 4; field <= 39; field++) {
		char *after;
		unsigned long long v = strtoull(p, &after, 10); /* negative values wrap, and back */

		if (after == p)
			return LG_E_FORMAT;
		p = after;
		switch (field) {
		case 4: r.ppid = (int32_t)v; break;
		case 9: r.flags = (uint32_t)v; break;
		case 14: r.utime = v; break;
		case 15: r.stime = v; break;
		case 20: r.n_threads = (uint32_t)v; break;
		case 22: r.start = v; break;
		case 39: r.cpu = (int32_t)v; break;
		default: break;
		}
	}
	*ret = r;
	return 0;
}

int lg_proc_stat(int32_t pid, int32_t tid, struct lg_proc_stat *ret)
{
	char path[64], buf[1024];
	ssize_t n;

	if (tid)
		snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid);
	else
		snprintf(path, sizeof path, "/proc/%d/stat", pid);
	n = lg_proc_read(path, buf, sizeof buf);
	if (n == -EAGAIN)
		return LG_E_IO;
	return n < 0 ? LG_E_NOTFOUND : lg_proc_parse_stat(buf, (size_t)n, ret);
}

struct seen_stat {
	int rc;
	struct lg_proc_stat stat;
};

static int read_stats(const void *told, size_t n, void *answer, size_t room, size_t *ret_n, int *ret_fd)
{
	const int32_t *pid = told;
	struct seen_stat *seen = answer;
	char path[64], text[1024];

	(void)room;
	(void)ret_fd;
	n /= sizeof *pid;
	for (size_t i = 0; i < n; i++) {
		ssize_t got;

		seen[i] = (struct seen_stat){ .rc = LG_E_IO };
		if (!lg_patient_about(pid[i]))
			continue;
		snprintf(path, sizeof path, "/proc/%d/stat", pid[i]);
		got = lg_read_now(path, text, sizeof text);
		seen[i].rc = got < 0 ? LG_E_NOTFOUND : lg_proc_parse_stat(text, (size_t)got, &seen[i].stat);
	}
	*ret_n = n * sizeof *seen;
	return 0;
}

void lg_proc_stats(const int32_t *pid, size_t n, struct lg_proc_stat *ret, int *rc)
{
	struct seen_stat seen[LG_PROC_STATS];
	size_t got = 0;
	int failed = lg_patient_send(0, read_stats, pid, n * sizeof *pid, seen, sizeof seen, &got, NULL);

	for (size_t i = 0; i < n; i++) {
		if (failed) { /* one of them keeps it back: the others are asked without it */
			rc[i] = lg_proc_stat(pid[i], 0, &ret[i]);
		} else {
			rc[i] = seen[i].rc;
			ret[i] = seen[i].stat;
		}
	}
}

struct asked_texts {
	int32_t pid;
	uint32_t n;
	struct {
		uint32_t size;
		char name[12];
	} of[LG_PROC_TEXTS];
};

/* One behind the other: how long it is, itself, its zero. */
static int read_texts(const void *told, size_t n, void *answer, size_t room, size_t *ret_n, int *ret_fd)
{
	const struct asked_texts *a = told;
	char path[64], *at = answer;

	(void)n;
	(void)room;
	(void)ret_fd;
	for (uint32_t i = 0; i < a->n; i++) {
		int64_t got;

		snprintf(path, sizeof path, "/proc/%d/%s", a->pid, a->of[i].name);
		got = lg_read_now(path, at + sizeof got, a->of[i].size);
		memcpy(at, &got, sizeof got);
		at += sizeof got;
		if (got >= 0)
			at += got + 1;
	}
	*ret_n = (size_t)(at - (char *)answer);
	return 0;
}

void lg_proc_texts(int32_t pid, struct lg_proc_text *v, size_t n_v, char *buf, size_t room)
{
	struct asked_texts ask = { .pid = pid, .n = (uint32_t)n_v };
	size_t got = 0, need = 0, at = 0;
	int rc;

	for (size_t i = 0; i < n_v; i++) {
		ask.of[i].size = (uint32_t)v[i].size;
		snprintf(ask.of[i].name, sizeof ask.of[i].name, "%s", v[i].name);
		need += v[i].size + 16;
	}
	rc = need > room ? E2BIG : lg_patient_send(pid, read_texts, &ask, sizeof ask, buf, need, &got, NULL);
	for (size_t i = 0; i < n_v; i++) {
		int64_t n = -EIO;

		v[i].n = rc ? -rc : -EIO;
		if (rc || got - at < sizeof n)
			continue;
		memcpy(&n, buf + at, sizeof n);
		at += sizeof n;
		if (n >= 0 && (size_t)n >= got - at)
			continue;
		v[i].n = (ssize_t)n;
		v[i].text = buf + at;
		at += n < 0 ? 0 : (size_t)n + 1;
	}
}

static const char *status_field(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (const char *p = text; p; p = strchr(p, '\n')) {
		if (*p == '\n')
			p++;
		if (!strncmp(p, key, n))
			return p + n;
	}
	return NULL;
}

void lg_proc_parse_status(const char *text, struct lg_proc_status *ret)
{
	const char *p = status_field(text, "Uid:");
	int32_t outer = 0, inner = 0;
	int levels = 0;

	*ret = (struct lg_proc_status){ 0 };
	if (p)
		ret->uid = (uint32_t)strtoul(p, NULL, 10); /* the real one */
	p = status_field(text, "NSpid:");
	while (p) {
		char *end;
		long v;

		while (*p == '\t' || *p == ' ')
			p++;
		v = strtol(p, &end, 10);
		if (end == p || v <= 0 || v > INT32_MAX)
			break;
		if (!levels++)
			outer = (int32_t)v;
		inner = (int32_t)v;
		p = end;
	}
	if (levels > 1 && inner != outer)
		ret->ns_pid = inner;
}

size_t lg_proc_join_cmdline(char *buf, size_t n)
{
	while (n && !buf[n - 1])
		n--;
	for (size_t i = 0; i < n; i++) {
		if (!buf[i])
			buf[i] = ' ';
		else if ((unsigned char)buf[i] < ' ' || buf[i] == 127)
			buf[i] = '?';
	}
	buf[n] = 0;
	return n;
}

/* The closed list of variables that are kept; they say which job and place, and hold no secret. */
static const char *const job_keys[] = {
	"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK",
	"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
	"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
	"SLURM_NTASKS", "SLURM_JOB_NAME", "SLURM_CLUSTER_NAME", "SLURM_RESTART_COUNT",
	"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE",
	"PMI_RANK", "PMI_SIZE", "PMIX_RANK", "RAY_JOB_ID", "KUBEFLOW_TRAINING_JOB_ID",
	"JOB_COMPLETION_INDEX", "POD_NAME", "NODE_NAME", "OMP_NUM_THREADS", "LAGGARD_JOB_ID",
};

static bool number(const char *s, int32_t max, int32_t *ret)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(s, &end, 10);
	if (end == s || *end || errno || v < 0 || v > max)
		return false;
	*ret = (int32_t)v;
	return true;
}

void lg_proc_parse_environ(const char *text, size_t n, struct lg_proc_rank *ret,
			   void (*keep)(void *arg, const char *key, const char *value), void *arg)
{
	static const struct {
		enum lg_rank_kind kind;
		const char *rank, *world, *local;
	} kinds[] = {
		{ LG_RANK_TORCH, "RANK", "WORLD_SIZE", "LOCAL_RANK" },
		{ LG_RANK_MPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
		  "OMPI_COMM_WORLD_LOCAL_RANK" },
		{ LG_RANK_MPI, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID" },
		{ LG_RANK_MPI, "PMIX_RANK", "", "" },
		{ LG_RANK_SLURM, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID" },
	};
	struct lg_proc_rank found[5];

	for (size_t k = 0; k < 5; k++)
		found[k] = (struct lg_proc_rank){ .rank = -1, .local_rank = -1 };
	for (size_t i = 0; i < n;) {
		const char *e = text + i;
		const char *nul = memchr(e, 0, n - i), *eq;
		size_t len = nul ? (size_t)(nul - e) : n - i;
		char key[48], value[256];

		i += len + 1;
		eq = memchr(e, '=', len);
		if (!eq || !nul || (size_t)(eq - e) >= sizeof key ||
		    (size_t)(e + len - eq - 1) >= sizeof value)
			continue; /* also the entry that the buffer cut off */
		memcpy(key, e, (size_t)(eq - e));
		key[eq - e] = 0;
		memcpy(value, eq + 1, (size_t)(e + len - eq - 1));
		value[e + len - eq - 1] = 0;
		for (size_t k = 0; k < 5; k++) {
			if (!strcmp(key, kinds[k].rank) &&
			    number(value, 1 << 24, &found[k].rank))
				found[k].kind = kinds[k].kind;
			else if (!strcmp(key, kinds[k].world))
				(void)number(value, 1 << 24, &found[k].world);
			else if (!strcmp(key, kinds[k].local))
				(void)number(value, 1 << 16, &found[k].local_rank);
		}
		for (size_t k = 0; keep && k < sizeof job_keys / sizeof *job_keys; k++)
			if (!strcmp(key, job_keys[k]))
				keep(arg, key, value);
	}
	*ret = (struct lg_proc_rank){ .rank = -1, .local_rank = -1 };
	for (size_t k = 0; k < 5; k++) {
		/* salloc and sbatch scripts carry SLURM_NTASKS without PROCID; RANK alone may be
		 * anybody's variable: torch needs WORLD_SIZE beside it. */
		if (!found[k].kind || (kinds[k].kind == LG_RANK_TORCH && !found[k].world))
			continue;
		*ret = found[k];
		return;
	}
}

bool lg_environ_has(const char *text, size_t n, const char *key_value)
{
	size_t want = strlen(key_value);

	for (size_t i = 0; i < n;) {
		size_t len = strnlen(text + i, n - i);

		if (len == want && !memcmp(text + i, key_value, want))
			return true;
		i += len + 1;
	}
	return false;
}

uint32_t lg_proc_kept_marks(const char *text, size_t n)
{
	static const char head[] = "LAGGARD_MARKS=/dev/shm/laggard-", tail[] = "/kept";

	for (size_t i = 0; i < n;) {
		size_t len = strnlen(text + i, n - i);
		const char *p = text + i + sizeof head - 1;
		unsigned long v;
		char *end;

		if (len > sizeof head - 1 && len < n - i && !memcmp(text + i, head, sizeof head - 1) &&
		    *p >= '0' && *p <= '9') {
			v = strtoul(p, &end, 10);
			return v < UINT32_MAX && !strcmp(end, tail) ? (uint32_t)v + 1 : 0;
		}
		i += len + 1;
	}
	return 0;
}

static size_t hex_run(const char *p)
{
	return strspn(p, "0123456789abcdef");
}

/*
 * Forms seen in the wild:
 *   .../cri-containerd-<64 hex>.scope   /docker/<64 hex>   /kubepods/.../pod<uid>/<64 hex>
 *   /lxc/<name>   /machine.slice/libpod-<64 hex>.scope   .../job_<J>/step_<S>/...
 */
void lg_proc_container(const char *text, char *buf, size_t size)
{
	const char *best = NULL, *p;

	buf[0] = 0;
	for (p = text; *p; p++) {
		size_t n = hex_run(p);

		if (n == 64 && p > text && !strchr("0123456789abcdef", p[-1])) {
			snprintf(buf, size, "%.12s", p);
			best = p;
			break;
		}
		if (n)
			p += n - 1;
	}
	if (best)
		return;
	p = strstr(text, "/job_");
	if (p) {
		size_t job = strspn(p + 5, "0123456789");
		const char *step = strstr(p, "/step_");

		if (job) {
			if (step)
				snprintf(buf, size, "slurm:%.*s.%.*s", (int)job, p + 5,
					 (int)strcspn(step + 6, "/\n"), step + 6);
			else
				snprintf(buf, size, "slurm:%.*s", (int)job, p + 5);
			return;
		}
	}
	p = strstr(text, "/lxc/");
	if (p)
		snprintf(buf, size, "lxc:%.*s", (int)strcspn(p + 5, "/\n"), p + 5);
}

void lg_proc_cgroup_path(const char *text, const char *controller, char *buf, size_t size)
{
	buf[0] = 0;
	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		const char *list, *path;
		size_t len;

		if (*line == '\n' && !*++line)
			return;
		list = strchr(line, ':');
		path = list ? strchr(list + 1, ':') : NULL;
		len = strcspn(line, "\n");
		if (!path || (size_t)(path - line) > len)
			continue;
		if (!controller) {
			if (path != list + 1)
				continue; /* only the unified hierarchy has an empty list */
		} else {
			size_t want = strlen(controller);
			bool hit = false;

			for (const char *c = list + 1; c < path && !hit;) {
				size_t n = strcspn(c, ",:");

				hit = n == want && !memcmp(c, controller, n);
				c += n + 1;
			}
			if (!hit)
				continue;
		}
		snprintf(buf, size, "%.*s", (int)(len - (size_t)(path + 1 - line)), path + 1);
		return;
	}
}

int lg_proc_each(const char *dir, void (*f)(void *arg, int32_t id), void *arg)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	if (!d)
		return LG_E_NOTFOUND;
	while ((e = readdir(d)))
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
			f(arg, (int32_t)strtol(e->d_name, NULL, 10));
	closedir(d);
	return 0;
}

int64_t lg_proc_ticks_to_monotonic(uint64_t ticks)
{
	struct timespec boot, mono;
	int64_t hz = sysconf(_SC_CLK_TCK), offset;

	clock_gettime(CLOCK_BOOTTIME, &boot);
	clock_gettime(CLOCK_MONOTONIC, &mono);
	offset = (int64_t)(mono.tv_sec - boot.tv_sec) * 1000000000 + (mono.tv_nsec - boot.tv_nsec);
	return (int64_t)(ticks * (uint64_t)(1000000000 / (hz > 0 ? hz : 100))) + offset;
}
