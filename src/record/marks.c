/* SPDX-License-Identifier: Apache-2.0 */
/*
 * marks.c - the source that reads the mark rings of the training processes.
 *
 * Every drain looks for new files in the hook's folder, copies new slots out of each ring and
 * pushes them with their own time; feed() gives them to mark_rows.c. A ring is done when its
 * process is gone and nothing is left in it: then the file is removed, because a job that spawns
 * loader workers anew each epoch would otherwise fill /dev/shm.
 *
 * A job that runs already may have the hook too (`laggard env`). Its rings are in folders of its own user,
 * which its processes' environments name (lives.h); there they are opened as those processes see them. What
 * such a ring had before the recording began is left out but for facts.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/order.h"
#include "base/patient.h"
#include "record/hook_inject.h"
#include "record/lives.h"
#include "record/marks.h"
#include "record/moment.h"
#include "record/procfs.h"
#include "record/session.h"
#include "record/unreached.h"

#define MAX_NAMES 16384             /* of the folder in one look */
#define MAX_FOLDERS 64             /* of jobs that ran before: one a user and a container */
#define MAX_OF_A_USER 16           /* who makes containers of his own may not take the others' places */
#define MAX_RINGS 4096             /* open at once: a hostile job must not eat our descriptors */
#define ALIVE_EVERY 1000000000LL   /* ns between looks at whether a process lives */
#define BATCH 256
#define MAX_BATCHES 512            /* of one ring in one drain: the rest waits for the next */
/* ns that all folders may take of a drain, of the last one, and each at least: one is one user's. */
#define DRAIN_NS 200000000LL
#define LAST_DRAIN_NS 1000000000LL
#define FOLDER_NS 10000000LL
#define MAP_NS 500000000LL         /* of a folder in all: finding processes and threads of other namespaces */

/* Beside slots a ring sends these, in order with them. */
enum { REC_SLOT, REC_HEADER, REC_LOST, REC_END };

struct record {
	uint32_t ring, kind;
	struct lg_mark_slot slot; /* HEADER: nothing; LOST: seq = count; END: nothing */
};

struct ring {
	struct lg_mark_ring r;
	struct lg_mark_rows *rows;
	char name[64];
	unsigned folder;
	int64_t since;         /* it was written before that; INT64_MIN = the recorder was first */
	int32_t pid;           /* in our namespace; 0 = free entry */
	bool foreign;          /* pid namespace is not ours */
	struct marks *of;
	uint32_t i;            /* its entry, by which moment.h knows it */
	bool drained;          /* END pushed: reading is over, feed() frees the entry */
	int64_t alive_at;
};

struct folder {
	int fd;
	uid_t owner;
	dev_t dev;
	ino_t ino;
	struct timespec mtime;
	int64_t looked_at;
	bool kept;             /* it was there before the recorder, and stays */
	size_t next;           /* the ring with which the next drain begins */
	int64_t mapped_ns;     /* spent on ids of other namespaces */
};

struct marks {
	struct lg_session *s;
	unsigned src_i;
	struct folder folder[MAX_FOLDERS];
	unsigned n_folders;
	uint64_t own_ns;
	int64_t began, asked_at, previous_drain, this_drain;
	struct ring **ring;
	size_t n_rings, cap_rings, n_open;
	size_t n_seen, n_bad, n_turned_away, n_unread;
	bool full;
	bool stopped;
	struct lg_map seen; /* inodes of files looked at and refused */
};

static int probe(struct lg_probe *ret, struct lg_error *err)
{
	(void)err;
	*ret = (struct lg_probe){ .works = true };
	return 0;
}

static void marks_free(void *self);

static int start(struct lg_session *s, void **ret_self, struct lg_error *err)
{
	struct marks *m = lg_calloc(1, sizeof *m);
	const char *dir = lg_hook_current_dir();
	struct stat st;

	if (!m)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	m->s = s;
	m->src_i = lg_session_source_index(s);
	m->began = lg_monotonic_ns();
	if (stat("/proc/self/ns/pid", &st) == 0)
		m->own_ns = st.st_ino;
	if (dir) {
		struct folder f = { .fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) };

		if (f.fd < 0) {
			int e = errno;

			marks_free(m);
			return lg_fail_errno(err, e, "cannot open the directory of mark rings");
		}
		f.owner = fstat(f.fd, &st) ? (uid_t)-1 : st.st_uid;
		m->folder[m->n_folders++] = f;
	}
	*ret_self = m;
	return 0;
}

/* Is pid the one that began then, in clock ticks? Who keeps the answer back is there, at least. */
static bool began_at(int32_t pid, uint64_t started)
{
	struct lg_proc_stat st;
	int rc = lg_proc_stat(pid, 0, &st);

	return rc ? rc == LG_E_IO && (!kill(pid, 0) || errno == EPERM) : st.start == started;
}

/* The last number of the NSpid line: the id in the innermost namespace. */
static int32_t innermost(const char *status_path)
{
	char buf[4096], *p, *end;
	long last = 0;

	if (lg_proc_read(status_path, buf, sizeof buf) <= 0 || !(p = strstr(buf, "\nNSpid:")))
		return 0;
	for (p += 7; *p && *p != '\n'; p = end) {
		long v = strtol(p, &end, 10);

		if (end == p)
			break;
		last = v;
	}
	return (int32_t)last;
}

/* Find our id of entry ns_id among the numeric entries of dir ("/proc", "/proc/7/task"). */
static int32_t map_id(const char *dir, int32_t ns_id, uint64_t pid_ns, uint64_t started)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int32_t found = 0;

	while (d && !found && (e = readdir(d))) {
		char path[128];
		struct stat st;
		int32_t id = (int32_t)strtol(e->d_name, NULL, 10);
		int ns;

		if (id <= 0)
			continue;
		snprintf(path, sizeof path, "%s/%d/status", dir, (int)id);
		if (innermost(path) != ns_id)
			continue;
		snprintf(path, sizeof path, "%s/%d/ns/pid", dir, (int)id);
		ns = lg_patient_open(id, path, O_RDONLY);
		if (ns >= 0 && !fstat(ns, &st) && (uint64_t)st.st_ino == pid_ns &&
		    (!started || began_at(id, started)))
			found = id;
		if (ns >= 0)
			close(ns);
	}
	if (d)
		closedir(d);
	return found;
}

/* The same for what a file of folder says, as long as that folder's user has not used up the time for it. */
static int32_t map_for(struct folder *f, const char *dir, int32_t ns_id, uint64_t pid_ns, uint64_t started)
{
	int64_t began = lg_monotonic_ns();
	int32_t id = f->mapped_ns < MAP_NS ? map_id(dir, ns_id, pid_ns, started) : 0;

	f->mapped_ns += lg_monotonic_ns() - began;
	return id;
}

static int32_t map_tid(void *arg, int32_t pid, int32_t ns_tid)
{
	const struct ring *r = arg;
	char dir[64];
	int32_t tid;

	snprintf(dir, sizeof dir, "/proc/%d/task", (int)pid);
	tid = map_for(&r->of->folder[r->folder], dir, ns_tid, (uint64_t)r->r.header[LAG_MARK_H_PID_NS], 0);
	/* Gone already: the main thread is known all the same, another one is not. */
	return tid || ns_tid != r->r.header[LAG_MARK_H_PID] ? tid : pid;
}

static bool alive(const struct ring *r)
{
	return began_at(r->pid, (uint64_t)r->r.header[LAG_MARK_H_START]);
}

static void push(struct marks *m, size_t ring_i, unsigned kind, int64_t ts,
		 const struct lg_mark_slot *slot, int64_t seq)
{
	struct record rec = { .ring = (uint32_t)ring_i, .kind = kind };

	if (slot)
		rec.slot = *slot;
	else
		rec.slot = (struct lg_mark_slot){ .ts = ts, .seq = seq };
	/* A writer may be off the CPU between reading the clock and completing its slot. What is
	 * older than the session's cutoff goes in at the cutoff, with its true time inside: the
	 * order of one ring is what feed() needs. */
	if (ts < m->previous_drain)
		ts = m->previous_drain;
	if (ts > m->this_drain)
		ts = m->this_drain;
	lg_session_push(m->s, m->src_i, ts, &rec, sizeof rec);
}

static void refuse(struct marks *m, uint64_t inode, const char *name, const char *why)
{
	if (lg_map_get(&m->seen, inode))
		return;
	(void)!lg_map_set(&m->seen, inode, 1);
	m->n_bad++;
	if (m->n_bad <= 16)
		lg_add_diag_now(lg_session_builder(m->s), LG_DIAG_PARTIAL, lg_monotonic_ns(), 1,
				"%s: %s", name, why);
}

/*
 * A file of the folder, which is its owner's, who may not be root: no link is followed, nothing waits for a
 * FIFO, nothing is read that is another's (a hard link), and no file system is entered that its owner has
 * mounted there and that could keep us waiting. -1: not to be had.
 */
static int open_file(const struct folder *f, const char *name, struct stat *ret_st)
{
	struct open_how how = { .flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
				.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS };
	int fd = (int)syscall(SYS_openat2, f->fd, name, &how, sizeof how);

	if (fd < 0 && (errno == ENOSYS || errno == EPERM)) /* before Linux 5.6; a container's filter */
		fd = openat(f->fd, name, (int)how.flags);
	if (fd >= 0 && (fstat(fd, ret_st) || !S_ISREG(ret_st->st_mode) || ret_st->st_uid != f->owner)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* May uid speak for pid? Not of other users' processes; of one that is gone nothing can be forged. */
static bool may_speak_for(uid_t uid, int32_t pid)
{
	char path[64], buf[4096];
	unsigned id[4];
	char *p;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	if (!uid || lg_proc_read(path, buf, sizeof buf) <= 0 || !(p = strstr(buf, "\nUid:")))
		return true;
	if (sscanf(p + 5, "%u %u %u %u", &id[0], &id[1], &id[2], &id[3]) != 4)
		return false;
	return id[0] == uid || id[1] == uid || id[2] == uid;
}

/* Descriptors below MAX_RINGS are ours to use; the entry of a finished ring is used again. */
static size_t free_entry(struct marks *m)
{
	for (size_t i = 0; i < m->n_rings; i++)
		if (!m->ring[i])
			return i;
	if (lg_grow(&m->ring, &m->cap_rings, m->n_rings + 1, sizeof(struct ring *)))
		return SIZE_MAX;
	return m->n_rings++;
}

static void open_ring(struct marks *m, unsigned folder, const char *name)
{
	struct folder *f = &m->folder[folder];
	struct lg_error err = { 0 };
	struct lg_mark_ring r;
	struct stat st;
	int32_t pid;
	size_t i;
	int fd;

	for (i = 0; i < m->n_rings; i++)
		if (m->ring[i] && m->ring[i]->folder == folder && !strcmp(m->ring[i]->name, name))
			return;
	if (strlen(name) >= sizeof m->ring[0]->name)
		return;
	fd = open_file(f, name, &st);
	if (fd < 0)
		return;
	if (lg_map_get(&m->seen, st.st_ino)) {
		close(fd);
		return;
	}
	if (m->n_open >= MAX_RINGS) {
		m->n_turned_away++;
		close(fd);
		return;
	}
	if (lg_mark_ring_init(&r, fd, &err)) {
		refuse(m, st.st_ino, name, err.message);
		close(fd);
		return;
	}
	pid = (int32_t)r.header[LAG_MARK_H_PID];
	if ((uint64_t)r.header[LAG_MARK_H_PID_NS] != m->own_ns)
		pid = map_for(f, "/proc", pid, (uint64_t)r.header[LAG_MARK_H_PID_NS],
			      (uint64_t)r.header[LAG_MARK_H_START]);
	if (pid <= 0) {
		refuse(m, st.st_ino, name, "its process is in another pid namespace and cannot be found");
		close(fd);
		return;
	}
	if (!may_speak_for(st.st_uid, pid)) {
		refuse(m, st.st_ino, name, "its process is another user's");
		close(fd);
		return;
	}
	/* Rings of other jobs lie there too, and what processes left that nobody watched. */
	if (f->kept && !lg_session_is_job(m->s, pid)) {
		close(fd);
		return;
	}
	i = free_entry(m);
	if (i == SIZE_MAX || !(m->ring[i] = lg_calloc(1, sizeof **m->ring))) {
		close(fd);
		return;
	}
	m->ring[i]->r = r;
	m->ring[i]->pid = pid;
	m->ring[i]->folder = folder;
	m->ring[i]->since = f->kept && r.header[LAG_MARK_H_CREATED] < m->began ? m->began : INT64_MIN;
	m->ring[i]->foreign = (uint64_t)r.header[LAG_MARK_H_PID_NS] != m->own_ns;
	memcpy(m->ring[i]->name, name, strlen(name) + 1); /* fits: checked above */
	m->ring[i]->of = m;
	m->ring[i]->i = (uint32_t)i;
	m->n_open++;
	m->n_seen++;
	if (r.delayed)
		lg_session_holds_back(m->s);
	/* At the ring's birth: a process that is gone by now must not get a second life. */
	push(m, i, REC_HEADER, r.header[LAG_MARK_H_CREATED], NULL, 0);
}

/* A hook that failed before it had a ring left a note. */
static void read_note(struct marks *m, const struct folder *f, const char *name)
{
	char buf[400];
	struct stat st;
	int fd = open_file(f, name, &st);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof buf - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return;
	buf[n] = 0;
	for (char *p = buf; *p; p++)
		if ((unsigned char)*p < ' ')
			*p = ' ';
	lg_add_diag_now(lg_session_builder(m->s), LG_DIAG_MARKS_OFF, m->this_drain, 1, "pid %s: %s",
			name + 4, buf);
	unlinkat(f->fd, name, 0);
	m->n_seen++; /* said already why there are no marks */
}

/* Look through the directory when it changed; its time has the kernel's tick as resolution. */
static void look(struct marks *m, unsigned folder, bool force, int64_t most_ns)
{
	int64_t until = lg_monotonic_ns() + most_ns;
	struct folder *f = &m->folder[folder];
	struct dirent *e;
	struct stat st;
	DIR *d;
	int fd;

	if (fstat(f->fd, &st))
		return;
	if (!force && st.st_mtim.tv_sec == f->mtime.tv_sec && st.st_mtim.tv_nsec == f->mtime.tv_nsec &&
	    m->this_drain - f->looked_at < ALIVE_EVERY)
		return;
	f->mtime = st.st_mtim;
	f->looked_at = m->this_drain;
	fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (size_t names = 0; (e = readdir(d)) && names < MAX_NAMES && lg_monotonic_ns() < until; names++) {
		if (!strncmp(e->d_name, "mark.", 5))
			open_ring(m, folder, e->d_name);
		else if (!f->kept && !strncmp(e->d_name, "off.", 4))
			read_note(m, f, e->d_name);
	}
	if (e && !m->n_turned_away)
		m->n_turned_away = 1; /* at least */
	closedir(d);
}

/* What was written before the recording is no part of it; what is true of the process is true still. */
static bool is_wanted(const struct ring *r, struct lg_mark_slot *slot)
{
	if (slot->ts >= r->since)
		return true;
	slot->ts = r->since;
	return (uint8_t)(slot->what >> 32) == LAG_MARK_META;
}

static void drain_ring(struct marks *m, size_t i)
{
	struct ring *r = m->ring[i];
	struct lg_mark_slot slot[BATCH];
	uint64_t lost;
	bool gone = m->stopped, over = false, first = !r->alive_at && r->since != INT64_MIN;
	size_t n, found = 0, batches = 0;

	if (!gone && m->this_drain - r->alive_at >= ALIVE_EVERY) {
		r->alive_at = m->this_drain;
		over = !alive(r); /* before the last read, so nothing can come after it */
		gone |= over;
	}
	if (lg_mark_ring_header(&r->r))
		push(m, i, REC_HEADER, m->this_drain, NULL, 0);
	do {
		n = lg_mark_ring_read(&r->r, slot, BATCH, gone, &lost);
		if (lost && !first)
			push(m, i, REC_LOST, m->previous_drain, NULL,
			     lost > INT64_MAX ? INT64_MAX : (int64_t)lost);
		for (size_t k = 0; k < n; k++)
			if (is_wanted(r, &slot[k]))
				push(m, i, REC_SLOT, slot[k].ts, &slot[k], 0);
		found += n + lost;
	} while ((n || lost) && ++batches < MAX_BATCHES);
	if (!first)
		lg_session_filled(m->s, found, r->r.slots);
	if (gone) {
		push(m, i, REC_END, m->this_drain, NULL, 0);
		r->drained = true;
		if (over || !m->folder[r->folder].kept)
			unlinkat(m->folder[r->folder].fd, r->name, 0);
	}
}

/* Its rings in turn, until then. */
static void drain_folder(struct marks *m, unsigned folder, int64_t most_ns)
{
	int64_t until = lg_monotonic_ns() + most_ns;
	struct folder *f = &m->folder[folder];
	size_t i = 0;

	for (size_t k = 0; k < m->n_rings; k++) {
		i = (f->next + k) % m->n_rings;
		if (!m->ring[i] || m->ring[i]->folder != folder || m->ring[i]->drained)
			continue;
		if (lg_monotonic_ns() >= until) {
			f->next = i;
			break;
		}
		drain_ring(m, i);
	}
	for (i = 0; m->stopped && i < m->n_rings; i++)
		m->n_unread += m->ring[i] && m->ring[i]->folder == folder && !m->ring[i]->drained;
}

struct kept {
	int32_t pid;
	uint32_t uid;
};

/*
 * An errand: the folder, as its process sees it. In a tmpfs, which is a file system of the kernel's own: who
 * has a mount namespace can put one there that he serves himself.
 */
static int open_as_seen(const void *told, size_t n, void *answer, size_t room, size_t *ret_n, int *ret_fd)
{
	struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS };
	const struct kept *kept = told;
	struct statfs fs;
	char path[64];
	int root;

	(void)n;
	(void)answer;
	(void)room;
	(void)ret_n;
	snprintf(path, sizeof path, "/proc/%d/root", (int)kept->pid);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return errno;
	snprintf(path, sizeof path, "dev/shm/laggard-%u/kept", kept->uid);
	*ret_fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
	close(root);
	if (*ret_fd < 0)
		return errno; /* not made yet; or before Linux 5.6 */
	if (!fstatfs(*ret_fd, &fs) && fs.f_type == TMPFS_MAGIC)
		return 0;
	close(*ret_fd);
	*ret_fd = -1;
	return EXDEV;
}

/* Is there one more place for a folder of that user? Said once, where there is none. */
static bool has_place(struct marks *m, uid_t owner)
{
	unsigned n = 0;

	for (unsigned i = 0; i < m->n_folders; i++)
		n += m->folder[i].owner == owner;
	if (m->n_folders < MAX_FOLDERS && n < MAX_OF_A_USER)
		return true;
	if (!m->full)
		lg_add_diag_now(lg_session_builder(m->s), LG_DIAG_MARKS_LOST, lg_monotonic_ns(), 1,
				"more folders of marks than are read (%d, and %d of one user): those of user %u "
				"and maybe of others are left out", MAX_FOLDERS, MAX_OF_A_USER, (unsigned)owner);
	m->full = true;
	return false;
}

/* The folder that a process of the job was told to mark in (hook/laggard/_kept.py). */
static void open_kept(void *arg, int32_t pid, uint32_t told_uid)
{
	struct kept kept = { pid, told_uid };
	struct marks *m = arg;
	struct folder f = { .kept = true };
	struct stat st;

	if (lg_patient_send(pid, open_as_seen, &kept, sizeof kept, NULL, 0, NULL, &f.fd))
		return;
	if (fstat(f.fd, &st)) {
		close(f.fd);
		return;
	}
	for (unsigned i = 0; i < m->n_folders; i++)
		if (m->folder[i].dev == st.st_dev && m->folder[i].ino == st.st_ino && m->folder[i].kept) {
			close(f.fd);
			return;
		}
	f.owner = st.st_uid;
	f.dev = st.st_dev;
	f.ino = st.st_ino;
	/* Whose it is may speak for its own processes only, and nobody else can have put something there. */
	if (st.st_mode & 022 || !may_speak_for(st.st_uid, pid) || !has_place(m, st.st_uid))
		close(f.fd);
	else
		m->folder[m->n_folders++] = f;
}

static int drain(void *self, struct lg_error *err)
{
	struct marks *m = self;
	int64_t most_ns;

	(void)err;
	m->previous_drain = m->this_drain;
	m->this_drain = lg_monotonic_ns();
	if (!m->previous_drain)
		m->previous_drain = m->this_drain;
	if (m->this_drain - m->asked_at >= ALIVE_EVERY) {
		m->asked_at = m->this_drain;
		lg_lives_each_marking(lg_session_lives(m->s), open_kept, m);
	}
	most_ns = (m->stopped ? LAST_DRAIN_NS : DRAIN_NS) / LG_MAX(m->n_folders, 1u);
	for (unsigned i = 0; i < m->n_folders; i++) {
		look(m, i, m->stopped && !m->folder[i].kept, LG_MAX(most_ns / 2, FOLDER_NS));
		drain_folder(m, i, LG_MAX(most_ns / 2, FOLDER_NS));
	}
	return 0;
}

/* Who this process is, as it says itself. */
static void apply_header(struct marks *m, const struct ring *r)
{
	struct lg_builder *b = lg_session_builder(m->s);
	lg_prc prc = lg_mark_rows_process(r->rows); /* by pid it might be a later life */
	struct lg_process_row row = lg_process_read(b, prc);
	int64_t role = r->r.header[LAG_MARK_H_ROLE], rank = r->r.header[LAG_MARK_H_RANK];
	int64_t world = r->r.header[LAG_MARK_H_WORLD], local = r->r.header[LAG_MARK_H_LOCAL_RANK];

	if (role == LAG_MARK_ROLE_TRAINS && rank >= 0 && rank < 1 << 24 && row.end == INT64_MAX)
		lg_session_rank(m->s, r->pid, (int32_t)rank,
				world > 0 && world <= 1 << 24 ? (int32_t)world : 0,
				local >= 0 && local < 1 << 24 ? (int32_t)local : -1);
	row = lg_process_read(b, prc);
	if (role == LAG_MARK_ROLE_TRAINS)
		row.role = LG_ROLE_RANK;
	else if (role == LAG_MARK_ROLE_LOADER || role == LAG_MARK_ROLE_WORKER)
		row.role = LG_ROLE_LOADER;
	if (r->foreign)
		row.ns_pid = (int32_t)r->r.header[LAG_MARK_H_PID];
	lg_process_write(b, prc, &row);
	if (lg_session_moments(m->s) && row.role != LG_ROLE_LOADER)
		lg_moments_who(lg_session_moments(m->s), r->i, r->pid, row.rank);
}

static void end_ring(struct marks *m, size_t i)
{
	struct ring *r = m->ring[i];
	struct lg_builder *b = lg_session_builder(m->s);
	int64_t now = lg_monotonic_ns(), end = INT64_MAX;

	if (r->rows) {
		int64_t flags = r->r.header[LAG_MARK_H_FLAGS];

		if (!alive(r)) {
			end = lg_process_read(b, lg_mark_rows_process(r->rows)).end;
			if (end == INT64_MAX)
				end = now; /* no source told: at most one drain too late */
		}
		lg_mark_rows_end(r->rows, end, flags & (LAG_MARK_FLAG_CLOSED | LAG_MARK_FLAG_OFF));
		if (r->r.header[LAG_MARK_H_NAMES_LOST] > 0)
			lg_add_diag_now(b, LG_DIAG_MARKS_LOST, now,
					(uint64_t)r->r.header[LAG_MARK_H_NAMES_LOST],
					"pid %d: names that found no room", (int)r->pid);
		apply_header(m, r);
	}
	if (lg_session_moments(m->s))
		lg_moments_gone(lg_session_moments(m->s), r->i);
	lg_mark_rows_free(r->rows);
	close(r->r.fd);
	lg_free(r);
	m->ring[i] = NULL;
	m->n_open--;
}

/* To who asked for steps (lg_record_options): those of ranks, not of their loaders. */
static void tell_step(const struct ring *r, int64_t number, int64_t ts, int64_t dur)
{
	const struct lg_record_options *o = lg_session_options(r->of->s);
	const int64_t *h = r->r.header;
	const struct lg_mark_times *t = lg_mark_rows_times(r->rows);
	struct lg_step_told told = {
		.pid = r->pid, .rank = -1, .number = number, .ts = ts, .dur = dur, .wait = t->wait
	};

	if (!o->step || lg_session_is_copy(r->of->s) || h[LAG_MARK_H_ROLE] == LAG_MARK_ROLE_LOADER ||
	    h[LAG_MARK_H_ROLE] == LAG_MARK_ROLE_WORKER)
		return;
	if (h[LAG_MARK_H_RANK] >= 0 && h[LAG_MARK_H_RANK] < 1 << 24)
		told.rank = (int32_t)h[LAG_MARK_H_RANK];
	if (h[LAG_MARK_H_WORLD] > 0 && h[LAG_MARK_H_WORLD] <= 1 << 24)
		told.world = (int32_t)h[LAG_MARK_H_WORLD];
	memcpy(told.stage, t->stage, sizeof told.stage);
	o->step(o->step_arg, &told);
}

static void saw(void *arg, enum lg_mark_saw what, int64_t number, int64_t ts, int64_t dur)
{
	const struct ring *r = arg;
	struct lg_moments *to = lg_session_moments(r->of->s);

	if (what == LG_MARK_SAW_STEP)
		tell_step(r, number, ts, dur);
	if (!to)
		return;
	switch (what) {
	case LG_MARK_SAW_STEP:
		lg_moments_step(to, r->i, number, ts, dur);
		break;
	case LG_MARK_SAW_SIDE:
	case LG_MARK_SAW_SIDE_END:
		lg_moments_side(to, r->i, ts, what == LG_MARK_SAW_SIDE);
		break;
	case LG_MARK_SAW_LOSS:
		lg_moments_lost(to, r->i, ts);
		break;
	case LG_MARK_SAW_ANY:
		lg_moments_mark(to, r->i, ts);
		break;
	}
}

static void feed(void *self, int64_t ts, const void *rec, size_t n)
{
	struct marks *m = self;
	const struct record *p = rec;
	struct ring *r;

	if (n != sizeof *p || p->ring >= m->n_rings || !(r = m->ring[p->ring]))
		return;
	if (!r->rows) {
		if (lg_mark_rows_new(&r->rows, lg_session_builder(m->s), r->pid, &r->r, NULL))
			return;
		if (r->foreign)
			lg_mark_rows_set_tids(r->rows, map_tid, r);
		if (r->since != INT64_MIN)
			lg_mark_rows_joined(r->rows);
		if (lg_session_moments(m->s) || lg_session_options(m->s)->step)
			lg_mark_rows_watch(r->rows, saw, r);
	}
	switch (p->kind) {
	case REC_SLOT:
		lg_mark_rows_add(r->rows, &p->slot);
		break;
	case REC_HEADER:
		apply_header(m, r);
		break;
	case REC_LOST:
		lg_mark_rows_lost(r->rows, ts, (uint64_t)p->slot.seq);
		break;
	case REC_END:
		end_ring(m, p->ring);
		break;
	}
}

static int stop(void *self, struct lg_error *err)
{
	struct marks *m = self;

	(void)err;
	m->stopped = true; /* the drain that follows reads to the end */
	return 0;
}

static int finish(void *self, struct lg_error *err)
{
	struct marks *m = self;
	struct lg_builder *b = lg_session_builder(m->s);

	(void)err;
	for (size_t i = 0; i < m->n_rings; i++)
		if (m->ring[i])
			end_ring(m, i);
	if (m->n_turned_away)
		lg_add_diag_now(b, LG_DIAG_MARKS_LOST, lg_monotonic_ns(), m->n_turned_away,
				"more than %d mark rings at once", MAX_RINGS);
	if (m->n_unread)
		lg_add_diag_now(b, LG_DIAG_MARKS_LOST, lg_monotonic_ns(), m->n_unread,
				"mark rings that there was no time to read to their end");
	if (!m->n_seen && m->n_folders && !m->folder[0].kept) {
		bool reached = !faccessat(m->folder[0].fd, "reached", F_OK, 0);
		char line[400];

		if (lg_unreached_python(lg_builder_trace(b), reached, line, sizeof line))
			lg_session_say(m->s, "%s", line);
		else
			snprintf(line, sizeof line, "%s",
				 reached ? "Python ran, but no process imported torch"
					 : "no Python was reached: another program, or python with -I, -E or -S");
		lg_add_diag_now(b, LG_DIAG_MARKS_OFF, lg_monotonic_ns(), 1, "%s", line);
	}
	return 0;
}

static void marks_free(void *self)
{
	struct marks *m = self;

	if (!m)
		return;
	for (size_t i = 0; i < m->n_rings; i++)
		if (m->ring[i]) {
			lg_mark_rows_free(m->ring[i]->rows);
			close(m->ring[i]->r.fd);
			lg_free(m->ring[i]);
		}
	lg_free(m->ring);
	lg_map_done(&m->seen);
	for (unsigned i = 0; i < m->n_folders; i++)
		close(m->folder[i].fd);
	lg_free(m);
}

const struct lg_source lg_source_marks = {
	.name = "marks",
	.summary = "steps, stages and collectives that the training processes mark",
	.probe = probe, .start = start, .drain = drain, .feed = feed, .stop = stop,
	.finish = finish, .free = marks_free,
};
