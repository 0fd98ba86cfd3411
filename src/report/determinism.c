/* SPDX-License-Identifier: Apache-2.0 */
/* determinism.c - do two runs compute the same: as text, and as JSON (laggard-determinism(1)
 * documents every key). */
#include <math.h>
#include <stdio.h>

#include "report/determinism_report.h"
#include "base/agree.h"
#include "report/diff_report.h"
#include "report/json_write.h"
#include "report/text.h"

enum { WIDTH = 96 };

static void words(struct lg_json *j, const char *key, const char *const *v, size_t n)
{
	lg_json_key(j, key);
	lg_json_open_flat(j, '[');
	for (size_t i = 0; i < n; i++)
		lg_json_str(j, v[i]);
	lg_json_close(j, ']');
}

static void first(struct lg_json *j, const struct lg_det *d)
{
	lg_json_key(j, "first");
	if (d->first.step < 0) {
		lg_json_null(j);
		return;
	}
	lg_json_open(j, '{');
	lg_json_key_int(j, "step", d->first.step);
	lg_json_key_str(j, "kind", d->first.kind);
	lg_json_key_str(j, "tensor", d->first.tensor);
	lg_json_key_id(j, "rank", d->first.rank);
	lg_json_key_id(j, "equal_at", d->first.equal_at);
	lg_json_key_str(j, "then_kind", d->first.then_kind);
	lg_json_key_str(j, "then_tensor", d->first.then_tensor);
	lg_json_key(j, "outside");
	lg_json_bool(j, d->first.outside);
	lg_json_key(j, "between_ranks");
	lg_json_bool(j, d->first.between_ranks);
	lg_json_key_num(j, "before", d->first.before, 17);
	lg_json_key_num(j, "after", d->first.after, 17);
	lg_json_close(j, '}');
}

void lg_determinism_json(const struct lg_det_run *r, struct lg_out *o)
{
	const struct lg_det *d = &r->d;
	struct lg_json j = { .o = o };

	lg_json_open(&j, '{');
	lg_json_verdict(&r->v, &j);
	lg_json_key(&j, "determinism");
	lg_json_open(&j, '{');
	lg_json_key(&j, "equal");
	lg_json_bool(&j, d->equal);
	lg_json_key_str(&j, "basis", d->basis == LG_DET_LOGS ? "logs" : "fingerprints");
	lg_json_key_int(&j, "steps_compared", (int64_t)d->steps_compared);
	lg_json_key_int(&j, "every", d->every);
	first(&j, d);
	words(&j, "flags_off", d->flags_off, d->n_flags_off);
	words(&j, "operators", d->operators, d->n_operators);
	lg_diff_facts_json(&j, "differ", d->facts, d->n_facts);
	lg_json_key(&j, "with_flags");
	if (r->flags.tried) {
		lg_json_open_flat(&j, '{');
		lg_json_key(&j, "equal");
		lg_json_bool(&j, r->flags.equal);
		lg_json_key_num(&j, "step_ms", r->flags.with_ms, 3);
		lg_json_key_num(&j, "step_ms_without", r->flags.without_ms, 3);
		lg_json_close(&j, '}');
	} else {
		lg_json_null(&j);
	}
	lg_json_close(&j, '}');
	lg_json_close(&j, '}');
	lg_out_puts(o, "\n");
}

void lg_determinism_term(const struct lg_det_run *r, const struct lg_term_options *opt, struct lg_out *o)
{
	unsigned width = opt->width ? opt->width : WIDTH;
	const struct lg_det *d = &r->d;
	char buf[512];

	if (d->equal)
		lg_agree(buf, sizeof buf,
			 "The two runs are equal in each of %zu steps that were compared: %s.",
			 d->steps_compared,
			 d->basis == LG_DET_LOGS ? "the losses that both logs print"
						 : "inputs, loss, gradients and parameters, bit by bit");
	else
		snprintf(buf, sizeof buf, "The runs differ.");
	lg_text_wrap(o, buf, 0, 2, width);
	lg_out_puts(o, "\n");
	if (r->flags.tried) {
		lg_text_wrap(o, r->flags.says, 0, 2, width);
		lg_out_puts(o, "\n");
	}
	lg_term_findings(&r->v, opt, o);
}
