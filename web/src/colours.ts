// SPDX-License-Identifier: Apache-2.0
// A colour means a state, in every view. Okabe and Ito's eight; vermillion is the culprit's alone.

export interface Palette {
	ground: string; band: string; ink: string; soft: string; rule: string; select: string; focus: string;
	state: string[]; stage: string[]; slot: string[]; kind: Record<number, string>; cpu: string[]; loss: string;
}

const stage = ["#c4c4c4", "#e69f00", "#f0e442", "#0072b2", "#56b4e9", "#009e73", "#cc79a7", "#8c6d31", "#c4c4c4"];
const slot = ["#0072b2", "#e69f00", "#56b4e9", "#bbbbbb", "#d55e00", "#cc79a7", "#f0e442", "#009e73", "#8c6d31", "#5b2a6e"];
// enum lg_span_kind of src/store/trace.h
const kind: Record<number, string> = { 1: "#7f7f7f", 3: "#7fb3d5", 4: "#009e73", 5: "#e69f00", 6: "#117a65", 7: "#d98880",
	8: "#d55e00", 9: "#8c6d31", 10: "#b07aa1", 11: "#cc79a7", 12: "#a0a0a0", 13: "#a0a0a0", 14: "#f0e442", 15: "#af7ac5",
	16: "#9fb4c4", 17: "#b9c9a5", 18: "#85a9c9", 19: "#b8b8b8", 20: "#cccccc" };
const cpu = ["#7fa7c9", "#a8c4a2", "#c9b27f", "#b79fc4", "#9fc4bf", "#c4a09f", "#8f9fb7", "#b7b08f"];

export const light: Palette = { ground: "#ffffff", band: "#f4f4f1", ink: "#1b1b1b", soft: "#5c5c5c", rule: "#dcdcd6",
	select: "rgba(0,90,160,0.13)", focus: "#0b57a4", state: ["#ffffff", "#0072b2", "#e69f00", "#c9dcea", "#c9dcea"],
	stage, slot, kind, cpu, loss: "#444444" };
export const dark: Palette = { ground: "#17191c", band: "#1f2226", ink: "#e8e8e6", soft: "#a6a8ab", rule: "#34373c",
	select: "rgba(120,180,240,0.2)", focus: "#8cc2ff", state: ["#17191c", "#3b97d3", "#e69f00", "#33424f", "#33424f"],
	stage, slot, kind, cpu, loss: "#bbbbbb" };

let printing = false;
export function setPrinting(on: boolean) { printing = on; }

export function isDark(): boolean {
	const chosen = document.documentElement.dataset.theme;
	if (printing)
		return false;
	return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}

export function palette(): Palette {
	return isDark() ? dark : light;
}

// Text upon a fill.
export function inkOn(fill: string): string {
	const n = parseInt(fill.slice(1), 16), l = 0.299 * (n >> 16) + 0.587 * (n >> 8 & 255) + 0.114 * (n & 255);
	return l > 110 ? "#111111" : "#ffffff";
}
