/* SPDX-License-Identifier: Apache-2.0 */
/* The hook's directory and the environment that leads a command to it. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "record/hook_inject.h"
#include "record/runtime_dir.h"
#include "record/session.h"
#include "record/unreached.h"

static const char *value(char **env, const char *name)
{
	const char *found = NULL;
	size_t n = strlen(name);

	for (; *env; env++)
		if (!strncmp(*env, name, n) && (*env)[n] == '=') {
			assert_null(found); /* once only */
			found = *env + n + 1;
		}
	return found;
}

/* Neither in the folder nor, but for a sticky one, in any above it. */
static void nobody_else_can_write(const char *folder)
{
	char path[512];
	struct stat st;

	snprintf(path, sizeof path, "%s", folder);
	for (char *slash; *path; *slash = 0) {
		assert_int_equal(lstat(path, &st), 0);
		assert_true(S_ISDIR(st.st_mode));
		assert_true(st.st_uid == 0 || st.st_uid == geteuid());
		assert_true(!(st.st_mode & 022) || (st.st_mode & S_ISVTX && strcmp(path, folder)));
		slash = strrchr(path, '/');
	}
}

static void unpacks_and_removes(void **state)
{
	char *env[] = { "A=1", "PYTHONPATH=/x:/y", "LAGGARD_MARKS=/old", "B=2", NULL };
	char root[256], path[512], rings[512];
	struct lg_hook *h = NULL;
	struct stat st;
	char **got;
	const char *marks;

	(void)state;
	assert_null(lg_hook_current_dir());
	assert_int_equal(lg_hook_prepare(&h, NULL, env, &got, NULL), 0);
	marks = value(got, "LAGGARD_MARKS");
	assert_non_null(marks);
	if (!marks) /* gcc with sanitizers does not know that the line above ends the test */
		return;
	assert_string_equal(marks, lg_hook_marks_dir(h));
	assert_string_equal(marks, lg_hook_current_dir());
	assert_string_equal(value(got, "A"), "1");
	assert_string_equal(value(got, "B"), "2");
	snprintf(rings, sizeof rings, "%s", marks);
	snprintf(root, sizeof root, "%s", value(got, "PYTHONPATH"));
	assert_non_null(strstr(root, "/py:/x:/y"));
	*strstr(root, "/py:/x:/y") = 0;
	nobody_else_can_write(root);
	nobody_else_can_write(marks);
	assert_int_equal(stat(marks, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_true(lg_hook_n_files >= 7);
	for (size_t i = 0; i < lg_hook_n_files; i++) {
		snprintf(path, sizeof path, "%s/py/%s", root, lg_hook_files[i].path);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal((size_t)st.st_size, lg_hook_files[i].size);
		assert_int_equal(st.st_mode & 0777, 0644);
	}
	snprintf(path, sizeof path, "%s/mark.1.0", marks);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	lg_hook_free(h);
	assert_null(lg_hook_current_dir());
	assert_int_equal(stat(root, &st), -1);
	assert_int_equal(stat(rings, &st), -1);
}

static void leaves_no_empty_entry_on_the_path(void **state)
{
	char *without[] = { NULL }, *empty[] = { "PYTHONPATH=", NULL };
	char **const envs[] = { NULL, without, empty };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct lg_hook *h = NULL;
		char **got;
		size_t n;

		assert_int_equal(lg_hook_prepare(&h, NULL, envs[i], &got, NULL), 0);
		n = strlen(value(got, "PYTHONPATH"));
		assert_null(strchr(value(got, "PYTHONPATH"), ':'));
		assert_string_equal(value(got, "PYTHONPATH") + n - 3, "/py");
		lg_hook_free(h);
	}
}

/* A recorder that was killed leaves a directory whose lock nobody holds; a living one's stays. */
static void removes_what_dead_recorders_left(void **state)
{
	struct lg_hook *living = NULL, *next = NULL;
	char **env, kept[600], dead[600], path[700];
	struct stat st;
	int pipes[2];

	(void)state;
	assert_int_equal(pipe(pipes), 0);
	if (fork() == 0) { /* is killed, as far as the next one can tell */
		if (!lg_hook_prepare(&next, NULL, NULL, &env, NULL))
			(void)!write(pipes[1], lg_hook_marks_dir(next), strlen(lg_hook_marks_dir(next)) + 1);
		_exit(0);
	}
	assert_true(read(pipes[0], dead, sizeof dead) > 0);
	assert_int_equal(wait(NULL) > 0, 1);
	snprintf(path, sizeof path, "%s/mark.1.0", dead);
	assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
	assert_int_equal(lg_hook_prepare(&living, NULL, NULL, &env, NULL), 0);
	assert_int_equal(stat(dead, &st), -1);
	snprintf(kept, sizeof kept, "%s", lg_hook_marks_dir(living));
	assert_int_equal(lg_hook_prepare(&next, NULL, NULL, &env, NULL), 0);
	assert_int_equal(stat(kept, &st), 0);
	lg_hook_free(next);
	lg_hook_free(living);
}

/* A folder of ours that nobody else can write to, nor to any above it; a skip where there is none. */
static void own_folder(char *path, size_t size)
{
	const char *home = getenv("HOME");
	struct stat st;
	char above[256];

	snprintf(above, sizeof above, "%s", home && *home == '/' ? home : "/nowhere");
	for (char *slash; *above; *slash = 0) {
		if (lstat(above, &st) || (st.st_uid && st.st_uid != geteuid()) || st.st_mode & 022 ||
		    S_ISLNK(st.st_mode))
			skip();
		slash = strrchr(above, '/');
	}
	snprintf(path, size, "%s/.laggard-test-XXXXXX", home);
	if (!mkdtemp(path))
		skip();
}

static void remove_folder(const char *path)
{
	char command[300];

	snprintf(command, sizeof command, "rm -r '%s'", path);
	assert_int_equal(system(command), 0);
}

static void keeps_the_hook_for_those_that_others_start(void **state)
{
	char dir[256], first[512], second[512], path[640], *env[] = { NULL };
	struct lg_runtime_dir d;
	struct lg_error err = { 0 };
	struct stat st;

	(void)state;
	own_folder(dir, sizeof dir);
	assert_int_equal(lg_hook_keep(first, sizeof first, dir, env, &err), 0);
	nobody_else_can_write(first);
	for (size_t i = 0; i < lg_hook_n_files; i++) {
		snprintf(path, sizeof path, "%s/%s", first, lg_hook_files[i].path);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal((size_t)st.st_size, lg_hook_files[i].size);
		assert_int_equal(st.st_mode & 0777, 0644);
	}
	/* The same again, and nothing beside it. */
	assert_int_equal(lg_hook_keep(second, sizeof second, dir, env, &err), 0);
	assert_string_equal(first, second);
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_nlink, 3);
	/* One that is damaged is not given to anybody. */
	assert_int_equal(truncate(path, 3), 0);
	assert_int_equal(lg_hook_keep(second, sizeof second, dir, env, &err), LG_E_IO);
	/* A recorder that clears up what dead ones left leaves it alone. */
	snprintf(path, sizeof path, "HOME=%s", dir);
	assert_int_equal(lg_runtime_dir_make(&d, false, (char *[]){ path, NULL }, &err), 0);
	lg_runtime_dir_remove(&d);
	assert_int_equal(stat(first, &st), 0);
	remove_folder(dir);
}

static void keeps_no_hook_where_others_can_write(void **state)
{
	char dir[256], sub[300], ret[512], *env[] = { NULL };
	struct lg_error err = { 0 };

	(void)state;
	/* A sticky folder keeps others' hands off only as long as nothing clears it. */
	assert_int_equal(lg_hook_keep(ret, sizeof ret, "/tmp", env, &err), LG_E_PERM);
	own_folder(dir, sizeof dir);
	snprintf(sub, sizeof sub, "%s/hook", dir);
	assert_int_equal(chmod(dir, 0770), 0);
	assert_int_equal(lg_hook_keep(ret, sizeof ret, sub, env, &err), LG_E_PERM);
	assert_non_null(strstr(err.message, "--dir"));
	assert_int_equal(chmod(dir, 0700), 0);
	assert_int_equal(lg_hook_keep(ret, sizeof ret, sub, env, &err), 0);
	/* What would be read as more than a path. */
	snprintf(sub, sizeof sub, "%s/a:b", dir);
	assert_int_equal(lg_hook_keep(ret, sizeof ret, sub, env, &err), LG_E_USAGE);
	snprintf(sub, sizeof sub, "%s/a\"; $(b)", dir);
	assert_int_equal(lg_hook_keep(ret, sizeof ret, sub, env, &err), LG_E_USAGE);
	remove_folder(dir);
}

static void tells_the_option_that_keeps_it_out(void **state)
{
	static const struct { const char *cmdline; bool python; char option; } lines[] = {
		{ "/usr/bin/python3 -I train.py", true, 'I' },
		{ "python -BS train.py", true, 'S' },
		{ "python3.12 -X dev -W error -u -sE -m train", true, 'E' },
		{ "pypy3 --check-hash-based-pycs always -I x", true, 'I' },
		{ "/opt/py/bin/python3.13t -Xdev train.py -I", true, 0 },
		{ "python3-dbg -c -I", true, 0 },
		{ "python3 -m mod -S", true, 0 },
		{ "python3 -W IES train.py", true, 0 },
		{ "python3 - -E", true, 0 },
		{ "python3", true, 0 },
		{ "python3 -u", true, 0 },
		{ "python3 -X", true, 0 },
		{ "/usr/bin/python3-config -E", false, 0 },
		{ "/home/me/python/run -I", false, 0 },
		{ "pythonic", false, 0 },
		{ "", false, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		assert_int_equal(lg_is_python(lines[i].cmdline), lines[i].python);
		if (lines[i].python)
			assert_int_equal(lg_python_isolated(lines[i].cmdline), lines[i].option);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unpacks_and_removes),
		cmocka_unit_test(leaves_no_empty_entry_on_the_path),
		cmocka_unit_test(removes_what_dead_recorders_left),
		cmocka_unit_test(keeps_the_hook_for_those_that_others_start),
		cmocka_unit_test(keeps_no_hook_where_others_can_write),
		cmocka_unit_test(tells_the_option_that_keeps_it_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
