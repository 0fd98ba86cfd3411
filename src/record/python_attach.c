/* SPDX-License-Identifier: Apache-2.0 */
#include "record/python_attach.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/order.h"

/*
 * Words of _Py_DebugOffsets, with which _PyRuntime begins (Include/internal/pycore_debug_offsets.h); those of
 * its debugger_support come last, further on in later versions.
 */
enum { COOKIE, VERSION, INTERPRETERS_HEAD = 5, THREADS_MAIN = 10, WORDS = 112 };
enum { EVAL_BREAKER, SUPPORT, ENABLED, PENDING, SCRIPT, SCRIPT_SIZE };
static const struct { unsigned minor, support; } layouts[] = { { 14, 89 }, { 15, 105 } };

#define PLEASE_STOP (UINT64_C(1) << 5) /* pycore_ceval.h, _PY_EVAL_PLEASE_STOP_BIT */

static bool read_word(struct lg_far *far, int32_t pid, uint64_t at, void *to, size_t n)
{
	struct lg_far_range r = { .at = at, .to = to, .n = n };

	return lg_far_read(far, pid, &r, 1) && r.got == n;
}

/* Only its own memory can suffer from what it says of its addresses. */
static bool write_there(struct lg_far *far, int32_t pid, uint64_t at, void *from, size_t n)
{
	struct lg_far_range r = { .at = at, .to = from, .n = n };

	return lg_far_write(far, pid, &r, 1) && r.got == n;
}

/* Does it see our files under the same names? Its root is not opened: a server of its own may not answer. */
static bool has_our_files(int32_t pid)
{
	struct stat its, ours;
	char path[64], root[2];

	snprintf(path, sizeof path, "/proc/%d/ns/mnt", pid);
	if (stat(path, &its) || stat("/proc/self/ns/mnt", &ours) || its.st_ino != ours.st_ino)
		return false;
	snprintf(path, sizeof path, "/proc/%d/root", pid);
	return readlink(path, root, sizeof root) == 1 && root[0] == '/';
}

/* The words of debugger_support; NULL: a version that has none, or that is not known. */
static const uint64_t *support_of(const uint64_t *words)
{
	if (memcmp(words, "xdebugpy", 8) != 0 || words[VERSION] >> 24 != 3)
		return NULL;
	for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
		if ((words[VERSION] >> 16 & 0xff) == layouts[i].minor)
			return words + layouts[i].support;
	return NULL;
}

int lg_python_attach(struct lg_far *far, int32_t pid, uint64_t runtime, const char *script,
		     struct lg_error *err)
{
	uint64_t words[WORDS] = { 0 }, interpreter = 0, thread = 0, breaker;
	int32_t enabled = 0, one = 1;
	char path[LG_FAR_WRITE];
	const uint64_t *s;
	int n = snprintf(path, sizeof path, "%s", script) + 1;

	if (!has_our_files(pid))
		return lg_fail(err, LG_E_PERM, LG_NO_OFFSET, "it is in a container of its own: start it with what "
			       "laggard env prints there");
	if (!read_word(far, pid, runtime, words, sizeof words))
		return lg_fail(err, LG_E_PERM, LG_NO_OFFSET, "its memory cannot be read");
	s = support_of(words);
	if (!s)
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "its version of Python takes no hook while it "
			       "runs (3.14 does): start it with what laggard env prints");
	if (!read_word(far, pid, runtime + words[INTERPRETERS_HEAD], &interpreter, sizeof interpreter) ||
	    !read_word(far, pid, interpreter + words[THREADS_MAIN], &thread, sizeof thread) || !thread ||
	    !read_word(far, pid, interpreter + s[ENABLED], &enabled, sizeof enabled) ||
	    !read_word(far, pid, thread + s[EVAL_BREAKER], &breaker, sizeof breaker))
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "its interpreter is not ready");
	if (enabled != 1 || (size_t)n > LG_MIN(s[SCRIPT_SIZE], sizeof path))
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "its Python takes no hook while it runs "
			       "(PYTHON_DISABLE_REMOTE_DEBUG, or built without it)");
	breaker |= PLEASE_STOP;
	if (!write_there(far, pid, thread + s[SUPPORT] + s[SCRIPT], path, (size_t)n) ||
	    !write_there(far, pid, thread + s[SUPPORT] + s[PENDING], &one, sizeof one) ||
	    !write_there(far, pid, thread + s[EVAL_BREAKER], &breaker, sizeof breaker))
		return lg_fail(err, LG_E_PERM, LG_NO_OFFSET, "its memory cannot be written");
	return 0;
}
