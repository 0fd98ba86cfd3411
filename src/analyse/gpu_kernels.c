/* SPDX-License-Identifier: Apache-2.0 */
#include "analyse/timeline_gpu.h"

int lg_find_gpu_kernels(struct lg_case *c, struct lg_gpu *g __attribute__((unused)))
{
	return c->failed;
}
