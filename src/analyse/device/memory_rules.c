/* SPDX-License-Identifier: Apache-2.0 */
/* memory_rules.c - what the account of a device's memory (memory/memory.h) is worth saying. */
#include "analyse/finders.h"
#include "memory/memory.h"

int lg_find_memory(struct lg_case *c)
{
	return lg_memory_account(c->t, &c->v->arena, &c->v->memory);
}
