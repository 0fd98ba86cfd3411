// SPDX-License-Identifier: Apache-2.0
// What the page holds, decoded when it is first needed, and the one selection that drives every view.
import * as data from "./data";
import type { Marks, Meta, Samples, Stacks, Step } from "./data";

export interface Piece { marks: Marks; from: number; to: number; level: number }
export interface Picked { lane: number; depth: number; ts: number; dur: number; name: number; kind: number; tone: number; a: number;
	stack: number; n: number }

export class Store {
	steps: Step[] = [];
	names: string[] = [];
	view: [number, number];
	range: [number, number] | null = null;
	picked: Picked | null = null;
	find = "";
	failed = "";
	private decoded = new Map<number, Marks>();
	private asked = new Set<number>();
	private waiting: number[] = [];
	private running = 0;
	private kept = new Map<string, Promise<unknown>>();
	private watchers: (() => void)[] = [];
	private timer = 0;

	constructor(readonly meta: Meta) {
		this.view = [0, Math.max(meta.length, 1)];
	}

	watch(f: () => void) { this.watchers.push(f); }

	// Once a frame, however much changed.
	changed() {
		if (!this.timer)
			this.timer = requestAnimationFrame(() => {
				this.timer = 0;
				for (const f of this.watchers)
					f();
			});
	}

	private once<T>(key: string, make: () => Promise<T>): Promise<T> {
		let p = this.kept.get(key) as Promise<T> | undefined;
		if (!p) {
			p = make();
			this.kept.set(key, p);
		}
		return p;
	}
	stacks() { return this.once("stacks", () => data.json<Stacks>(this.meta.stacks)); }
	samples() { return this.once<Samples>("samples", async () => data.samples(await data.block(this.meta.samples), false)); }
	waits() { return this.once<Samples>("waits", async () => data.samples(await data.block(this.meta.waits), true)); }
	active() { return this.once("active", async () => data.active(await data.block(this.meta.active))); }

	async load() {
		const m = this.meta;
		this.steps = data.steps(await data.block(m.steps), m.n_steps, m.slots.length, m.stages.length);
		this.names = await data.json<string[]>(m.names);
	}

	name(id: number): string { return id > 0 ? this.names[id - 1] ?? "?" : ""; }
	thread(id: number): string {
		const t = id > 0 ? this.meta.threads[id - 1] : undefined;
		if (!t)
			return "";
		const who = t[2] || t[3] || "thread";
		return `${who} (pid ${t[1]}${t[0] !== t[1] ? ", tid " + t[0] : ""}${t[4] >= 0 ? ", rank " + t[4] : ""})`;
	}

	setView(a: number, b: number) {
		const all = Math.max(this.meta.length, 1), least = Math.min(1000, all);
		let len = Math.min(Math.max(b - a, least), all * 1.02);
		let from = a + (b - a - len) / 2;
		from = Math.min(Math.max(from, -0.01 * all), all * 1.01 - len);
		if (!isFinite(from) || !isFinite(len)) {
			from = 0;
			len = all;
		}
		this.view = [from, from + len];
		this.changed();
	}
	select(a: number, b: number) {
		const lo = Math.max(0, Math.min(a, b)), hi = Math.min(this.meta.length, Math.max(a, b));
		this.range = hi > lo ? [lo, hi] : null;
		this.changed();
	}

	private next() {
		while (this.running < 3 && this.waiting.length) {
			const id = this.waiting.pop()!; // what was asked last is looked at now
			const info = this.meta.blocks.find(b => b[0] === id)!;
			this.running++;
			data.block(id).then(b => this.decoded.set(id, data.marks(b, info[2], info[4])),
				e => { this.failed = "part of the timeline cannot be read: " + (e as Error).message; })
				.then(() => {
					this.running--;
					this.next();
					this.changed();
				});
		}
	}
	want(id: number): Marks | undefined {
		const m = this.decoded.get(id);
		if (!m && !this.asked.has(id)) {
			this.asked.add(id);
			this.waiting.push(id);
			this.next();
		}
		return m;
	}
	get busy() { return this.running > 0 || this.waiting.length > 0; }

	// What covers [a, b) at that many ns a pixel: the level whose buckets are two pixels at most, where it is there; else a
	// coarser one.
	pieces(a: number, b: number, nsPerPixel: number): Piece[] {
		const levels = [...new Set(this.meta.blocks.map(x => x[1]))].sort((x, y) => x - y);
		let ideal = levels.length ? levels[0] : 0;
		for (const k of levels)
			if (2 ** k <= 2 * nsPerPixel)
				ideal = k;
		let open: [number, number][] = [[a, b]];
		const out: Piece[] = [];
		for (const k of levels.filter(x => x >= ideal)) {
			for (const [id, level, from, to] of this.meta.blocks) {
				if (level !== k || !open.some(([x, y]) => from < y && to > x))
					continue;
				const m = this.want(id);
				if (!m)
					continue;
				const rest: [number, number][] = [];
				for (const [x, y] of open) {
					const lo = Math.max(x, from), hi = Math.min(y, to);
					if (lo >= hi) {
						rest.push([x, y]);
						continue;
					}
					out.push({ marks: m, from: lo, to: hi, level: k });
					if (x < lo)
						rest.push([x, lo]);
					if (hi < y)
						rest.push([hi, y]);
				}
				open = rest;
			}
		}
		return out;
	}
}
