// SPDX-License-Identifier: Apache-2.0
// Data blocks of the page: base64, gzip, columns of variable-length integers (src/picture/pack.h).

export interface Meta {
	layout: number; length: number; whole: number; period: number | null; bucket: number;
	samples: number; waits: number; active: number; steps: number; stacks: number; names: number;
	n_steps: number; n_samples: number; every: number; n_waits: number; waits_left: number; lanes_left: number; marks_left: number;
	n_accused: number; active_names: string[]; stages: string[];
	slots: [string, number, number][];                               // name, kind of part, is it a cause
	lanes: [string, string, number, number, number, number, number][]; // group, name, kind, thread, depths, folded, marks
	blocks: [number, number, number, number, number][];              // id, level, from, to, marks
	losses: [number, number, string][];
	threads: [number, number, string, string, number][];             // tid, pid, name, process, rank
}

export const enum Row { Account, Spans, Locks, States, Device, Cpu, Samples }

export interface Seg { lane: number; depth: number; from: number; to: number }

export interface Marks {
	segs: Seg[]; ts: Float64Array; dur: Float64Array; name: Uint32Array; kind: Uint8Array; tone: Uint8Array;
	a: Float64Array; stack: Uint32Array; n: Uint32Array;
}

function bytesOf(id: number): Blob {
	const el = document.getElementById("b" + id);
	if (!el || el.tagName !== "SCRIPT")
		throw new Error("data block " + id + " is missing");
	const text = el.textContent || "";
	const raw = atob(text), out = new Uint8Array(raw.length);
	for (let i = 0; i < raw.length; i++)
		out[i] = raw.charCodeAt(i);
	return new Blob([out]);
}

export async function block(id: number): Promise<Uint8Array> {
	const stream = bytesOf(id).stream().pipeThrough(new DecompressionStream("gzip"));
	return new Uint8Array(await new Response(stream).arrayBuffer());
}

export async function json<T>(id: number): Promise<T> {
	return JSON.parse(new TextDecoder().decode(await block(id))) as T;
}

// One column. A number may have up to 53 bits, so no shifts beyond 28.
class Column {
	constructor(private b: Uint8Array, private at: number, readonly end: number) {}
	get more() { return this.at < this.end; }
	next(): number {
		let v = 0, by = 1, c;
		do {
			c = this.b[this.at++];
			v += (c & 127) * by;
			by *= 128;
		} while (c & 128);
		return v;
	}
	signed(): number {
		const v = this.next();
		return v % 2 ? -(v + 1) / 2 : v / 2;
	}
}

export function columns(b: Uint8Array): Column[] {
	const d = new DataView(b.buffer, b.byteOffset, b.byteLength);
	const n = d.getUint32(0, true), out: Column[] = [];
	let at = 4 * (n + 1);
	if (at > b.length)
		throw new Error("a data block is cut");
	for (let i = 0; i < n; i++) {
		const len = d.getUint32(4 * (i + 1), true);
		if (at + len > b.length)
			throw new Error("a data block is cut");
		out.push(new Column(b, at, at + len));
		at += len;
	}
	return out;
}

export function marks(b: Uint8Array, from: number, n: number): Marks {
	const c = columns(b);
	const m: Marks = { segs: [], ts: new Float64Array(n), dur: new Float64Array(n), name: new Uint32Array(n),
		kind: new Uint8Array(n), tone: new Uint8Array(n), a: new Float64Array(n), stack: new Uint32Array(n),
		n: new Uint32Array(n) };
	let at = 0;
	while (c[0].more) {
		const seg: Seg = { lane: c[0].next(), depth: c[0].next(), from: at, to: at + c[0].next() };
		let last = from;
		for (; at < seg.to; at++) {
			m.ts[at] = last + c[1].signed();
			m.dur[at] = c[2].next();
			last = m.ts[at] + m.dur[at];
			m.name[at] = c[3].next();
			m.kind[at] = c[4].next();
			m.tone[at] = c[5].next();
			m.a[at] = c[6].next();
			m.stack[at] = c[7].next();
			m.n[at] = c[8].next();
		}
		m.segs.push(seg);
	}
	return m;
}

// First mark of the segment that ends after t.
export function firstAfter(m: Marks, seg: Seg, t: number): number {
	let lo = seg.from, hi = seg.to;
	while (lo < hi) {
		const mid = (lo + hi) >> 1;
		if (m.ts[mid] + m.dur[mid] <= t && !(m.dur[mid] === 0 && m.ts[mid] === t))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

export interface Step {
	number: number; rank: number; ts: number; dur: number; median: number; slow: boolean; warmup: boolean;
	own: number; late: number; slots: number[]; stages: number[];
	device: number[]; // ns: computing, exposed communication, exposed copies, idle; empty: not known
}

export function steps(b: Uint8Array, n: number, nSlots: number, nStages: number): Step[] {
	const c = columns(b), out: Step[] = [];
	let last = 0;
	for (let i = 0; i < n; i++) {
		const number = c[0].signed(), rank = c[1].signed();
		last += c[2].signed();
		const dur = c[3].next(), median = c[4].next(), flags = c[5].next(), own = c[6].signed(), late = c[7].signed();
		const slots: number[] = [], stages: number[] = [];
		for (let k = 0; k < nSlots; k++)
			slots.push(c[8 + k].signed());
		for (let k = 0; k < nStages; k++)
			stages.push(c[8 + nSlots + k].signed());
		const device = [0, 1, 2, 3].map(k => c[8 + nSlots + nStages + k].signed());
		out.push({ device: device[3] < 0 ? [] : device, number, rank, ts: last, dur, median, slow: !!(flags & 1), warmup: !!(flags & 2), own, late, slots, stages });
	}
	return out;
}

export interface Stacks { stack: number[]; frame: string[]; kind: number[] }

// Innermost first.
export function frames(s: Stacks, id: number, most = 256): string[] {
	const out: string[] = [];
	while (id > 0 && out.length < most) {
		const f = s.stack[2 * (id - 1) + 1];
		out.push(s.frame[f - 1] ?? "?");
		id = s.stack[2 * (id - 1)];
	}
	return out;
}

export interface Samples { ts: Float64Array; dur: Float64Array; thr: Uint32Array; stack: Uint32Array; weight: Float64Array }

export function samples(b: Uint8Array, waits: boolean): Samples {
	const c = columns(b);
	const ts: number[] = [], dur: number[] = [], thr: number[] = [], stack: number[] = [], weight: number[] = [];
	let last = 0;
	while (c[0].more) {
		last += c[0].signed();
		ts.push(last);
		const d = waits ? c[1].next() : 0;
		dur.push(d);
		thr.push(waits ? c[2].next() : c[1].next());
		stack.push(waits ? c[3].next() : c[2].next());
		weight.push(waits ? d : c[3].next());
	}
	return { ts: Float64Array.from(ts), dur: Float64Array.from(dur), thr: Uint32Array.from(thr),
		stack: Uint32Array.from(stack), weight: Float64Array.from(weight) };
}

export function active(b: Uint8Array): Float64Array[] {
	return columns(b).map(c => {
		const v: number[] = [];
		while (c.more)
			v.push(c.next());
		return Float64Array.from(v);
	});
}
