/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_file.h"

#include <zstd.h>

#include "base/alloc.h"

void lg_pd_file_init(struct lg_pd_file *f, struct lg_pd_pool *pool, int fd, const uint8_t *head,
		     size_t n_head, bool swap)
{
	lg_pd_stream_init(&f->in, pool, fd, head, n_head);
	lg_pd_stream_init(&f->zin, pool, -1, NULL, 0);
	f->in.swap = f->zin.swap = swap;
}

void lg_pd_file_done(struct lg_pd_file *f)
{
	if (f->in.pool) {
		lg_pd_stream_done(&f->in);
		lg_pd_stream_done(&f->zin);
	}
	ZSTD_freeDStream(f->zstd);
	lg_free(f->least);
	f->zstd = NULL;
	f->least = NULL;
}

void lg_pd_file_skipped(struct lg_pd_file *f)
{
	if (!f->damaged++)
		f->damaged_at = f->in.skipped_at;
	f->damaged_bytes += f->in.skipped;
}

static int drain(struct lg_pd_file *f, uint64_t offset, int (*each)(void *, const struct lg_pd_record *),
		 void *self)
{
	struct lg_pd_record r;
	int rc;

	while ((rc = lg_pd_stream_next(&f->zin, &r)) > 0) {
		/* One compressed inside another is damage; it must not lead us round in circles. */
		if (lg_pd_is_compressed(&r))
			continue;
		r.offset = offset;
		rc = each(self, &r);
		if (rc)
			return rc;
	}
	return rc;
}

static ZSTD_inBuffer packed(const struct lg_pd_record *r, bool swap)
{
	size_t head = r->type == PD_COMPRESSED2 ? 16 : 8;
	ZSTD_inBuffer in = { .src = r->p + head };

	if (r->size < head)
		return (ZSTD_inBuffer){ 0 };
	in.size = r->size - head;
	if (r->type == PD_COMPRESSED2) {
		uint64_t n = pd_u64(r->p + 8, swap);

		in.size = n < in.size ? (size_t)n : in.size; /* the rest is padding */
	}
	return in;
}

/* One zstd stream runs through all compressed records; records may begin in one, end in the next. */
int lg_pd_file_unpack(struct lg_pd_file *f, const struct lg_pd_record *r,
		      int (*each)(void *self, const struct lg_pd_record *r), void *self)
{
	ZSTD_inBuffer in = packed(r, f->in.swap);
	size_t before;
	int rc = 0;

	if (!f->zstd)
		f->zstd = ZSTD_createDStream();
	if (!f->zstd)
		return LG_E_NOMEM;
	if (!in.src)
		return 0;
	do {
		ZSTD_outBuffer out = { 0 };
		size_t k;

		out.dst = lg_pd_stream_room(&f->zin, 1 << 16, &out.size);
		if (!out.dst)
			return LG_E_NOMEM;
		before = in.pos;
		k = ZSTD_decompressStream(f->zstd, &out, &in);
		lg_pd_stream_filled(&f->zin, out.pos);
		if (ZSTD_isError(k)) {
			/* What follows in the stream refers to what is lost. */
			if (!f->zstd_failed++)
				f->zstd_failed_at = r->offset;
			ZSTD_DCtx_reset(f->zstd, ZSTD_reset_session_only);
			f->zin.at = f->zin.end;
			break;
		}
		if (out.pos)
			rc = drain(f, r->offset, each, self);
		if (!out.pos && in.pos == before)
			break;
	} while (!rc);
	return rc;
}

uint64_t lg_pd_payload(const struct lg_pd_record *r, bool swap)
{
	uint32_t n;

	if (r->type == PD_AUXTRACE && r->size >= 16)
		return pd_u64(r->p + 8, swap);
	if (r->type == PD_HEADER_TRACING_DATA && r->size >= 12) {
		n = pd_u32(r->p + 8, swap);
		return n <= r->size - 12u ? 0 : ((uint64_t)n + 7) & ~7ull;
	}
	if (r->type >= PD_SIMPLE_FIRST && r->type <= PD_SIMPLE_LAST && r->size == PD_RECORD_HEADER && r->misc)
		return ((uint32_t)r->misc << 16 | pd_u16(r->p + 6, swap)) - (uint64_t)PD_RECORD_HEADER;
	return 0;
}
