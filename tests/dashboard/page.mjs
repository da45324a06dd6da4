// The status page in a real browser: `node page.mjs MODULES CHROMIUM PORT FOLDER`. Speaks with its parent by
// lines: it writes a step's name when it is done with it, and waits for a line where the parent has
// something to do. FOLDER gets the pictures.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import assert from "node:assert/strict";

const [modules, chromium, port, folder] = process.argv.slice(2);
const { chromium: browserType } = createRequire(`${modules}/`)("playwright-core");
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const done = (step) => console.log(step);
const told = () => lines.next();

const browser = await browserType.launch({
  executablePath: chromium,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const trouble = [];

async function open(colorScheme) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, colorScheme });
  const page = await context.newPage();
  page.on("pageerror", (error) => trouble.push(`page: ${error}`));
  page.on("console", (message) => {
    if (message.type() === "error" && !message.text().includes("ERR_CONNECTION_REFUSED")
      && !message.text().includes("ERR_EMPTY_RESPONSE") && !message.text().includes("ERR_CONNECTION_RESET")) {
      trouble.push(`console: ${message.text()}`);
    }
  });
  page.on("request", (request) => {
    const url = new URL(request.url());
    const ours = url.protocol === "data:" || url.host === `127.0.0.1:${port}`;
    if (!ours) trouble.push(`asks ${url}`);
    if (request.method() !== "GET") trouble.push(`sends ${request.method()} ${url}`);
  });
  await page.goto(`http://127.0.0.1:${port}/`);
  await page.locator("#state.live").waitFor();
  return page;
}

const newest = (page) => page.evaluate(() => Number(document.documentElement.dataset.newest));
const points = (page) => page.evaluate(() => Number(document.documentElement.dataset.points));

// A canvas has something on it beside the grid: many colours.
const drawn = (page, title) => page.evaluate((title) => {
  const figure = [...document.querySelectorAll("figure")].find((one) => one.innerText.startsWith(title));
  const canvas = figure.querySelector("canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const colors = new Set();
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] > 200) colors.add(`${data[at] >> 5},${data[at + 1] >> 5},${data[at + 2] >> 5}`);
  }
  return colors.size;
}, title);

const page = await open("light");
done("loaded");

// A new second comes by itself.
const before = await newest(page);
await page.waitForFunction((before) => Number(document.documentElement.dataset.newest) >= before + 2000, before);
done("updated");

await told();
// Load was put on the server: lines are drawn, lists are filled.
const reading = (title) => page.locator("figure", { hasText: title }).first().locator("canvas").getAttribute("aria-label");
await page.waitForFunction(() => /insert [1-9]/.test(
  document.querySelector("#operations canvas").getAttribute("aria-label") || ""));
assert.ok(await drawn(page, "Operations") > 3, "lines are drawn");
await page.locator("#collections td", { hasText: "shop.orders" }).waitFor();
await page.locator("#warnings li", { hasText: "Access control" }).waitFor();
await page.locator("#slow td", { hasText: "shop" }).first().waitFor();
// Somebody waits for a lock, and the page says for whom.
await page.locator("#locks td", { hasText: "shop.orders" }).first().waitFor();
await page.locator("#locks td", { hasText: /^conn\d+ 127\.0\.0\.1:/ }).first().waitFor();
done("filled");

// Every chart, button and link is reached by the keyboard, and says its figures in words.
const seen = new Set();
for (let at = 0; at < 90; at += 1) {
  await page.keyboard.press("Tab");
  seen.add(await page.evaluate(() => {
    const it = document.activeElement;
    const label = (it.getAttribute("aria-label") || "").replace(/ at .*/, "");
    return `${it.tagName} ${it.textContent.slice(0, 30)}${label}`;
  }));
}
const charts = await page.locator("canvas").count();
assert.equal([...seen].filter((one) => one.startsWith("CANVAS")).length, charts, [...seen].join("\n"));
assert.ok([...seen].some((one) => one.startsWith("BUTTON 1 day")));
await page.locator("canvas").first().focus();
const last = await reading("Operations");
for (let at = 0; at < 5; at += 1) await page.keyboard.press("ArrowLeft");
await page.waitForFunction((last) => document.querySelector("canvas").getAttribute("aria-label") !== last, last);
await page.keyboard.press("+");
await page.locator("#state", { hasText: "paused" }).waitFor();
await page.keyboard.press("Escape");
await page.locator("#state.live").waitFor();
done("keyboard");

// A day's points are of many seconds: their extremes are asked for, and told.
const [wide] = await Promise.all([
  page.waitForResponse((response) => response.url().includes("fastest(opcounters.insert)")),
  page.getByRole("button", { name: "1 day", exact: true }).click(),
]);
const { times, series } = await wide.json();
const [slowest, fastest] = ["slowest", "fastest"].map((of) => series[`${of}(opcounters.insert)`]);
assert.equal(fastest.length, times.length);
assert.ok(Math.max(...fastest) > 0, "documents were inserted");
assert.ok(fastest.every((most, at) => most === null || most >= slowest[at]));
// Stretches up to a day are drawn; a drag zooms in.
for (const name of ["30 min", "5 min"]) {
  await page.getByRole("button", { name, exact: true }).click();
  await page.waitForFunction(() => Number(document.documentElement.dataset.points) > 0);
}
const seconds = await points(page);
assert.ok(seconds >= 10, `${seconds} seconds`);
await page.evaluate(() => scrollTo(0, 0));
const box = await page.locator("canvas").first().boundingBox();
await page.mouse.move(box.x + box.width * 0.6, box.y + 50);
await page.mouse.down();
await page.mouse.move(box.x + box.width * 0.95, box.y + 50, { steps: 4 });
await page.mouse.up();
await page.locator("#state", { hasText: "paused" }).waitFor();
await page.keyboard.press("Escape");
await page.locator("#state.live").waitFor();
done("zoomed");

await told();
// The server was stopped.
await page.locator("#state", { hasText: "no answer" }).waitFor();
done("missed");
await told();
// It was started again: the page goes on by itself, and what was before is still there.
await page.locator("#state.live").waitFor({ timeout: 60000 });
await page.waitForFunction((seconds) => Number(document.documentElement.dataset.points) > seconds, seconds);
done("survived");

await told();
await page.mouse.move(2, 300);
const picture = (page, name, fullPage = false) =>
  page.screenshot({ path: `${folder}/${name}.png`, fullPage });
await page.evaluate(() => scrollTo(0, 0));
await picture(page, "status-light");
await picture(page, "status-whole", true);
const dark = await open("dark");
await dark.waitForTimeout(1500);
await picture(dark, "status-dark");
assert.notEqual(
  await page.evaluate(() => getComputedStyle(document.body).backgroundColor),
  await dark.evaluate(() => getComputedStyle(document.body).backgroundColor));
await dark.locator("#theme").click();
assert.equal(await dark.evaluate(() => document.documentElement.dataset.theme), "light");
// A telephone needs no scrolling sideways.
await dark.setViewportSize({ width: 420, height: 800 });
assert.ok(await dark.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "fits");
done("pictures");

assert.deepEqual(trouble, []);
await browser.close();
// Its parent's line would be waited for.
process.exit(0);
