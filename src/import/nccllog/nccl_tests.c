/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_tests.c - the tables of nccl-tests: which test on which devices, and its results.
 *
 * Mark nccl.bandwidth (value: bytes): what the line says, then key=value, separated by tabs: bus, in_place
 * (GB/s; in_place only where it was measured), test, count, ranks, where (a hash of hosts and devices). Its
 * thread is that of rank 0.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import/nccllog/nccl_parts.h"

enum { WORDS = 14 };

/* "#  Rank  0 Group  0 Pid  64904 on       mew0 device  0 [0000:17:00] NVIDIA A100 80GB PCIe" */
static int rank_line(struct lg_nccl_log *l, const char *text)
{
	const char *at = strstr(text, "Rank "), *pid = at ? strstr(at, " Pid ") : NULL;
	char host[LG_NCCL_HOST_BYTES];
	struct lg_nccl_process *p;
	int rank, n, device;

	if (!pid || sscanf(at, "Rank %d", &rank) != 1 ||
	    sscanf(pid, " Pid %d on %64[A-Za-z0-9._-] device %d", &n, host, &device) != 3 || n <= 0 || n > 4194304)
		return 0;
	for (const char *c = host; *c; c++)
		l->test.where = lg_mix64(l->test.where ^ (unsigned char)*c);
	l->test.where = lg_mix64(l->test.where + (uint64_t)(unsigned)device);
	l->test.ranks++;
	p = lg_nccl_process_of(l, host, n);
	if (p && !rank)
		l->test.process = (uint32_t)(p - l->p) + 1;
	if (p && !l->host) {
		l->host = p->host;
		lg_meta_set(l->b, 0, "host.name", host);
	}
	return 1;
}

/* What a comment says about the results that follow. */
static int comment(struct lg_nccl_log *l, const char *text)
{
	const char *at;

	if ((at = strstr(text, "# Avg bus bandwidth")) && (at = strchr(at, ':'))) {
		lg_meta_set(l->b, 0, "nccl.busbw_avg", at + 1 + strspn(at + 1, " "));
		l->results++;
		return 1;
	}
	if ((at = strstr(text, "# Collective test starting: "))) {
		memset(&l->test, 0, sizeof l->test);
		snprintf(l->test.name, sizeof l->test.name, "%.*s", (int)strcspn(at + 28, " \t\r\n"), at + 28);
		return 0; /* only results make it a log of nccl-tests */
	}
	if (strstr(text, "# nThread ")) {
		l->test.where = 0;
		l->test.ranks = l->test.process = 0;
		return 0;
	}
	return rank_line(l, text);
}

static int is_number(const char *w)
{
	char *end;

	(void)strtod(w, &end);
	return end > w && !*end;
}

/* Other programs print tables, too: the third column is one of the types that NCCL knows. */
static int is_type(const char *w)
{
	static const char *const types[] = { "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float",
					     "double", "bfloat16", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2",
					     "char", "int" };

	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (!strcmp(w, types[i]))
			return 1;
	return 0;
}

/* Only numbers, and what stands for one that was not measured. */
static int is_numbers(const char *p)
{
	int n = 0;

	for (p += strspn(p, " "); *p && *p != '\r'; p += strspn(p, " ")) {
		size_t k = strcspn(p, " \r");

		if (strspn(p, "0123456789.+-e") != k && strncmp(p, "N/A", 3))
			return 0;
		p += k;
		n++;
	}
	return n;
}

/*
 * size count type [redop] [root] time algbw busbw #wrong [time algbw busbw #wrong]: the columns in brackets
 * came and went with the versions and the tests, so they are told by what stands in them and by how many
 * there are.
 */
static int row(struct lg_nccl_log *l, const char *text, int64_t ts)
{
	char line[LG_NCCL_ROW_BYTES], out[256], *w[WORDS], *save = NULL;
	const char *op = "none";
	size_t n = 0, i;
	double us, alg, bus, in_place = (double)NAN;
	long long size, count;
	lg_thr thr = 0;

	snprintf(line, sizeof line, "%s", text);
	for (char *x = strtok_r(line, " \t", &save); x && n < WORDS; x = strtok_r(NULL, " \t", &save))
		w[n++] = x;
	if (n < 7 || !is_number(w[1]) || !is_type(w[2]))
		return 0;
	i = 3;
	if (isalpha((unsigned char)*w[3]) && strcmp(w[3], "N/A"))
		op = w[i++];
	/* With the root there is one more than one or two groups of four. */
	if ((n - i) % 4 == 1)
		i++;
	if (n - i < 4 || !is_number(w[i]) || !is_number(w[i + 1]) || !is_number(w[i + 2]))
		return 0;
	size = strtoll(w[0], NULL, 10);
	count = strtoll(w[1], NULL, 10);
	us = strtod(w[i], NULL);
	alg = strtod(w[i + 1], NULL);
	bus = strtod(w[i + 2], NULL);
	if (n - i >= 7 && is_number(w[i + 6]))
		in_place = strtod(w[i + 6], NULL);
	if (size <= 0 || count <= 0 || !isfinite(us) || !isfinite(alg) || !isfinite(bus))
		return 0;
	i = (size_t)snprintf(out, sizeof out, "%.15s %.15s: %.2f us, algbw %.2f GB/s, busbw %.2f GB/s\tbus=%.6g", w[2],
			     op, us, alg, bus, bus);
	if (isfinite(in_place) && i < sizeof out)
		i += (size_t)snprintf(out + i, sizeof out - i, "\tin_place=%.6g", in_place);
	if (i < sizeof out)
		snprintf(out + i, sizeof out - i, "\ttest=%s\tcount=%lld\tranks=%u\twhere=%llx", l->test.name, count,
			 l->test.ranks, (unsigned long long)l->test.where);
	if (l->test.process)
		thr = l->p[l->test.process - 1].thr;
	else if (l->n)
		thr = l->p[0].thr;
	lg_nccl_mark(l, thr, "nccl.bandwidth", size, out, ts);
	l->results++;
	return 1;
}

/* "[1,0]<stdout>:", which mpirun --tag-output puts before a line */
static const char *behind_tag(const char *text)
{
	const char *end = *text == '[' ? strstr(text, "]<stdout>:") : NULL;

	return end && end - text < 16 ? end + 10 : text;
}

int lg_nccl_test(struct lg_nccl_log *l, const char *text, int64_t ts)
{
	const char *p = behind_tag(text);
	size_t n = strlen(l->test.piece);
	int done;

	p += strspn(p, " ");

	if (*p == '#')
		return comment(l, p);
	if (!isdigit((unsigned char)*p))
		return 0;
	if (!n || !is_numbers(p))
		return row(l, p, ts);
	/* The rest of a row that NCCL's own lines broke into pieces. */
	snprintf(l->test.piece + n, sizeof l->test.piece - n, " %s", p);
	done = row(l, l->test.piece, ts);
	*l->test.piece = 0;
	return done;
}

void lg_nccl_test_piece(struct lg_nccl_log *l, const char *text, size_t n)
{
	char piece[LG_NCCL_ROW_BYTES];
	size_t have = strlen(l->test.piece);
	const char *p;

	snprintf(piece, sizeof piece, "%.*s", (int)(n < sizeof piece ? n : sizeof piece), text);
	p = piece + strspn(piece, " ");
	if (have && is_numbers(p))
		snprintf(l->test.piece + have, sizeof l->test.piece - have, " %s", p);
	else if (isdigit((unsigned char)*p))
		snprintf(l->test.piece, sizeof l->test.piece, "%s", p);
}
