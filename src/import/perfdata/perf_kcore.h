/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_kcore.h - perf record --kcore: beside `data` a folder kcore_dir with what the recorded kernel said of
 * itself in that boot. Its kallsyms names functions at the addresses that were recorded, wherever it is read,
 * and whenever. (kcore itself is the code, for decoders of processors' traces; kcore_dir__PID is a guest's.)
 */
#ifndef LG_IMPORT_PERFDATA_PERF_KCORE_H
#define LG_IMPORT_PERFDATA_PERF_KCORE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lg_kallsyms;

struct lg_pd_kcore {
	bool open;
	int fd;        /* of its kallsyms, where it is open */
	char why[160]; /* what is not right with it; "" = nothing that is known */
};

/* path: of a recording's `data`; a file of another name has none. Without a folder all stays 0. */
void lg_pd_kcore_open(struct lg_pd_kcore *k, const char *path);
/* The table, once; NULL where there is none of the kernel that has the symbol ref_name at ref. */
struct lg_kallsyms *lg_pd_kcore_take(struct lg_pd_kcore *k, const char *ref_name, uint64_t ref);
void lg_pd_kcore_done(struct lg_pd_kcore *k);
/* Is there such a folder beside path? */
bool lg_pd_kcore_is_beside(const char *path);

#endif /* LG_IMPORT_PERFDATA_PERF_KCORE_H */
