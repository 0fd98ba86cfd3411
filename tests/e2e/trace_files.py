# SPDX-License-Identifier: Apache-2.0
"""Read what `laggard convert` writes: strict Chrome JSON, and Perfetto protobuf from the wire up."""
import collections
import decimal
import gzip
import json
import struct

Slice = collections.namedtuple("Slice", "track start end name cat")


def strict_json(data):
    """json.loads that refuses NaN, repeated keys and anything that is not UTF-8."""
    def pairs(items):
        keys = [k for k, _ in items]
        assert len(keys) == len(set(keys)), f"repeated key in {keys}"
        return dict(items)

    def constant(text):
        raise AssertionError(f"{text} is not JSON")
    return json.loads(data.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant,
                      parse_float=decimal.Decimal)


def check_nesting(slices):
    """Slices of one track, in file order: each lies within the last one that is still open."""
    stack = []
    last = None
    for s in slices:
        assert s.end >= s.start
        assert last is None or s.start >= last, f"{s} goes back in time"
        last = s.start
        while stack and stack[-1].end <= s.start:
            stack.pop()
        assert not stack or s.end <= stack[-1].end, f"{s} leaves {stack[-1]}"
        stack.append(s)


class Chrome:
    def __init__(self, path):
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        self.text = data
        self.doc = strict_json(data)
        self.start = int(self.doc["otherData"]["start_ns"])
        self.events = self.doc["traceEvents"]
        self.names = {}
        self.process_names = {}
        for e in self.of("M"):
            if e["name"] == "thread_name":
                assert (e["pid"], e["tid"]) not in self.names
                self.names[e["pid"], e["tid"]] = e["args"]["name"]
            elif e["name"] == "process_name":
                assert e["pid"] not in self.process_names
                self.process_names[e["pid"]] = e["args"]["name"]

    def of(self, *phases):
        return [e for e in self.events if e["ph"] in phases]

    def ns(self, value):
        ns = decimal.Decimal(value) * 1000
        assert ns == int(ns), f"{value} is finer than a nanosecond"
        return int(ns)

    def nested(self):
        """The B events with the "dur" that their E's give them, paired as readers do: by thread, in file order,
        which is that of time."""
        assert not self.of("X")
        out = []
        stacks = collections.defaultdict(list)
        last = {}
        for e in self.of("B", "E"):
            track = (e["pid"], e["tid"])
            assert last.get(track, 0) <= e["ts"], f"{e} goes back in time"
            last[track] = e["ts"]
            if e["ph"] == "B":
                stacks[track].append(dict(e))
                out.append(stacks[track][-1])
                continue
            begun = stacks[track].pop()
            assert begun["name"] == e["name"] and not e.get("args")
            begun["dur"] = e["ts"] - begun["ts"]
            begun["end"] = e
            assert begun["dur"] > 0, "speedscope cannot tell where a slice of length 0 belongs"
        assert not any(stacks.values())
        return out

    def slices(self):
        """Nested and async slices, by absolute ns."""
        out = []
        for e in self.nested():
            ts = self.start + self.ns(e["ts"])
            out.append(Slice((e["pid"], e["tid"]), ts, ts + self.ns(e["dur"]), e["name"], e["cat"]))
        begun = {}
        for e in self.of("b", "e"):
            track = (e["pid"], e["tid"])
            ts = self.start + self.ns(e["ts"])
            if e["ph"] == "b":
                assert e["id2"]["local"] not in begun
                begun[e["id2"]["local"]] = (track, ts, e["name"], e["cat"])
            else:
                track, start, name, cat = begun.pop(e["id2"]["local"])
                assert (name, cat) == (e["name"], e["cat"])
                out.append(Slice(track, start, ts, name, cat))
        assert not begun
        return out

    def tracks(self):
        by_track = collections.defaultdict(list)
        for e in self.nested():
            ts = self.ns(e["ts"])
            by_track[e["pid"], e["tid"]].append(
                Slice(None, ts, ts + self.ns(e["dur"]), e["name"], e["cat"]))
        return by_track


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def fields(data):
    """Field number -> list of values (int, or bytes) of one message."""
    out = collections.defaultdict(list)
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            value = data[at:at + 8]
            assert len(value) == 8
            at += 8
        elif wire == 2:
            size, at = varint(data, at)
            value = data[at:at + size]
            assert len(value) == size, "a length runs past the end"
            at += size
        else:
            raise AssertionError(f"wire type {wire}")
        out[tag >> 3].append(value)
    return out


INDICES = (1, 2, 3, 5, 6, 7, 17, 18, 19, 29, 48)


class Perfetto:
    """One packet sequence, read as Perfetto's own reader does: interned data by index, events
    sorted by time with file order for equal times."""

    def __init__(self, path):
        trace = fields(path.read_bytes())
        assert set(trace) <= {1}
        self.interned = {i: {} for i in INDICES}
        self.tracks = {}
        self.events = []
        self.samples = []
        self.snapshots = []
        self.n_for_others = 0
        sample_defaults = default_track = None
        for n, packet in enumerate(map(fields, trace[1])):
            flags = packet[13][0]
            assert flags == (1 if n == 0 else 2)
            assert packet[10] == [1]
            if packet[59]:  # all defaults anew, for what comes behind it
                defaults = fields(packet[59][0])
                assert defaults[58] == [3]
                sample_defaults = sample_defaults or defaults[100]
                assert sample_defaults and defaults[100] == sample_defaults
                default_track = fields(defaults[11][0])[11] if defaults[11] else []
            for data in packet[12]:
                for field, entries in fields(data).items():
                    for raw in entries:
                        entry = fields(raw)
                        assert entry[1][0] not in self.interned[field], "an id is reused"
                        self.interned[field][entry[1][0]] = entry
            self.n_for_others += not any(packet[f] for f in (6, 11, 60, 135))
            assert any(packet[f] for f in (6, 11, 12, 59, 60, 117, 135))
            if packet[60]:
                self.add_track(fields(packet[60][0]))
            if packet[11]:
                event = fields(packet[11][0])
                event[11] = event[11] or default_track
                self.events.append((packet[8][0], event))
            if packet[135]:
                self.samples.append((packet[8][0], fields(packet[135][0])))
            if packet[6]:
                self.snapshots.append({fields(c)[1][0]: fields(c)[2][0]
                                       for c in fields(packet[6][0])[1]})
        self.events.sort(key=lambda e: e[0])

    def add_track(self, d):
        uuid = d[1][0]
        assert uuid and uuid not in self.tracks
        if d[5]:
            assert d[5][0] in self.tracks, "a child before its parent"
        self.tracks[uuid] = d

    def place(self, uuid):
        """(pid, tid, name) of a track; tid None: of the process; name "": the thread's own."""
        d = self.tracks[uuid]
        name = "" if d[4] else d[2][0].decode("utf-8")
        while not d[3] and not d[4]:
            d = self.tracks[d[5][0]]
        owner = fields((d[4] or d[3])[0])
        return owner[1][0], owner[2][0] if d[4] else None, name

    def text(self, index, iid):
        return self.interned[index][iid][2][0].decode("utf-8")

    def name(self, event):
        return self.text(2, event[10][0])

    def cat(self, event):
        return self.text(1, event[3][0])

    def args(self, event):
        out = {}
        for raw in event[4]:
            a = fields(raw)
            if a[17]:
                value = self.text(29, a[17][0])
            elif a[5]:
                value = struct.unpack("<d", a[5][0])[0]
            else:
                value = a[4][0] - (1 << 64 if a[4][0] >> 63 else 0)
            out[self.text(3, a[1][0])] = value
        return out

    def slices(self):
        """Pairs BEGIN with END by track, and checks that every track is left closed."""
        out = []
        stacks = collections.defaultdict(list)
        for ts, e in self.events:
            track = e[11][0]
            assert track in self.tracks
            if e[9] == [1]:
                stacks[track].append((ts, self.name(e), self.cat(e)))
            elif e[9] == [2]:
                start, name, cat = stacks[track].pop()
                out.append(Slice(track, start, ts, name, cat))
        assert not any(stacks.values())
        return out

    def of_type(self, kind):
        return [(ts, e) for ts, e in self.events if e[9] == [kind]]

    def flows(self):
        """Flow id -> [(ts, track), (ts, track)]: source, target."""
        out = collections.defaultdict(lambda: [None, None])
        for ts, e in self.of_type(3):
            for end, field in ((0, 47), (1, 48)):
                for raw in e[field]:
                    flow = struct.unpack("<Q", raw)[0]
                    assert flow >= 1 << 32, "readers number the arrows of LegacyEvents from 0 on"
                    assert out[flow][end] is None
                    assert not end or out[flow][0], "readers take the first for where it begins"
                    out[flow][end] = (ts, e[11][0])
        for ts, e in self.events:
            for raw in e[6]:
                legacy = fields(raw)
                end = "sf".index(chr(legacy[2][0]))
                flow, = legacy[6]
                assert not e[9] and out[flow][end] is None and legacy[12] == [1] * end
                assert not end or out[flow][0], "readers take the first for where it begins"
                out[flow][end] = (ts, e[11][0])
        return out
