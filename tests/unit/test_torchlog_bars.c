/* SPDX-License-Identifier: Apache-2.0 */
#include "feed_trace.h"

/* Ten lines of a bar, and a step line so that the text is a log whatever the bar is taken for. */
static struct lg_trace *bars(const char *label, const char *postfix)
{
	char text[8192] = "iteration 1/ 9 | elapsed time per iteration (ms): 100.0 |\n";

	for (int i = 0; i <= 10; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text),
			 "%s %3d%%|#   | %d/10 [00:%02d<00:20,  4.00s/it%s]\r", label, 10 * i, i, 4 * i, postfix);
	snprintf(text + strlen(text), sizeof text - strlen(text), "\n");
	return feed_text(text, "log");
}

static void words_of_a_bar_tell_what_it_counts(void **state)
{
	static const struct {
		const char *label, *postfix, *counter;
	} rows[] = {
		{ "", "", "log.bar_ms" },
		{ "[17]", "", "log.bar_ms" },
		{ "(Worker pid=7)", "", "log.bar_ms" },
		{ "Processed prompts:", "", "log.bar_ms" },
		{ "Epoch 3:", "", "log.step_ms" },
		{ "Training:", "", "log.step_ms" },
		{ "Train Epoch 1/9", "", "log.step_ms" },
		{ "Steps:", "", "log.step_ms" },
		{ "", ", train_loss=2.3", "log.step_ms" },
		{ "Loading:", ", loss=2.3", "log.step_ms" },
		{ "Validation DataLoader 0:", "", "log.aside_ms" },
		{ "Epoch 3 [val]:", ", loss=2.3", "log.aside_ms" },
		{ "Evaluating:", "", "log.aside_ms" },
		{ "Predicting DataLoader 0:", "", "log.aside_ms" },
		{ "Rendering:", "", "log.aside_ms" },
		{ "Loading checkpoint shards:", "", NULL },
		{ "Loading weights:", ", Materializing param=model.norm.weight", NULL },
		{ "(Worker pid=7) Loading safetensors checkpoint shards:", "", NULL },
		{ "Multi-thread loading shards:", "", NULL },
		{ "Capturing CUDA graph shapes:", "", NULL },
		{ "Capturing batches (bs=8 avail_mem=9.0 GB):", "", NULL },
		{ "Compiling num tokens (num_tokens=8):", "", NULL },
		{ "Fetching 4 files:", "", NULL },
		{ "Downloading shards:", "", NULL },
		{ "Map (num_proc=4):", "", NULL },
		{ "Tokenizing train dataset:", "", NULL },
		{ "train: Scanning labels...", "", NULL },
	};
	static const char *const names[] = { "log.step_ms", "log.bar_ms", "log.aside_ms" };

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct lg_trace *t = bars(rows[i].label, rows[i].postfix);

		for (size_t k = 0; k < 3; k++) {
			bool is = rows[i].counter && !strcmp(rows[i].counter, names[k]);
			size_t n;
			double sum = feed_counter(t, names[k], 1, &n);

			if (n != (is ? 10 : 0) || sum != (is ? 40000 : 0))
				fail_msg("\"%s\" has %zu of %s, %g ms", rows[i].label, n, names[k], sum);
		}
		lg_trace_free(t);
	}
}

/* Loading is no step, and hides none that are printed by hand. */
static void a_loading_bar_leaves_the_steps_to_their_lines(void **state)
{
	struct lg_trace *t = feed_text("Loading checkpoint shards: 50%|#  | 1/2 [00:01<00:01,  1.00s/it]\r"
				       "Loading checkpoint shards: 100%|##| 2/2 [00:02<00:00,  1.00s/it]\n"
				       "2026-03-01 10:00:01 INFO step 1 loss 2.3\n"
				       "2026-03-01 10:00:03 INFO step 2 loss 2.2\n", "log");
	size_t n;

	(void)state;
	assert_int_equal(feed_marks(t, "log.step"), 2);
	assert_true(feed_counter(t, "log.step_ms", -1, &n) == 2000 && n == 1);
	lg_trace_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_of_a_bar_tell_what_it_counts),
		cmocka_unit_test(a_loading_bar_leaves_the_steps_to_their_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
