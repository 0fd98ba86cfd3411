/* SPDX-License-Identifier: Apache-2.0 */
/* test_python_stacks.c - what profiles and dumps of py-spy say of a training loop. */
#include "feed_trace.h"
#include "outcome.h"

#define NEXT "<module> (train.py:80);train (train.py:50);__next__ (torch/utils/data/dataloader.py:631);" \
	     "_next_data (torch/utils/data/dataloader.py:1329);"
#define QUEUE NEXT "_get_data (torch/utils/data/dataloader.py:1295);_try_get_data (torch/utils/data/dataloader.py:1133);" \
	      "get (multiprocessing/queues.py:113);poll (multiprocessing/connection.py:257)"
#define FORWARD "<module> (train.py:80);train (train.py:52);forward (model.py:20)"
#define REDUCE "<module> (train.py:80);train (train.py:53);all_reduce (torch/distributed/distributed_c10d.py:2000)"
#define FETCH "<module> (train.py:80);_worker_loop (torch/utils/data/_utils/worker.py:308);" \
	      "fetch (torch/utils/data/_utils/fetch.py:51);__getitem__ (data.py:30);"

static struct outcome profile(const char *text, const char *format)
{
	return judge(feed_text(text, format));
}

static void waits_for_batches_are_a_share_of_the_samples(void **state)
{
	struct outcome o = profile(QUEUE " 700\n" FORWARD " 200\n" REDUCE " 100\n", "folded stacks");
	const struct lg_finding *f = find(o.v, "data.loader_wait");

	(void)state;
	assert_non_null(f);
	assert_int_equal(f->severity, LG_SEVERITY_HIGH);
	assert_true(isnan(f->lost_ms)); /* folded stacks have no times */
	assert_true(fabs(f->lost_share - 0.7) < 1e-9);
	assert_null(f->detail);
	assert_int_equal(o.v->bound, LG_BOUND_DATA);
	done(&o);
	/* Of several processes the one that waits most. */
	o = profile("process 4:\"python train.py\";" QUEUE " 100\nprocess 4:\"python train.py\";" FORWARD " 900\n"
		    "process 5:\"python train.py\";" QUEUE " 600\nprocess 5:\"python train.py\";" FORWARD " 400\n",
		    "folded stacks");
	f = find(o.v, "data.loader_wait");
	assert_non_null(f);
	assert_int_equal(f->culprit.pid, 5);
	assert_int_equal(f->n_victims, 2);
	assert_non_null(strstr(f->title, "main thread of pid 5"));
	done(&o);
	/* Too few samples to grade: below a second of py-spy's. */
	o = profile(QUEUE " 7\n" FORWARD " 3\n", "folded stacks");
	assert_int_equal(loud(o.v), 0);
	done(&o);
	o = profile(QUEUE " 69\n" FORWARD " 30\n", "folded stacks");
	assert_int_equal(loud(o.v), 0);
	done(&o);
	o = profile(QUEUE " 70\n" FORWARD " 30\n", "folded stacks");
	assert_int_equal(loud(o.v), 1);
	done(&o);
}

static void healthy_profiles_are_silent(void **state)
{
	static const char *const texts[] = {
		/* idle in collectives, computing, a loader that has its batch ready */
		REDUCE " 600\n" FORWARD " 400\n" QUEUE " 20\n",
		/* what the workers' processes do is their own matter ... */
		"process 1:\"python train.py\";" FORWARD " 900\nprocess 1:\"python train.py\";" QUEUE " 9\n"
		"process 2:\"python train.py\";" FETCH "decode (PIL/Image.py:100) 900\n",
		/* ... and what other threads of the process do, too */
		"thread (0x7F): MainThread;" FORWARD " 900\n"
		"thread (0x8F): Thread-1;_bootstrap (threading.py:973);" QUEUE " 900\n",
		"process 1:\"python train.py\";thread (0x7F): MainThread;" FORWARD " 900\n"
		"process 1:\"python train.py\";thread (0x8F): prefetch;run (prefetch.py:9);" QUEUE " 900\n",
		FORWARD " 900\n_bootstrap (threading.py:973);_bootstrap_inner (threading.py:1016);" QUEUE " 900\n",
		/* a program's own functions of these names */
		"<module> (game.py:8);__next__ (dataloader.py:6);_try_get_data (my/dataloader.py:7) 900\n" FORWARD " 10\n",
		/* the loader's module is imported; another file's module code has the same line */
		"<module> (train.py:8);<module> (torch/utils/data/dataloader.py:9) 300\n"
		"<module> (train.py:8);<module> (torch/__init__.py:9) 400\n" FORWARD " 900\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct outcome o = profile(texts[i], "folded stacks");

		if (o.v->n_findings)
			fail_msg("healthy profile %zu: %s", i, o.v->findings[0].title);
		done(&o);
	}
}

static void says_what_the_loader_did(void **state)
{
	static const struct {
		const char *text, *detail, *function;
	} rows[] = {
		{ "process 1:\"python train.py\";" QUEUE " 500\nprocess 1:\"python train.py\";" FORWARD " 500\n"
		  "process 2:\"python train.py\";" FETCH "decode (PIL/Image.py:100) 600\n"
		  "process 2:\"python train.py\";" FETCH "decode (PIL/Image.py:102) 200\n"
		  "process 2:\"python train.py\";" FETCH "read (socket.py:5) 100\n", "transform", "decode (PIL/Image.py)" },
		{ "process 1:\"python train.py\";" QUEUE " 500\nprocess 1:\"python train.py\";" FORWARD " 500\n"
		  "process 2:\"python train.py\";" FETCH "readinto (socket.py:5) 800\n", "io", "readinto (socket.py)" },
		{ "<module> (t.py:8);_try_get_data (torchdata/stateful_dataloader/stateful_dataloader.py:9) 500\n" FORWARD
		  " 500\nprocess 2:\"python train.py\";_worker_loop (torchdata/stateful_dataloader/worker.py:9);fetch "
		  "(torch/utils/data/_utils/fetch.py:51);crop (data.py:9) 600\n", "transform", "crop (data.py)" },
		{ NEXT "fetch (torch/utils/data/_utils/fetch.py:51);crop (data.py:9) 500\n" FORWARD " 500\n", "workers_zero",
		  "crop (data.py)" },
		{ "<module> (t.py:8);__iter__ (torch/utils/data/dataloader.py:4);_get_iterator (torch/utils/data/"
		  "dataloader.py:3);__init__ (torch/utils/data/dataloader.py:1);start (multiprocessing/process.py:121) 300\n"
		  QUEUE " 100\n" FORWARD " 600\n", "respawn", NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o = profile(rows[i].text, "folded stacks");
		const struct lg_finding *f = find(o.v, "data.loader_wait");

		assert_non_null(f);
		assert_string_equal(f->detail, rows[i].detail);
		if (rows[i].function)
			assert_string_equal(f->culprit.function, rows[i].function);
		done(&o);
	}
}

/* Every run starts its workers once, and a profile without times does not tell how often. */
static void one_start_of_workers_is_no_habit(void **state)
{
#define STARTS "<module> (t.py:8);__iter__ (torch/utils/data/dataloader.py:4);__init__ (torch/utils/data/dataloader.py:1)"
	static const struct {
		const char *text, *said;
		bool loud;
	} rows[] = {
		{ STARTS " 600\n" FORWARD " 9000\n", "100 % of that starts workers", false },
		{ STARTS " 5200\n" QUEUE " 4800\n" FORWARD " 9000\n", "52 % of that starts workers", true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o = profile(rows[i].text, "folded stacks");
		const struct lg_finding *f = find(o.v, "data.loader_wait");

		assert_non_null(f);
		assert_non_null(strstr(f->title, rows[i].said));
		assert_int_equal(is_loud(f), rows[i].loud);
		done(&o);
	}
}

/* n times: wait_us in the loader, then 20 ms in forward. */
static struct outcome timed(int n, int wait_us)
{
	static char text[65536];
	size_t k = (size_t)sprintf(text, "[{\"cat\":\"py-spy\",\"ph\":\"M\",\"pid\":7,\"tid\":0,\"ts\":0,\"name\":"
				   "\"thread_name\",\"args\":{\"name\":\"14020: MainThread\"}}");
	int at = 0;

	for (int i = 0; i < n; i++) {
		const char *name[] = { "_try_get_data", "forward" };
		const char *file[] = { "/lib/torch/utils/data/dataloader.py", "model.py" };
		int us[] = { wait_us, 20000 };

		for (int j = 0; j < 2; j++) {
			for (int e = 0; e < 2; e++, at += e == 1 ? us[j] : 0)
				k += (size_t)sprintf(text + k, "%s{\"cat\":\"py-spy\",\"ph\":\"%s\",\"pid\":7,\"tid\":0,"
						     "\"ts\":%d,\"name\":\"%s\",\"args\":{\"filename\":\"%s\",\"line\":5}}",
						     ",\n", e ? "E" : "B", at, name[j], file[j]);
		}
	}
	strcpy(text + k, "]");
	return profile(text, "py-spy chrometrace");
}

/* Frames as py-spy --subprocesses prints them: a child's process behind its parents', then the thread. */
static void children_are_told_from_their_parents(void **state)
{
#define LAUNCHER "process 1:\"torchrun train.py\";"
#define TRAINER LAUNCHER "process 4:\"python train.py\";"
/* a forked worker has its parent's stack below its own */
#define FORKED "<module> (train.py:80);train (train.py:50);__iter__ (torch/utils/data/dataloader.py:4);" \
	       "__init__ (torch/utils/data/dataloader.py:1);start (multiprocessing/process.py:121);" \
	       "_bootstrap (multiprocessing/process.py:314);"
	struct outcome o = profile(
		LAUNCHER "thread (0x7F): MainThread;wait (torchrun.py:9) 1000\n"
		TRAINER "thread (0x7F): MainThread;" QUEUE " 600\n" TRAINER "thread (0x7F): MainThread;" FORWARD " 400\n"
		TRAINER "thread (0x8F): Thread-1;_bootstrap (threading.py:973);run (x.py:1) 1000\n"
		TRAINER "process 9:\"python train.py\";thread (0x7F): MainThread;" FORKED FETCH "decode (PIL/Image.py:100) 900\n",
		"folded stacks");
	const struct lg_finding *f = find(o.v, "data.loader_wait");

	(void)state;
	assert_non_null(f);
	assert_int_equal(f->culprit.pid, 4);
	assert_true(fabs(f->lost_share - 0.6) < 1e-9);
	assert_string_equal(f->detail, "transform");
	done(&o);
}

static bool limited(const struct lg_verdict *v, const char *words)
{
	for (size_t i = 0; i < v->n_limits; i++)
		if (strstr(v->limits[i], words))
			return true;
	return false;
}

static void with_times_the_loss_is_in_ms_and_episodes_count(void **state)
{
	struct outcome o = timed(20, 30000);
	const struct lg_finding *f = find(o.v, "data.loader_wait");

	(void)state;
	assert_non_null(f);
	assert_int_equal(f->severity, LG_SEVERITY_HIGH);
	assert_true(fabs(f->lost_ms - 600) < 1 && fabs(f->lost_share - 0.6) < 0.01);
	done(&o);
	o = timed(3, 200000); /* three waits, however long, are not the rule */
	assert_int_equal(loud(o.v), 0);
	assert_non_null(find(o.v, "data.loader_wait"));
	done(&o);
	o = timed(20, 500);
	assert_int_equal(o.v->n_findings, 0);
	done(&o);
}

#define DUMP(pid, frames) \
	"Process " pid ": python train.py\nPython v3.10.12 (/usr/bin/python3.10)\n\nThread " pid " (idle): \"MainThread\"\n" frames

static void dumps_say_who_stands_where_and_measure_nothing(void **state)
{
	struct outcome o = profile(DUMP("4", "    all_reduce (torch/distributed/distributed_c10d.py:2000)\n    train (t.py:5)\n")
				DUMP("5", "    read (data.py:30)\n    train (t.py:5)\n")
				DUMP("6", "    all_reduce (torch/distributed/distributed_c10d.py:2000)\n    train (t.py:5)\n"),
				"py-spy dump");

	(void)state;
	assert_int_equal(o.v->n_findings, 0);
	assert_true(limited(o.v, "2 of 3 main threads are in a collective (all_reduce), and pid 5 is in read (data.py:30)"));
	done(&o);
	o = profile(DUMP("4", "    poll (multiprocessing/connection.py:262)\n    _try_get_data (torch/utils/data/dataloader.py:9)\n"),
		 "py-spy dump");
	assert_int_equal(o.v->n_findings, 0);
	assert_true(limited(o.v, "pid 4 waits for its next batch in _try_get_data"));
	done(&o);
	o = profile(DUMP("4", "    barrier (torch/distributed/distributed_c10d.py:2000)\n"), "py-spy dump");
	assert_true(limited(o.v, "the main thread is in a collective (barrier)"));
	done(&o);
}

static void a_profile_without_waits_says_so(void **state)
{
	struct outcome o = profile(FORWARD " 900\n", "folded stacks");

	(void)state;
	assert_true(limited(o.v, "without --idle"));
	done(&o);
	o = profile(FORWARD " 900\n" "_bootstrap (threading.py:973);wait (threading.py:320) 900\n", "folded stacks");
	assert_false(limited(o.v, "without --idle"));
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waits_for_batches_are_a_share_of_the_samples),
		cmocka_unit_test(healthy_profiles_are_silent),
		cmocka_unit_test(says_what_the_loader_did),
		cmocka_unit_test(one_start_of_workers_is_no_habit),
		cmocka_unit_test(children_are_told_from_their_parents),
		cmocka_unit_test(a_profile_without_waits_says_so),
		cmocka_unit_test(with_times_the_loss_is_in_ms_and_episodes_count),
		cmocka_unit_test(dumps_say_who_stands_where_and_measure_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
