// SPDX-License-Identifier: Apache-2.0
// The only way elements are made: text is text, never markup.

type Child = Node | string | number | null | undefined;

export function el<K extends keyof HTMLElementTagNameMap>(tag: K, attrs: Record<string, string> = {},
	...children: Child[]): HTMLElementTagNameMap[K] {
	const e = document.createElement(tag);
	for (const k of Object.keys(attrs))
		e.setAttribute(k, attrs[k]);
	for (const c of children)
		if (c !== null && c !== undefined)
			e.append(typeof c === "number" ? String(c) : c);
	return e;
}

export function button(text: string, title: string, act: () => void): HTMLButtonElement {
	const b = el("button", { type: "button", title }, text);
	b.addEventListener("click", act);
	return b;
}

export function table(head: string[], rows: Child[][], foot?: Child[]): HTMLTableElement {
	const line = (cells: Child[]) => el("tr", {}, ...cells.map((c, i) => i ? el("td", {}, c) : el("th", { scope: "row" }, c)));
	return el("table", {},
		el("thead", {}, el("tr", {}, ...head.map(h => el("th", { scope: "col" }, h)))),
		el("tbody", {}, ...rows.map(line)), foot ? el("tfoot", {}, line(foot)) : null);
}

export function time(ns: number): string {
	const a = Math.abs(ns);
	if (a >= 1e9)
		return (ns / 1e9).toFixed(a >= 1e11 ? 1 : 3) + " s";
	if (a >= 1e6)
		return (ns / 1e6).toFixed(a >= 1e8 ? 1 : 3) + " ms";
	if (a >= 1e3)
		return (ns / 1e3).toFixed(a >= 1e5 ? 1 : 2) + " \u00b5s";
	return Math.round(ns) + " ns";
}

// All digits, from whole nanoseconds.
export function exactMs(ns: number): string {
	const a = Math.abs(ns), whole = Math.floor(a / 1e6);
	return (ns < 0 ? "-" : "") + whole + "." + String(a - whole * 1e6).padStart(6, "0");
}

export function clear(e: Element): void {
	while (e.firstChild)
		e.firstChild.remove();
}

// A canvas of that size in CSS pixels, sharp on any screen, within what browsers can draw.
export function fit(c: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
	const scale = Math.min(window.devicePixelRatio || 1, 32000 / Math.max(width, height, 1));
	const w = Math.round(width * scale), h = Math.round(height * scale);
	if (c.width !== w || c.height !== h) {
		c.width = w;
		c.height = h;
		c.style.width = width + "px";
		c.style.height = height + "px";
	}
	const g = c.getContext("2d")!;
	g.setTransform(scale, 0, 0, scale, 0, 0);
	return g;
}
