// SPDX-License-Identifier: Apache-2.0
// page.js MODULES PAGE: opens the page that explain --html wrote in a headless Chromium and prints, as JSON, what it
// found. What is judged is judged by test_html.py. Also `page.js MODULES PAGE --speed` for bench/run,
// `--pictures` for tools/make-pictures, and `--evidence` for one finding.
"use strict";
const path = require("path");
const [modules, page, mode] = process.argv.slice(2);
const { chromium } = require(path.join(modules, "playwright-core"));
const axe = require.resolve(path.join(modules, "axe-core/axe.min.js"));
const SHOTS = process.env.LG_SHOTS; // a folder: screenshots are left there

async function open(browser, options, seen, where = "") {
	const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
	const p = await context.newPage();
	p.on("request", r => { if (!r.url().startsWith("file:")) seen.requests.push(r.url()); });
	p.on("pageerror", e => seen.errors.push(String(e.message)));
	p.on("dialog", d => { seen.errors.push("dialog " + d.message()); d.dismiss(); });
	p.on("console", m => { if (m.type() === "error") seen.errors.push(m.text()); });
	if (options.javaScriptEnabled !== false)
		await p.addInitScript(() => {
			window.violations = [];
			document.addEventListener("securitypolicyviolation", e => window.violations.push(e.violatedDirective + " " + e.blockedURI));
		});
	await p.goto("file://" + page + where);
	if (options.javaScriptEnabled !== false && await p.$("script"))
		await p.waitForSelector("html[data-ready]", { state: "attached", timeout: 60000 });
	return p;
}

const canvas = p => p.evaluate(() => ({ ...document.querySelector(".lanes canvas")?.dataset }));
const state = async p => ({ ...await canvas(p), hash: await p.evaluate(() => location.hash) });

async function settled(p) {
	await p.waitForFunction(() => document.querySelector(".lanes canvas")?.dataset.busy === "0", null, { timeout: 30000 });
	await p.waitForTimeout(450); // the address is written a little later
}

async function press(p, key) {
	await p.keyboard.press(key);
	await settled(p);
	return state(p);
}

async function violations(p) {
	// The policy of the page forbids foreign scripts: axe comes in through the debugger, not as an element.
	await p.evaluate(require("fs").readFileSync(axe, "utf8"));
	const got = await p.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
	return got.violations.map(v => ({ id: v.id, impact: v.impact, nodes: v.nodes.slice(0, 3).map(n => n.html.slice(0, 120)) }));
}

// What a screenshot looks like from afar, in 160 columns, beside what is kept of it: the share of places that differ.
async function look(browser, p, name) {
	const file = path.join(process.env.LG_LOOKS, name + ".png"), fs = require("fs");
	const kept = fs.existsSync(file) ? fs.readFileSync(file).toString("base64") : null;
	const shot = (await p.screenshot()).toString("base64"), q = await browser.newPage();
	const got = await q.evaluate(async ([shot, kept]) => {
		const image = async data => {
			const i = new Image();
			i.src = "data:image/png;base64," + data;
			await i.decode();
			return i;
		};
		const small = (i, w, h) => {
			const c = document.createElement("canvas"), g = c.getContext("2d");
			c.width = w;
			c.height = h;
			g.imageSmoothingQuality = "high";
			g.drawImage(i, 0, 0, w, h);
			return c;
		};
		const a = await image(shot), c = small(a, 160, Math.round(160 * a.height / a.width));
		if (!kept)
			return { small: c.toDataURL(), differs: 1 };
		const x = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
		const y = small(await image(kept), c.width, c.height).getContext("2d").getImageData(0, 0, c.width, c.height).data;
		let n = 0;
		for (let i = 0; i < x.length; i += 4)
			n += Math.max(Math.abs(x[i] - y[i]), Math.abs(x[i + 1] - y[i + 1]), Math.abs(x[i + 2] - y[i + 2])) > 48 ? 1 : 0;
		return { small: c.toDataURL(), differs: n / (x.length / 4) };
	}, [shot, kept]);
	await q.close();
	if (process.env.LG_LOOKS_WRITE)
		fs.writeFileSync(file, Buffer.from(got.small.split(",")[1], "base64"));
	return got.differs;
}

// Numbers that lead somewhere, arrows, stacks, measuring, selecting on the pictures of all steps, the fold.
async function more(p, at) {
	const out = { facts: await p.$$eval(".facts a", els => els.map(e => e.getAttribute("href"))), to_do: await p.$$eval(".to-do dt", els => els.map(e => e.textContent)),
		loose: await p.$$eval(".finding dd li", els => els.filter(e => !e.querySelector("a.at") && !/^and \d+ more$/.test(e.textContent)).map(e => e.textContent)) };
	const arrows = new Set(), frame = await p.locator(".lanes canvas").boundingBox() ?? at;
	await p.keyboard.press("Escape");
	await p.keyboard.press("f");
	await p.keyboard.press("]"); // the first slow step
	await settled(p);
	out.stack = 0;
	for (let y = 70; y < frame.height - 4; y += 7)
		for (const x of [0.44, 0.5, 0.56]) {
			const px = frame.x + 190 + (frame.width - 190) * x;
			await p.mouse.move(px, frame.y + y);
			if (!await p.isVisible(".tip"))
				continue;
			out.stack = Math.max(out.stack, await p.locator(".tip li").count());
			await p.mouse.click(px, frame.y + y);
			await p.waitForTimeout(40);
			((await canvas(p)).arrows || "").split(" ").filter(a => a).forEach(a => arrows.add(a));
		}
	out.arrows = [...arrows].sort();
	await p.mouse.move(frame.x + 400, frame.y + 100);
	await p.keyboard.press("m");
	await p.mouse.move(frame.x + 500, frame.y + 100);
	await p.waitForTimeout(60);
	out.measured = await p.textContent(".status");
	await p.keyboard.press("m");
	for (const what of ["#strip svg", "#heat svg", "#memory svg"]) {
		if (!await p.locator(what).count())
			continue;
		await p.locator(what).scrollIntoViewIfNeeded();
		const box = await p.locator(what).boundingBox();
		await p.mouse.move(box.x + box.width * 0.3, box.y + box.height / 2);
		await p.mouse.down();
		await p.mouse.move(box.x + box.width * 0.6, box.y + box.height / 2, { steps: 4 });
		await p.mouse.up();
		await settled(p);
		out[what] = (await state(p)).hash;
		out[what + " shaded"] = await p.locator(what + " .brush").evaluate(e => [e.getAttribute("x"), e.getAttribute("width")].map(Number));
	}
	out.fold = [];
	for (const o of await p.locator("#fold-of option").all()) {
		await p.selectOption("#fold-of", await o.getAttribute("value"));
		await p.waitForTimeout(60);
		out.fold.push([await o.textContent(), await p.evaluate(() => document.querySelector(".fold canvas").dataset.tracks)]);
	}
	return out;
}

async function check() {
	const browser = await chromium.launch({ executablePath: process.env.LG_CHROMIUM, args: ["--no-sandbox", "--font-render-hinting=none"] });
	const seen = { requests: [], errors: [] }, out = { seen };
	const p = await open(browser, {}, seen);
	out.ready = await p.evaluate(() => document.documentElement.dataset.ready);
	out.paint_ms = await p.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
	out.headline = await p.textContent("h1");
	out.facts = await p.$$eval(".facts div", els => els.map(e => [e.querySelector("dt").textContent, e.querySelector("dd").textContent]));
	out.findings = await p.$$eval(".finding", els => els.map(e => ({ title: e.querySelector("h3").textContent, price: e.querySelector(".price").textContent })));
	out.has_timeline = await p.evaluate(() => !!document.querySelector(".lanes canvas"));
	out.pwned = await p.evaluate(() => window.pwned);
	if (out.has_timeline) {
		await settled(p);
		out.start = await state(p);
		out.devices = await p.$$eval(".devices table", ts => ts.map(t => [...t.querySelectorAll("tbody tr")].map(r => [...r.children].map(c => c.textContent))));
		out.busy = await p.$$eval(".devices p", ps => ps.map(x => x.textContent));
		out.selection = await p.$$eval(".account table", ts => ts.map(t => ({ ...t.dataset })));
		out.keys = {};
		for (const key of ["f", "w", "d", "a", "s", "]", "[", "f", "f"])
			out.keys[key] = await press(p, key);
		await press(p, "t");
		out.table_rows = await p.locator(".twin tbody tr").count();
		await press(p, "t");
		await p.keyboard.press("?");
		out.help = await p.isVisible(".help");
		await p.keyboard.press("Escape");
		out.help_after = await p.isVisible(".help");
		const link = p.locator("a.at").first();
		if (await link.count()) {
			out.link = await link.getAttribute("href");
			await link.click();
			await settled(p);
			out.after_link = await state(p);
		}
		const box = await p.locator(".lanes canvas").boundingBox();
		await p.locator(".lanes").scrollIntoViewIfNeeded();
		const at = await p.locator(".lanes canvas").boundingBox() ?? box;
		await p.mouse.move(at.x + 400, at.y + 130);
		await p.mouse.down();
		await p.mouse.move(at.x + 700, at.y + 130, { steps: 5 });
		await p.mouse.up();
		await settled(p);
		out.dragged = await state(p);
		// Over marks: a tip comes.
		out.tip = "";
		for (let y = 90; y < Math.min(at.height, 420) && !out.tip; y += 7) {
			await p.mouse.move(at.x + 520, at.y + y);
			if (await p.isVisible(".tip"))
				out.tip = await p.textContent(".tip");
		}
		await p.mouse.wheel(0, 0);
		await p.keyboard.down("Control");
		await p.mouse.move(at.x + 600, at.y + 120);
		await p.mouse.wheel(0, -400);
		await p.keyboard.up("Control");
		await settled(p);
		out.wheeled = await state(p);
		if (process.env.LG_FIND) {
			await p.keyboard.press("/");
			await p.keyboard.type(process.env.LG_FIND);
			await p.keyboard.press("Enter");
			await settled(p);
			out.found = await p.textContent(".status");
			await p.keyboard.press("Escape");
		}
		// The address brings the same state back.
		const hash = (await state(p)).hash, q = await open(browser, {}, seen, hash);
		await settled(q);
		out.again = { ...await state(q), wanted: hash };
		await q.close();
		out.more = await more(p, at);
		out.flames = {};
		for (const b of await p.locator(".tabs button").all()) {
			if (!await b.isVisible())
				continue; // there are no samples and no waits
			await b.scrollIntoViewIfNeeded();
			await b.click();
			await p.waitForTimeout(300);
			out.flames[await b.textContent()] = await p.locator(".flame tbody tr").count();
		}
	}
	out.violations = await p.evaluate(() => window.violations);
	out.axe = { light: await violations(p) };
	if (SHOTS)
		await p.screenshot({ path: path.join(SHOTS, "light.png"), fullPage: true });
	out.looks = {};
	if (process.env.LG_LOOKS)
		for (const [name, options] of [["light", {}], ["dark", { colorScheme: "dark" }], ["narrow", { viewport: { width: 800, height: 900 } }]]) {
			const q = await open(browser, options, seen);
			await settled(q);
			out.looks[name] = await look(browser, q, name);
			await q.locator("#timeline").scrollIntoViewIfNeeded();
			await q.evaluate(() => document.getElementById("timeline").scrollIntoView());
			await q.waitForTimeout(300);
			out.looks[name + "-timeline"] = await look(browser, q, name + "-timeline");
			await q.close();
		}
	const d = await open(browser, { colorScheme: "dark", viewport: { width: 800, height: 900 } }, seen);
	if (out.has_timeline) {
		await settled(d);
		out.print = await d.evaluate(() => {
			const grounds = () => [...document.querySelectorAll("canvas")].filter(c => c.width > 2 && c.height > 2 && c.offsetParent).map(c => {
				const v = c.getContext("2d").getImageData(0, c.height - 1, c.width, 1).data;
				return Math.max(...v.filter((_, i) => i % 4 === 3)) ? v[0] : -1;
			});
			const before = grounds();
			window.dispatchEvent(new Event("beforeprint"));
			const paper = grounds();
			window.dispatchEvent(new Event("afterprint"));
			return { before, paper, after: grounds() };
		});
	}
	out.axe.dark = await violations(d);
	out.wide = await d.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
	if (SHOTS)
		await d.screenshot({ path: path.join(SHOTS, "dark.png"), fullPage: true });
	const plain = await open(browser, { javaScriptEnabled: false }, { requests: [], errors: [] });
	out.plain = await plain.locator("main").innerText();
	out.plain_svg = await plain.locator("svg[role=img]").count();
	const pdf = await p.pdf({ format: "A4" });
	out.pdf_bytes = pdf.length;
	await browser.close();
	console.log(JSON.stringify(out));
}

// Pans and zooms for some seconds, one step a frame, and tells how long frames and drawing took.
async function speed() {
	const browser = await chromium.launch({ executablePath: process.env.LG_CHROMIUM, args: ["--no-sandbox"] });
	const seen = { requests: [], errors: [] }, began = Date.now(), p = await open(browser, {}, seen), ready = Date.now() - began;
	await p.locator(".lanes").scrollIntoViewIfNeeded();
	await p.locator(".lanes canvas").focus();
	await p.keyboard.press("f");
	await p.keyboard.press("f");
	await settled(p);
	const got = await p.evaluate(async () => {
		const c = document.querySelector(".lanes canvas"), at = [], draw = [], marks = [];
		const key = k => document.dispatchEvent(new KeyboardEvent("keydown", { key: k, bubbles: true }));
		const script = ["w", "w", "w", "d", "d", "d", "d", "a", "a", "w", "w", "w", "w", "d", "d", "a", "s", "s", "d", "d", "s", "s", "s", "s", "s", "w"];
		await new Promise(done => {
			let i = 0;
			const frame = t => {
				at.push(t);
				draw.push(Number(c.dataset.ms));
				marks.push(Number(c.dataset.marks));
				if (++i > 400)
					return done();
				key(script[i % script.length]);
				requestAnimationFrame(frame);
			};
			requestAnimationFrame(frame);
		});
		const gaps = at.slice(1).map((t, i) => t - at[i]).sort((a, b) => a - b);
		draw.sort((a, b) => a - b);
		return { fps: 1000 * gaps.length / (at[at.length - 1] - at[0]), p95_frame_ms: gaps[Math.floor(gaps.length * 0.95)],
			p50_draw_ms: draw[draw.length >> 1], p95_draw_ms: draw[Math.floor(draw.length * 0.95)], most_marks: Math.max(...marks),
			paint_ms: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
			heap_mb: performance.memory ? performance.memory.usedJSHeapSize / 1e6 : null };
	});
	await browser.close();
	console.log(JSON.stringify({ ready_ms: ready, ...got, seen }));
}

// What the README shows: LG_AT is the address of a late step. The wait that its arrow leads from is clicked at.
async function pictures() {
	const browser = await chromium.launch({ executablePath: process.env.LG_CHROMIUM, args: ["--no-sandbox"] });
	const p = await open(browser, { viewport: { width: 1100, height: 960 } }, { requests: [], errors: [] }, process.env.LG_AT);
	await settled(p);
	await p.locator("#timeline").evaluate(e => e.scrollIntoView());
	await p.waitForTimeout(300);
	const box = await p.locator(".lanes canvas").boundingBox(), x = box.x + 190 + (box.width - 190) * 0.5;
	for (let y = 66; y < box.height - 4; y += 5) {
		await p.mouse.move(x, box.y + y);
		if (await p.isVisible(".tip") && /waits for a lock/.test(await p.textContent(".tip"))) {
			await p.mouse.click(x, box.y + y);
			await p.evaluate(by => { document.querySelector(".lanes").scrollTop += by; }, y - 170); // what it leads to is below
			break;
		}
	}
	// Of those who are accused of something else the headings are enough.
	for (let i = 0; i < 20; i++) {
		const heads = ((await canvas(p)).heads || "").split("\n").map(l => /^([\d.]+) open (culprit: .*)$/.exec(l)).filter(m => m);
		const other = heads.find(m => !m[2].includes(`(pid ${process.env.LG_WHO})`));
		if (!other)
			break;
		await p.mouse.click(box.x + 60, box.y + Number(other[1]));
		await p.waitForTimeout(100);
	}
	await p.evaluate(() => document.activeElement.blur());
	await p.mouse.move(2, 2);
	await settled(p);
	await p.locator(".lanes").screenshot({ path: path.join(SHOTS, "timeline.png") });
	if (await p.locator(".fold canvas").count())
		await p.locator(".fold canvas").screenshot({ path: path.join(SHOTS, "fold.png") });
	await browser.close();
}

// From the first evidence that names a holder to its moment; there, what the lane of who holds it (LG_WHO) shows, and the
// lanes of the ranks. Lanes are far below each other: they are scrolled to.
async function evidence() {
	const browser = await chromium.launch({ executablePath: process.env.LG_CHROMIUM, args: ["--no-sandbox"] });
	const seen = { requests: [], errors: [] }, p = await open(browser, {}, seen);
	const link = p.locator(".finding dd li", { hasText: `(pid ${process.env.LG_WHO}), held` }).first().locator("a.at");
	const out = { seen, link: await link.getAttribute("href"), heads: [], holds: [], waits: [], arrows: [] };
	await link.click();
	await settled(p);
	out.at = await state(p);
	await p.locator("#timeline").evaluate(e => e.scrollIntoView());
	for (let top = -1; top !== await p.locator(".lanes").evaluate(e => e.scrollTop);) {
		top = await p.locator(".lanes").evaluate(e => e.scrollTop);
		await settled(p);
		const box = await p.locator(".lanes canvas").boundingBox();
		const heads = (await canvas(p)).heads.split("\n").filter(h => h).map(h => /^([\d.-]+) \w+ (.*)$/.exec(h));
		out.heads.push(...heads.map(h => h[2]));
		for (let y = 70; y < box.height - 4; y += 6) {
			const x = box.x + 190 + (box.width - 190) * 0.5;
			await p.mouse.move(x, box.y + y);
			const tip = await p.isVisible(".tip") ? await p.textContent(".tip") : "";
			if (/holds a lock/.test(tip))
				out.holds.push(tip);
			if (!/waits for a lock/.test(tip))
				continue;
			out.waits.push(tip);
			await p.mouse.click(x, box.y + y);
			await p.waitForTimeout(60);
			out.arrows.push((await canvas(p)).arrows);
		}
		await p.locator(".lanes").evaluate(e => { e.scrollTop += 300; });
	}
	await browser.close();
	console.log(JSON.stringify(out));
}

(mode === "--evidence" ? evidence() : mode === "--speed" ? speed() : mode === "--pictures" ? pictures() : check()).catch(e => { console.error(e); process.exit(1); });
