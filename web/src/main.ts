// SPDX-License-Identifier: Apache-2.0
// Puts the pieces on the page. What is there without scripts stays as it is.
import { json, type Meta } from "./data";
import { setPrinting } from "./colours";
import { button, clear, el, table, time } from "./dom";
import { Flame, type Kind } from "./flame";
import { Account, Devices, Fold, Processes, stepsIn } from "./panels";
import { Store } from "./store";
import { Timeline } from "./timeline";

const KEYS: [string, string][] = [
	["w, s", "zoom in, out"], ["a, d or \u2190, \u2192", "to the left, to the right; with Shift by a whole view"],
	["[, ]", "the slow step before, after"], ["f", "fit the selection; without one the whole run"], ["drag", "select; with Shift move"],
	["Ctrl-wheel", "zoom; Shift-wheel moves"], ["/", "search names; n and N go on"], ["m", "measure from the pointer's place"],
	["t", "the steps as a table"], ["e, c", "open, close all groups"], ["?", "these keys"], ["Esc", "away with selection and windows"]];

const HASH = /^#t=(\d{1,9}(?:\.\d{1,9})?)-(\d{1,9}(?:\.\d{1,9})?)(?:&v=(\d{1,9}(?:\.\d{1,9})?)-(\d{1,9}(?:\.\d{1,9})?))?$/;

function themeButton(redraw: () => void) {
	const bar = document.getElementById("bar");
	const b = button("light / dark", "Change between light and dark", () => {
		const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" :
			window.matchMedia("(prefers-color-scheme: dark)").matches;
		root.dataset.theme = dark ? "light" : "dark";
		redraw();
	});
	bar?.append(b);
}

class Page {
	private s: Store;
	private line: Timeline;
	private account: Account;
	private processes: Processes;
	private devices: Devices;
	private flame: Flame;
	private fold: Fold | null = null;
	private status = el("p", { class: "status", role: "status", "aria-live": "polite" });
	private input = el("input", { type: "search", placeholder: "search names", "aria-label": "search names in the timeline" });
	private twin = el("div", { class: "wide twin", hidden: "" });
	private picked = el("div", { class: "picked" });
	private flames = el("div", { class: "tabs", role: "group", "aria-label": "flame graph of" });
	private help = el("div", { class: "help", hidden: "", role: "dialog", "aria-label": "keys" });
	private found: [number, number][] = [];
	private at = -1;
	private writing = 0;
	private lastPicked: unknown = null;
	private seen = false;

	constructor(meta: Meta, private section: HTMLElement) {
		this.s = new Store(meta);
		this.line = new Timeline(this.s);
		this.account = new Account(this.s);
		this.processes = new Processes(this.s);
		this.devices = new Devices(this.s);
		this.flame = new Flame(this.s, this.line.tip);
	}

	async start() {
		const s = this.s;
		await s.load();
		this.build();
		s.watch(() => this.update());
		if (!this.fromHash(true)) {
			const worst = s.steps.filter(x => x.slow).sort((x, y) => y.dur - y.median - x.dur + x.median)[0];
			if (worst) {
				s.select(worst.ts, worst.ts + worst.dur);
				s.setView(worst.ts - 1.5 * worst.dur, worst.ts + 2.5 * worst.dur);
			}
		}
		window.addEventListener("hashchange", () => this.fromHash(false));
		document.addEventListener("keydown", e => this.key(e));
		const redraw = () => { s.changed(); this.account.update(true); this.flame.draw(); void this.fold?.draw(); };
		themeButton(redraw);
		window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
		window.addEventListener("resize", redraw);
		// What is on paper is light: at once, for the printer does not wait for a frame.
		const print = (on: boolean) => {
			setPrinting(on);
			this.line.draw();
			this.account.update(true);
			this.flame.draw();
			this.fold?.paint();
		};
		window.addEventListener("beforeprint", () => print(true));
		window.addEventListener("afterprint", () => print(false));
		const first = s.steps.reduce((t, x) => Math.min(t, x.ts), Infinity), last = s.steps.reduce((t, x) => Math.max(t, x.ts + x.dur), 0);
		this.brush("#strip svg", first, last);
		this.brush("#heat svg", first, last);
		this.brush("#memory svg", 0, s.meta.length);
		new IntersectionObserver((es, o) => {
			if (es.some(e => e.isIntersecting)) {
				o.disconnect();
				this.seen = true;
				void this.fold?.draw();
				s.changed();
			}
		}, { rootMargin: "600px" }).observe(this.flames);
		this.line.layout();
		s.changed();
		document.documentElement.dataset.ready = "1";
	}

	private build() {
		const s = this.s, m = s.meta;
		this.section.hidden = false;
		const tools = el("div", { class: "tools" },
			button("\u25c0 slow", "the slow step before ([)", () => this.slow(-1)), button("slow \u25b6", "the slow step after (])", () => this.slow(1)),
			button("fit", "fit the selection, or the whole run (f)", () => this.fit()),
			button("+", "zoom in (w)", () => this.zoom(0.6)), button("\u2212", "zoom out (s)", () => this.zoom(1 / 0.6)),
			button("table", "the steps as a table (t)", () => this.table()), this.input,
			button("keys", "what the keys do (?)", () => this.keys()));
		this.input.addEventListener("input", () => { s.find = this.input.value.toLowerCase(); this.found = []; this.at = -1; s.changed(); });
		this.input.addEventListener("keydown", e => {
			if (e.key === "Enter")
				this.search(e.shiftKey ? -1 : 1);
			if (e.key === "Escape")
				this.line.canvas.focus();
			e.stopPropagation();
		});
		this.line.canvas.setAttribute("aria-label", `Timeline of ${m.lanes.length} rows over ${time(m.length)}; arrow keys move, w and s zoom, ` +
			"left and right bracket go to slow steps; the table button lists all steps");
		this.help.append(el("h2", {}, "Keys"), table(["key", "does"], KEYS.map(k => [k[0], k[1]])), button("close", "close", () => this.keys()));
		this.section.append(tools, el("p", { id: "keys-short", class: "note" }, "Drag to select, Ctrl-wheel to zoom, [ and ] for slow steps, ? for all keys."),
			this.line.frame, this.status, this.picked, this.twin);
		for (const [kind, text] of [["on", "on the CPU"], ["off", "off the CPU"], ["slow", "slow steps beside typical"]] as [Kind, string][]) {
			const b = button(text, "", () => {
				this.flame.kind = kind;
				this.flames.querySelectorAll("button").forEach(x => x.setAttribute("aria-pressed", String(x === b)));
				void this.flame.update(s.range);
			});
			b.setAttribute("aria-pressed", String(kind === "on"));
			if (kind !== "slow" || s.steps.some(x => x.slow))
				this.flames.append(b);
		}
		const job = el("input", { type: "checkbox", id: "job-only" });
		job.checked = m.threads.some(t => t[4] >= 0);
		this.flame.job = job.checked;
		job.addEventListener("change", () => { this.flame.job = job.checked; void this.flame.update(s.range); });
		if (job.checked)
			this.flames.append(el("label", { for: "job-only" }, job, " the job alone"));
		const details = el("section", { id: "selection", "aria-labelledby": "selection-h" }, el("h2", { id: "selection-h" }, "Selection"),
			this.account.root, this.devices.root, this.processes.root);
		const flames = el("section", { id: "flames", "aria-labelledby": "flames-h" }, el("h2", { id: "flames-h" }, "Functions"), this.flames, this.flame.root);
		this.section.after(details);
		details.after(flames);
		if (!m.n_samples && !m.n_waits)
			flames.hidden = true;
		if (m.period && s.steps.length) {
			this.fold = new Fold(s);
			this.section.before(el("section", { id: "folded", "aria-labelledby": "folded-h" },
				el("h2", { id: "folded-h" }, `Folded by its period of ${m.period.toFixed(2)} s`), this.fold.root,
				el("p", { class: "note" }, "Each row is one repeat. Below: when the accused, and those who ran most, had a CPU; and whoever you choose.")));
			void this.fold.draw();
		}
		document.body.append(this.line.tip, this.help);
	}

	// Dragging over a picture of the run, from first to last, selects a part of it; what is selected is shaded there.
	private brush(what: string, first: number, last: number) {
		const svg = document.querySelector<SVGSVGElement>(what), s = this.s;
		if (!svg || !(last > first))
			return;
		const box = svg.viewBox.baseVal, plot = box.width + 2 * box.x; // both sides are as wide
		const at = (e: PointerEvent) => {
			const r = svg.getBoundingClientRect(), x = (e.clientX - r.left) / r.width * box.width + box.x;
			return first + Math.min(Math.max(x / plot, 0), 1) * (last - first);
		};
		const shade = document.createElementNS("http://www.w3.org/2000/svg", "rect");
		let from: number | null = null, moved = false;
		shade.setAttribute("class", "brush");
		shade.setAttribute("height", String(box.height));
		svg.addEventListener("pointerdown", e => {
			if (e.button === 0) {
				from = at(e);
				moved = false;
			}
		});
		window.addEventListener("pointermove", e => {
			if (from === null)
				return;
			const t = at(e), lo = Math.min(from, t), hi = Math.max(from, t);
			moved ||= (hi - lo) * plot / (last - first) > 4;
			if (!moved)
				return;
			s.select(lo, hi);
			s.setView(lo - (hi - lo) * 0.05, hi + (hi - lo) * 0.05);
		});
		window.addEventListener("pointerup", () => { from = null; });
		svg.addEventListener("dragstart", e => e.preventDefault()); // its marks are links
		svg.addEventListener("click", e => {
			if (moved)
				e.preventDefault();
			moved = false;
		}, true);
		let shown: unknown = null;
		s.watch(() => {
			if (s.range === shown)
				return;
			shown = s.range;
			const [lo, hi] = (s.range ?? [0, 0]).map(t => Math.min(Math.max((t - first) / (last - first), 0), 1) * plot);
			shade.setAttribute("x", String(lo));
			shade.setAttribute("width", String(hi > lo ? Math.max(hi - lo, 1) : 0));
			if (hi > lo)
				svg.append(shade);
			else
				shade.remove();
		});
	}

	private update() {
		const s = this.s, [a, b] = s.view;
		const steps = stepsIn(s), parts: string[] = [];
		if (s.range)
			parts.push(`selected ${time(s.range[1] - s.range[0])} from ${(s.range[0] / 1e9).toFixed(6)} s` + (steps.length === 1 ? `, step ${steps[0].number}` : ""));
		if (this.line.measure !== null)
			parts.push(`measured ${time(Math.abs(this.line.cursor - this.line.measure))}`);
		if (this.line.coarse)
			parts.push("overview only here: short marks are put together");
		if (s.meta.lanes_left)
			parts.push(`${s.meta.lanes_left} rows had no room`);
		if (s.meta.marks_left)
			parts.push(`${s.meta.marks_left} slices lie deeper than is drawn`);
		if (this.found.length)
			parts.push(`match ${this.at + 1} of ${this.found.length}`);
		if (s.failed)
			parts.push(s.failed);
		this.say(parts.join("; "));
		this.account.update();
		this.devices.update();
		void this.processes.update();
		if (this.seen)
			void this.flame.update(s.range);
		if (s.picked !== this.lastPicked) {
			this.lastPicked = s.picked;
			clear(this.picked);
			if (s.picked) {
				const words = this.line.words(s.picked), stack = this.line.stackOf(s.picked);
				this.picked.append(el("b", {}, words[0]), " ", words.slice(1).join("; "));
				if (stack.length)
					this.picked.append(el("div", { class: "note" }, stack.join(" < ")));
			}
		}
		window.clearTimeout(this.writing);
		this.writing = window.setTimeout(() => {
			const sec = (t: number) => Math.max(t / 1e9, 0).toFixed(6), r = s.range ?? [0, 0];
			history.replaceState(null, "", `#t=${sec(r[0])}-${sec(r[1])}&v=${sec(a)}-${sec(b)}`);
		}, 300);
	}

	private say(text: string) {
		if (this.status.textContent !== text)
			this.status.textContent = text;
	}

	private fromHash(first: boolean): boolean {
		const m = HASH.exec(location.hash), s = this.s;
		if (!m)
			return false;
		const [a, b, c, d] = m.slice(1).map(x => x === undefined ? NaN : Number(x) * 1e9);
		const span = Math.max(b - a, 1e6);
		if (b > a)
			s.select(a, b);
		else
			s.range = null;
		if (d > c)
			s.setView(c, d);
		else
			s.setView(a - span, b + span);
		if (!first || !(d > c))
			this.section.scrollIntoView({ block: "start" });
		return true;
	}

	private slow(by: number) {
		const s = this.s, slow = s.steps.filter(x => x.slow).sort((x, y) => x.ts - y.ts);
		const at = s.range ? s.range[0] : (s.view[0] + s.view[1]) / 2;
		const next = by > 0 ? slow.find(x => x.ts > at + 1) : slow.reverse().find(x => x.ts < at - 1);
		if (!next)
			return;
		s.select(next.ts, next.ts + next.dur);
		s.setView(next.ts - 1.5 * next.dur, next.ts + 2.5 * next.dur);
	}
	private fit() {
		const r = this.s.range;
		if (r && (this.s.view[0] !== r[0] - (r[1] - r[0]) * 0.05))
			this.s.setView(r[0] - (r[1] - r[0]) * 0.05, r[1] + (r[1] - r[0]) * 0.05);
		else
			this.s.setView(0, this.s.meta.length);
	}
	private zoom(by: number) {
		const [a, b] = this.s.view, c = this.line.cursor;
		this.line.zoom(c > a && c < b ? c : (a + b) / 2, by);
	}

	private table() {
		const s = this.s;
		this.twin.hidden = !this.twin.hidden;
		clear(this.twin);
		if (this.twin.hidden)
			return;
		const inView = s.steps.filter(x => x.ts < s.view[1] && x.ts + x.dur > s.view[0]), all = inView.length > 400 ? inView.filter(x => x.slow) : inView;
		this.twin.append(table(["step", "rank", "at, s", "ms", "beyond median, ms", "own lateness, ms", "judged"], all.slice(0, 400).map(x => {
			const a = el("a", { href: `#t=${(x.ts / 1e9).toFixed(6)}-${((x.ts + x.dur) / 1e9).toFixed(6)}` }, String(x.number));
			return [a, x.rank >= 0 ? x.rank : "", (x.ts / 1e9).toFixed(6), (x.dur / 1e6).toFixed(3), ((x.dur - x.median) / 1e6).toFixed(3),
				(x.late / 1e6).toFixed(3), x.slow ? "slow" : x.warmup ? "warm-up" : ""];
		})));
		if (inView.length > 400)
			this.twin.append(el("p", { class: "note" }, `${inView.length} steps are in view: of these only slow ones, at most 400.`));
	}

	private keys() {
		this.help.hidden = !this.help.hidden;
		if (!this.help.hidden)
			this.help.querySelector("button")?.focus();
		else
			this.line.canvas.focus({ preventScroll: true });
	}

	private search(by: number) {
		const s = this.s, what = s.find;
		if (!what)
			return;
		if (!this.found.length) {
			const ids = new Set<number>();
			s.names.forEach((n, i) => { if (n.toLowerCase().includes(what)) ids.add(i + 1); });
			const seen = new Set<string>();
			for (const piece of s.pieces(0, s.meta.length, s.meta.whole ? 1 : s.meta.length / 2000)) {
				for (let i = 0; i < piece.marks.ts.length && this.found.length < 5000; i++) {
					const key = piece.marks.ts[i] + " " + piece.marks.dur[i];
					if (ids.has(piece.marks.name[i]) && !seen.has(key)) {
						seen.add(key);
						this.found.push([piece.marks.ts[i], piece.marks.dur[i]]);
					}
				}
			}
			this.found.sort((x, y) => x[0] - y[0]);
			this.at = by > 0 ? -1 : 0;
			if (s.busy && !this.found.length)
				window.setTimeout(() => this.search(by), 120);
		}
		if (!this.found.length) {
			if (!s.busy)
				this.say(`no "${what}" in the timeline`);
			return;
		}
		this.at = (this.at + by + this.found.length) % this.found.length;
		const [ts, dur] = this.found[this.at], half = Math.max(dur * 2, (s.view[1] - s.view[0]) / 20, 1000);
		s.select(ts, ts + Math.max(dur, 1));
		s.setView(ts + dur / 2 - half, ts + dur / 2 + half);
	}

	private key(e: KeyboardEvent) {
		const tag = (e.target as HTMLElement | null)?.tagName ?? "";
		if (e.ctrlKey || e.metaKey || e.altKey || tag === "INPUT" || tag === "TEXTAREA")
			return;
		const here = document.activeElement === this.line.canvas, far = e.shiftKey ? 1 : 0.15, s = this.s;
		const acts: Record<string, () => void> = {
			w: () => this.zoom(e.shiftKey ? 0.2 : 0.7), s: () => this.zoom(e.shiftKey ? 5 : 1 / 0.7),
			a: () => this.line.pan(-far), d: () => this.line.pan(far), "[": () => this.slow(-1), "]": () => this.slow(1),
			f: () => this.fit(), t: () => this.table(), "?": () => this.keys(), e: () => this.line.foldAll(false), c: () => this.line.foldAll(true),
			"/": () => this.input.focus(), n: () => this.search(e.shiftKey ? -1 : 1),
			m: () => { this.line.measure = this.line.measure === null ? this.line.cursor : null; s.changed(); },
			escape: () => { this.help.hidden = true; this.line.tip.hidden = true; this.line.measure = null; s.picked = null; s.range = null; s.changed(); },
		};
		if (here)
			Object.assign(acts, { arrowleft: acts.a, arrowright: acts.d, arrowup: () => { this.line.frame.scrollTop -= 60; },
				arrowdown: () => { this.line.frame.scrollTop += 60; }, home: () => this.s.setView(0, s.meta.length) });
		const act = acts[e.key.toLowerCase()];
		if (!act)
			return;
		e.preventDefault();
		act();
	}
}

async function main() {
	const section = document.getElementById("timeline");
	if (!section || !document.getElementById("b0"))
		return;
	const note = el("p", { class: "note" });
	try {
		if (typeof DecompressionStream === "undefined")
			throw new Error("this browser cannot unpack gzip (DecompressionStream)");
		await new Page(await json<Meta>(0), section).start();
	} catch (e) {
		section.hidden = false;
		note.textContent = "The timeline cannot be drawn: " + (e as Error).message + ". All else on this page stands.";
		section.append(note);
		document.documentElement.dataset.ready = "0";
	}
}
// The data stand behind the script.
if (document.readyState === "loading")
	document.addEventListener("DOMContentLoaded", () => void main());
else
	void main();
