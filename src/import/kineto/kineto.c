/* SPDX-License-Identifier: Apache-2.0 */
/* kineto.c - torch.profiler traces: telling one, and reading it once from front to back. */
#include "import/kineto/kineto.h"

#include "base/alloc.h"
#include "import/import.h"
#include "import/kineto/kineto_import.h"
#include "import/source/packing.h"

static bool holds(const char *p, size_t n, const char *word)
{
	return memmem(p, n, word, strlen(word));
}

/* Words that only Kineto writes, as far as the first bytes go. */
int lg_kineto_sniff_text(const char *p, size_t n)
{
	static const char *const words[] = {
		"\"schemaVersion\"",   "\"deviceProperties\"",	 "\"distributedInfo\"",
		"\"baseTimeNanoseconds\"", "\"cuda_runtime_version\"", "\"cpu_op\"",
		"\"cuda_runtime\"",    "\"user_annotation\"",	 "\"python_function\"",
		"\"gpu_memcpy\"",      "\"Ev Idx\"",		 "\"External id\"",
		"\"torch_profiler_kwargs\"", "\"PyTorch Profiler (0)\"", "\"cuda_driver\"",
		"\"ProfilerStep#",     "\"cat\": \"Operator\"",	 "\"est. achieved occupancy %\"",
		"\"pid\": \"CPU functions\"", /* torch without Kineto */
	};
	const char *end = p + n;

	if (n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3))
		p += 3;
	p = lg_json_skip(p, end);
	if (p >= end || (*p != '{' && *p != '['))
		return 0;
	/* What convert wrote keeps the words, but its events begin and end: they are chromejson's. */
	if (holds(p, (size_t)(end - p), "\"otherData\":{\"laggard\":"))
		return 0;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (holds(p, (size_t)(end - p), words[i]))
			return 90;
	return 0;
}

static int sniff(const struct lg_head *h)
{
	/* xz is none of the packings that this reader unpacks itself. */
	return lg_is_xz(h->p, h->n) ? 0 : lg_kineto_sniff_text(h->text, h->n_text);
}

void kin_done(struct kineto *k)
{
	lg_free(k->classes);
	lg_free(k->frames);
	lg_free(k->threads);
	lg_free(k->tracks);
	lg_free(k->names);
	lg_free(k->facts);
	lg_free(k->arrows);
	lg_free(k->buf);
	for (size_t i = 0; k->stacks && i < KIN_STACKS; i++)
		lg_free(k->stacks[i].text);
	lg_free(k->stacks);
	lg_map_done(&k->thread_of);
	lg_map_done(&k->track_of);
	lg_map_done(&k->text_id);
}

int lg_kineto_read(struct lg_events *r, struct lg_builder *b, struct lg_error *err)
{
	struct kineto k = { .b = b, .err = err, .path = r->path, .rank = -1, .last_ts = INT64_MIN };
	const struct lg_event *e;
	int rc;

	r->no_arrows = !lg_import_keeps_all; /* of launches, correlation ids say the same */
	k.str_step = lg_intern(b, "ProfilerStep");
	k.str_alloc = lg_intern(b, "memory allocated");
	k.str_reserved = lg_intern(b, "memory reserved");
	k.str_change = lg_intern(b, "memory change");
	k.str_bytes = lg_intern(b, "bytes");
	while ((rc = lg_events_take(r, &e, err)) > 0) {
		if (rc == LG_ITEM_EVENT)
			kin_event(&k, e);
		else
			kin_field(&k, &e->name, &e->args);
		if (k.failed || lg_builder_failed(b)) {
			rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
			break;
		}
	}
	if (!rc && !k.n_events && !r->n_events)
		rc = lg_events_none(r, err);
	if (!rc)
		rc = kin_finish(&k, err);
	if (!rc)
		lg_events_diag(r, b, k.last_ts);
	kin_done(&k);
	return rc;
}

static int run(const char *path, struct lg_builder *b, struct lg_error *err)
{
	struct lg_events r;
	int rc = lg_events_open(&r, path, err);

	if (rc)
		return rc;
	rc = lg_kineto_read(&r, b, err);
	lg_events_close(&r);
	return rc;
}

const struct lg_importer lg_import_kineto = {
	.name = "kineto",
	.summary = "torch.profiler traces (.json, .json.gz, .json.zst)",
	.sniff = sniff,
	.run = run,
	.beside = true,
};
