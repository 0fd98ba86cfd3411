/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - runs a fuzz target over files and folders without a fuzzer, so that the corpus is a
 * regression test with every compiler. Each file is also run cut short, in many places, which a target
 * must stand as well. Usage: replay_<target> PATH...
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { CUTS = 16 };

static int n_files;

/* A copy exactly as large as the input: sanitizers see the first byte beyond it. */
static void run(const uint8_t *p, size_t n)
{
	uint8_t *copy = malloc(n ? n : 1);

	if (!copy)
		abort();
	memcpy(copy, p, n);
	LLVMFuzzerTestOneInput(copy, n);
	free(copy);
}

static int replay_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	uint8_t *p;
	size_t n;

	if (!f || fstat(fileno(f), &st)) {
		perror(path);
		return 1;
	}
	p = malloc(st.st_size > 0 ? (size_t)st.st_size : 1);
	if (!p)
		abort();
	n = fread(p, 1, (size_t)st.st_size, f);
	fclose(f);
	run(p, n);
	for (size_t i = 1; i < CUTS; i++)
		run(p, n * i / CUTS);
	run(p, n ? n - 1 : 0);
	free(p);
	n_files++;
	return 0;
}

static int replay(const char *path)
{
	char name[4096];
	struct dirent *e;
	DIR *d = opendir(path);
	int bad = 0;

	if (!d)
		return replay_file(path);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(name, sizeof name, "%s/%s", path, e->d_name);
		bad |= replay_file(name);
	}
	closedir(d);
	return bad;
}

int main(int argc, char **argv)
{
	int bad = 0;

	for (int i = 1; i < argc; i++)
		bad |= replay(argv[i]);
	printf("%d files\n", n_files);
	if (!n_files)
		fprintf(stderr, "replay: no input was found\n");
	return bad || !n_files;
}
