/* SPDX-License-Identifier: Apache-2.0 */
#include "import/idle.h"

#include <string.h>

#include "base/alloc.h"
#include "base/prefix.h"

/*
 * Where Linux enters an interrupt or a softirq: arch/x86/entry, arch/arm64/kernel/entry.S, kernel/softirq.c,
 * kernel/irq. What they call is further in.
 */
static bool is_interrupt(const char *name)
{
	static const char *const entries[] = {
		"__do_softirq", "do_softirq", "__softirqentry_text_start", "handle_softirqs", "call_softirq",
		"do_IRQ", "__do_IRQ", "common_interrupt", "asm_common_interrupt", "__common_interrupt", "sysvec_",
		"__sysvec_", "asm_sysvec_", "smp_apic_timer_interrupt", "apic_timer_interrupt",
		"smp_call_function_single_interrupt", "call_function_single_interrupt", "smp_call_function_interrupt",
		"call_function_interrupt", "smp_reschedule_interrupt", "reschedule_interrupt", "ret_from_intr",
		"el1_irq", "el1h_64_irq", "el1_interrupt", "gic_handle_irq", "__irq_svc", "handle_arch_irq",
		"generic_handle_irq", "generic_handle_domain_irq", "__handle_domain_irq", "handle_domain_irq",
		"__handle_irq_event_percpu", "handle_irq_event", "irq_exit", "__irq_exit", "xen_evtchn_do_upcall",
		"xen_do_hypervisor_callback", "net_rx_action", "napi_poll", "__napi_poll", "run_rebalance_domains",
		"run_timer_softirq", "rcu_core", "tasklet_action", "blk_done_softirq", "flush_smp_call_function",
		NULL
	};

	return lg_begins_with_any(name, entries);
}

/*
 * The idle loop, and how it waits: kernel/sched/idle.c, drivers/idle, drivers/cpuidle,
 * arch/x86/kernel/process.c.
 * Most have the word in their name; where the chain begins says it as well, as nothing else begins there once
 * the machine is up.
 */
static bool is_idle_loop(const char *name)
{
	static const char *const others[] = {
		"native_safe_halt", "pv_native_safe_halt", "native_halt", "xen_safe_halt",
		"mwait_", "__mwait", "cpu_startup_entry", "start_secondary", "secondary_start_kernel", "rest_init",
		"psci_", "__cpu_suspend_enter", "acpi_safe_halt", "snooze_loop", "stop_loop", "nap_loop",
		"call_cpuidle", "menu_select", "teo_select", "ladder_select", "haltpoll_select",
		"xen_hypercall_sched_op", "tdx_safe_halt", "tdx_halt", "dedicated_cede", "shared_cede",
		"r4k_wait", "__r4k_wait", NULL
	};

	return strstr(name, "idle") || lg_begins_with_any(name, others);
}

/* Wherever in the stack an interrupt came, it came into the idle loop, not the other way round. */
static bool decide(const struct lg_trace *t, lg_stk stk)
{
	bool told = false, loop = false;

	for (; stk; stk = t->stack.parent[stk]) {
		lg_frm f = t->stack.frame[stk];
		const char *name = lg_string(t, t->frame.name[f]);
		bool user = t->frame.kind[f] == LG_FRAME_USER;

		if (*name && strcmp(name, "[unknown]")) {
			if (is_interrupt(name))
				return false;
			loop |= is_idle_loop(name);
			told = true;
		}
		/* Text without addresses and files does not tell whose a frame is. */
		told |= user && (t->frame.pc[f] || *lg_string(t, t->frame.dso[f]));
	}
	return loop || !told;
}

static bool is_softirq(const char *name)
{
	static const char *const soft[] = { "net_rx_action", "napi_poll", "__napi_poll", "run_rebalance_domains",
					    "run_timer_softirq", "rcu_core", "tasklet_action",
					    "blk_done_softirq", NULL };

	return strstr(name, "softirq") || lg_begins_with_any(name, soft);
}

enum lg_ctx lg_context_of_stack(const struct lg_trace *t, lg_stk stk)
{
	enum lg_ctx ctx = LG_CTX_UNKNOWN;

	for (; stk; stk = t->stack.parent[stk]) {
		lg_frm f = t->stack.frame[stk];
		const char *name = lg_string(t, t->frame.name[f]);

		if (t->frame.kind[f] != LG_FRAME_KERNEL)
			break;
		if (is_interrupt(name))
			return is_softirq(name) ? LG_CTX_SOFTIRQ : LG_CTX_HARDIRQ;
		ctx = *name ? LG_CTX_TASK : ctx;
	}
	return ctx;
}

bool lg_idle_stack(struct lg_idle *m, const struct lg_trace *t, lg_stk stk)
{
	size_t old = m->cap;

	if (!stk)
		return true;
	if (stk >= old) {
		if (lg_grow(&m->of, &m->cap, (size_t)stk + 1, 1))
			return decide(t, stk);
		memset(m->of + old, 0, m->cap - old);
	}
	if (!m->of[stk])
		m->of[stk] = decide(t, stk) ? 2 : 1;
	return m->of[stk] == 2;
}

void lg_idle_done(struct lg_idle *m)
{
	lg_free(m->of);
	*m = (struct lg_idle){ 0 };
}
