/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mark_ring.c - copy slots out of a ring that may be written at the same moment.
 *
 * A slot's first and last word are its index, stored in that order around the payload. A chunk is
 * read twice: the first copy must show the expected index at both ends, and the second copy, taken
 * afterwards, the same first word. A writer that came round meanwhile has changed the first word
 * before anything else, so what passes was not touched while it was copied.
 *
 * That argument needs the writer's stores in program order. C writers use release stores. Python
 * writers cannot, so on CPUs that reorder stores a slot is taken only when it looked complete one
 * read (100 ms) earlier; by then every store before it has long been visible.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/mark_ring.h"

#define CHUNK 256u              /* slots read at once */
#define MAX_SLOTS (1u << 20)
#define MAX_SIZE (256u << 20)
#define MAX_INDEX (1ull << 62)  /* beyond any real count; keeps arithmetic from wrapping */
#define STUCK_READS 10u         /* then a slot that nobody completes is given up */

_Static_assert(sizeof(struct lg_mark_slot) == 64, "slot size is ABI");

/* As many bytes as there are, up to n. */
static size_t read_at(int fd, void *p, size_t n, uint64_t off)
{
	size_t done = 0;

	while (done < n) {
		ssize_t k = pread(fd, (char *)p + done, n - done, (off_t)(off + done));

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			break;
		done += (size_t)k;
	}
	return done;
}

int lg_mark_ring_init(struct lg_mark_ring *r, int fd, struct lg_error *err)
{
	struct lg_mark_ring n = { .fd = fd, .pos = 1, .settled = 1 };
	uint64_t size, start;
	struct stat st;

#if !defined(__x86_64__) && !defined(__i386__)
	n.delayed = true;
#endif
	if (fstat(fd, &st))
		return lg_fail_errno(err, errno, "mark ring");
	if (read_at(fd, n.header, sizeof n.header, 0) != sizeof n.header)
		return lg_fail(err, LG_E_FORMAT, 0, "mark ring: shorter than its header");
	if ((uint64_t)n.header[LAG_MARK_H_MAGIC] != LAG_MARK_MAGIC)
		return lg_fail(err, LG_E_FORMAT, 0, "mark ring: wrong magic");
	if (n.header[LAG_MARK_H_VERSION] != LAG_MARK_VERSION)
		return lg_fail(err, LG_E_UNSUPPORTED, 8, "mark ring: version %lld is not known",
			       (long long)n.header[LAG_MARK_H_VERSION]);
	size = (uint64_t)n.header[LAG_MARK_H_SIZE];
	n.slots = (uint64_t)n.header[LAG_MARK_H_SLOTS];
	n.slots_off = (uint64_t)n.header[LAG_MARK_H_SLOTS_OFF];
	n.names_off = (uint64_t)n.header[LAG_MARK_H_NAMES_OFF];
	n.names_cap = (uint64_t)n.header[LAG_MARK_H_NAMES_CAP];
	if (size > MAX_SIZE || n.slots > MAX_SLOTS)
		return lg_fail(err, LG_E_LIMIT, LAG_MARK_H_SIZE * 8, "mark ring: too large");
	if (n.slots == 0 || n.slots & (n.slots - 1))
		return lg_fail(err, LG_E_FORMAT, LAG_MARK_H_SLOTS * 8,
			       "mark ring: the number of slots is not a power of two");
	start = LAG_MARK_H_WORDS * sizeof(int64_t);
	if (st.st_size < 0 || (uint64_t)st.st_size < size || n.slots_off < start ||
	    n.names_off < start || n.slots_off > size || n.names_off > size || n.slots_off % 8 ||
	    n.names_off % 8 || n.slots * 64 > size - n.slots_off ||
	    n.names_cap > size - n.names_off)
		return lg_fail(err, LG_E_FORMAT, LAG_MARK_H_SLOTS_OFF * 8,
			       "mark ring: an area lies outside the file");
	*r = n;
	return 0;
}

/* Read want slots from index pos on, at most up to the end of the ring; returns how many. */
static size_t load(const struct lg_mark_ring *r, uint64_t pos, struct lg_mark_slot *buf, size_t want)
{
	uint64_t at = pos & (r->slots - 1);

	if (want > r->slots - at)
		want = (size_t)(r->slots - at);
	return read_at(r->fd, buf, want * sizeof *buf, r->slots_off + at * sizeof *buf) / sizeof *buf;
}

/* Is the slot of index i taken by it, and by no earlier or later one? */
static bool holds(const struct lg_mark_ring *r, uint64_t i)
{
	struct lg_mark_slot slot;

	return load(r, i, &slot, 1) == 1 && slot.head == i;
}

/*
 * The writer has come round, and left `head` where we are: go on with the oldest slots it will not reach
 * soon.
 * Behind that slot stand the indexes that follow, up to the newest one: it is searched for by halves, because
 * who has thousands of large rings must not have each read whole, over and over.
 */
static uint64_t skip_overwritten(struct lg_mark_ring *r, uint64_t head)
{
	uint64_t below = r->slots, last = head, oldest, lost;

	if (head <= r->pos || head >= MAX_INDEX || (head - r->pos) & (r->slots - 1))
		return 0;
	while (below - (last - head) > 1) {
		uint64_t middle = (last - head) + (below - (last - head)) / 2;

		if (holds(r, head + middle))
			last = head + middle;
		else
			below = middle;
	}
	oldest = last - r->slots + 1 + r->slots / 8;
	if (oldest > last)
		oldest = last;
	if (oldest <= r->pos)
		return 0;
	lost = oldest - r->pos;
	r->pos = oldest;
	r->stuck = 0;
	return lost;
}

/*
 * pos was taken by a writer that has not completed it: it is about to, or it was killed in
 * between. Wait a while for the slots behind it; then go on with the first complete one.
 */
static uint64_t skip_abandoned(struct lg_mark_ring *r, const struct lg_mark_slot *buf, size_t n,
			       bool final)
{
	for (size_t j = 1; j < n; j++) {
		if (buf[j].tail != r->pos + j || buf[j].head != r->pos + j)
			continue;
		if (!final && ++r->stuck < STUCK_READS)
			return 0;
		r->pos += j;
		r->stuck = 0;
		return j;
	}
	return 0;
}

/* How many slots from pos on show their index at both ends, those from limit on not counted. */
static size_t whole_slots(const struct lg_mark_slot *slots, size_t n, uint64_t pos, uint64_t limit)
{
	size_t k;

	for (k = 0; k < n && pos + k < limit && slots[k].tail == pos + k && slots[k].head == pos + k; k++)
		;
	return k;
}

static uint64_t settled_end(const struct lg_mark_ring *r)
{
	struct lg_mark_slot buf[CHUNK];
	uint64_t pos = r->settled > r->pos ? r->settled : r->pos, end = pos + r->slots;

	while (pos < end) {
		size_t n = load(r, pos, buf, CHUNK), k = whole_slots(buf, n, pos, UINT64_MAX);

		pos += k;
		if (k == 0 || k < n)
			break;
	}
	return pos;
}

size_t lg_mark_ring_read(struct lg_mark_ring *r, struct lg_mark_slot *ret, size_t max, bool final,
			 uint64_t *ret_lost)
{
	struct lg_mark_slot buf[CHUNK], again[CHUNK];
	uint64_t limit = UINT64_MAX;
	size_t done = 0, want = 16; /* most reads find little */

	*ret_lost = 0;
	if (r->delayed && !final) {
		limit = r->settled;
		r->settled = settled_end(r);
	}
	while (done < max && r->pos < limit) {
		size_t n, m, k, whole;

		if (want > max - done)
			want = max - done;
		n = load(r, r->pos, buf, want);
		whole = whole_slots(buf, n, r->pos, limit);
		m = whole ? load(r, r->pos, again, whole) : 0;
		for (k = 0; k < m && again[k].head == r->pos; k++) {
			ret[done++] = buf[k];
			r->pos++;
		}
		if (k)
			r->stuck = 0;
		want = CHUNK;
		if (k == n && n)
			continue; /* wrapped, or simply more to come */
		if (done || n == 0 || r->pos >= limit)
			break; /* trouble at pos is the next call's: lost slots come first */
		{
			uint64_t lost = skip_overwritten(r, k < m ? again[k].head : buf[k].head);

			if (!lost) {
				n = load(r, r->pos, buf, CHUNK);
				if (n < CHUNK) /* the end of the ring: go on at its start */
					n += load(r, r->pos + n, buf + n, CHUNK - n);
				lost = skip_abandoned(r, buf, n, final);
			}
			if (!lost)
				break;
			*ret_lost += lost;
			if (*ret_lost > lost)
				break; /* twice in one call: leave the rest for the next */
		}
	}
	return done;
}

bool lg_mark_ring_header(struct lg_mark_ring *r)
{
	static const unsigned watched[] = { LAG_MARK_H_ROLE, LAG_MARK_H_RANK, LAG_MARK_H_WORLD,
					    LAG_MARK_H_LOCAL_RANK, LAG_MARK_H_FLAGS,
					    LAG_MARK_H_NAMES_LOST };
	int64_t now[LAG_MARK_H_WORDS];
	bool changed = false;

	if (read_at(r->fd, now, sizeof now, 0) != sizeof now)
		return false;
	for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) {
		changed |= r->header[watched[i]] != now[watched[i]];
		r->header[watched[i]] = now[watched[i]];
	}
	return changed;
}

size_t lg_mark_ring_name(const struct lg_mark_ring *r, uint32_t id, char *buf, size_t size)
{
	uint64_t at = ((uint64_t)id - 1) * 8;
	uint32_t len;

	if (id == 0 || at + sizeof len > r->names_cap ||
	    read_at(r->fd, &len, sizeof len, r->names_off + at) != sizeof len)
		return 0;
	if (len > r->names_cap - at - sizeof len)
		return 0;
	if (len > size)
		len = (uint32_t)size;
	return read_at(r->fd, buf, len, r->names_off + at + sizeof len);
}
