/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel does in a rank's main thread, and in copies of it that it waits for. */
#include "run_outcome.h"

static void work_of_the_kernel_in_the_main_thread_is_told(void **state)
{
	static const char *const fork[] = { "entry_SYSCALL_64", "kernel_clone", "copy_process", "dup_mmap",
					    "copy_page_range", NULL };
	static const char *const reclaim[] = { "asm_exc_page_fault", "do_anonymous_page", "charge_memcg",
					       "try_to_free_mem_cgroup_pages", "shrink_node", NULL };
	static const char *const write[] = { "asm_exc_page_fault", "handle_mm_fault", "do_wp_page", "wp_page_copy",
					     "copy_mc_generic", NULL };
	static const char *const ends[] = { "entry_SYSCALL_64", "do_exit", "__mmput", "exit_mmap", "unmap_vmas", NULL };
	static const char *const execs[] = { "entry_SYSCALL_64", "load_elf_binary", "begin_new_exec", "__mmput",
					     "exit_mmap", NULL };
	static const char *const thread[] = { "entry_SYSCALL_64", "kernel_clone", "copy_process", "dup_task_struct",
					      NULL };
	struct run_plan p = stalls(STALL_RUN, 800);
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.only_rank = 1;
	p.run_stack = fork;
	f = told(&p, "host.self_fork", &o);
	assert_int_equal(loud(o.v), 1);
	assert_int_equal(f->culprit.relation, LG_RELATION_SELF);
	assert_string_equal(f->culprit.function, "copy_page_range");
	assert_int_equal(f->n_victims, 1);
	assert_true(f->excess_share > 0.8);
	done(&o);
	/* What a copy takes down while it is waited for, but not what another program does at its end. */
	p.stall = STALL_FORK;
	p.of_job = true;
	p.culprit = "";
	p.child_runs = ends;
	f = told(&p, "host.self_fork", &o);
	assert_true(f->excess_share > 0.8);
	assert_true(says_for(f, "of it waiting for copies to take down"));
	assert_true(says_for(f, "rank 1 (pid 901) waited for its copy, pid 4711, to take down"));
	assert_string_equal(f->culprit.function, "copy_page_range");
	done(&o);
	p.culprit = "tool";
	f = told(&p, "host.self_fork", &o);
	assert_true(f->excess_share < 0.6);
	assert_false(says_for(f, "take down"));
	done(&o);
	p.child_runs = execs;
	f = told(&p, "host.self_fork", &o);
	assert_true(f->excess_share > 0.8);
	done(&o);
	p.stall = STALL_RUN;
	p.of_job = false;
	p.culprit = NULL;
	/* Pages that are written to after it are its price; without a fork they are not. */
	p.run_stack = NULL;
	p.run_stacks = (const char *const *const[]){ fork, write, write, NULL };
	f = told(&p, "host.self_fork", &o);
	assert_true(f->excess_share > 0.95);
	assert_true(says_for(f, "after them, in pages that it wrote to"));
	done(&o);
	p.run_stacks = (const char *const *const[]){ write, write, NULL };
	o = explain(&p);
	assert_null(find(o.v, "host.self_fork"));
	assert_null(find(o.v, "host.memory_pressure"));
	done(&o);
	p.run_stacks = NULL;
	p.run_stack = reclaim;
	f = told(&p, "host.memory_pressure", &o);
	assert_int_equal(loud(o.v), 1);
	done(&o);
	/* A new thread shares the memory. */
	p.run_stack = thread;
	o = explain(&p);
	assert_null(find(o.v, "host.self_fork"));
	assert_null(find(o.v, "host.memory_pressure"));
	assert_non_null(find(o.v, "comms.straggler"));
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(work_of_the_kernel_in_the_main_thread_is_told),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
