// SPDX-License-Identifier: Apache-2.0
// The canvas: an overview of all steps on top, lanes below. Drawn anew only when something changed.
import { firstAfter, frames, Row, type Marks, type Seg, type Stacks } from "./data";
import { inkOn, palette, type Palette } from "./colours";
import { el, fit, time } from "./dom";
import type { Picked, Piece, Store } from "./store";

const GUTTER = 190, TOP = 62, STRIP = 34, LINE = 15, HEAD = 20, GAP = 3;
const MIXED = 4, HELD = 128;
const REASONS = ["", "preempted", "woken", "new", "sleep", "uninterruptible", "waits for a disk", "stopped", "traced",
	"dead", "parked", "idle"];
const STATES = ["", "running", "ready, no CPU", "blocked", "several"];
const PARTS = ["running", "ready, no CPU", "blocked", "unexplained"];
const KINDS = ["", "step", "stage", "operator", "kernel", "copy", "collective", "waits for a lock", "holds a lock", "input/output",
	"interrupt", "garbage collection", "system call", "page fault", "memory", "compilation", "wait", "Python", "runtime call",
	"note", "overhead"];

interface Line { y: number; h: number; head?: string; lane: number; group: string }

export class Timeline {
	readonly canvas = el("canvas", { tabindex: "0", role: "application", "aria-describedby": "keys-short" });
	readonly frame = el("div", { class: "lanes" });
	readonly tip = el("div", { class: "tip", hidden: "" });
	private spacer = el("div", {});
	private lines: Line[] = [];
	private folded = new Set<string>();
	private open = new Set<number>(); // lanes at their full depth
	private width = 800;
	private height = 400;
	private full = 400;
	private stacks: Stacks | null = null;
	private pieces: Piece[] = [];
	private bars = { width: -1, slow: new Float32Array(0), rest: new Float32Array(0) };
	private drag: { x: number; y: number; strip: boolean; moved: boolean; pan: boolean; view: [number, number] } | null = null;
	private drawnArrows: string[] = []; // solid: holder or launch, dashed: waker
	measure: number | null = null;
	cursor = 0;
	drawn = 0;

	constructor(private s: Store) {
		s.meta.lanes.forEach(l => { if (l[5]) this.folded.add(l[0]); });
		// A group of which some lane is open is open.
		s.meta.lanes.forEach(l => { if (!l[5]) this.folded.delete(l[0]); });
		this.frame.append(this.canvas, this.spacer);
		this.layout();
		this.listen();
		s.watch(() => this.draw());
		new ResizeObserver(() => { this.layout(); s.changed(); }).observe(this.frame);
		this.frame.addEventListener("scroll", () => s.changed());
		s.stacks().then(x => { this.stacks = x; }, () => undefined);
	}

	private depths(lane: number) {
		const l = this.s.meta.lanes[lane];
		return Math.max(1, this.open.has(lane) ? l[4] : Math.min(l[4], l[2] === Row.Spans || l[2] === Row.Device ? 6 : l[2] === Row.Samples ? 8 : 3));
	}

	layout() {
		let y = TOP, group = "";
		this.lines = [];
		this.s.meta.lanes.forEach((l, i) => {
			if (l[0] !== group) {
				group = l[0];
				this.lines.push({ y, h: HEAD, head: group, lane: i, group });
				y += HEAD;
			}
			if (this.folded.has(group))
				return;
			const h = this.depths(i) * LINE + GAP;
			this.lines.push({ y, h, lane: i, group });
			y += h;
		});
		this.full = y + 6;
		this.width = Math.max(this.frame.clientWidth, 320);
		this.height = Math.min(this.full, Math.max(280, Math.round(window.innerHeight * 0.72)));
		this.frame.style.height = this.height + "px";
		this.spacer.style.height = Math.max(this.full - this.height, 0) + "px";
	}

	x(t: number) {
		const [a, b] = this.s.view;
		return GUTTER + (t - a) * (this.width - GUTTER) / (b - a);
	}
	at(x: number) {
		const [a, b] = this.s.view;
		return a + (x - GUTTER) * (b - a) / (this.width - GUTTER);
	}
	private stripX(t: number) { return GUTTER + t * (this.width - GUTTER) / Math.max(this.s.meta.length, 1); }
	private stripAt(x: number) { return (x - GUTTER) * Math.max(this.s.meta.length, 1) / (this.width - GUTTER); }

	private colour(p: Palette, row: Row, kind: number, tone: number, name: number, a: number): string {
		switch (row) {
		case Row.Account: return p.slot[tone] ?? p.slot[3];
		case Row.States: return p.state[kind] ?? p.ground;
		case Row.Cpu: return p.cpu[a % p.cpu.length];
		case Row.Spans:
			if (kind === 2 || (kind === 0 && tone))
				return p.stage[tone] ?? p.stage[0];
		}
		if (row === Row.Samples)
			return kind === 1 ? "#d9a0a0" : kind === 2 ? "#b9c9a5" : p.cpu[name % p.cpu.length];
		const c = p.kind[kind];
		return c ?? p.cpu[name % p.cpu.length];
	}

	// Of one lane and depth, in [from, to): what is narrower than a pixel is drawn once.
	private seg(p: Palette, m: Marks, seg: { lane: number; from: number; to: number }, piece: Piece,
		y: number, h: number, batch: Map<string, number[]>, labels: [number, number, number, string, string][]) {
		const row = this.s.meta.lanes[seg.lane][2] as Row, find = this.s.find;
		let reached = -1, run: number[] | null = null, runColour = ""; // narrow neighbours of one colour become one mark
		const [a, b] = this.s.view, scale = (this.width - GUTTER) / (b - a), x = (t: number) => GUTTER + (t - a) * scale;
		const until = Math.min(piece.to, b), rest: Seg = { lane: seg.lane, depth: 0, from: seg.from, to: seg.to };
		let seen = a, skipped = 0;
		for (let i = firstAfter(m, rest, piece.from); i < seg.to && m.ts[i] < until; i++) {
			if (m.ts[i] + m.dur[i] <= seen) {
				if (++skipped > 6) { // many share a pixel: on to the first that does not
					rest.from = i;
					i = Math.max(i, firstAfter(m, rest, seen) - 1);
					skipped = 0;
				}
				continue;
			}
			skipped = 0;
			const x0 = Math.max(x(Math.max(m.ts[i], piece.from)), GUTTER);
			const x1 = Math.min(Math.max(x(Math.min(m.ts[i] + m.dur[i], piece.to)), x0 + 0.7), this.width);
			if (x1 <= reached)
				continue;
			reached = Math.max(x1, Math.floor(x0) + 1);
			seen = a + (reached - GUTTER) / scale;
			this.drawn++;
			if (row === Row.States && m.kind[i] === MIXED) {
				const v = m.a[i], shares = [v & 255, v >> 8 & 255, v >> 16 & 255];
				let at = y + h;
				for (let k = 0; k < 3; k++) {
					const part = shares[k] * h / 255;
					at -= part;
					if (part > 0.4)
						push(batch, p.state[k + 1], x0, at, x1 - x0, part);
				}
				continue;
			}
			const c = this.colour(p, row, m.kind[i], m.tone[i], m.name[i], m.a[i]);
			if (row === Row.States && m.kind[i] === 3) {
				push(batch, c, x0, y + h * 0.55, x1 - x0, h * 0.45); // low: a wait is seen without its colour, too
			} else {
				if (run && runColour === c && x1 - x0 < 3 && x0 - run[2] < 0.8) {
					run[2] = x1;
				} else {
					if (run)
						push(batch, runColour, run[0], y, run[2] - run[0], h);
					run = null;
					if (x1 - x0 < 3) {
						run = [x0, y, x1];
						runColour = c;
					} else {
						push(batch, c, x0, y, x1 - x0 - 0.6, h);
					}
				}
			}
			if (x1 - x0 <= 36 && !find)
				continue;
			const label = row === Row.Account ? this.s.meta.slots[m.tone[i]]?.[0] ?? "" :
				row === Row.States ? (m.kind[i] === 3 ? this.s.name(m.name[i]) : "") : this.s.name(m.name[i]);
			if (x1 - x0 > 36 && label)
				labels.push([x0, x1, y, label, row === Row.States && m.kind[i] === 3 ? p.ink : inkOn(c)]);
			if (find && label.toLowerCase().includes(find))
				push(batch, "#ff00aa", x0, y, Math.max(x1 - x0, 2), 2);
		}
		if (run)
			push(batch, runColour, run[0], y, run[2] - run[0], h);
	}

	draw() {
		const began = performance.now(), p = palette(), g = fit(this.canvas, this.width, this.height), top = this.frame.scrollTop;
		const [a, b] = this.s.view, batch = new Map<string, number[]>();
		const labels: [number, number, number, string, string][] = [];
		this.drawn = 0;
		g.fillStyle = p.ground;
		g.fillRect(0, 0, this.width, this.height);
		this.pieces = this.s.pieces(a, b, (b - a) / Math.max(this.width - GUTTER, 1));
		const byLane = new Map<number, Line>();
		for (const l of this.lines)
			if (l.head === undefined && l.y + l.h - top > TOP && l.y - top < this.height)
				byLane.set(l.lane, l);
		byLane.forEach((l, lane) => {
			if (lane % 2)
				push(batch, p.band, GUTTER, l.y - top, this.width - GUTTER, l.h);
		});
		flush(g, batch);
		for (const piece of this.pieces)
			for (const seg of piece.marks.segs) {
				const l = byLane.get(seg.lane);
				const y = l ? l.y - top + seg.depth * LINE + 1 : 0;
				if (!l || seg.depth >= this.depths(seg.lane) || y > this.height || y + LINE < TOP)
					continue;
				this.seg(p, piece.marks, seg, piece, y, LINE - 2, batch, labels);
			}
		flush(g, batch);
		g.font = "11px system-ui, sans-serif";
		g.textBaseline = "middle";
		for (const [x0, x1, y, text, ink] of labels) {
			const fits = Math.floor((x1 - x0 - 6) / 5.9);
			g.fillStyle = ink;
			g.fillText(text.length > fits ? text.slice(0, Math.max(fits - 1, 1)) + "\u2026" : text, x0 + 3, y + LINE / 2 - 0.5);
		}
		this.overlay(g, p);
		this.gutter(g, p, top);
		this.drawnArrows = [];
		if (this.s.picked)
			this.arrows(g, p, top, this.s.picked);
		this.ruler(g, p);
		this.strip(g, p);
		const levels = [...new Set(this.pieces.map(x => x.level))];
		this.canvas.dataset.marks = String(this.drawn);
		this.canvas.dataset.level = levels.join(" ");
		this.canvas.dataset.ms = (performance.now() - began).toFixed(2);
		this.canvas.dataset.view = a.toFixed(0) + "-" + b.toFixed(0);
		this.canvas.dataset.arrows = this.drawnArrows.join(" ");
		this.canvas.dataset.busy = this.s.busy ? "1" : "0";
	}

	get coarse() { return this.pieces.some(p => p.level > 0) && 2 ** Math.min(...this.pieces.map(p => p.level)) > (this.s.view[1] - this.s.view[0]) / 500; }

	private overlay(g: CanvasRenderingContext2D, p: Palette) {
		const h = this.height;
		for (const [ts, dur] of this.s.meta.losses) {
			const x0 = Math.max(this.x(ts), GUTTER), x1 = this.x(ts + dur);
			if (x1 < GUTTER || x0 > this.width)
				continue;
			g.strokeStyle = p.loss;
			g.globalAlpha = 0.5;
			g.beginPath();
			for (let x = x0; x <= Math.max(x1, x0 + 1) && x < this.width; x += 6) {
				g.moveTo(x, TOP);
				g.lineTo(x, h);
			}
			g.setLineDash([2, 4]);
			g.stroke();
			g.setLineDash([]);
			g.globalAlpha = 1;
		}
		if (this.s.range) {
			const x0 = Math.max(this.x(this.s.range[0]), GUTTER), x1 = Math.min(this.x(this.s.range[1]), this.width);
			if (x1 > x0) {
				g.fillStyle = p.select;
				g.fillRect(x0, TOP - 18, x1 - x0, h - TOP + 18);
				g.strokeStyle = p.focus;
				g.strokeRect(x0 + 0.5, TOP - 17.5, Math.max(x1 - x0 - 1, 0.5), h);
			}
		}
		if (this.measure !== null) {
			g.strokeStyle = p.focus;
			g.setLineDash([4, 3]);
			g.beginPath();
			for (const t of [this.measure, this.cursor]) {
				g.moveTo(this.x(t), TOP);
				g.lineTo(this.x(t), h);
			}
			g.stroke();
			g.setLineDash([]);
			g.fillStyle = p.ink;
			g.fillText(time(this.cursor - this.measure), this.x(this.cursor) + 4, TOP + 8);
		}
	}

	// Where a lane of that thread is drawn: its states, else whatever it has; a folded group's heading else.
	private yOf(thread: number, top: number, prefer: Row): number | null {
		let found: number | null = null, head: number | null = null;
		for (const l of this.lines) {
			const lane = this.s.meta.lanes[l.lane];
			if (lane[3] !== thread || !thread)
				continue;
			const y = l.y - top + l.h / 2;
			if (l.head === undefined && lane[2] === prefer)
				return y;
			if (l.head === undefined)
				found = found ?? y;
			else
				head = head ?? y;
		}
		// Of a folded group only the heading is there.
		return found ?? head ?? this.yOfGroup(thread, top);
	}

	private yOfGroup(thread: number, top: number): number | null {
		const lane = thread ? this.s.meta.lanes.find(l => l[3] === thread) : undefined;
		const line = lane && this.lines.find(l => l.head === lane[0]);
		return line ? line.y - top + line.h / 2 : null;
	}

	private arrow(g: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number, dashed: boolean, colour: string) {
		this.drawnArrows.push(dashed ? "dashed" : "solid");
		g.strokeStyle = colour;
		g.fillStyle = colour;
		g.lineWidth = 1.6;
		g.setLineDash(dashed ? [5, 4] : []);
		g.beginPath();
		g.moveTo(x0, y0);
		const mid = (x0 + x1) / 2 + (Math.abs(x1 - x0) < 8 ? 24 : 0);
		g.bezierCurveTo(mid, y0, mid, y1, x1, y1);
		g.stroke();
		g.setLineDash([]);
		g.beginPath();
		g.moveTo(x1, y1);
		g.lineTo(x1 + (mid > x1 ? 7 : -7), y1 - 4);
		g.lineTo(x1 + (mid > x1 ? 7 : -7), y1 + 4);
		g.fill();
		g.lineWidth = 1;
	}

	// The selection's own chain only: who held it (solid), who woke it (dashed), what it launched.
	private arrows(g: CanvasRenderingContext2D, p: Palette, top: number, m: Picked) {
		const line = this.lines.find(l => l.head === undefined && l.lane === m.lane), row = this.s.meta.lanes[m.lane][2] as Row;
		if (!line)
			return;
		// Of what lies deeper than the rows that are shown, the lowest of these stands.
		const rowOf = (l: Line, depth: number) => l.y - top + Math.min(depth, this.depths(l.lane) - 1) * LINE + LINE / 2;
		const y = rowOf(line, m.depth), end = this.x(m.ts + m.dur), mid = this.x(m.ts + m.dur / 2);
		g.strokeStyle = p.ink;
		g.lineWidth = 2;
		const from = Math.max(this.x(m.ts), GUTTER);
		g.strokeRect(from, y - LINE / 2, Math.max(Math.min(end, this.width) - from, 1), LINE);
		g.lineWidth = 1;
		if (row === Row.States || row === Row.Account || row === Row.Locks) {
			const held = row !== Row.States || (m.tone & HELD) > 0, to = this.yOf(m.a, top, held ? Row.Locks : Row.States);
			if (to !== null && (row !== Row.States || m.kind !== MIXED))
				if (held)
					this.arrow(g, mid, y, mid, to, false, "#d55e00");
				else
					this.arrow(g, end, to, end, y, true, p.ink);
			return;
		}
		if (!m.a || (m.kind !== 4 && m.kind !== 5 && m.kind !== 18))
			return;
		for (const piece of this.pieces)
			for (const seg of piece.marks.segs) {
				const other = this.lines.find(l => l.head === undefined && l.lane === seg.lane);
				if (!other || (this.s.meta.lanes[seg.lane][2] !== Row.Device) === (row !== Row.Device))
					continue;
				for (let i = seg.from; i < seg.to; i++) {
					const q = piece.marks;
					if (q.a[i] !== m.a || q.n[i] !== 1 || Math.abs(q.ts[i] - m.ts) > 5e9)
						continue;
					const oy = rowOf(other, seg.depth);
					if (row === Row.Device)
						this.arrow(g, this.x(q.ts[i]), oy, this.x(m.ts), y, false, p.ink);
					else
						this.arrow(g, this.x(m.ts), y, this.x(q.ts[i]), oy, false, p.ink);
				}
			}
	}

	private gutter(g: CanvasRenderingContext2D, p: Palette, top: number) {
		g.fillStyle = p.ground;
		g.fillRect(0, TOP, GUTTER - 1, this.height);
		g.strokeStyle = p.rule;
		g.beginPath();
		g.moveTo(GUTTER - 0.5, 0);
		g.lineTo(GUTTER - 0.5, this.height);
		g.stroke();
		g.font = "12px system-ui, sans-serif";
		this.canvas.dataset.heads = "";
		for (const l of this.lines) {
			const y = l.y - top;
			if (y + l.h < TOP || y > this.height)
				continue;
			if (l.head !== undefined)
				this.canvas.dataset.heads += `${y + HEAD / 2} ${this.folded.has(l.group) ? "closed" : "open"} ${l.head}\n`;
			const text = l.head !== undefined ? (this.folded.has(l.group) ? "\u25b8 " : "\u25be ") + l.head : this.s.meta.lanes[l.lane][1];
			if (l.head !== undefined) {
				g.fillStyle = p.band;
				g.fillRect(0, y, this.width, HEAD);
				g.strokeStyle = p.rule;
				g.strokeRect(-1, y + 0.5, this.width + 2, HEAD);
			}
			g.fillStyle = l.head !== undefined ? p.ink : p.soft;
			g.font = (l.head !== undefined ? "600 12px" : "11px") + " system-ui, sans-serif";
			const most = l.head !== undefined ? 64 : 27;
			g.fillText(text.length > most ? text.slice(0, most - 1) + "\u2026" : text, l.head !== undefined ? 6 : 16,
				y + (l.head !== undefined ? HEAD / 2 : LINE / 2 + 1));
		}
	}

	private ruler(g: CanvasRenderingContext2D, p: Palette) {
		const [a, b] = this.s.view, y = STRIP + 4;
		g.fillStyle = p.ground;
		g.fillRect(0, 0, this.width, TOP);
		let tick = 10 ** Math.floor(Math.log10((b - a) / 4));
		while ((b - a) / tick > Math.max((this.width - GUTTER) / 130, 2))
			tick *= String(tick)[0] === "2" ? 2.5 : 2;
		g.fillStyle = p.soft;
		g.strokeStyle = p.rule;
		g.font = "11px system-ui, sans-serif";
		g.beginPath();
		for (let t = Math.ceil(a / tick) * tick; t <= b; t += tick) {
			const x = this.x(t);
			if (x < GUTTER)
				continue;
			g.moveTo(x + 0.5, y + 2);
			g.lineTo(x + 0.5, TOP);
			const digits = Math.max(0, Math.min(9, 9 - Math.floor(Math.log10(tick))));
			g.fillText((t / 1e9).toFixed(digits) + " s", x + 4, y + 14);
		}
		g.stroke();
		g.fillText("one view: " + time(b - a), 8, y + 14);
	}

	// For each pixel of the overview the longest step in it; many steps are looked at once, not each frame.
	private stripBars(width: number) {
		const slow = new Float32Array(width), rest = new Float32Array(width);
		let most = 1;
		for (const s of this.s.steps)
			if (!s.warmup && s.dur > most)
				most = s.dur;
		for (const s of this.s.steps) {
			const v = s.slow ? slow : rest, h = Math.min(s.dur / most, 1) * (STRIP - 4);
			const from = Math.max(Math.floor(this.stripX(s.ts) - GUTTER), 0), to = Math.min(Math.ceil(this.stripX(s.ts + s.dur) - GUTTER), width);
			for (let x = from; x < to; x++)
				if (h > v[x])
					v[x] = h;
		}
		return { width, slow, rest };
	}

	// All of the run: the longest step of each place, slow ones dark, and where the view is.
	private strip(g: CanvasRenderingContext2D, p: Palette) {
		const wide = Math.ceil(this.width - GUTTER);
		if (this.bars.width !== wide)
			this.bars = this.stripBars(wide);
		g.fillStyle = p.band;
		g.fillRect(GUTTER, 0, this.width - GUTTER, STRIP);
		for (const slow of [false, true]) {
			const v = slow ? this.bars.slow : this.bars.rest;
			g.fillStyle = slow ? p.ink : "#7fa7c9";
			for (let x = 0; x < wide; x++)
				if (v[x] > 0)
					g.fillRect(GUTTER + x, STRIP - v[x], 1, v[x]);
		}
		const x0 = this.stripX(Math.max(this.s.view[0], 0)), x1 = this.stripX(Math.min(this.s.view[1], this.s.meta.length));
		g.fillStyle = p.select;
		g.fillRect(x0, 0, Math.max(x1 - x0, 2), STRIP);
		g.strokeStyle = p.focus;
		g.strokeRect(x0 + 0.5, 0.5, Math.max(x1 - x0 - 1, 2), STRIP - 1);
		g.fillStyle = p.soft;
		g.fillText("all of the run", 8, STRIP / 2);
	}

	private lineAt(y: number): Line | undefined {
		const at = y + this.frame.scrollTop;
		return y < TOP ? undefined : this.lines.find(l => at >= l.y && at < l.y + l.h);
	}

	hit(x: number, y: number): Picked | null {
		const line = this.lineAt(y);
		if (!line || line.head !== undefined || x < GUTTER)
			return null;
		const depth = Math.floor((y + this.frame.scrollTop - line.y) / LINE), t = this.at(x), slack = this.at(x + 2) - t;
		for (const piece of this.pieces) {
			if (t < piece.from - slack || t >= piece.to + slack)
				continue;
			const m = piece.marks;
			for (const seg of m.segs) {
				if (seg.lane !== line.lane || seg.depth !== depth)
					continue;
				const i = firstAfter(m, seg, t - slack);
				if (i < seg.to && m.ts[i] <= t + slack)
					return { lane: seg.lane, depth, ts: m.ts[i], dur: m.dur[i], name: m.name[i], kind: m.kind[i], tone: m.tone[i], a: m.a[i],
						stack: m.stack[i], n: m.n[i] };
			}
		}
		return null;
	}

	words(m: Picked): string[] {
		const lane = this.s.meta.lanes[m.lane], row = lane[2] as Row, out: string[] = [];
		const many = m.n > 1 ? `, ${m.n} together, the longest is named` : "";
		if (row === Row.States && m.kind === MIXED) {
			const share = (k: number) => Math.round(Math.floor(m.a / 256 ** k) % 256 * 100 / 255);
			out.push(`running ${share(0)} %, ready ${share(1)} %, blocked ${share(2)} %`);
		} else if (row === Row.States) {
			out.push(STATES[m.kind] + (REASONS[m.tone & 127] ? `: ${REASONS[m.tone & 127]}` : "") + (m.name ? ` in ${this.s.name(m.name)}` : ""));
			if (m.a)
				out.push((m.tone & HELD ? "held by " : "woken by ") + this.s.thread(m.a));
		} else if (row === Row.Account) {
			out.push(`${PARTS[m.kind] ?? ""}: ${this.s.meta.slots[m.tone]?.[0] ?? ""}`);
			if (m.a)
				out.push("by " + this.s.thread(m.a));
		} else if (row === Row.Cpu) {
			out.push(this.s.thread(m.a) || this.s.name(m.name));
		} else {
			out.push(this.s.name(m.name) || KINDS[m.kind] || "?");
			if (row !== Row.Samples)
				out.push((KINDS[m.kind] ?? "") + (m.tone && row === Row.Spans ? `, ${this.s.meta.stages[m.tone] ?? ""}` : ""));
			if (row === Row.Locks && m.a)
				out.push((m.kind === 8 ? "memory of " : "held by ") + this.s.thread(m.a));
		}
		out.push(`${time(m.dur)} at ${(m.ts / 1e9).toFixed(6)} s${many}`);
		out.push(`${lane[0]}, ${lane[1]}`);
		return out.filter(x => x);
	}

	stackOf(m: Picked): string[] {
		return this.stacks && m.stack ? frames(this.stacks, m.stack, 14) : [];
	}

	private hover(x: number, y: number, px: number, py: number) {
		const m = this.drag ? null : this.hit(x, y);
		this.cursor = this.at(x);
		if (this.measure !== null)
			this.s.changed();
		this.tip.hidden = !m;
		if (!m)
			return;
		while (this.tip.firstChild)
			this.tip.firstChild.remove();
		this.words(m).forEach((w, i) => this.tip.append(el(i ? "div" : "b", {}, w)));
		const stack = this.stackOf(m);
		if (stack.length)
			this.tip.append(el("ol", {}, ...stack.map(f => el("li", {}, f))));
		const w = this.tip.offsetWidth, h = this.tip.offsetHeight;
		this.tip.style.left = Math.max(4, Math.min(px + 14, window.innerWidth - w - 8)) + "px";
		this.tip.style.top = (py + 16 + h > window.innerHeight ? Math.max(4, py - h - 12) : py + 16) + "px";
	}

	toggle(line: Line) {
		if (line.head !== undefined) {
			if (!this.folded.delete(line.group))
				this.folded.add(line.group);
		} else if (!this.open.delete(line.lane)) {
			this.open.add(line.lane);
		}
		this.layout();
		this.s.changed();
	}

	foldAll(on: boolean) {
		this.folded = on ? new Set(this.s.meta.lanes.map(l => l[0])) : new Set();
		this.layout();
		this.s.changed();
	}

	zoom(at: number, by: number) {
		const [a, b] = this.s.view;
		this.s.setView(at - (at - a) * by, at + (b - at) * by);
	}
	pan(share: number) {
		const [a, b] = this.s.view;
		this.s.setView(a + (b - a) * share, b + (b - a) * share);
	}

	private listen() {
		const c = this.canvas, place = (e: MouseEvent): [number, number] => {
			const r = c.getBoundingClientRect();
			return [e.clientX - r.left, e.clientY - r.top];
		};
		c.addEventListener("pointerdown", e => {
			const [x, y] = place(e);
			if (e.button !== 0)
				return;
			c.focus({ preventScroll: true });
			c.setPointerCapture(e.pointerId);
			this.drag = { x, y, strip: y < STRIP, moved: false, pan: e.shiftKey, view: [...this.s.view] };
		});
		c.addEventListener("pointermove", e => {
			const [x, y] = place(e), d = this.drag;
			this.hover(x, y, e.clientX, e.clientY);
			if (!d)
				return;
			d.moved = d.moved || Math.abs(x - d.x) > 3;
			if (!d.moved || d.x < GUTTER)
				return;
			if (d.strip)
				this.s.setView(this.stripAt(Math.min(d.x, x)), this.stripAt(Math.max(d.x, x)));
			else if (d.pan)
				this.s.setView(d.view[0] + this.at(d.x) - this.at(x), d.view[1] + this.at(d.x) - this.at(x));
			else
				this.s.select(this.at(d.x), this.at(x));
		});
		c.addEventListener("pointerup", e => {
			const [x, y] = place(e), d = this.drag;
			this.drag = null;
			if (!d || d.moved)
				return;
			const line = this.lineAt(y);
			if (d.strip && x >= GUTTER) {
				const half = (this.s.view[1] - this.s.view[0]) / 2, t = this.stripAt(x);
				this.s.setView(t - half, t + half);
			} else if (line && (x < GUTTER || line.head !== undefined)) {
				this.toggle(line);
			} else {
				this.s.picked = this.hit(x, y);
				this.s.changed();
			}
		});
		c.addEventListener("pointerleave", () => { this.tip.hidden = true; });
		c.addEventListener("dblclick", e => {
			const m = this.hit(...place(e));
			if (m)
				this.s.setView(m.ts - m.dur * 0.2, m.ts + m.dur * 1.2);
		});
		c.addEventListener("wheel", e => {
			if (e.ctrlKey || e.metaKey) {
				e.preventDefault();
				this.zoom(this.at(place(e)[0]), Math.exp(Math.max(-1, Math.min(1, e.deltaY / 180))));
			} else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
				e.preventDefault();
				this.pan((e.deltaX || e.deltaY) / Math.max(this.width - GUTTER, 1));
			}
		}, { passive: false });
	}
}

function push(batch: Map<string, number[]>, colour: string, x: number, y: number, w: number, h: number) {
	let v = batch.get(colour);
	if (!v)
		batch.set(colour, v = []);
	v.push(x, y, w, h);
}

function flush(g: CanvasRenderingContext2D, batch: Map<string, number[]>) {
	batch.forEach((v, colour) => {
		g.fillStyle = colour;
		for (let i = 0; i < v.length; i += 4)
			g.fillRect(v[i], v[i + 1], v[i + 2], v[i + 3]);
	});
	batch.clear();
}
