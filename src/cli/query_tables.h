/* SPDX-License-Identifier: Apache-2.0 */
/* query_tables.h - every table of a trace and of its verdict as a read-only SQLite virtual table. */
#ifndef LG_CLI_QUERY_TABLES_H
#define LG_CLI_QUERY_TABLES_H
#include <sqlite3.h>

#include "analyse/verdict.h"

/*
 * A database in memory with one virtual table for each table of v->trace and the derived ones
 * (step, part, cause, finding, evidence, stage, input). Reads the columns in place; v must outlive
 * *ret. Only SELECT is allowed: no writing, no ATTACH, no PRAGMA, no extension.
 */
int lg_query_open(sqlite3 **ret, const struct lg_verdict *v, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_CLI_QUERY_TABLES_H */
