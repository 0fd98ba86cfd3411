/* SPDX-License-Identifier: Apache-2.0 */
/*
 * smi.c - see smi.h.
 *
 * Files are appended to, cut in the middle of a row, and start with any column: a header may come
 * again, a row that does not fit the header is counted and left out. A CSV without an index column
 * has one row per GPU and sweep: the number of GPUs is read from the rhythm of its times.
 */
#include "import/smi/smi.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/median.h"
#include "import/source/source.h"
#include "import/source/stamp.h"
#include "store/device_counters.h"

#define SECOND INT64_C(1000000000)

enum { COLS_MAX = 64, GPUS_MAX = LG_DEVICES_MAX, NAME_BYTES = 64 };
enum { SWEEPS_MIN = 4, GAP_LEAST = 200000, ASKING_MOST = 250000000 }; /* ns */

enum role { SKIP, METRIC, INDEX, TIME, DATE, CLOCK, NAME, UUID };

struct metric {
	const char *column;
	enum lg_device_counter what;
	double scale;
};

/* Longest names first where one starts with another is not needed: names are compared whole. */
static const struct metric metrics[] = {
	{ "utilization.gpu", LG_DC_UTIL, 1 },
	{ "utilization_gpu_percent", LG_DC_UTIL, 1 },
	{ "gpu_util", LG_DC_UTIL, 1 },
	{ "sm", LG_DC_UTIL, 1 },
	{ "utilization.memory", LG_DC_MEM_UTIL, 1 },
	{ "mem", LG_DC_MEM_UTIL, 1 },
	{ "power.draw", LG_DC_POWER, 1 },
	{ "power.draw.average", LG_DC_POWER, 1 },
	{ "power.draw.instant", LG_DC_POWER, 1 },
	{ "power_w", LG_DC_POWER, 1 },
	{ "pwr", LG_DC_POWER, 1 },
	{ "temperature.gpu", LG_DC_TEMP, 1 },
	{ "temperature_c", LG_DC_TEMP, 1 },
	{ "gtemp", LG_DC_TEMP, 1 },
	{ "temp", LG_DC_TEMP, 1 },
	{ "temperature.memory", LG_DC_MEM_TEMP, 1 },
	{ "mtemp", LG_DC_MEM_TEMP, 1 },
	{ "clocks.sm", LG_DC_CLOCK_SM, 1 },
	{ "clocks.current.sm", LG_DC_CLOCK_SM, 1 },
	{ "pclk", LG_DC_CLOCK_SM, 1 },
	{ "clocks.mem", LG_DC_CLOCK_MEM, 1 },
	{ "clocks.current.memory", LG_DC_CLOCK_MEM, 1 },
	{ "mclk", LG_DC_CLOCK_MEM, 1 },
	{ "memory.used", LG_DC_MEM_USED, 1048576 },
	{ "fb", LG_DC_MEM_USED, 1048576 },
	{ "memory.total", LG_DC_MEM_TOTAL, 1048576 },
	{ "bar1", LG_DC_BAR1_USED, 1048576 },
	{ "rxpci", LG_DC_PCIE_RX, 1e6 },
	{ "txpci", LG_DC_PCIE_TX, 1e6 },
	{ "power.limit", LG_DC_POWER_LIMIT, 1 },
	{ "enforced.power.limit", LG_DC_POWER_LIMIT, 1 },
	{ "pviol", LG_DC_POWER_VIOLATION, 1 },
	{ "tviol", LG_DC_THERMAL_VIOLATION, 1 },
	{ "clocks_throttle_reasons.active", LG_DC_THROTTLE, 1 },
	{ "clocks_event_reasons.active", LG_DC_THROTTLE, 1 },
	{ "sbecc", LG_DC_ECC_SBE, 1 },
	{ "dbecc", LG_DC_ECC_DBE, 1 },
	{ "enc", LG_DC_ENC, 1 },
	{ "dec", LG_DC_DEC, 1 },
	{ "jpg", LG_DC_JPG, 1 },
	{ "ofa", LG_DC_OFA, 1 },
	{ "fan.speed", LG_DC_FAN, 1 },
	{ "pstate", LG_DC_PSTATE, 1 },
};

struct column {
	enum role role;
	char name[NAME_BYTES], unit[16];
	double scale;
	lg_trk track[GPUS_MAX];
};

/* A row of a CSV without an index: kept until the number of GPUs is known. */
struct row {
	int64_t ts;
	size_t first; /* of its values */
};

struct smi {
	struct lg_builder *b;
	struct column col[COLS_MAX];
	size_t n_cols;
	int is_dmon, is_csv, has_index, has_time, has_zone;
	int64_t first, last, day, previous_clock; /* day: midnights passed, for -o T */
	int has_uuid[GPUS_MAX];
	uint64_t rows, torn, torn_line, line_no, timeless, nameless;
	int last_gpu; /* of a row without a time */
	/* rows that wait for their GPU */
	struct row *row;
	double *value;
	size_t n_row, cap_row, n_value, cap_value;
};

static void add_value(struct smi *s, struct column *c, int gpu, int64_t ts, double v)
{
	char name[16];

	if (gpu < 0 || gpu >= GPUS_MAX || v != v)
		return;
	if (!c->track[gpu]) {
		lg_trk parent;

		snprintf(name, sizeof name, "GPU %d", gpu);
		parent = lg_track_get(s->b, &(struct lg_track_row){ .kind = LG_TRACK_GPU,
								    .name = lg_intern(s->b, name),
								    .index = gpu });
		c->track[gpu] = lg_track_get(
			s->b, &(struct lg_track_row){ .kind = LG_TRACK_COUNTER,
						      .name = lg_intern(s->b, c->name),
						      .unit = lg_intern(s->b, c->unit),
						      .parent = parent, .index = gpu });
	}
	lg_add_counter(s->b, &(struct lg_counter_row){ .ts = ts, .track = c->track[gpu],
						       .value = v });
}

/* One cell's text without spaces around it, lower case where it names a column. */
static size_t trim(const char **p, size_t n)
{
	while (n && isspace((unsigned char)**p)) {
		(*p)++;
		n--;
	}
	while (n && isspace((unsigned char)(*p)[n - 1]))
		n--;
	return n;
}

static int name_column(struct column *c, const char *p, size_t n)
{
	static const struct {
		const char *name;
		enum role role;
	} special[] = {
		{ "index", INDEX }, { "gpu", INDEX }, { "idx", INDEX }, { "gpu_index", INDEX },
		{ "gpu_id", INDEX }, { "timestamp", TIME }, { "date", DATE }, { "time", CLOCK },
		{ "name", NAME }, { "gpu_name", NAME }, { "uuid", UUID }, { "gpu_uuid", UUID },
		{ "pci.bus_id", SKIP }, { "driver_version", SKIP }, { "minor_number", SKIP },
	};
	char text[NAME_BYTES];
	const char *unit = memchr(p, '[', n);
	size_t k = unit ? (size_t)(unit - p) : n;

	*c = (struct column){ .role = METRIC, .scale = 1 };
	k = trim(&p, k);
	if (!k || k >= sizeof text)
		return 0;
	for (size_t i = 0; i < k; i++)
		text[i] = (char)tolower((unsigned char)p[i]);
	text[k] = 0;
	for (size_t i = 0; i < sizeof special / sizeof *special; i++)
		if (!strcmp(text, special[i].name)) {
			c->role = special[i].role;
			return 2;
		}
	for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
		if (!strcmp(text, metrics[i].column)) {
			snprintf(c->name, sizeof c->name, "%s", lg_device_counters[metrics[i].what].name);
			snprintf(c->unit, sizeof c->unit, "%s", lg_device_counters[metrics[i].what].unit);
			c->scale = metrics[i].scale;
			return 2;
		}
	if (!strncmp(text, "clocks_throttle_reasons.", 24) || !strncmp(text, "clocks_event_reasons.", 21)) {
		snprintf(c->name, sizeof c->name, "gpu.throttle.%.40s", strchr(text, '.') + 1);
		snprintf(c->unit, sizeof c->unit, "bool");
		return 2;
	}
	if (text[0] < 'a' || text[0] > 'z')
		return 0; /* a value: this is no header */
	snprintf(c->name, sizeof c->name, "gpu.%.55s", text);
	if (unit) {
		const char *close = memchr(unit, ']',
			       n - (size_t)(unit - p) < 16 ? n - (size_t)(unit - p) : 16);

		if (close)
			snprintf(c->unit, sizeof c->unit, "%.*s", (int)(close - unit - 1), unit + 1);
	}
	return 1;
}

/* Cells of a line: separated by commas, or by spaces for dmon. Number of cells. */
static size_t split(const char *p, size_t n, int commas, const char **cell, size_t *len)
{
	size_t k = 0, at = 0;

	while (at <= n && k < COLS_MAX) {
		size_t from = at;

		if (!commas) {
			while (at < n && isspace((unsigned char)p[at]))
				at++;
			if (at >= n)
				break;
			from = at;
			while (at < n && !isspace((unsigned char)p[at]))
				at++;
		} else {
			while (at < n && p[at] != ',')
				at++;
		}
		cell[k] = p + from;
		len[k] = trim(&cell[k], at - from);
		k++;
		if (commas)
			at++;
	}
	return k;
}

/* A header names at least two columns that are known, no cell a number. */
static size_t header(struct column *col, const char *p, size_t n, int commas)
{
	const char *cell[COLS_MAX];
	size_t len[COLS_MAX], k = split(p, n, commas, cell, len), known = 0;

	if (k < 2)
		return 0;
	for (size_t i = 0; i < k; i++) {
		int is = name_column(&col[i], cell[i], len[i]);

		if (!is)
			return 0;
		known += is == 2;
	}
	return known >= 2 ? k : 0;
}

static void assign_gpus(struct smi *s);

static void take_header(struct smi *s, const char *p, size_t n, int commas)
{
	LG_AUTOFREE struct column *col = lg_calloc(COLS_MAX, sizeof *col);
	size_t k = col ? header(col, p, n, commas) : 0;

	if (!col)
		lg_builder_fail(s->b);
	if (!k)
		return;
	s->is_dmon |= !commas;
	s->is_csv |= commas;
	/* The same header again (dmon repeats it, runs are appended): keep the tracks. */
	for (size_t i = 0; i < k && k == s->n_cols; i++)
		if (col[i].role != s->col[i].role || strcmp(col[i].name, s->col[i].name))
			s->n_cols = 0;
	if (s->n_cols == k)
		return;
	assign_gpus(s); /* rows under the old header */
	memcpy(s->col, col, k * sizeof *col);
	s->n_cols = k;
	s->has_index = 0;
	for (size_t i = 0; i < k; i++)
		s->has_index |= col[i].role == INDEX;
}

/* "97 %", "71.25 W", "1 MiB", "0x0000000000000004", "P0", "Active", "-", "[N/A]" */
static double number(const char *p, size_t n)
{
	char text[48], *end;
	double v;

	if (!n || n >= sizeof text)
		return __builtin_nan("");
	memcpy(text, p, n);
	text[n] = 0;
	if (!strcmp(text, "Active") || !strcmp(text, "Yes"))
		return 1;
	if (!strcmp(text, "Not Active") || !strcmp(text, "No"))
		return 0;
	if (n > 2 && text[0] == '0' && text[1] == 'x')
		return (double)strtoull(text, &end, 16);
	v = strtod(text + (text[0] == 'P'), &end);
	if (end == text + (text[0] == 'P') || !(v >= -1e15 && v <= 1e15))
		return __builtin_nan("");
	/* Units that differ from the header's choice: power in mW, memory in KiB or GiB. */
	if (!strcmp(end, " mW"))
		v /= 1000;
	else if (!strcmp(end, " GiB"))
		v *= 1024;
	else if (!strcmp(end, " KiB"))
		v /= 1024;
	return v;
}

/* Time of a row from its time cells; -1 when it has none or one that cannot be read. */
static int64_t row_time(struct smi *s, const char *const *cell, const size_t *len)
{
	char text[64] = "";
	struct lg_stamp t;
	int want = 0;

	for (size_t i = 0; i < s->n_cols; i++) {
		if (s->col[i].role != TIME && s->col[i].role != DATE && s->col[i].role != CLOCK)
			continue;
		want = 1;
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.*s", *text ? " " : "",
			 (int)(len[i] < 40 ? len[i] : 40), cell[i]);
	}
	if (!want)
		return INT64_MIN;
	if (!lg_stamp_read(text, strlen(text), &t))
		return -1;
	s->has_time = 1;
	s->has_zone = t.has_zone;
	if (!t.has_date) {
		if (t.ns < s->previous_clock - 12 * 3600 * SECOND) /* midnight */
			s->day++;
		s->previous_clock = t.ns;
		t.ns += s->day * 86400 * SECOND;
	}
	return t.ns;
}

/* What tells a device from that of another machine with the same number. */
static void note_uuid(struct smi *s, int gpu, const char *p, size_t n)
{
	char key[24];

	if (s->has_uuid[gpu] || n < 5 || n > 80 || (strncmp(p, "GPU-", 4) && strncmp(p, "MIG-", 4)))
		return;
	s->has_uuid[gpu] = 1;
	snprintf(key, sizeof key, "gpu.%d.uuid", gpu);
	lg_meta_setf(s->b, 0, key, "%.*s", (int)n, p);
}

static void take_row(struct smi *s, const char *p, size_t n)
{
	const char *cell[COLS_MAX];
	size_t len[COLS_MAX], k = split(p, n, s->is_csv, cell, len);
	int64_t ts;
	int gpu = 0, odd = k != s->n_cols;

	ts = odd ? -1 : row_time(s, cell, len);
	for (size_t i = 0; i < s->n_cols && !odd; i++)
		if (s->col[i].role == INDEX) {
			double v = number(cell[i], len[i]);

			odd = !(v >= 0 && v < (double)GPUS_MAX);
			gpu = odd ? 0 : (int)v;
		}
	if (odd || ts == -1) {
		if (!s->torn++)
			s->torn_line = s->line_no;
		return;
	}
	if (ts == INT64_MIN) {
		/* dmon without -o: a sweep a second unless -d said otherwise. It begins where the numbers do
		 * not go up: with -i there may be no device 0. */
		s->timeless += !s->timeless || gpu <= s->last_gpu;
		s->last_gpu = gpu;
		ts = (int64_t)(s->timeless - 1) * SECOND;
	}
	if (!s->rows++)
		s->first = ts;
	s->last = ts;
	if (s->has_index || s->is_dmon) {
		for (size_t i = 0; i < s->n_cols; i++)
			if (s->col[i].role == METRIC)
				add_value(s, &s->col[i], gpu, ts,
					  number(cell[i], len[i]) * s->col[i].scale);
			else if (s->col[i].role == UUID)
				note_uuid(s, gpu, cell[i], len[i]);
		return;
	}
	if (lg_grow(&s->row, &s->cap_row, s->n_row + 1, sizeof *s->row) ||
	    lg_grow(&s->value, &s->cap_value, s->n_value + COLS_MAX, sizeof *s->value)) {
		lg_builder_fail(s->b);
		return;
	}
	s->row[s->n_row++] = (struct row){ .ts = ts, .first = s->n_value };
	for (size_t i = 0; i < s->n_cols; i++)
		s->value[s->n_value++] = s->col[i].role == METRIC
						 ? number(cell[i], len[i]) * s->col[i].scale
						 : __builtin_nan("");
}

/* Where two classes of sorted x part best: the most variance between them (Otsu). 0 = they are all equal. */
static size_t two_classes(const double *x, size_t n)
{
	double sum = 0, left = 0, best = 0;
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		sum += x[i];
	for (size_t i = 0; i + 1 < n; i++) {
		double a = (double)(i + 1), b = (double)(n - i - 1), apart, between;

		left += x[i];
		apart = left / a - (sum - left) / b;
		between = a * b * apart * apart;
		if (x[i + 1] > x[i] && between > best) {
			best = between;
			k = i + 1;
		}
	}
	return k;
}

/* Rows between gaps over `least`: their usual number, and what share of these runs have just it. */
static size_t usual_run(const struct smi *s, int64_t *run, int64_t least, double *ret_share)
{
	size_t n = 0, at = 0, k, same = 0;

	for (size_t i = 0; i < s->n_row; i++, at++)
		if (i && s->row[i].ts - s->row[i - 1].ts > least) {
			run[n++] = (int64_t)at;
			at = 0;
		}
	*ret_share = 0;
	if (n < SWEEPS_MIN)
		return 1;
	k = (size_t)lg_select_i64(run, n, n / 2);
	for (size_t i = 0; i < n; i++)
		same += (size_t)run[i] == k;
	*ret_share = (double)same / (double)n;
	return k;
}

/*
 * How many rows make a sweep, and what gap begins a new one. nvidia-smi asks one GPU after the other, then
 * sleeps: the gaps are of two sizes, however many lie between them (a GPU that answers late, a machine that
 * is busy). They are two sizes where the middle ones of both are at least three times apart and few gaps are
 * half-way (in the logarithm); then the usual number of rows between two large gaps is the number of GPUs,
 * if most sweeps have it. Lost rows shift nothing. Asking a GPU takes milliseconds: where the small gaps are
 * long ones, they are the sleep, and the large ones are when the reader was held up.
 * *ret_doubt: two sizes, yet no number that is usual.
 */
static size_t sweep_rows(const struct smi *s, int64_t *ret_gap, bool *ret_doubt)
{
	size_t n = s->n_row - 1, k, rows = 1, half_way = 0;
	double *x = lg_calloc(s->n_row, sizeof *x), low, high, share;
	int64_t *run = lg_calloc(s->n_row, sizeof *run);

	*ret_gap = INT64_MAX;
	*ret_doubt = false;
	if (!x || !run)
		lg_builder_fail(s->b);
	if (!x || !run || n < SWEEPS_MIN)
		goto out;
	for (size_t i = 0; i < n; i++) {
		int64_t gap = s->row[i + 1].ts - s->row[i].ts;

		/* Stamps are of ms: below a fifth of one, gaps do not differ. */
		x[i] = log(gap > GAP_LEAST ? (double)gap : (double)GAP_LEAST);
	}
	qsort(x, n, sizeof *x, lg_cmp_f64);
	k = two_classes(x, n);
	if (!k)
		goto out;
	low = x[k / 2];
	high = x[k + (n - k) / 2];
	for (size_t i = 0; i < n; i++)
		half_way += x[i] > low + (high - low) / 3 && x[i] < high - (high - low) / 3;
	if (high - low < log(3) || half_way * 20 > n || low > log(ASKING_MOST))
		goto out;
	rows = usual_run(s, run, (int64_t)exp(low / 2 + high / 2), &share);
	/* Sleeps are about equal; where large gaps are of all sizes, one device's reader was held up. */
	*ret_doubt = share < 2.0 / 3 && x[k + (n - k) * 3 / 4] - x[k + (n - k) / 4] < log(1.5);
	if (share < 2.0 / 3)
		rows = 1;
	/* The sleep is about the same each time: what is far below it is none. A full sweep ends anyway. */
	*ret_gap = (int64_t)exp(x[k + (n - k) / 10] + log(0.9));
out:
	lg_free(x);
	lg_free(run);
	return rows < GPUS_MAX ? rows : GPUS_MAX;
}

static void assign_gpus(struct smi *s)
{
	int64_t gap = INT64_MAX;
	bool doubt = false;
	size_t n = s->n_row ? sweep_rows(s, &gap, &doubt) : 0, at = 0;

	for (size_t i = 0; i < s->n_row; i++) {
		at = i && (at + 1 >= n || s->row[i].ts - s->row[i - 1].ts > gap) ? 0 : i ? at + 1 : 0;
		for (size_t c = 0; c < s->n_cols; c++)
			if (s->row[i].first + c < s->n_value)
				add_value(s, &s->col[c], (int)at, s->row[i].ts,
					  s->value[s->row[i].first + c]);
	}
	if (n > 1)
		lg_add_diag_now(s->b, LG_DIAG_NOT_UNDERSTOOD, s->first, 1,
				"no column says which GPU a row is of: %zu rows come together, so they are "
				"taken as GPU 0 to %zu (ask nvidia-smi for index, too)", n, n - 1);
	else if (doubt)
		lg_add_diag_now(s->b, LG_DIAG_NOT_UNDERSTOOD, s->first, 1,
				"no column says which GPU a row is of, and the rows come in groups of no usual "
				"size: all are taken as GPU 0's (ask nvidia-smi for index, too)");
	s->n_row = s->n_value = 0;
}

/* "2026/04/25 16:06:06.780, 0 %, 2 MiB, 11.64 W": values with units, as --format=csv,noheader prints them. */
static bool is_nameless(const char *p, size_t n)
{
	static const char *const units[] = { " %", " MiB", " W", " MHz" };
	const char *cell[COLS_MAX];
	size_t len[COLS_MAX], k = split(p, n, true, cell, len), with_unit = 0;
	struct lg_stamp t;

	if (k < 2 || !len[0] || !lg_stamp_read(cell[0], len[0], &t) || !t.has_date)
		return false;
	for (size_t i = 1; i < k; i++)
		for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
			size_t m = strlen(units[u]);

			with_unit += len[i] > m && isdigit((unsigned char)cell[i][0]) &&
				     !memcmp(cell[i] + len[i] - m, units[u], m);
		}
	return with_unit > 0;
}

static void take_line(struct smi *s, const char *p, size_t n)
{
	size_t k;

	s->line_no++;
	k = trim(&p, n);
	if (!k)
		return;
	if (*p == '#') {
		const char *names = p + 1;
		size_t len = k - 1;

		len = trim(&names, len);
		/* "# Idx W C ..." is the line of units and names nothing. */
		if (len < 3 || strncmp(names, "Idx", 3))
			take_header(s, names, len, memchr(names, ',', len) != NULL);
		return;
	}
	if (isalpha((unsigned char)*p) && memchr(p, ',', k)) {
		struct column col[1];
		const char *comma = memchr(p, ',', k);

		if (name_column(col, p, (size_t)(comma - p)) == 2) {
			take_header(s, p, k, 1);
			return;
		}
	}
	if (s->n_cols) {
		take_row(s, p, k);
		return;
	}
	s->nameless += is_nameless(p, k);
	if (!s->torn++)
		s->torn_line = s->line_no;
}

static void notes(struct smi *s, const char *damage, uint64_t at)
{
	enum lg_time_base base = !s->has_time ? LG_TIME_RELATIVE : s->has_zone ? LG_TIME_REALTIME
									       : LG_TIME_LOCAL;

	lg_time_base(s->b, s->day || (s->has_time && s->first < 86400 * SECOND) ? LG_TIME_RELATIVE : base,
		     s->first, SECOND / 10, "nvidia-smi");
	if (s->timeless)
		lg_add_diag_now(s->b, LG_DIAG_NO_TIMES, s->first, s->rows,
				"sweeps of nvidia-smi are taken as 1 s apart (run nvidia-smi dmon "
				"with -o DT)");
	if (s->torn)
		lg_add_diag_now(s->b, LG_DIAG_FILE_DAMAGED, s->last, s->torn,
				"%llu rows do not fit the header and were left out, the first is line %llu",
				(unsigned long long)s->torn, (unsigned long long)s->torn_line);
	if (damage)
		lg_add_diag_now(s->b, LG_DIAG_FILE_TRUNCATED, s->last, 1, "%s (byte %llu)", damage,
				(unsigned long long)at);
}

static int run(const char *path, struct lg_builder *b, struct lg_error *err)
{
	struct smi *s = lg_calloc(1, sizeof *s);
	struct lg_source *in = NULL;
	char *line;
	size_t n;
	int rc = s ? lg_source_open(&in, path, err)
		   : lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");

	if (!rc) {
		s->b = b;
		while (lg_source_line(in, &line, &n))
			take_line(s, line, n);
		assign_gpus(s);
		if (lg_builder_failed(b))
			rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		else if (!s->rows && s->nameless)
			rc = lg_fail(err, LG_E_FORMAT, 0,
				     "rows of nvidia-smi without the names of their columns (noheader): which value is "
				     "which cannot be told; put the line of names on top that --format=csv prints");
		else if (!s->rows)
			rc = lg_fail(err, LG_E_FORMAT, lg_source_offset(in),
				     "%llu lines of a table of nvidia-smi and no whole row",
				     (unsigned long long)s->line_no);
		else
			notes(s, lg_source_damage(in), lg_source_offset(in));
	}
	lg_source_close(in);
	if (s) {
		lg_free(s->row);
		lg_free(s->value);
	}
	lg_free(s);
	return rc;
}

/* One of the first lines is a header with at least two of nvidia-smi's columns; or there is none, and that
 * is to be said. */
static int sniff(const struct lg_head *h)
{
	LG_AUTOFREE struct column *col = lg_calloc(COLS_MAX, sizeof *col);
	const char *p = h->text, *end = p + h->n_text;
	int lines = 0, nameless = 0;

	if (!col || lg_head_is_binary(h))
		return 0;
	for (; p < end && lines < 20; lines++) {
		const char *nl = memchr(p, '\n', (size_t)(end - p)), *q = p;
		size_t k = trim(&q, (size_t)((nl ? nl : end) - p)), cols, gpu = 0;

		if (k && *q == '#') {
			q++;
			k = trim(&q, k - 1);
		}
		cols = k && k < 4096 ? header(col, q, k, memchr(q, ',', k) != NULL) : 0;
		for (size_t i = 0; i < cols; i++)
			for (size_t m = 0; m < sizeof metrics / sizeof *metrics; m++)
				gpu += col[i].role == METRIC &&
				       !strcmp(col[i].name, lg_device_counters[metrics[m].what].name);
		if (gpu)
			return cols ? 80 : 0;
		nameless += k && is_nameless(q, k);
		p = nl ? nl + 1 : end;
	}
	return lines && nameless * 2 > lines ? 60 : 0;
}

const struct lg_importer lg_import_smi = {
	.name = "nvidia-smi",
	.summary = "table of nvidia-smi (dmon or --query-gpu)",
	.sniff = sniff,
	.run = run,
};
