/* SPDX-License-Identifier: Apache-2.0 */
/* seal.h - sort the time tables, check every id once, fix the extent. Used by builder.c. */
#ifndef LG_STORE_SEAL_H
#define LG_STORE_SEAL_H
#include "store/trace.h"

/*
 * Makes t immutable. Ids that are out of range (damaged file) become 0 and are counted in a
 * FILE_DAMAGED diag row; stack parents must be older rows than their children, else 0. Rows with
 * equal ts keep their order. Returns 0 or LG_E_NOMEM.
 */
int lg_seal(struct lg_trace *t, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_STORE_SEAL_H */
