/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patient.h - questions to the kernel about other processes, which may never be answered.
 *
 * Who serves a FUSE file may hold the mmap_lock of his process for ever (fuse_vma_close() of a mapping that
 * is mapped over writes it back), or its exec_update_lock (do_close_on_exec() flushes), and with it whoever
 * asks for cmdline, environ, maps, map_files, stat, io, wchan, root, exe, ns: as they hold ps(1). A name that
 * is looked up where he mounts is a question to his server, and that wait ends with no signal at all. So a
 * process of its own asks, one for all questions; after half a second it is killed and left behind, and
 * another one takes its place. After two of one user nothing is asked of that user any more (of root's and of
 * one's own processes: of that process). Of /proc/PID only status, comm, cgroup, sched, schedstat and the
 * lists of threads and descriptors take no such lock.
 */
#ifndef LG_BASE_PATIENT_H
#define LG_BASE_PATIENT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Runs in the process that asks, a fork of this one: what it was told, and room for its answer. *ret_n: the
 * bytes of it; *ret_fd: a descriptor to hand on, -1 before. Returns 0 or an errno. Memory that it changes is
 * its own.
 */
typedef int lg_errand(const void *told, size_t n, void *answer, size_t room, size_t *ret_n, int *ret_fd);

enum { LG_ERRAND_TOLD = 8192 };

/*
 * Send it about pid; 0: about those that it names itself by lg_patient_about(). told: n bytes, at most
 * LG_ERRAND_TOLD. *ret_n and *ret_fd (-1 = none; the caller's) may be NULL. 0, or an errno: EAGAIN where the
 * answer is withheld, or there can be no such process.
 */
int lg_patient_send(int32_t pid, lg_errand *errand, const void *told, size_t n, void *answer, size_t room,
		    size_t *ret_n, int *ret_fd);
/* In an errand: what comes now asks about pid. False: nothing is asked of its user any more. */
bool lg_patient_about(int32_t pid);

/* Bytes read, at most size - 1, with a zero behind them; else -errno. */
ssize_t lg_patient_read(int32_t pid, const char *path, char *buf, size_t size);
/* The same, by this very process: in an errand, and of what is never withheld. */
ssize_t lg_read_now(const char *path, char *buf, size_t size);
/* The same of what is open, from where it stands. */
ssize_t lg_read_rest(int fd, char *buf, size_t size);
/* A descriptor that the caller closes, or -1 with errno. */
int lg_patient_open(int32_t pid, const char *path, int flags);
/* A process keeps the capabilities that it began with: the next to ask begins with those of now. */
void lg_patient_anew(void);

#endif /* LG_BASE_PATIENT_H */
