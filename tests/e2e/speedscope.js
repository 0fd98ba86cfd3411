// SPDX-License-Identifier: Apache-2.0
/*
 * speedscope.js RELEASE-FOLDER FILE: what speedscope's own importer reads out of a file, as one line of JSON:
 * {taken_anyway, warnings, profiles: [{name, unit, total, slices: [[start, end, depth, name]]}]}, times as the
 * profile counts. taken_anyway: warnings of E's that have other arguments than their B; warnings: all others.
 *
 * The npm package is a bundle for browsers that shows what it loads and gives nothing back. It is run up to
 * where the page would be drawn; what it gives window.speedscope.loadFileFromBase64 to load with is called.
 */
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [folder, file] = process.argv.slice(2);
const bundle = fs.readdirSync(folder).find((name) => /^speedscope-\w+\.js$/.test(name));
const text = fs.readFileSync(path.join(folder, bundle), "utf8");
const load = /loadFileFromBase64:\(([\w$]+),([\w$]+)\)=>\{this\.loadProfile\(\(\)=>([\w$]+)\(\1,\2\)\)/.exec(text);
const drawn = text.indexOf("console.log(`speedscope v");
if (!load || drawn < 0)
	throw new Error(`${bundle} is not the bundle that this was written for`);

// Whatever the page does not need to load a file.
function nothing() {
	return new Proxy(function () {}, {
		get: (target, key) => key === Symbol.toPrimitive ? () => "" :
			key === Symbol.iterator || key === "then" ? undefined : nothing(),
		set: () => true,
		apply: nothing,
		construct: nothing,
	});
}

let taken_anyway = 0;
const warnings = [];
function warn(text) {
	if (/^ts=\S+: Tried to end .* was on the top of the stack\. Ending .* instead\.$/s.test(text))
		taken_anyway++;
	else
		warnings.push(text);
}

const page = {
	console: { log() {}, warn, error: console.error },
	location: { hash: "", href: "file:///", protocol: "file:", search: "" },
	document: nothing(), navigator: nothing(), localStorage: nothing(), requestAnimationFrame() {},
	TextDecoder, TextEncoder, atob, btoa, setTimeout, clearTimeout, performance, Blob, URL,
	ArrayBuffer, Uint8Array, DataView, Map, Set, Promise,
};
page.window = page.self = page;
vm.createContext(page);
vm.runInContext(`${text.slice(0, drawn)};globalThis.load=${load[3]};})();`, page, { filename: bundle });

page.load(path.basename(file), fs.readFileSync(file).toString("base64")).then((group) => {
	const profiles = group.profiles.map((profile) => {
		const slices = [], open = [];

		profile.forEachCall((node, at) => {
			slices.push([at, null, open.length, node.frame.name]);
			open.push(slices[slices.length - 1]);
		}, (node, at) => {
			open.pop()[1] = at;
		});
		return { name: profile.getName(), unit: profile.getWeightUnit(), total: profile.getTotalWeight(), slices };
	});
	process.stdout.write(JSON.stringify({ taken_anyway, warnings, profiles }) + "\n");
}).catch((error) => {
	console.error(String(error));
	process.exit(1);
});
