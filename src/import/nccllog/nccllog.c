/* SPDX-License-Identifier: Apache-2.0 */
#include "import/nccllog/nccllog.h"

#include <string.h>

#include "base/alloc.h"
#include "import/nccllog/nccl_line.h"
#include "import/source/source.h"
#include "import/source/stamp.h"


static int run(const char *path, struct lg_builder *b, struct lg_error *err)
{
	struct lg_nccl_log l = { .b = b };
	struct lg_stamp t;
	struct lg_source *in;
	uint64_t n = 0;
	int64_t first = 0, now = 0;
	int dated = 0, rc = lg_source_open(&in, path, err);
	char *line;
	size_t k;

	if (rc)
		return rc;
	while (lg_source_line(in, &line, &k)) {
		/* NCCL_DEBUG_TIMESTAMP_FORMAT (2.26 and later): "[2025-11-20 12:00:00] host:pid:tid ..." */
		if (*line == '[' && lg_stamp_read(line + 1, k - 1, &t) && t.has_date) {
			first = dated ? first : t.ns;
			now = t.ns;
			dated = 1;
		}
		(void)lg_nccl_take(&l, line, dated ? now : (int64_t)n * 1000);
		n++;
	}
	lg_nccl_finish(&l);
	if (lg_builder_failed(b)) {
		rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	} else if (!l.lines && !l.results) {
		rc = lg_fail(err, LG_E_FORMAT, lg_source_offset(in), "%llu lines and none is NCCL's",
			     (unsigned long long)n);
	} else {
		lg_meta_set(b, 0, "trace.format", "nccl log");
		lg_time_base(b, dated ? LG_TIME_LOCAL : LG_TIME_NONE, first, 0, "");
		if (lg_source_damage(in))
			lg_add_diag_now(b, LG_DIAG_FILE_TRUNCATED, now, 1, "%s (byte %llu)",
					lg_source_damage(in), (unsigned long long)lg_source_offset(in));
	}
	lg_source_close(in);
	lg_nccl_done(&l);
	return rc;
}

/* A log of NCCL alone: most of its whole lines are NCCL's or nccl-tests'. Any other log with such
 * lines goes to torchlog, which reads them, too. */
static int sniff(const struct lg_head *h)
{
	LG_AUTOFREE char *text = lg_strdup(h->text);
	size_t lines = 0, mine = 0;
	char *p = text, *nl;
	bool tests;

	if (!text || lg_head_is_binary(h))
		return 0;
	tests = lg_head_has(h, "# nThread ") && lg_head_has(h, " algbw ");
	for (; (nl = strchr(p, '\n')); p = nl + 1) {
		const char *first = p + strspn(p, " ");

		*nl = 0;
		lines += *p != 0;
		mine += strstr(p, " NCCL INFO ") || strstr(p, " NCCL WARN ") ||
			(tests && *first >= '0' && *first <= '9');
		if (*p == '#')
			lines--;
	}
	return (mine || tests) && mine * 4 >= lines * 3 ? 70 : 0;
}

const struct lg_importer lg_import_nccllog = {
	.name = "NCCL log",
	.summary = "log of NCCL_DEBUG",
	.sniff = sniff,
	.run = run,
};
