/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_file.h - one file of a recording, and the records that are compressed in it. Most recordings are one
 * file; of a folder (perf_folder.h) each is read at its own pace.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_FILE_H
#define LG_IMPORT_PERFDATA_PERF_FILE_H
#include "import/perfdata/perf_abi.h"
#include "import/perfdata/perf_stream.h"

struct lg_pd_file {
	char name[24];                /* in its folder; "" = the recording is this file alone */
	struct lg_pd_stream in, zin;  /* zin: what was compressed */
	void *zstd;
	uint64_t zstd_failed, zstd_failed_at;
	uint64_t damaged, damaged_at, damaged_bytes;
	uint64_t timed;               /* records that had a time so far */
	uint64_t *least;              /* perf_folder.h; NULL where nothing needs to know */
	size_t n_least, least_cap;
	bool cut_payload, done;
};

/* pool, fd, head: as lg_pd_stream_init(). */
void lg_pd_file_init(struct lg_pd_file *f, struct lg_pd_pool *pool, int fd, const uint8_t *head,
		     size_t n_head, bool swap);
/* Leaves fd open. */
void lg_pd_file_done(struct lg_pd_file *f);
void lg_pd_file_skipped(struct lg_pd_file *f);

/* As lg_pd_stream_next(), and what it had to leave out is counted. */
static inline int lg_pd_file_next(struct lg_pd_file *f, struct lg_pd_record *ret)
{
	int rc = lg_pd_stream_next(&f->in, ret);

	if (__builtin_expect(f->in.skipped != 0, 0))
		lg_pd_file_skipped(f);
	return rc;
}

static inline bool lg_pd_is_compressed(const struct lg_pd_record *r)
{
	return r->type == PD_COMPRESSED || r->type == PD_COMPRESSED2;
}

/* Call each for the records that a compressed one completes, until it fails; LG_E_NOMEM. */
int lg_pd_file_unpack(struct lg_pd_file *f, const struct lg_pd_record *r,
		      int (*each)(void *self, const struct lg_pd_record *r), void *self) LG_MUST_CHECK;
/* Bytes that follow a record without being one. simpleperf has its tracing data inside the record. */
uint64_t lg_pd_payload(const struct lg_pd_record *r, bool swap);

#endif /* LG_IMPORT_PERFDATA_PERF_FILE_H */
