/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_header.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

enum {
	SECTION_MAX = 256 << 20, /* a feature; tracing data of all events has about 2 MB */
	BUILD_ID_BYTES = 20,
	IDS_MAX = 1 << 24
};

int lg_pd_sniff(const uint8_t *head, size_t n)
{
	uint64_t magic = n >= 8 ? pd_u64(head, false) : 0;

	return magic == PD_MAGIC2 || magic == PD_MAGIC2_SWAPPED || magic == PD_MAGIC1 ||
			       magic == __builtin_bswap64(PD_MAGIC1)
		       ? 100
		       : 0;
}

bool lg_pd_is_pipe(const uint8_t *head, size_t n)
{
	uint64_t size;

	if (n < PD_PIPE_HEADER || !lg_pd_sniff(head, n))
		return false;
	size = pd_u64(head + 8, false);
	return size == PD_PIPE_HEADER || __builtin_bswap64(size) == PD_PIPE_HEADER;
}

/* The old magic is text in either byte order: the header's size tells. */
static bool is_swapped(const uint8_t *head)
{
	uint64_t magic = pd_u64(head, false);

	return magic == PD_MAGIC2_SWAPPED || magic == __builtin_bswap64(PD_MAGIC1) ||
	       (magic == PD_MAGIC1 && pd_u64(head + 8, false) > 0xffffffff);
}

static int nomem(struct lg_error *err)
{
	return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

static size_t read_at(int fd, uint64_t at, uint8_t *to, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t k = pread(fd, to + done, n - done, (off_t)(at + done));

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			break;
		done += (size_t)k;
	}
	return done;
}

/* -- features -- */

/* u32 length (with padding), then the NUL-terminated text. */
static const char *take_text(struct pd_cursor *c, size_t *ret_n)
{
	uint32_t n = pd_take_u32(c);
	const uint8_t *p = pd_take(c, n);

	*ret_n = p ? strnlen((const char *)p, n) : 0;
	return p ? (const char *)p : "";
}

static void text_feature(struct pd_cursor c, char *to, size_t size)
{
	size_t n;
	const char *s = take_text(&c, &n);

	snprintf(to, size, "%.*s", (int)(n < size ? n : size - 1), s);
}

static void meta(struct lg_pd_header *h, const char *key, const char *text, size_t n)
{
	lg_add_meta(h->b, &(struct lg_meta_row){ .ts = INT64_MIN,
						 .key = lg_intern(h->b, key),
						 .value = lg_intern_n(h->b, text, n) });
}

/* --threads, or what parse-options takes for it, without anything else than its default. */
static bool is_threads(const char *word, size_t n, bool *ret_per_cpu)
{
	const char *is = memchr(word, '=', n);
	size_t name = is ? (size_t)(is - word) : n;

	if (name < strlen("--thr") || name > strlen("--threads") || memcmp(word, "--threads", name))
		return false;
	*ret_per_cpu = !is || (n == name + 4 && !memcmp(is, "=cpu", 4));
	return true;
}

/* -p, -t and their long names; -a and -C, also among other letters, say the contrary. */
static int names_tasks(const char *word, size_t n)
{
	static const char *const tasks[] = { "-p", "--pid", "-t", "--tid" };
	static const char *const cpus[] = { "--all-cpus", "--cpu" };

	for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
		size_t k = strlen(tasks[i]);

		if (n >= k && !memcmp(word, tasks[i], k) &&
		    (n == k || word[k] == '=' || (word[k] >= '0' && word[k] <= '9')))
			return 1;
	}
	for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++)
		if (n >= strlen(cpus[i]) && !memcmp(word, cpus[i], strlen(cpus[i])))
			return -1;
	return n > 1 && word[0] == '-' && word[1] != '-' && (word[1] == 'C' || memchr(word, 'a', n)) ? -1 : 0;
}

/* "12,34": of -p */
static void keep_named(struct lg_pd_header *h, const char *p, size_t n)
{
	const char *end = p + n;

	while (p < end && h->n_named < sizeof h->named / sizeof *h->named) {
		int64_t v = 0;

		for (; p < end && *p >= '0' && *p <= '9' && v < INT32_MAX / 10; p++)
			v = v * 10 + (*p - '0');
		if (v && (p == end || *p == ','))
			h->named[h->n_named++] = (int32_t)v;
		while (p < end && *p++ != ',')
			;
	}
}

/* The value of -p or --pid, in the same word or in the next. True: it is the next one. */
static bool named_value(struct lg_pd_header *h, const char *word, size_t n)
{
	size_t k = n >= 5 && !memcmp(word, "--pid", 5) ? 5 : n >= 2 && !memcmp(word, "-p", 2) ? 2 : 0;

	if (k && n > k)
		keep_named(h, word + k + (word[k] == '='), n - k - (word[k] == '='));
	return k && n == k;
}

static void cmdline_feature(struct lg_pd_header *h, struct pd_cursor c)
{
	char line[4096];
	size_t at = 0, n_threads = 0;
	bool per_cpu = false, value_next = false;
	int tasks = 0;

	for (uint32_t n = pd_take_u32(&c); n && !c.bad && at < sizeof line - 1; n--) {
		size_t len;
		const char *word = take_text(&c, &len);
		int k = snprintf(line + at, sizeof line - at, "%s%.*s", at ? " " : "", (int)len, word);

		at += k > 0 ? (size_t)k : 0;
		n_threads += is_threads(word, len, &per_cpu);
		if (len == 2 && !memcmp(word, "--", 2) && !tasks) /* what follows is the command that was started */
			tasks = -1;
		tasks = tasks ? tasks : names_tasks(word, len);
		if (value_next)
			keep_named(h, word, len);
		value_next = tasks > 0 && !value_next && named_value(h, word, len);
		if (strstr(line, "simpleperf"))
			h->simpleperf = true;
	}
	/* A second one may be the command's own. */
	h->thread_per_cpu = n_threads == 1 && per_cpu;
	h->of_tasks = tasks > 0;
	if (at >= sizeof line)
		at = sizeof line - 1;
	meta(h, "record.cmdline", line, at);
}

static int add_build_id(struct lg_pd_header *h, const uint8_t *id, size_t n_id, const char *path,
			size_t n_path, uint16_t misc)
{
	struct lg_pd_build_id *to;
	char hex[2 * BUILD_ID_BYTES + 1] = "";

	if (!n_path || n_id > BUILD_ID_BYTES)
		return 0;
	for (size_t i = 0; i < n_id; i++)
		snprintf(hex + 2 * i, 3, "%02x", id[i]);
	if (lg_grow(&h->build_id, &h->build_ids_cap, h->n_build_ids + 1, sizeof *h->build_id))
		return LG_E_NOMEM;
	to = &h->build_id[h->n_build_ids];
	*to = (struct lg_pd_build_id){ .path = lg_intern_n(h->b, path, n_path),
				       .hex = lg_intern(h->b, hex), .misc = misc };
	return lg_map_set(&h->build_id_of, to->path, (uint32_t)++h->n_build_ids);
}

/* struct perf_record_header_build_id: header, pid, 20 bytes of id, their number, 3 of padding */
static int build_id_record(struct lg_pd_header *h, const uint8_t *rec, size_t size)
{
	const size_t at = PD_RECORD_HEADER + 4, path = at + 24;
	uint16_t misc = pd_u16(rec + 4, h->swap);
	size_t n = BUILD_ID_BYTES;

	if (size <= path)
		return 0;
	/* PERF_RECORD_MISC_BUILD_ID_SIZE: the number of bytes is given (MD5 ids have 16) */
	if (misc & 1 << 15 && rec[at + 20] <= BUILD_ID_BYTES)
		n = rec[at + 20];
	return add_build_id(h, rec + at, n, (const char *)rec + path,
			    strnlen((const char *)rec + path, size - path), misc);
}

static int build_ids_feature(struct lg_pd_header *h, struct pd_cursor c)
{
	int rc = 0;

	while (!rc && pd_left(&c) >= PD_RECORD_HEADER) {
		const uint8_t *rec = c.p;
		uint16_t size = pd_u16(rec + 6, h->swap);

		if (size < PD_RECORD_HEADER || !pd_take(&c, size))
			return LG_E_FORMAT;
		rc = build_id_record(h, rec, size);
	}
	return rc;
}

/* Give the event its name: by its ids, else by its place. */
static void name_event(struct lg_pd_header *h, uint32_t i, const char *name, size_t n)
{
	if (i < h->attrs.n && n)
		h->attrs.attr[i].name = lg_intern_n(h->b, name, n);
}

static int event_desc_feature(struct lg_pd_header *h, struct pd_cursor c)
{
	uint32_t n = pd_take_u32(&c), attr_size = pd_take_u32(&c);

	for (uint32_t i = 0; i < n && !c.bad; i++) {
		const uint8_t *attr = pd_take(&c, attr_size);
		uint32_t n_ids = pd_take_u32(&c), at = i;
		size_t len;
		const char *name = take_text(&c, &len);

		if (!attr || n_ids > pd_left(&c) / 8)
			return LG_E_FORMAT;
		for (uint32_t k = 0; k < n_ids; k++) {
			uint32_t known = lg_map_get(&h->attrs.by_id, pd_take_u64(&c));

			if (known && !k)
				at = known - 1;
		}
		name_event(h, at, name, len);
	}
	return c.bad ? LG_E_FORMAT : 0;
}

/* u32 version, u32 clockid, u64 wall clock, u64 that clock at the same moment */
static void clock_data_feature(struct lg_pd_header *h, struct pd_cursor c)
{
	uint32_t version = pd_take_u32(&c), id = pd_take_u32(&c);
	uint64_t wall = pd_take_u64(&c), clock = pd_take_u64(&c);

	if (c.bad || version != 1)
		return;
	h->has_clock_data = true;
	h->clockid = id;
	h->wall_ns = wall;
	h->clock_ns = clock;
}

/* Of simpleperf, "sched:sched_switch,2,47": what an event is called, its type and config. */
static void event_type(struct lg_pd_header *h, const char *line, size_t n)
{
	const char *config = memrchr(line, ',', n);
	const char *type = config ? memrchr(line, ',', (size_t)(config - line)) : NULL;

	for (uint32_t i = 0; type && i < h->attrs.n; i++) {
		const struct lg_pd_attr *a = &h->attrs.attr[i];

		/* What every perf knows is called as perf calls it. */
		if (a->type != PD_TYPE_TRACEPOINT && a->type < PD_TYPE_RAW)
			continue;
		if (strtoul(type + 1, NULL, 10) == a->type && strtoull(config + 1, NULL, 10) == a->config)
			name_event(h, i, line, (size_t)(type - line));
	}
}

/* Of simpleperf: pairs of texts, each with its NUL. */
static void meta_info_feature(struct lg_pd_header *h, struct pd_cursor c)
{
	while (!c.bad && pd_left(&c)) {
		const char *key = pd_take_string(&c), *value = pd_take_string(&c);

		if (strcmp(key, "event_type_info"))
			continue;
		for (const char *end; *value; value = end + (*end != 0)) {
			end = value + strcspn(value, "\n");
			event_type(h, value, (size_t)(end - value));
		}
	}
}

int lg_pd_header_feature(struct lg_pd_header *h, uint32_t id, const uint8_t *p, size_t n,
			 struct lg_error *err)
{
	struct pd_cursor c = { .p = p, .end = p + n, .swap = h->swap };
	char text[512];
	int rc = 0;

	switch (id) {
	case PDH_TRACING_DATA:
		rc = lg_pd_formats_read(&h->formats, p, n, NULL, err);
		break;
	case PDH_BUILD_ID:
		rc = build_ids_feature(h, c);
		break;
	case PDH_HOSTNAME:
		text_feature(c, h->hostname, sizeof h->hostname);
		meta(h, "host.name", h->hostname, strlen(h->hostname));
		break;
	case PDH_OSRELEASE:
		text_feature(c, h->osrelease, sizeof h->osrelease);
		meta(h, "kernel.release", h->osrelease, strlen(h->osrelease));
		break;
	case PDH_VERSION:
		text_feature(c, h->version, sizeof h->version);
		meta(h, "record.perf_version", h->version, strlen(h->version));
		break;
	case PDH_ARCH:
		text_feature(c, h->arch, sizeof h->arch);
		meta(h, "host.arch", h->arch, strlen(h->arch));
		break;
	case PDH_CPUDESC:
		text_feature(c, text, sizeof text);
		meta(h, "host.cpu", text, strlen(text));
		break;
	case PDH_NRCPUS:
		(void)pd_take_u32(&c); /* available */
		h->n_cpus = pd_take_u32(&c);
		lg_meta_setf(h->b, 0, "host.cpus", "%u", h->n_cpus);
		break;
	case PDH_CMDLINE:
		cmdline_feature(h, c);
		break;
	case PDH_EVENT_DESC:
		rc = event_desc_feature(h, c);
		break;
	case PDH_DIR_FORMAT: /* 0: everything is in this file, the folder is for others (--kcore) */
		h->in_folder = pd_take_u64(&c) != 0 || c.bad;
		break;
	case PDH_CLOCK_DATA:
		clock_data_feature(h, c);
		break;
	case PDH_SIMPLE_META_INFO:
		h->simpleperf = true;
		meta_info_feature(h, c);
		break;
	case PDH_SIMPLE_FILE:
	case PDH_SIMPLE_FILE2:
		h->simpleperf = true;
		break;
	default:
		break;
	}
	if (rc == LG_E_NOMEM)
		return nomem(err);
	return rc ? lg_fail(err, rc, LG_NO_OFFSET, "feature %u is damaged", id) : 0;
}

/* -- records that describe -- */

static int attr_record(struct lg_pd_header *h, const uint8_t *rec, uint16_t size, struct lg_error *err)
{
	const uint8_t *attr = rec + PD_RECORD_HEADER;
	size_t n = size - (size_t)PD_RECORD_HEADER, attr_size;
	uint32_t i;
	int rc;

	if (n < PDA_SIZE_VER0)
		return lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET, "an event record is too short");
	/* 0: written before the field existed */
	attr_size = pd_u32(attr + PDA_SIZE, h->swap);
	if (!attr_size)
		attr_size = PDA_SIZE_VER0;
	if (attr_size > n)
		return lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET,
			       "an event record is shorter than its event");
	rc = lg_pd_attrs_add(&h->attrs, attr, attr_size, &i, err);
	for (size_t at = attr_size; !rc && at + 8 <= n; at += 8)
		if (lg_pd_attrs_id(&h->attrs, pd_u64(attr + at, h->swap), i))
			rc = nomem(err);
	return rc;
}

/* struct perf_record_event_update: u64 type, u64 id, then what is new; 2 = the name */
static void update_record(struct lg_pd_header *h, const uint8_t *rec, uint16_t size)
{
	struct pd_cursor c = { .p = rec + PD_RECORD_HEADER, .end = rec + size, .swap = h->swap };
	uint64_t type = pd_take_u64(&c), id = pd_take_u64(&c);
	uint32_t i = lg_map_get(&h->attrs.by_id, id);

	if (type == 2 && i && !c.bad)
		name_event(h, i - 1, (const char *)c.p, strnlen((const char *)c.p, pd_left(&c)));
}

int lg_pd_header_record(struct lg_pd_header *h, uint32_t type, const uint8_t *rec, uint16_t size,
			struct lg_error *err)
{
	int rc = 0;

	switch (type) {
	case PD_HEADER_ATTR:
		return h->pipe ? attr_record(h, rec, size, err) : 0;
	case PD_HEADER_BUILD_ID:
		rc = build_id_record(h, rec, size);
		break;
	case PD_HEADER_FEATURE:
		if (size >= PD_RECORD_HEADER + 8)
			rc = lg_pd_header_feature(h, (uint32_t)pd_u64(rec + PD_RECORD_HEADER, h->swap),
						  rec + PD_RECORD_HEADER + 8,
						  size - (size_t)PD_RECORD_HEADER - 8, err);
		break;
	case PD_EVENT_UPDATE:
		update_record(h, rec, size);
		break;
	default:
		break;
	}
	return rc == LG_E_NOMEM ? nomem(err) : rc;
}

/* -- the file -- */

static int read_ids(struct lg_pd_header *h, int fd, uint64_t at, uint64_t size, uint32_t attr_i,
		    struct lg_error *err)
{
	uint8_t buf[4096];

	if (size / 8 > IDS_MAX)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "an event has %llu ids",
			       (unsigned long long)size / 8);
	while (size >= 8) {
		size_t want = size < sizeof buf ? (size_t)size : sizeof buf;
		size_t n = read_at(fd, at, buf, want) / 8;

		if (!n)
			break;
		for (size_t i = 0; i < n; i++)
			if (lg_pd_attrs_id(&h->attrs, pd_u64(buf + 8 * i, h->swap), attr_i))
				return nomem(err);
		at += 8 * n;
		size -= 8 * n;
	}
	return 0;
}

static int ends_early(int fd, struct lg_error *err)
{
	struct stat st;
	uint64_t n = fstat(fd, &st) ? 0 : (uint64_t)st.st_size;

	return lg_fail(err, LG_E_FORMAT, n, "the file ends before its description of events does");
}

/* struct perf_file_attr: perf_event_attr and the section of its ids; its size says the era. */
static int read_attrs(struct lg_pd_header *h, int fd, uint64_t at, uint64_t size, uint64_t entry,
		      struct lg_error *err)
{
	uint8_t buf[PDA_SIZE_MAX + 16];
	int rc = 0;

	if (entry < PDA_SIZE_VER0 + 16 || entry > sizeof buf)
		return lg_fail(err, LG_E_FORMAT, 16, "events of %llu bytes each make no sense",
			       (unsigned long long)entry);
	for (; size >= entry && !rc; at += entry, size -= entry) {
		uint32_t i;
		uint64_t ids_at, ids_size;

		if (read_at(fd, at, buf, (size_t)entry) != entry)
			return h->attrs.n ? 0 : ends_early(fd, err);
		rc = lg_pd_attrs_add(&h->attrs, buf, (size_t)entry - 16, &i, err);
		ids_at = pd_u64(buf + entry - 16, h->swap);
		ids_size = pd_u64(buf + entry - 8, h->swap);
		if (!rc)
			rc = read_ids(h, fd, ids_at, ids_size, i, err);
	}
	return rc;
}

static int read_section(struct lg_pd_header *h, int fd, uint32_t id, uint64_t at, uint64_t size,
			struct lg_error *err)
{
	uint8_t *p;
	size_t n;
	int rc;

	if (size > SECTION_MAX) {
		h->features_damaged++;
		h->damaged_at = at;
		return 0;
	}
	p = lg_realloc(NULL, (size_t)size + 1, 1);
	if (!p)
		return nomem(err);
	n = read_at(fd, at, p, (size_t)size);
	p[n] = 0;
	rc = lg_pd_header_feature(h, id, p, n, err);
	lg_free(p);
	if (rc && rc != LG_E_NOMEM) {
		h->features_damaged++;
		h->damaged_at = at;
		rc = 0;
	}
	return rc;
}

static bool has_feature(const uint8_t *bits, uint32_t id, bool swap)
{
	/* Files of 32-bit machines of the other byte order have their bits in 4-byte words. */
	bool words = swap && !(pd_u64(bits, true) & 1ull << PDH_HOSTNAME) &&
		     (pd_u32(bits, true) & 1u << PDH_HOSTNAME);

	return words ? pd_u32(bits + id / 32 * 4, true) >> (id % 32) & 1
		     : pd_u64(bits + id / 64 * 8, swap) >> (id % 64) & 1;
}

/* One pd_u64 pair (offset, size) for each bit of the header, behind the records. */
static int read_features(struct lg_pd_header *h, int fd, const uint8_t *bits, uint64_t at,
			 uint64_t *ret_end, struct lg_error *err)
{
	uint64_t all = at;
	int rc = 0;

	for (uint32_t id = 0; id < PDH_MAX && !rc; id++) {
		uint8_t pair[16];
		uint64_t section, size;

		if (!has_feature(bits, id, h->swap))
			continue;
		if (read_at(fd, at, pair, sizeof pair) != sizeof pair)
			break;
		at += sizeof pair;
		section = pd_u64(pair, h->swap);
		size = pd_u64(pair + 8, h->swap);
		all = at > all ? at : all;
		if (size <= INT64_MAX && section <= INT64_MAX && section + size > all)
			all = section + size;
		if (size)
			rc = read_section(h, fd, id, section, size, err);
	}
	*ret_end = all;
	return rc;
}

/* Somebody may have put two files into one (cat): what follows the last part is nobody's. */
static void look_behind(struct lg_pd_header *h, int fd, uint64_t end)
{
	uint8_t magic[8];
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size <= end)
		return;
	h->behind = (uint64_t)st.st_size - end;
	h->behind_at = end;
	h->joined = lg_pd_sniff(magic, read_at(fd, end, magic, sizeof magic));
}

bool lg_pd_is_folder(const uint8_t *head, size_t n)
{
	bool swap = n >= PD_FILE_HEADER && is_swapped(head);

	return n >= PD_FILE_HEADER && lg_pd_sniff(head, n) && pd_u64(head + 8, swap) >= PD_FILE_HEADER &&
	       has_feature(head + 72, PDH_DIR_FORMAT, swap);
}

int lg_pd_header_read(struct lg_pd_header *h, int fd, const uint8_t *head, size_t n_head,
		      struct lg_error *err)
{
	uint64_t size, end;
	int rc;

	if (!lg_pd_sniff(head, n_head))
		return lg_fail(err, LG_E_FORMAT, 0, "not a perf.data file");
	if (n_head < PD_PIPE_HEADER)
		return lg_fail(err, LG_E_FORMAT, n_head, "a perf.data file that ends inside its header");
	h->old_magic = pd_u64(head, false) == PD_MAGIC1;
	h->swap = is_swapped(head);
	h->attrs.swap = h->swap;
	size = pd_u64(head + 8, h->swap);
	if (size == PD_PIPE_HEADER) {
		h->pipe = true;
		h->data_at = PD_PIPE_HEADER;
		return 0;
	}
	if (n_head < 64 || size < 64)
		return lg_fail(err, LG_E_FORMAT, n_head < 64 ? n_head : 8,
			       "a perf.data file whose header is cut off");
	h->data_at = pd_u64(head + 40, h->swap);
	h->data_size = pd_u64(head + 48, h->swap);
	if (h->data_at > INT64_MAX || h->data_size > INT64_MAX)
		return lg_fail(err, LG_E_FORMAT, 40, "the records lie outside of the file");
	h->in_folder = lg_pd_is_folder(head, n_head);
	rc = read_attrs(h, fd, pd_u64(head + 24, h->swap), pd_u64(head + 32, h->swap),
			pd_u64(head + 16, h->swap), err);
	if (!rc && !h->attrs.n)
		rc = lg_fail(err, LG_E_FORMAT, 24, "a perf.data file without events");
	if (!rc && h->data_size && size >= PD_FILE_HEADER && n_head >= PD_FILE_HEADER) {
		rc = read_features(h, fd, head + 72, h->data_at + h->data_size, &end, err);
		look_behind(h, fd, end);
	}
	return rc;
}

void lg_pd_header_settle(struct lg_pd_header *h)
{
	for (size_t i = h->attrs.named; i < h->attrs.n; i++) {
		struct lg_pd_attr *a = &h->attrs.attr[i];
		const struct lg_pd_format *f;

		if (a->type != PD_TYPE_TRACEPOINT)
			continue;
		f = lg_pd_formats_by_id(&h->formats, a->config);
		if (f && !a->name)
			a->name = lg_intern(h->b, f->name);
	}
	lg_pd_attrs_name(&h->attrs, h->b);
}

lg_str lg_pd_header_build_id(const struct lg_pd_header *h, lg_str path)
{
	uint32_t i = lg_map_get(&h->build_id_of, path);

	return i ? h->build_id[i - 1].hex : 0;
}

void lg_pd_header_done(struct lg_pd_header *h)
{
	lg_pd_attrs_done(&h->attrs);
	lg_pd_formats_done(&h->formats);
	lg_free(h->build_id);
	lg_map_done(&h->build_id_of);
}
