/* SPDX-License-Identifier: Apache-2.0 */
/* test_log_floors.c - from where on logs and profiles of Python's stacks accuse somebody (floor.h). */
#include "feed_trace.h"
#include "floor.h"

static char text[1 << 16];

static struct lg_trace *lines(const char *before, const char *line, int64_t n, const char *format)
{
	size_t k = (size_t)sprintf(text, "%s", before);

	for (int64_t i = 0; i < n; i++)
		k += (size_t)sprintf(text + k, "%s", line);
	return feed_text(text, format);
}

/* ---- what a loop prints of its steps ---- */

/* Steps of a second, x ms of it for data. */
static struct lg_trace *waits(int64_t x)
{
	size_t k = 0;

	for (int i = 1; i <= 40; i++)
		k += (size_t)sprintf(text + k, "step: %d loss: %.4f step_time: 1000.0 ms data_time: %d.0 ms\n", i, 9 - i * 0.01,
				     (int)x);
	return feed_text(text, "log");
}

/* n steps, of which some are slow (bit 0) and hold a save (bit 1). */
static struct lg_trace *saves(int n, int (*is)(int i, int64_t x), int64_t x)
{
	size_t k = 0;

	for (int i = 0; i < n; i++) {
		int what = is(i, x);

		if (what & 2)
			k += (size_t)sprintf(text + k, "saving checkpoint to out\n");
		k += (size_t)sprintf(text + k, "iteration %d/ 1000 | elapsed time per iteration (ms): %d.0 |\n", i + 1,
				     (what & 1 ? 2600 : 400) + i * 37 % 11);
	}
	return feed_text(text, "log");
}

static int slow_saves(int i, int64_t x)
{
	return i % 15 == 10 && i < 15 * x ? 3 : 0;
}

static struct lg_trace *slow_when_saving(int64_t x)
{
	return saves(120, slow_saves, x);
}

/* Four are slow and four hold a save, three of them both: of x steps, that may be chance. */
static int three_of_four(int i, int64_t x)
{
	(void)x;
	return i == 3 || i == 5 || i == 7 ? 3 : i == 9 ? 1 : i == 11 ? 2 : 0;
}

static struct lg_trace *by_chance(int64_t x)
{
	return saves((int)x, three_of_four, x);
}

/* All of twelve saves are slow, and so are x other steps. */
static int and_others(int i, int64_t x)
{
	return i % 20 == 10 ? 3 : i % 20 == 3 && i / 20 < x ? 1 : i % 20 == 15 && i / 20 + 12 < x ? 1 : 0;
}

static struct lg_trace *slow_for_others_too(int64_t x)
{
	return saves(240, and_others, x);
}

static double of_slow(int64_t x)
{
	return 12 / (12 + (double)x);
}

/* Twelve steps that hold a save are slow, and nothing else; x others hold one, too. */
static int idle_saves(int i, int64_t x)
{
	return i % 20 == 10 ? 3 : i % 20 == 3 && i / 20 < x ? 2 : 0;
}

static struct lg_trace *saves_that_cost_nothing_too(int64_t x)
{
	return saves(240, idle_saves, x);
}

/* Of so many steps four hold a save, and three or four of them are among the four slow ones. */
static double chance(int64_t x)
{
	double n = (double)x, all = n * (n - 1) * (n - 2) * (n - 3) / 24;

	return (4 * (n - 4) + 1) / all;
}

static struct lg_trace *steps_after(int64_t x)
{
	return lines("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
		     "40.00 GiB of which 0 bytes is free.\n",
		     "iteration 10/ 100 | elapsed time per iteration (ms): 512.3 |\n", x, "log");
}

static struct lg_trace *steps_after_a_kill(int64_t x)
{
	return lines("DataLoader worker (pid 77) is killed by signal: Killed.\n",
		     "iteration 10/ 100 | elapsed time per iteration (ms): 512.3 |\n", x, "log");
}

static struct lg_trace *profiled(int64_t x)
{
	return lines("iteration 10/ 100 | elapsed time per iteration (ms): 512.3 |\n",
		     "STAGE:2023-03-01 10:00:00 77:77 ActivityProfilerController.cpp:294] Completed Stage: Warm Up\n"
		     "STAGE:2023-03-01 10:00:01 77:77 ActivityProfilerController.cpp:300] Completed Stage: Collection\n",
		     x, "log");
}

/* ---- Python's stacks ---- */

static struct lg_trace *in_the_loader(int64_t x)
{
	sprintf(text, "<module> (train.py:80);train (train.py:50);__next__ (torch/utils/data/dataloader.py:631);"
		      "_next_data (torch/utils/data/dataloader.py:1329);_get_data (torch/utils/data/dataloader.py:1295);"
		      "_try_get_data (torch/utils/data/dataloader.py:1133) %lld\n"
		      "<module> (train.py:80);train (train.py:52);forward (model.py:20) %lld\n", (long long)x,
		(long long)(2000 - x));
	return feed_text(text, "folded stacks");
}

static double of_2000(int64_t x)
{
	return (double)x / 2000;
}

/* A second of forward, then x us of torch.save. */
static struct lg_trace *in_a_save(int64_t x)
{
	static const char *const name[] = { "forward", "save" };
	static const char *const file[] = { "model.py", "/lib/torch/serialization.py" };
	const int64_t us[] = { 1000000, x };
	int64_t at = 0;
	size_t k = (size_t)sprintf(text, "[{\"cat\":\"py-spy\",\"ph\":\"M\",\"pid\":7,\"tid\":0,\"ts\":0,\"name\":"
				   "\"thread_name\",\"args\":{\"name\":\"14020: MainThread\"}}");

	for (int j = 0; j < 2; j++)
		for (int e = 0; e < 2; e++, at += e == 1 ? us[j] : 0)
			k += (size_t)sprintf(text + k, ",\n{\"cat\":\"py-spy\",\"ph\":\"%s\",\"pid\":7,\"tid\":0,\"ts\":%lld,"
					     "\"name\":\"%s\",\"args\":{\"filename\":\"%s\",\"line\":5}}", e ? "E" : "B",
					     (long long)at, name[j], file[j]);
	strcpy(text + k, "]");
	return feed_text(text, "py-spy chrometrace");
}

static const struct floor floors[] = {
	{ "data.loader_wait", 0.03, 0.031, { .made = waits }, 1, .told = 200 },
	{ "data.loader_wait", 0.05, 0.051, { .made = in_the_loader }, 2, .told = 1000, .truth = of_2000 },
	{ "side.checkpoint", 2, 2, { .made = slow_when_saving }, 1, .told = 8, .truth = as_it_is },
	{ "side.checkpoint", 0.55, 0.58, { .made = slow_for_others_too }, 24, .told = 0, .truth = of_slow },
	{ "side.checkpoint", 0.65, 0.67, { .made = saves_that_cost_nothing_too }, 12, .told = 0, .truth = of_slow },
	{ "side.checkpoint", 0.009, 0.01, { .made = by_chance }, 14, .told = 60, .truth = chance },
	{ "side.checkpoint", 0.05, 0.051, { .made = in_a_save }, 5000, .told = 200000 },
	{ "mem.oom", 1, 1, { .made = steps_after }, 9, .told = 0, .truth = as_it_is, .loudly = true },
	{ "job.failed", 1, 1, { .made = steps_after_a_kill }, 9, .told = 0, .truth = as_it_is, .loudly = true },
	{ "debug.left_on", 5, 5, { .made = profiled }, 1, .told = 9, .truth = as_it_is },
};

static struct outcome at(const struct floor *f, int64_t x)
{
	return judge(f->made(x));
}

static void told_from_its_threshold_on(void **state)
{
	(void)state;
	floors_judge(floors, sizeof floors / sizeof *floors, at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(told_from_its_threshold_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
