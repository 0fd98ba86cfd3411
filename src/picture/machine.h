/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h - what the machine did while a trace was taken: CPUs, the job's loader, devices. */
#ifndef LG_PICTURE_MACHINE_H
#define LG_PICTURE_MACHINE_H
#include "analyse/verdict.h"
#include "picture/accounts.h"

enum { LG_MACHINE_BUSIEST = 3, LG_MACHINE_DEVICES = 8 };

struct lg_machine {
	double seconds;
	double cpus;      /* that the machine has; 0 = not told */
	double cpus_busy; /* in the mean */
	struct lg_machine_process {
		lg_prc prc;
		double cpus;
	} busiest[LG_MACHINE_BUSIEST];
	size_t n_busiest;
	double batch_wait; /* share of the steps' time; NAN = there are no steps */
	size_t workers;    /* of loaders */
	double workers_cpus;
	/* Means of what was read of each; NAN = not read. */
	struct lg_machine_device {
		int32_t index;
		double util, watts, bytes, busy; /* busy: share of the time with work on it, by a trace */
	} device[LG_MACHINE_DEVICES];
	size_t n_devices, devices_left;
};

int lg_machine_make(struct lg_machine *ret, const struct lg_verdict *v, const struct lg_accounts *a,
		    struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_PICTURE_MACHINE_H */
