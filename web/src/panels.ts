// SPDX-License-Identifier: Apache-2.0
// What the selection holds: its steps and their exact account, who ran, flame graphs; and the run folded.
import { palette } from "./colours";
import { clear, el, exactMs, fit, table, time } from "./dom";
import { firstAfter, Row, type Step } from "./data";
import type { Store } from "./store";

let last: { range: [number, number] | null; steps: Step[] } = { range: null, steps: [] };

export function stepsIn(s: Store): Step[] {
	if (last.range !== s.range)
		last = { range: s.range, steps: within(s) };
	return last.steps;
}

function within(s: Store): Step[] {
	if (!s.range)
		return [];
	const [a, b] = s.range, whole = s.steps.filter(x => x.ts >= a && x.ts + x.dur <= b);
	return whole.length ? whole : s.steps.filter(x => x.ts <= (a + b) / 2 && x.ts + x.dur > (a + b) / 2);
}

// The account of whole steps: its parts sum to their duration, to the nanosecond.
export class Account {
	readonly root = el("div", { class: "account" });
	private made = "";
	constructor(private s: Store) {}

	update(force = false) {
		const s = this.s, key = s.range ? s.range.join("-") : "";
		if (key === this.made && !force)
			return;
		this.made = key;
		clear(this.root);
		const chosen = stepsIn(s);
		if (!chosen.length) {
			if (s.range)
				this.root.append(el("p", { class: "note" }, "No step is in the selection."));
			return;
		}
		const p = palette(), n = s.meta.slots.length, sum = new Array<number>(n).fill(0);
		let total = 0;
		for (const st of chosen) {
			total += st.dur;
			for (let k = 0; k < n; k++)
				sum[k] += st.slots[k];
		}
		const c = el("canvas", { role: "img", "aria-label": "The account of the selected steps; the table has its numbers" });
		const width = Math.max(this.root.clientWidth, 300), g = fit(c, width, 30);
		let x = 0;
		g.strokeStyle = p.ink;
		g.lineWidth = 0.5;
		for (let k = 0; k < n; k++) {
			const w = sum[k] / Math.max(total, 1) * (width - 2);
			g.fillStyle = p.slot[k];
			g.fillRect(x, 1, w, 28);
			if (w > 1)
				g.strokeRect(x + 0.5, 1.5, w, 27);
			x += w;
		}
		const title = chosen.length === 1 ? `step ${chosen[0].number}, ${chosen[0].rank >= 0 ? "rank " + chosen[0].rank + ", " : ""}${chosen[0].slow ? "slow" :
			chosen[0].warmup ? "warm-up" : "not slow"}; rolling median ${time(chosen[0].median)}, own lateness ${time(chosen[0].late)}` :
			`${chosen.length} whole steps, ${chosen.filter(q => q.slow).length} slow`;
		const rows = s.meta.slots.map((slot, k) => [slot[0], exactMs(sum[k]), (100 * sum[k] / Math.max(total, 1)).toFixed(2)])
			.filter((_, k) => sum[k] !== 0);
		const t = table(["of the main threads' time", "ms", "%"], rows, ["all", exactMs(total), "100"]);
		t.dataset.sum = String(sum.reduce((u, v) => u + v, 0));
		t.dataset.total = String(total);
		this.root.append(el("h3", {}, title), c, el("div", { class: "wide" }, t));
	}
}

// Who ran, by the buckets of src/picture/samples.c.
export class Processes {
	readonly root = el("div", { class: "processes" });
	private made = "";
	constructor(private s: Store) {}

	async update() {
		const s = this.s, [a, b] = s.range ?? [0, s.meta.length], key = a + "-" + b;
		if (key === this.made)
			return;
		this.made = key;
		const v = await s.active(), w = s.meta.bucket;
		clear(this.root);
		const sums = v.map((col, k) => {
			let ns = 0;
			for (let i = Math.floor(a / w); i < col.length && i * w < b; i++)
				ns += col[i] * (Math.min((i + 1) * w, b) - Math.max(i * w, a)) / w;
			return [s.meta.active_names[k], ns, k < s.meta.n_accused] as [string, number, boolean];
		}).filter(x => x[1] > 0).sort((x, y) => y[1] - x[1]);
		if (sums.length)
			this.root.append(el("div", { class: "wide" }, table(["who ran", "CPU time", "CPUs", "accused"],
				sums.map(([name, ns, accused]) => [name, time(ns), (ns / Math.max(b - a, 1)).toFixed(2), accused ? "yes" : ""]))),
			el("p", { class: "note" }, `To within ${time(w)} at the edges.`));
		else
			this.root.append(el("p", { class: "note" }, "This input does not tell who ran."));
	}
}

// What devices did: in the selected steps, to the nanosecond, and by the rows of the timeline that are there.
export class Devices {
	readonly root = el("div", { class: "devices" });
	private made = "";
	constructor(private s: Store) {}

	private steps() {
		const told = stepsIn(this.s).filter(x => x.device.length), sum = [0, 0, 0, 0];
		for (const st of told)
			st.device.forEach((ns, k) => { sum[k] += ns; });
		const all = sum.reduce((x, y) => x + y, 0);
		if (!told.length)
			return;
		const t = table([told.length === 1 ? "the device in this step" : `devices in ${told.length} steps`, "ms", "%"],
			["computing", "exposed communication", "exposed copies", "idle"].map((name, k) =>
				[name, exactMs(sum[k]), (100 * sum[k] / Math.max(all, 1)).toFixed(2)]), ["all", exactMs(all), "100"]);
		t.dataset.sum = String(all);
		this.root.append(el("div", { class: "wide" }, t));
	}

	private rows(a: number, b: number) {
		const s = this.s, by = new Map<number, [number, number]>(), busy = new Map<string, [number, number][]>();
		let coarse = false, all = 0;
		for (const piece of s.pieces(a, b, b - a <= s.meta.length / 20 ? 1 : (b - a) / 4000)) {
			const m = piece.marks;
			for (const seg of m.segs) {
				const lane = s.meta.lanes[seg.lane];
				if (lane[2] !== Row.Device)
					continue;
				const group = busy.get(lane[0]) ?? [];
				busy.set(lane[0], group);
				for (let i = firstAfter(m, seg, piece.from); i < seg.to && m.ts[i] < piece.to; i++) {
					const from = Math.max(m.ts[i], piece.from), to = Math.min(m.ts[i] + m.dur[i], piece.to), k = by.get(m.name[i]) ?? [0, 0];
					if (to <= from)
						continue;
					coarse ||= m.n[i] > 1;
					k[0] += to - from;
					k[1] += m.n[i];
					all += to - from;
					by.set(m.name[i], k);
					group.push([from, to]);
				}
			}
		}
		for (const [name, parts] of busy) {
			let ns = 0, end = -1;
			for (const [from, to] of parts.sort((x, y) => x[0] - y[0])) {
				ns += Math.max(to - Math.max(from, end), 0);
				end = Math.max(end, to);
			}
			this.root.append(el("p", {}, `${name}: busy ${(100 * ns / Math.max(b - a, 1)).toFixed(1)} %`));
		}
		if (by.size)
			this.root.append(el("div", { class: "wide" }, table(["kernels and copies", "ms", "%", "count"],
				[...by].sort((x, y) => y[1][0] - x[1][0]).slice(0, 10).map(([name, [ns, n]]) =>
					[s.name(name), (ns / 1e6).toFixed(3), (100 * ns / Math.max(all, 1)).toFixed(1), n]))));
		if (coarse)
			this.root.append(el("p", { class: "note" }, "Short ones are put together here: select less for exact times."));
	}

	update() {
		const s = this.s, [a, b] = s.range ?? [0, s.meta.length], key = a + "-" + b + (s.busy ? " " : "");
		if (key === this.made || !s.meta.lanes.some(lane => lane[2] === Row.Device))
			return;
		this.made = key;
		clear(this.root);
		this.root.append(el("h3", {}, "Devices"));
		this.steps();
		this.rows(a, b);
	}
}

// The run cut into pieces of the found period, one below the other: what comes with it stands in a column.
export class Fold {
	readonly root = el("div", { class: "fold" });
	private canvas = el("canvas", { role: "img", "aria-label": "The run folded by its period" });
	private chosen = el("select", { id: "fold-of" });
	private others: [string, number][] = []; // name and pid of processes that have samples alone
	private ran: Float64Array[] = [];
	constructor(private s: Store) {
		this.root.append(this.canvas, el("label", { for: "fold-of" }, "fold another process: "), this.chosen);
		this.chosen.addEventListener("change", () => void this.draw());
		this.canvas.addEventListener("click", e => {
			const r = this.canvas.getBoundingClientRect(), t = this.timeAt(e.clientX - r.left, e.clientY - r.top);
			if (t === null)
				return;
			const half = s.meta.period! * 1e9 / 20;
			s.select(t - half, t + half);
			s.setView(t - half * 3, t + half * 3);
		});
	}
	private geometry = { width: 0, rows: 0, row: 0, from: 0 };
	private timeAt(x: number, y: number): number | null {
		const q = this.geometry, r = Math.floor((y - 40) / q.row);
		return r < 0 || r >= q.rows || x < 150 ? null : q.from + (r + (x - 150) / (q.width - 150)) * this.s.meta.period! * 1e9;
	}

	// Those of whom the page knows when they ran: to the bucket, or by samples.
	private async fill() {
		const m = this.s.meta, seen = new Set(m.active_names), by = new Map<string, number>();
		if (this.chosen.options.length)
			return;
		for (const t of m.threads) {
			const name = `${t[3]} (pid ${t[1]})`;
			if (!seen.has(name))
				by.set(name, t[1]);
		}
		this.ran = await this.s.active();
		const there = new Set<number>();
		if (m.n_samples)
			for (const thr of (await this.s.samples()).thr)
				there.add(m.threads[thr - 1]?.[1] ?? -1);
		if (this.chosen.options.length)
			return;
		this.others = [...by].filter(x => there.has(x[1])).sort((x, y) => x[0] < y[0] ? -1 : 1);
		this.chosen.append(el("option", { value: "-1" }, "none"));
		[...m.active_names, ...this.others.map(x => x[0])].forEach((name, i) => this.chosen.append(el("option", { value: String(i) }, name)));
	}

	// CPU time of the chosen one, by buckets.
	private async track(i: number): Promise<Float64Array> {
		const m = this.s.meta;
		if (i < this.ran.length)
			return this.ran[i];
		const out = new Float64Array(Math.ceil(m.length / m.bucket) + 1), v = await this.s.samples(), pid = this.others[i - this.ran.length][1];
		for (let k = 0; k < v.ts.length; k++)
			if (m.threads[v.thr[k] - 1]?.[1] === pid)
				out[Math.floor(v.ts[k] / m.bucket)] += v.weight[k];
		return out;
	}

	async draw() {
		await this.fill();
		const i = Number(this.chosen.value), shown = this.ran.slice(0, this.s.meta.n_accused + 3), names = this.s.meta.active_names.slice(0, shown.length);
		if (i >= 0) {
			shown.push(await this.track(i));
			names.push(this.chosen.selectedOptions[0]?.textContent ?? "");
		}
		this.drawn = [shown, names];
		this.paint();
	}
	private drawn: [Float64Array[], string[]] = [[], []];

	paint() {
		const s = this.s, period = (s.meta.period ?? 0) * 1e9, p = palette(), [v, names] = this.drawn;
		const judged = s.steps.filter(x => !x.warmup);
		if (!period || !judged.length)
			return;
		const first = judged.find(x => x.slow) ?? judged[0],
			// The first slow step stands at a third: what belongs to it is seen before and after.
			from = first.ts - period * (Math.max(Math.floor((first.ts - judged[0].ts) / period), 0) + 0.35), rows = Math.min(Math.ceil((s.meta.length - from) / period), 60);
		const row = rows > 24 ? 6 : 11, width = Math.max(this.root.clientWidth, 300), left = 150, plot = width - left, tracks = v.length;
		const height = 40 + rows * row + tracks * 34 + 20, g = fit(this.canvas, width, height);
		this.geometry = { width, rows, row, from };
		g.fillStyle = p.ground;
		g.fillRect(0, 0, width, height);
		g.font = "11px system-ui, sans-serif";
		g.textBaseline = "middle";
		const excess = new Float64Array(plot), medians = judged.map(x => x.median).sort((x, y) => x - y), median = medians[medians.length >> 1] || 1;
		for (const st of judged) {
			const r = Math.floor((st.ts - from) / period), phase = (st.ts - from) / period - r;
			if (r >= rows)
				continue;
			const x = left + phase * plot, w = Math.max(st.dur / period * plot, 1), over = Math.max((st.dur - st.median) / median, 0);
			g.fillStyle = over > 1.2 ? "#7f3600" : over > 0.6 ? "#b85a10" : over > 0.3 ? "#d98036" : over > 0.15 ? "#e9a86e" : p.band;
			g.fillRect(x, 40 + r * row, Math.min(w, width - x), row - 1);
			for (let i = Math.max(Math.floor(x - left), 0); i < Math.min(x - left + w, plot); i++)
				excess[i] += over / rows;
		}
		const most = Math.max(...excess, 1e-9);
		g.fillStyle = "#b85a10";
		for (let i = 0; i < plot; i++)
			g.fillRect(left + i, 36 - 32 * excess[i] / most, 1, 32 * excess[i] / most);
		g.fillStyle = p.soft;
		g.fillText("mean excess", 4, 20);
		g.fillText(`${rows} repeats of ${s.meta.period!.toFixed(3)} s`, 4, 48);
		for (let k = 0; k < tracks; k++) {
			const band = new Float64Array(plot), y = 40 + rows * row + k * 34 + 34;
			for (let i = 0; i < v[k].length; i++) {
				const phase = ((i * s.meta.bucket - from) % period + period) % period, at = Math.floor(phase / period * plot);
				if (i * s.meta.bucket >= from)
					band[Math.min(at, plot - 1)] += v[k][i];
			}
			const wide = Math.max(1, Math.round(s.meta.bucket / period * plot)), top = Math.max(...band, 1);
			g.fillStyle = k < s.meta.n_accused ? "#d55e00" : "#7fa7c9";
			for (let i = 0; i < plot; i++)
				if (band[i])
					g.fillRect(left + i, y - 26 * band[i] / top, wide, 26 * band[i] / top);
			g.strokeStyle = p.rule;
			g.strokeRect(left, y + 0.5, plot, 0);
			g.fillStyle = p.ink;
			const name = names[k];
			g.fillText(name.length > 24 ? name.slice(0, 23) + "\u2026" : name, 4, y - 10);
		}
		g.fillStyle = p.soft;
		g.fillText("0", left, height - 8);
		g.textAlign = "end";
		g.fillText(`${s.meta.period!.toFixed(2)} s`, width - 2, height - 8);
		g.textAlign = "start";
		this.canvas.setAttribute("aria-label", `The run folded by its period of ${s.meta.period} s: ${rows} repeats, below them when ` +
			names.join(", ") + " ran");
		this.canvas.dataset.tracks = names.map((name, k) => `${name}: ${Math.round(v[k].reduce((x, y) => x + y, 0))}`).join("; ");
	}
}
