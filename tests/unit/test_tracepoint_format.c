/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "store/tracepoint_format.h"

static const char text[] =
	"name: sched_demo\n"
	"ID: 372\n"
	"format:\n"
	"\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
	"\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
	"\n"
	"\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n"
	"\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n"
	"\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n"
	"\tfield:__data_loc char[] child_comm;\toffset:40;\tsize:4;\tsigned:0;\n"
	"\tfield:struct mm_struct * mm;\toffset:48;\tsize:8;\tsigned:0;\n"
	"\tfield:bool write;\toffset:56;\tsize:1;\tsigned:0;\n"
	"\n"
	"print fmt: \"field:not one; offset:9; size:9;\", REC->prev_comm\n";

static void finds_fields_whatever_their_type_looks_like(void **state)
{
	struct lg_tp_format f;
	uint8_t raw[57] = { 0 };

	(void)state;
	assert_int_equal(lg_tp_format_parse(&f, text, NULL), 0);
	assert_string_equal(f.name, "sched_demo");
	assert_int_equal(f.id, 372);
	assert_int_equal(f.n, 8);
	assert_int_equal(lg_tp_field(&f, "prev_comm")->size, 16);
	assert_int_equal(lg_tp_field(&f, "child_comm")->offset, 40);
	assert_int_equal(lg_tp_field(&f, "mm")->offset, 48);
	assert_null(lg_tp_field(&f, "next_pid"));
	memset(raw + 24, 0xff, 4);
	raw[32] = 2;
	memset(raw + 48, 0xff, 8);
	raw[56] = 1;
	assert_int_equal(lg_tp_int(lg_tp_field(&f, "prev_pid"), raw, sizeof raw), -1);
	assert_int_equal(lg_tp_int(lg_tp_field(&f, "prev_state"), raw, sizeof raw), 2);
	assert_int_equal(lg_tp_int(lg_tp_field(&f, "write"), raw, sizeof raw), 1);
	assert_true((uint64_t)lg_tp_int(lg_tp_field(&f, "mm"), raw, sizeof raw) == UINT64_MAX);
	/* Records shorter than the format says, fields that do not exist. */
	assert_int_equal(lg_tp_int(lg_tp_field(&f, "write"), raw, 56), 0);
	assert_int_equal(lg_tp_int(lg_tp_field(&f, "mm"), raw, 55), 0);
	assert_int_equal(lg_tp_int(NULL, raw, sizeof raw), 0);
}

static void refuses_what_is_no_format(void **state)
{
	struct lg_tp_format f;
	struct lg_error err;
	char cut[sizeof text];

	(void)state;
	assert_int_equal(lg_tp_format_parse(&f, "", &err), LG_E_FORMAT);
	assert_int_equal(lg_tp_format_parse(&f, "ID: 3\n\tfield:int x\n", &err), LG_E_FORMAT);
	assert_int_equal(lg_tp_format_parse(&f, "ID: 3\n\tfield:int ;\toffset:0;\tsize:4;\n", &err),
			 LG_E_FORMAT);
	for (size_t n = 0; n < sizeof text - 1; n++) {
		memcpy(cut, text, n);
		cut[n] = 0;
		if (lg_tp_format_parse(&f, cut, &err))
			assert_true(err.message[0]);
		else
			assert_int_equal(f.id == 0 || f.n == 0, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_fields_whatever_their_type_looks_like),
		cmocka_unit_test(refuses_what_is_no_format),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
