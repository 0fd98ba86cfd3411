// SPDX-License-Identifier: Apache-2.0
// Flame graphs of the selection: on the CPU, off it, and slow steps beside typical ones.
import { frames, type Samples, type Stacks } from "./data";
import { inkOn, palette } from "./colours";
import { clear, el, fit, table, time } from "./dom";
import type { Store } from "./store";

export type Kind = "on" | "off" | "slow";
interface Node { name: string; a: number; b: number; kids: Map<string, Node> }

const LINE = 16;

// a: the weight shown; b: that of typical steps, for the comparison.
function add(root: Node, names: string[], a: number, b: number) {
	let n = root;
	n.a += a;
	n.b += b;
	for (const name of names) {
		let k = n.kids.get(name);
		if (!k)
			n.kids.set(name, k = { name, a: 0, b: 0, kids: new Map() });
		k.a += a;
		k.b += b;
		n = k;
	}
}

export class Flame {
	readonly root = el("div", { class: "flame" });
	private canvas = el("canvas", { role: "img", "aria-label": "Flame graph" });
	private note = el("p", { class: "note" });
	private twin = el("div", { class: "wide" });
	private boxes: { x: number; y: number; w: number; n: Node }[] = [];
	private made = "";
	private others = false; // there is nothing of the job
	private top: Node | null = null;
	private zoomed: Node | null = null;
	kind: Kind = "on";
	job = true;

	constructor(private s: Store, private tip: HTMLElement) {
		this.root.append(this.canvas, this.note, this.twin);
		this.canvas.addEventListener("pointermove", e => {
			const r = this.canvas.getBoundingClientRect(), b = this.find(e.clientX - r.left, e.clientY - r.top);
			this.tip.hidden = !b;
			if (!b)
				return;
			clear(this.tip);
			this.tip.append(el("b", {}, b.n.name), el("div", {}, this.words(b.n)));
			this.tip.style.left = Math.min(e.clientX + 14, window.innerWidth - this.tip.offsetWidth - 8) + "px";
			this.tip.style.top = e.clientY + 16 + "px";
		});
		this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
		this.canvas.addEventListener("click", e => {
			const r = this.canvas.getBoundingClientRect(), b = this.find(e.clientX - r.left, e.clientY - r.top);
			this.zoomed = b && b.n !== this.zoomed ? b.n : null;
			this.draw();
		});
	}

	private find(x: number, y: number) {
		return this.boxes.find(b => x >= b.x && x < b.x + b.w && y >= b.y && y < b.y + LINE);
	}
	private words(n: Node): string {
		const all = this.top ? this.top.a : 1;
		return this.kind === "slow" ? `${time(n.a)} a slow step, ${time(n.b)} a typical one: ${n.a >= n.b ? "+" : "-"}${time(Math.abs(n.a - n.b))}`
			: `${time(n.a)}, ${(100 * n.a / Math.max(all, 1)).toFixed(1)} %`;
	}

	async update(range: [number, number] | null) {
		const key = `${this.kind} ${this.job} ${range ? range.join("-") : ""}`;
		if (key === this.made)
			return;
		this.made = key;
		const stacks = await this.s.stacks(), from = this.kind === "off" ? await this.s.waits() : await this.s.samples();
		if (key !== this.made)
			return;
		this.top = this.sum(from, stacks, range, this.job);
		this.others = this.job && !this.top.a && !this.top.b;
		if (this.others)
			this.top = this.sum(from, stacks, range, false);
		this.zoomed = null;
		this.draw();
		this.lists();
	}

	private sum(v: Samples, stacks: Stacks, range: [number, number] | null, job: boolean): Node {
		const root: Node = { name: "all", a: 0, b: 0, kids: new Map() }, [from, to] = range ?? [0, this.s.meta.length];
		const cache = new Map<number, string[]>(), slow = this.s.steps.filter(s => s.slow).length;
		const typical = this.s.steps.filter(s => !s.slow && !s.warmup).length;
		const side = this.kind === "slow" ? this.sides() : null;
		for (let i = 0; i < v.ts.length; i++) {
			const t = this.s.meta.threads[v.thr[i] - 1];
			if (!t || (job && t[4] < 0 && this.s.meta.threads.some(x => x[4] >= 0)))
				continue;
			let w = v.weight[i], other = 0;
			if (side) {
				const k = side(v.ts[i]);
				other = k === 2 && typical ? w / typical : 0;
				w = k === 1 && slow ? w / slow : 0;
				if (!w && !other)
					continue;
			} else if (this.kind === "off") {
				w = Math.min(v.ts[i] + v.dur[i], to) - Math.max(v.ts[i], from);
			} else if (v.ts[i] < from || v.ts[i] >= to) {
				continue;
			}
			if (w <= 0 && !other)
				continue;
			let names = cache.get(v.stack[i]);
			if (!names)
				cache.set(v.stack[i], names = frames(stacks, v.stack[i], 120).reverse());
			add(root, [t[4] >= 0 ? `rank ${t[4]}: ${t[3]}` : `${t[3]} (pid ${t[1]})`, ...names], w, other);
		}
		return root;
	}

	// 1: in a slow step of any rank, 2: in a typical one.
	private sides(): (t: number) => number {
		const edges = this.s.steps.filter(s => s.slow).map(s => [s.ts, s.ts + s.dur]).sort((x, y) => x[0] - y[0]);
		const first = Math.min(...this.s.steps.filter(s => !s.warmup).map(s => s.ts), Infinity);
		const last = this.s.steps.reduce((m, s) => Math.max(m, s.ts + s.dur), 0);
		return t => t < first || t > last ? 0 : edges.some(([a, b]) => t >= a && t < b) ? 1 : 2;
	}

	draw() {
		const p = palette(), width = Math.max(this.root.clientWidth, 300), top = this.zoomed ?? this.top;
		this.boxes = [];
		if (!top || (!top.a && !top.b)) {
			this.canvas.hidden = true;
			this.note.textContent = this.kind === "off" ? "No waits with a stack in the selection." :
				this.kind === "slow" ? "No samples in slow steps." : "No CPU samples in the selection.";
			return;
		}
		this.canvas.hidden = false;
		const deep = (n: Node, total: number): number => n.kids.size ? 1 + Math.max(...[...n.kids.values()]
			.map(k => (k.a + k.b) / total * width < 1 ? 0 : deep(k, total))) : 1;
		const total = top.a + (this.kind === "slow" ? top.b : 0), levels = Math.min(deep(top, total || 1), 60);
		const g = fit(this.canvas, width, levels * LINE + 2);
		g.fillStyle = p.ground;
		g.fillRect(0, 0, width, levels * LINE + 2);
		g.font = "11px system-ui, sans-serif";
		g.textBaseline = "middle";
		const put = (n: Node, x: number, w: number, d: number) => {
			if (w < 0.6 || d >= levels)
				return;
			const y = d * LINE, fill = this.fill(n, d);
			g.fillStyle = fill;
			g.fillRect(x, y, Math.max(w - 0.6, 0.6), LINE - 1);
			if (w > 34) {
				const fits = Math.floor((w - 6) / 5.9);
				g.fillStyle = inkOn(fill);
				g.fillText(n.name.length > fits ? n.name.slice(0, fits - 1) + "\u2026" : n.name, x + 3, y + LINE / 2);
			}
			this.boxes.push({ x, y, w, n });
			let at = x;
			const weight = (k: Node) => k.a + (this.kind === "slow" ? k.b : 0);
			for (const k of [...n.kids.values()].sort((u, v) => weight(v) - weight(u))) {
				const kw = weight(k) / Math.max(weight(n), 1e-9) * w;
				put(k, at, kw, d + 1);
				at += kw;
			}
		};
		put(top, 0, width, 0);
		this.canvas.setAttribute("aria-label", `Flame graph, the outermost function above; ${this.words(top)}. The table below has its largest functions.`);
		const every = this.s.meta.every > 1 && this.kind !== "off" ? ` Every ${this.s.meta.every}th sample, weighted.` : "";
		const left = this.kind === "off" && this.s.meta.waits_left ? ` Shorter waits, ${time(this.s.meta.waits_left)} of all threads together, are left out.` : "";
		this.note.textContent = (this.kind === "slow" ? "Widths are slow and typical steps together; orange: more in slow steps, blue: less." :
			"Outermost function above; click to zoom.") + every + left + (this.others ? " Nothing of the job: all processes." : "");
	}

	private fill(n: Node, depth: number): string {
		if (this.kind === "slow") {
			const d = (n.a - n.b) / Math.max(n.a + n.b, 1e-9);
			const mix = (to: number[], k: number) => "#" + to.map(c => Math.round(235 + (c - 235) * k).toString(16).padStart(2, "0")).join("");
			return d >= 0 ? mix([214, 110, 20], d) : mix([0, 100, 170], -d);
		}
		let h = depth;
		for (let i = 0; i < n.name.length; i++)
			h = (h * 31 + n.name.charCodeAt(i)) | 0;
		const c = this.kind === "off" ? ["#a9c4dc", "#93b3cf", "#bcd2e4", "#86a9c8"] : ["#e9b872", "#e3a857", "#efc78d", "#d99a46"];
		return c[Math.abs(h) % 4];
	}

	private lists() {
		clear(this.twin);
		if (!this.top || (!this.top.a && !this.top.b))
			return;
		const self = new Map<string, [number, number]>();
		const walk = (n: Node, root: boolean) => {
			let a = n.a, b = n.b;
			n.kids.forEach(k => { a -= k.a; b -= k.b; walk(k, false); });
			if (!root && (a > 0 || b > 0)) {
				const v = self.get(n.name) ?? [0, 0];
				self.set(n.name, [v[0] + a, v[1] + b]);
			}
		};
		walk(this.top, true);
		const slow = this.kind === "slow", all = this.top.a || 1;
		const rows = [...self.entries()].sort((x, y) => slow ? y[1][0] - y[1][1] - x[1][0] + x[1][1] : y[1][0] - x[1][0]).slice(0, 12)
			.map(([name, [a, b]]) => slow ? [name, time(a), time(b), (a >= b ? "+" : "-") + time(Math.abs(a - b))] :
				[name, time(a), (100 * a / all).toFixed(1)]);
		this.twin.append(table(slow ? ["function", "a slow step", "a typical step", "difference"] : ["function", "itself", "%"], rows));
	}
}
