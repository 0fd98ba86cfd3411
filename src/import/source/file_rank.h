/* SPDX-License-Identifier: Apache-2.0 */
/* file_rank.h - the rank that a file's name tells. */
#ifndef LG_IMPORT_SOURCE_FILE_RANK_H
#define LG_IMPORT_SOURCE_FILE_RANK_H
#include <stdint.h>

/*
 * "rank-3.Jul_15.pt.trace.json", "trace_rank3.json.gz", "worker3.1690000000.pt.trace.json": 3; the last such
 * word of the name. -1 = it tells none. torch's tensorboard_trace_handler writes
 * WORKER.TIME.pt.trace.json, where WORKER is HOST_PID unless the program gives a name: a host that is called
 * "worker-3" is no rank, and a local rank is one of its host only.
 */
int32_t lg_file_rank(const char *path);
/* That of a log: also by the folders of torchrun --log-dir, "attempt_0/3/stdout.log". */
int32_t lg_log_file_rank(const char *path);

#endif /* LG_IMPORT_SOURCE_FILE_RANK_H */
