/* SPDX-License-Identifier: Apache-2.0 */
#include "record/python_layout.h"

#include <stddef.h>

#define DIRECT LG_BPF_PYTHON_DIRECT
/*
 * kind: a frame's position is a number of bytes, of units, or an address. how: the interpreter calls itself
 * for EACH frame; a frame that it was entered for is MARKED; a SHIM without code lies below it, whose owner
 * is 3 or, since 3.14, more (FRAME_OWNED_BY_CSTACK). Since 3.11 frames are STACKED, one above the other.
 */
#define BYTE .position_mask = UINT32_MAX, .position_shift = 1
#define UNIT .position_mask = UINT32_MAX
#define ADDRESS .position_mask = UINT64_MAX, .code_mask = UINT64_MAX, .position_shift = 1
#define EACH .entry_least = 0
#define MARKED .entry_least = 1, STACKED
#define SHIM .entry_least = 3, .shim_mask = UINT64_MAX, STACKED
#define STACKED .window = 896 /* a few frames of ordinary size; with one more, less than 1024 */
#define WALK(frame, behind, pthread, previous, of_code, at, kind, mark, how)                               \
	.walk = { .state_frame = (frame), .frame_behind = (behind), .state_pthread = (pthread),            \
		  .frame_bytes = (((mark) > (at) ? (mark) : (at)) & ~7) + 8,                               \
		  .frame_previous = (previous) / 8, .frame_code = (of_code) / 8, .frame_position = (at) / 8, \
		  kind, .frame_entry = (mark) / 8, .entry_shift = (mark) % 8 * 8, how }
#define CODE(first_line, path, function, lines, code_at)                                                   \
	.code = { .line = (first_line), .file = (path), .name = (function), .table = (lines),              \
		  .units = (code_at) / 2 }

static const struct lg_python_layout layouts[] = {
	{ 1396, 32, 8, 1152, false, WALK(24, DIRECT, 176, 24, 32, 104, BYTE, 0, EACH),
	  CODE(40, 104, 112, 120, 0) },
	{ 588, 32, 8, 352, false, WALK(24, DIRECT, 176, 24, 32, 104, BYTE, 0, EACH),
	  CODE(40, 104, 112, 120, 0) },
	{ 588, 32, 8, 352, false, WALK(24, DIRECT, 176, 24, 32, 96, UNIT, 0, EACH),
	  CODE(40, 104, 112, 120, 0) },
	{ 596, 40, 16, 360, false, WALK(56, 8, 152, 48, 32, 56, ADDRESS, 68, MARKED),
	  CODE(72, 112, 128, 136, 184) },
	{ 1548, 40, 72, 384, true, WALK(56, 0, 136, 8, 0, 56, ADDRESS, 70, SHIM),
	  CODE(68, 112, 128, 136, 192) },
	{ 2164, 632, 7344, 16, true, WALK(72, DIRECT, 152, 8, 0, 56, ADDRESS, 70, SHIM),
	  CODE(68, 112, 128, 136, 200) },
	{ 2340, 808, 7344, 16, true, WALK(72, DIRECT, 152, 8, 0, 56, ADDRESS, 74, SHIM),
	  CODE(68, 112, 128, 136, 208) },
};

_Static_assert(sizeof layouts / sizeof *layouts == LG_PYTHON_LAST - LG_PYTHON_FIRST + 1, "3.8 to 3.14");

const struct lg_python_layout *lg_python_layout(unsigned minor)
{
	return minor < LG_PYTHON_FIRST || minor > LG_PYTHON_LAST ? NULL : &layouts[minor - LG_PYTHON_FIRST];
}
