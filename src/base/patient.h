/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patient.h - files of /proc/PID for which the kernel takes that process's mmap_lock.
 *
 * Who serves a FUSE file may hold that lock for ever (fuse_vma_close() of a mapping that is mapped over
 * writes it back), and with it whoever asks for cmdline, environ, maps or map_files, as it holds ps(1). So a
 * thread asks, one for all of them; after half a second it is left behind, and ends with this process: that
 * wait ends with a fatal signal (mmap_read_lock_killable()). After two of one user nothing is asked of that
 * user any more (of root's and of one's own processes: of that process).
 */
#ifndef LG_BASE_PATIENT_H
#define LG_BASE_PATIENT_H
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes read, at most size - 1, with a zero behind them; else -errno, -EAGAIN where the lock is withheld. */
ssize_t lg_patient_read(int32_t pid, const char *path, char *buf, size_t size);
/* A descriptor that the caller closes, or -1 with errno. */
int lg_patient_open(int32_t pid, const char *path, int flags);
/* A thread keeps the capabilities that it began with: the next to ask begins with those of now. */
void lg_patient_anew(void);

#endif /* LG_BASE_PATIENT_H */
