// The page's one script: asks the server each second and draws what it says.
//
// What is always true:
// 1. Texts of the server become text nodes, never markup.
// 2. Every figure comes from /api; what the server does not say is a gap, not a zero.
// 3. A server that is gone is asked again each second; what it says then is drawn from the start.
"use strict";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
// Points a chart has at most: half an hour at a point a second.
const MAX_POINTS = 1800;
const STRETCHES = [["5 min", 5], ["30 min", 30], ["2 h", 120], ["6 h", 360], ["1 day", 1440]];

// ---- what is drawn ------------------------------------------------------------------------------

// A line: its label, its unit's value from the columns at point i; with `band`, between what the
// seconds of a wider point were.
const value = (label, name, scale = 1) =>
  ({ label, names: [name], scale, band: [`least(${name})`, `most(${name})`],
    at: (d, i) => times(d.column(name)[i], scale) });
const rate = (label, name, scale = 1) =>
  ({ ...sum(label, [name], scale), scale, band: [`slowest(${name})`, `fastest(${name})`] });
const sum = (label, names, scale = 1) => ({
  label, names,
  at: (d, i) => times(names.reduce((all, name) => plus(all, d.rate(name, i)), 0), scale),
});
// How much of one counter came with each of another.
const mean = (label, name, per, scale = 1) => ({
  label, names: [name, per],
  at: (d, i) => {
    const [much, many] = [d.rate(name, i), d.rate(per, i)];
    return much === null || !many ? null : much / many * scale;
  },
});
const times = (n, scale) => (n === null || n === undefined ? null : n * scale);
const plus = (a, b) => (a === null || b === null ? null : a + b);

const latency = (kind, title) => ({
  title, unit: "s",
  lines: [
    value("half below", `latency.${kind}.p50Micros`, 1e-6),
    value("99 % below", `latency.${kind}.p99Micros`, 1e-6),
    value("slowest", `latency.${kind}.maxMicros`, 1e-6),
  ],
});

const SECTIONS = [
  ["operations", "Operations", [
    { title: "Operations", unit: "/s", lines: ["insert", "query", "update", "delete", "getmore", "command"]
      .map((name) => rate(name, `opcounters.${name}`)) },
    { title: "Documents", unit: "/s", lines: ["inserted", "returned", "updated", "deleted"]
      .map((name) => rate(name, `metrics.document.${name}`)) },
    { title: "Clients", unit: "", lines: [value("connections", "connections.current"),
      value("running a command", "connections.active"), value("cursors", "metrics.cursor.open.total")] },
    { title: "Network", unit: "B/s", lines: [rate("in", "network.bytesIn"), rate("out", "network.bytesOut")] },
    { title: "Processor", unit: "%", lines: [rate("user", "extra_info.user_time_us", 1e-4),
      rate("system", "extra_info.system_time_us", 1e-4)] },
    { title: "Memory", unit: "B", lines: [value("resident", "mem.resident", 1048576),
      value("engine", "engine.CT_SIZE_CURRENT"), value("cacheSize", "engine.CT_SIZE_LIMIT")] },
  ]],
  ["memory", "Memory", [
    { title: "Held for clients", unit: "B", lines: ["requests", "partialRequests", "tls", "replies", "values", "stages",
      "idSets", "scripts", "cursors", "sessions", "links", "statistics"]
      .map((name) => value(name, `memoryAccount.clients.parts.${name}`)) },
    { title: "Held by the engine", unit: "B", lines: ["frames", "compressed", "nodes", "filters", "memtables",
      "writeSets", "locks", "buffers", "catalog"]
      .map((name) => value(name, `memoryAccount.engine.parts.${name}`)) },
    { title: "Clients' bound", unit: "B", lines: [value("held", "memoryAccount.clients.total"),
      value("bound", "memoryAccount.clients.capacity")] },
    { title: "Counted and allocated", unit: "B", lines: [value("both accounts", "memoryAccount.total"),
      value("allocated", "memoryAccount.allocator.allocated"),
      value("resident", "memoryAccount.resident")] },
  ]],
  ["latencies", "Latencies", [
    latency("reads", "Reads"), latency("writes", "Writes"), latency("commands", "Other commands"),
  ]],
  ["cache", "Cache", [
    { title: "Hits and misses", unit: "/s", lines: [rate("hits", "engine.FERN_CACHE_HITS"),
      rate("misses, from disk", "engine.FERN_MISS_FULL"),
      rate("misses, decompressed", "engine.FERN_MISS_PARTIAL")] },
    { title: "Evictions", unit: "/s", lines: [
      sum("full", ["engine.FT_FULL_EVICTIONS_LEAF", "engine.FT_FULL_EVICTIONS_NONLEAF"]),
      sum("partial", ["engine.FT_PARTIAL_EVICTIONS_LEAF", "engine.FT_PARTIAL_EVICTIONS_NONLEAF"])] },
    { title: "Prefetches", unit: "/s", lines: [rate("read ahead", "engine.CT_PREFETCHES"),
      rate("used", "engine.FERN_PREFETCHES_USED"), rate("in vain", "engine.FERN_PREFETCHES_WASTED")] },
    { title: "Time of a miss", unit: "s", lines: [
      mean("from disk", "engine.FERN_MISS_FULL_TIME", "engine.FERN_MISS_FULL", 1e-6),
      mean("decompressed", "engine.FERN_MISS_PARTIAL_TIME", "engine.FERN_MISS_PARTIAL", 1e-6)] },
  ]],
  ["checkpoints", "Checkpoints and log", [
    { title: "Written", unit: "B/s", lines: [rate("data and log", "engine.FERN_WRITTEN_BYTES"),
      rate("log", "engine.LOGGER_BYTES_WRITTEN")] },
    { title: "Fsyncs", unit: "/s", lines: [rate("fsyncs", "engine.FS_FSYNC_COUNT")] },
    { title: "Time of an fsync", unit: "s", lines: [
      mean("mean", "engine.FS_FSYNC_TIME", "engine.FS_FSYNC_COUNT", 1e-6)] },
    { title: "Last checkpoint took", unit: "s", lines: [
      value("seconds", "engine.CP_TIME_CHECKPOINT_DURATION_LAST")] },
    { title: "Log on disk", unit: "B", lines: [value("log", "engine.FERN_LOG_BYTES")] },
  ]],
  ["debt", "Flush debt", [
    { title: "Writes in memory", unit: "B", lines: [value("waiting", "engine.FERN_MEMTABLE_BYTES"),
      value("writers are slowed above", "engine.FERN_MEMTABLE_LIMIT")] },
    { title: "Background work", unit: "/s", lines: [rate("flushes", "engine.FT_FLUSHER_FLUSH_TOTAL"),
      rate("merges", "engine.FERN_RUN_MERGES"), rate("drains", "engine.FERN_DRAINS")] },
    { title: "Trees with work to do", unit: "", lines: [value("trees", "engine.FERN_JOBS_QUEUED")] },
    { title: "Writers slowed", unit: "s/s", lines: [rate("time", "engine.CT_WAIT_PRESSURE_TIME", 1e-6)] },
  ]],
  ["compression", "Compression and space", [
    { title: "Compression", unit: "×", lines: [
      value("leaves", "engine.FT_DISK_FLUSH_LEAF_COMPRESSION_RATIO"),
      value("nodes", "engine.FT_DISK_FLUSH_NONLEAF_COMPRESSION_RATIO"),
      value("all", "engine.FT_DISK_FLUSH_OVERALL_COMPRESSION_RATIO")] },
    { title: "Data file", unit: "B", lines: [value("file", "engine.FERN_FILE_BYTES"),
      value("in use", "engine.FERN_FILE_LIVE_BYTES")] },
    { title: "Disk", unit: "B", lines: [value("free", "engine.FERN_DISK_FREE")] },
    { title: "Written for each byte taken in", unit: "×", lines: [
      value("write amplification", "engine.FERN_WRITE_AMPLIFICATION")] },
  ]],
  ["locking", "Locks", [
    { title: "Waiting", unit: "", lines: [value("requests", "engine.LTM_LOCK_REQUESTS_PENDING"),
      value("transactions", "engine.TXN_LIVE")] },
    { title: "Waits", unit: "/s", lines: [rate("waits", "engine.LTM_WAIT_COUNT"),
      rate("timeouts", "engine.LTM_TIMEOUT_COUNT"), rate("deadlocks", "engine.LTM_DEADLOCK_COUNT")] },
    { title: "Time waited", unit: "s/s", lines: [rate("time", "engine.LTM_WAIT_TIME", 1e-6)] },
  ]],
];
const CHECKPOINT = "engine.CP_TIME_LAST_CHECKPOINT_END";
const UPTIME = "uptimeMillis";
const LINES = SECTIONS.flatMap(([, , charts]) => charts.flatMap((chart) => chart.lines));
const NAMES = [...new Set([CHECKPOINT, UPTIME, ...LINES.flatMap((line) => line.names)])];
const BANDS = [...new Set(LINES.flatMap((line) => line.band || []))];

// ---- the figures --------------------------------------------------------------------------------

class Data {
  constructor() { this.times = []; this.columns = new Map([...NAMES, ...BANDS].map((name) => [name, []])); }

  column(name) { return this.columns.get(name); }

  // Takes a reply; its points replace those from its first time on.
  take(reply, from, step) {
    let keep = this.times.length;
    while (keep > 0 && this.times[keep - 1] >= from) keep -= 1;
    this.times.length = keep;
    this.times.push(...reply.times);
    for (const [name, column] of this.columns) {
      column.length = keep;
      column.push(...(reply.series[name] || reply.times.map(() => null)));
    }
    this.step = step;
  }

  forget(before) {
    const gone = this.times.findIndex((at) => at >= before);
    if (gone <= 0) return;
    this.times.splice(0, gone);
    for (const column of this.columns.values()) column.splice(0, gone);
  }

  // Whether the point follows the one before without a gap or a new start of the server.
  follows(i) {
    if (i === 0 || this.times[i] - this.times[i - 1] > 3 * this.step) return false;
    const [before, now] = [this.column(UPTIME)[i - 1], this.column(UPTIME)[i]];
    return before === null || now === null || now >= before;
  }

  rate(name, i) {
    const column = this.column(name);
    if (!this.follows(i) || column[i] === null || column[i - 1] === null) return null;
    const more = column[i] - column[i - 1];
    return more < 0 ? null : more * SECOND / (this.times[i] - this.times[i - 1]);
  }

  // Checkpoints and starts inside the stretch.
  marks(from, to) {
    const ends = new Set(this.column(CHECKPOINT).filter((at) => at >= from && at <= to));
    const starts = this.times.filter((at, i) => i > 0 && !this.follows(i)
      && this.column(UPTIME)[i] < this.column(UPTIME)[i - 1]);
    return { checkpoints: [...ends], starts };
  }
}

// ---- what is seen -------------------------------------------------------------------------------

// `zoom`: a stretch that somebody chose; without, it is `minutes` until now.
const view = { minutes: 5, zoom: null, cursor: null };
let data = new Data();

function stretch() {
  if (view.zoom) return view.zoom;
  const to = data.times.length ? data.times[data.times.length - 1] : Date.now();
  return [to - view.minutes * MINUTE, to];
}

function step() {
  const [from, to] = view.zoom || [0, view.minutes * MINUTE];
  return Math.max(1, Math.ceil((to - from) / SECOND / MAX_POINTS)) * SECOND;
}

function setMinutes(minutes) { view.minutes = minutes; view.zoom = null; reload(); }

function setZoom(from, to) {
  if (to - from < 5 * SECOND) return;
  view.zoom = [Math.round(from), Math.round(to)];
  reload();
}

function zoomBy(factor, middle) {
  const [from, to] = stretch();
  const at = middle === null ? (from + to) / 2 : middle;
  const span = Math.min(24 * 60 * MINUTE, (to - from) * factor);
  const left = at - span * (at - from) / (to - from);
  setZoom(left, Math.min(left + span, Date.now()));
}

// ---- asking -------------------------------------------------------------------------------------

async function ask(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(20 * SECOND) });
  const reply = await response.json();
  if (reply.ok === 0) throw new Error(reply.errmsg);
  return reply;
}

const history = (from, to, step) => ask(
  `/api/history?from=${Math.floor(from)}${to ? `&to=${Math.floor(to)}` : ""}&step=${step / SECOND}`
  + `&names=${step > SECOND ? [...NAMES, ...BANDS] : NAMES}`);

let generation = 0;
let fresh = false;

// Everything of the stretch again.
async function reload() {
  generation += 1;
  fresh = false;
  buttons();
  await refresh();
}

async function refresh() {
  const [mine, wide] = [generation, step()];
  let from;
  let to = null;
  if (fresh && !view.zoom && data.times.length) {
    // The newest step may have grown since.
    from = Math.floor(data.times[data.times.length - 1] / wide) * wide;
  } else if (view.zoom) {
    if (fresh) return;
    [from, to] = view.zoom;
  } else {
    from = (await newest()) - view.minutes * MINUTE;
  }
  const reply = await history(from, to, wide);
  if (mine !== generation) return;
  if (!fresh) data = new Data();
  data.take(reply, from, wide);
  if (!view.zoom) data.forget(stretch()[0] - wide);
  fresh = true;
  draw();
}

async function newest() { return (await ask("/api/history?step=1")).newest || Date.now(); }

let beats = 0;

async function beat() {
  try {
    const now = await ask("/api/now");
    lists(now);
    await refresh();
    if (beats % 10 === 0) collections(await ask("/api/collections"));
    beats += 1;
    state(view.zoom ? "paused: Escape goes on" : "live", !view.zoom);
  } catch (error) {
    fresh = false;
    beats = 0;
    state(`no answer (${error.message}): asking again`, false);
  }
  setTimeout(beat, SECOND - Date.now() % SECOND);
}

// ---- drawing ------------------------------------------------------------------------------------

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

const UNITS = ["", "k", "M", "G", "T", "P"];

// Three of them.
function digits(n) {
  const size = Math.abs(n);
  return n.toFixed(size >= 100 || Number.isInteger(n) ? 0 : size >= 10 ? 1 : 2);
}

function shown(n, unit) {
  if (n === null || n === undefined || Number.isNaN(n)) return "–";
  const base = unit.startsWith("B") ? 1024 : 1000;
  let power = 0;
  let rest = Math.abs(n);
  // Seconds are the only unit that has parts.
  if (unit.startsWith("s")) {
    for (const part of ["", "m", "µ"]) {
      if (rest === 0 || rest >= 1 || part === "µ") return `${digits(n < 0 ? -rest : rest)}\u202f${part}${unit}`;
      rest *= 1000;
    }
  }
  while (rest >= base && power < 5) { rest /= base; power += 1; }
  const prefix = base === 1024 && power > 0 ? `${UNITS[power].toUpperCase()}i` : UNITS[power];
  const space = unit || prefix ? "\u202f" : "";
  return `${digits(n < 0 ? -rest : rest)}${space}${prefix}${unit}`;
}

const clock = (ms, seconds = true) => new Date(ms).toLocaleTimeString([],
  { hour: "2-digit", minute: "2-digit", ...(seconds ? { second: "2-digit" } : {}), hourCycle: "h23" });

class Chart {
  constructor(chart) {
    this.chart = chart;
    this.canvas = element("canvas", { tabIndex: 0 });
    this.canvas.setAttribute("role", "img");
    // Until it is drawn, and says its figures.
    this.canvas.setAttribute("aria-label", chart.title);
    this.caption = element("figcaption");
    this.values = chart.lines.map((line, at) => {
      const swatch = element("i");
      swatch.style.background = `var(--c${at})`;
      const number = element("b");
      this.caption.append(element("span", {}, swatch, `${line.label} `, number));
      return number;
    });
    const title = element("h3", {}, chart.title, " ",
      element("small", { textContent: chart.unit }));
    this.figure = element("figure", {}, title, this.canvas, this.caption);
    this.dragged = null;
    this.listen();
  }

  listen() {
    const canvas = this.canvas;
    const at = (event) => this.time(event.clientX - canvas.getBoundingClientRect().left);
    canvas.addEventListener("pointerdown", (event) => { this.dragged = at(event); });
    canvas.addEventListener("pointermove", (event) => { view.cursor = at(event); draw(); });
    canvas.addEventListener("pointerleave", () => { view.cursor = null; draw(); });
    addEventListener("pointerup", (event) => {
      if (this.dragged === null) return;
      const [one, other] = [this.dragged, at(event)];
      this.dragged = null;
      setZoom(Math.min(one, other), Math.max(one, other));
    });
    canvas.addEventListener("dblclick", () => setMinutes(view.minutes));
    canvas.addEventListener("blur", () => { view.cursor = null; draw(); });
    canvas.addEventListener("keydown", (event) => {
      const [from, to] = stretch();
      const move = (to - from) / (event.shiftKey ? 10 : 100);
      const cursor = view.cursor === null ? to : view.cursor;
      if (event.key === "ArrowLeft") view.cursor = Math.max(from, cursor - move);
      else if (event.key === "ArrowRight") view.cursor = Math.min(to, cursor + move);
      else if (event.key === "+" || event.key === "=") zoomBy(0.5, view.cursor);
      else if (event.key === "-") zoomBy(2, view.cursor);
      else return;
      event.preventDefault();
      draw();
    });
  }

  time(x) {
    const [from, to] = stretch();
    const [left, right] = [46, this.canvas.clientWidth - 4];
    return from + (to - from) * Math.min(1, Math.max(0, (x - left) / (right - left)));
  }

  draw(style) {
    const { canvas, chart } = this;
    const [width, height, dense] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    if (!width) return;
    if (canvas.width !== Math.round(width * dense)) canvas.width = Math.round(width * dense);
    if (canvas.height !== Math.round(height * dense)) canvas.height = Math.round(height * dense);
    const pen = canvas.getContext("2d");
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, width, height);
    const [from, to] = stretch();
    const [left, right, top, bottom] = [46, width - 4, 8, height - 18];
    const lines = chart.lines.map((line) => data.times.map((_, i) => line.at(data, i)));
    const bands = chart.lines.map((line) => (line.band && data.step > SECOND
      ? line.band.map((name) => data.column(name).map((n) => times(n, line.scale))) : []));
    let most = 0;
    for (const line of [...lines, ...bands.flat()]) for (const n of line) if (n !== null && n > most) most = n;
    most = roundUp(most || 1, chart.unit);
    const x = (ms) => left + (right - left) * (ms - from) / (to - from);
    const y = (n) => bottom - (bottom - top) * n / most;
    this.grid(pen, style, { left, right, top, bottom, most, from, to, x, y });
    pen.save();
    pen.beginPath();
    pen.rect(left, top - 2, right - left, bottom - top + 4);
    pen.clip();
    bands.forEach(([low, high], at) => low && this.band(pen, style.colors[at], low, high, x, y));
    lines.forEach((line, at) => this.line(pen, style.colors[at], line, x, y));
    pen.restore();
    this.read(pen, style, lines, x, top, bottom);
  }

  grid(pen, style, { left, right, top, bottom, most, from, to, x, y }) {
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const part of [0, 0.5, 1]) {
      pen.strokeStyle = style.line;
      pen.beginPath();
      pen.moveTo(left, Math.round(y(most * part)) + 0.5);
      pen.lineTo(right, Math.round(y(most * part)) + 0.5);
      pen.stroke();
      pen.fillStyle = style.faint;
      const unit = this.chart.unit.slice(0, 1).replace(/[/%×]/, "");
      pen.fillText(shown(most * part, unit).replace(/B$/, ""), left - 5, y(most * part));
    }
    pen.textBaseline = "top";
    pen.textAlign = "center";
    const every = tick(to - from);
    const zone = new Date(from).getTimezoneOffset() * MINUTE;
    for (let at = Math.ceil((from - zone) / every) * every + zone; at <= to; at += every) {
      if (x(at) < left + 16 || x(at) > right - 16) continue;
      pen.fillText(clock(at, every < MINUTE), x(at), bottom + 5);
    }
    const { checkpoints, starts } = data.marks(from, to);
    pen.strokeStyle = style.mark;
    pen.fillStyle = style.mark;
    for (const at of checkpoints) {
      pen.setLineDash([2, 3]);
      pen.beginPath();
      pen.moveTo(x(at), top);
      pen.lineTo(x(at), bottom);
      pen.stroke();
      pen.setLineDash([]);
      pen.beginPath();
      pen.moveTo(x(at) - 4, top - 6);
      pen.lineTo(x(at) + 4, top - 6);
      pen.lineTo(x(at), top);
      pen.fill();
    }
    pen.strokeStyle = style.warn;
    for (const at of starts) {
      pen.beginPath();
      pen.moveTo(x(at), top);
      pen.lineTo(x(at), bottom);
      pen.stroke();
    }
  }

  line(pen, color, line, x, y) {
    pen.strokeStyle = color;
    pen.lineWidth = 1.4;
    pen.lineJoin = "round";
    pen.beginPath();
    let drawing = false;
    line.forEach((n, i) => {
      const goesOn = n !== null && drawing && data.follows(i);
      if (n !== null) pen[goesOn ? "lineTo" : "moveTo"](x(data.times[i]), y(n));
      // A point alone is a dot.
      if (n !== null && !goesOn) pen.lineTo(x(data.times[i]) + 0.5, y(n));
      drawing = n !== null;
    });
    pen.stroke();
  }

  // From the least to the most second of each point.
  band(pen, color, low, high, x, y) {
    pen.globalAlpha = 0.35;
    pen.strokeStyle = color;
    pen.lineWidth = 1;
    pen.beginPath();
    low.forEach((n, i) => {
      if (n === null || high[i] === null) return;
      pen.moveTo(x(data.times[i]), y(n));
      pen.lineTo(x(data.times[i]), y(high[i]));
    });
    pen.stroke();
    pen.globalAlpha = 1;
  }

  // The figures under the cursor, or the newest.
  read(pen, style, lines, x, top, bottom) {
    const { times } = data;
    let at = times.length - 1;
    if (view.cursor !== null) {
      at = nearest(times, view.cursor);
      if (at >= 0) {
        pen.strokeStyle = style.text;
        pen.lineWidth = 1;
        pen.beginPath();
        pen.moveTo(x(times[at]), top);
        pen.lineTo(x(times[at]), bottom);
        pen.stroke();
      }
    }
    const texts = lines.map((line) => shown(at < 0 ? null : line[at], this.chart.unit));
    texts.forEach((text, i) => { this.values[i].textContent = text; });
    const said = this.chart.lines.map((line, i) => `${line.label} ${texts[i]}`).join(", ");
    this.canvas.setAttribute("aria-label",
      `${this.chart.title}${at < 0 ? "" : ` at ${clock(times[at])}`}: ${said}`);
  }
}

// The next 1, 2 or 5 times a power of ten, or of 1024.
function roundUp(most, unit) {
  const base = unit.startsWith("B") ? 1024 ** Math.floor(Math.log(most) / Math.log(1024)) : 1;
  const power = 10 ** Math.floor(Math.log10(most / base));
  return [1, 2, 5, 10].map((n) => n * power * base).find((n) => n >= most * 0.999) || most;
}

function tick(span) {
  const all = [10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 21600].map((n) => n * SECOND);
  return all.find((every) => span / every <= 6) || all[all.length - 1];
}

function nearest(times, at) {
  let [low, high] = [0, times.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < at) low = middle + 1; else high = middle;
  }
  return low > 0 && at - times[low - 1] < times[low] - at ? low - 1 : times.length ? low : -1;
}

const charts = [];
let asked = false;

// All charts, once for each picture of the screen at most.
function draw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    const computed = getComputedStyle(document.documentElement);
    const color = (name) => computed.getPropertyValue(`--${name}`).trim();
    const style = { line: color("line"), faint: color("faint"), text: color("text"), mark: color("mark"),
      warn: color("warn"), colors: [0, 1, 2, 3, 4, 5].map((n) => color(`c${n}`)) };
    for (const chart of charts) if (chart.seen) chart.draw(style);
    document.documentElement.dataset.points = data.times.length;
    document.documentElement.dataset.newest = data.times[data.times.length - 1] || 0;
  });
}

// ---- lists --------------------------------------------------------------------------------------

const $ = (selector) => document.querySelector(selector);

function state(text, live) {
  if ($("#state").textContent !== text) $("#state").textContent = text;
  $("#state").classList.toggle("live", live);
}

// Columns: [title, text of a row, class].
function table(selector, rows, columns, empty) {
  const head = element("tr", {}, ...columns.map(([title, , kind]) =>
    element("th", { textContent: title, className: kind || "", scope: "col" })));
  const body = rows.map((row) => element("tr", {}, ...columns.map(([, text, kind]) =>
    element("td", { textContent: text(row), className: kind || "" }))));
  if (!rows.length) body.push(element("tr", {}, element("td", { textContent: empty, colSpan: columns.length })));
  $(selector).replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
}

const count = (n) => (n === undefined || n === null ? "" : Number(n).toLocaleString("en"));
const short = (it, length = 300) => {
  const text = JSON.stringify(it) || "";
  return text.length > length ? `${text.slice(0, length)}…` : text;
};

function lists(now) {
  const { build, status } = now;
  $("#version").textContent = build.ferndb;
  const minutes = Math.floor(status.uptime / 60);
  $("#place").textContent = `${status.host} · up ${Math.floor(minutes / 60)} h ${minutes % 60} min`
    + ` · ${count(status.connections.current)} connections`;
  // Drivers always wait for news of the server, and this page always asks.
  const works = (op) => op.active && op.client !== "status page"
    && !(op.command && op.command.maxAwaitTimeMS && op.command.topologyVersion);
  table("#operations-now table", now.operations.filter(works), [
    ["operation", (op) => count(op.opid), "n"],
    ["running", (op) => shown((op.microsecs_running || 0) / 1e6, "s"), "n"],
    ["client", (op) => `${op.desc} ${op.appName || ""}`],
    ["kind", (op) => op.op],
    ["collection", (op) => op.ns],
    ["command", (op) => short(op.command), "code"],
  ], "nothing");
  set(now);
  locks(now);
  table("#slow table", now.slow, [
    ["when", (line) => clock(Date.parse(line.t.$date))],
    ["took", (line) => shown(line.attr.durationMillis / 1000, "s"), "n"],
    ["collection", (line) => line.attr.ns],
    ["plan", (line) => line.attr.planSummary || ""],
    ["keys", (line) => count(line.attr.keysExamined), "n"],
    ["documents", (line) => count(line.attr.docsExamined), "n"],
    ["command", (line) => short(line.attr.command), "code"],
  ], "none since the log's newest lines began");
  $("#warnings").hidden = !now.warnings.length;
  const texts = now.warnings.map((line) => line.msg + (line.attr && line.attr.error ? `: ${line.attr.error}` : ""));
  $("#warnings ul").replaceChildren(...texts.map((text) => element("li", { textContent: text })));
}

// The members, as this one knows them.
function set(now) {
  const members = now.set.members || [];
  $("#set").hidden = !members.length;
  if (!members.length) return;
  const primary = members.find((one) => one.stateStr === "PRIMARY");
  const newest = Math.max(...members.map((one) => one.optimeDate));
  const lag = (one) => Math.max(0, newest - one.optimeDate) / 1000;
  table("#set table", members, [
    ["member", (one) => (one.self ? `${one.name} (this one)` : one.name)],
    ["is", (one) => one.stateStr],
    ["term", (one) => (one.optime.t < 0 ? "" : count(one.optime.t)), "n"],
    ["newest write shown", (one) => (one.optimeDate ? clock(one.optimeDate) : "")],
    ["behind", (one) => (one.optimeDate ? shown(lag(one), "s") : ""), "n"],
    ["elected", (one) => (one.electionDate ? clock(one.electionDate) : "")],
    ["follows", (one) => (one.syncSourceHost || "")],
    ["connection", (one) => (one.self ? "" : one.lastHeartbeatMessage || "in both directions")],
  ], "none");
  $("#h-set").textContent = `Replica set ${now.set.set}`
    + ` · ${primary ? `primary ${primary.name}` : "no primary is known"}`
    + ` · a majority is ${count(now.set.majorityVoteCount)} of ${count(now.set.votingMembersCount)}`;
}

// Those who wait, each with what the one it waits for holds.
function locks(now) {
  const holder = (txn) => now.transactions.find((one) => one.txnid === txn);
  const client = (txn) => now.operations.find((op) => op.rootTxnid === txn) || {};
  table("#locks table", now.waiting, [
    ["waits", (lock) => count(lock.requestingTxnid), "n"],
    ["for", (lock) => count(lock.blockingTxnid), "n"],
    ["since", (lock) => clock(lock.started)],
    ["index", (lock) => lock.index],
    ["keys", (lock) => short(lock.bounds, 120), "code"],
    ["holder's client", (lock) => [client(lock.blockingTxnid).desc, client(lock.blockingTxnid).client].join(" ")],
    ["holder's locks", (lock) => count(((holder(lock.blockingTxnid) || {}).rowLocks || []).length), "n"],
  ], "nobody waits");
}

function collections(reply) {
  const bytes = (n) => shown(n, "B");
  const rows = reply.collections.filter((one) => one.ns).sort((a, b) => b.storageSize - a.storageSize);
  const indexed = (one) => one.totalIndexStorageSize === undefined ? one.totalIndexSize : one.totalIndexStorageSize;
  table("#collections table", rows, [
    ["collection", (one) => one.ns],
    ["documents", (one) => count(one.count), "n"],
    ["size", (one) => bytes(one.size), "n"],
    ["on disk", (one) => bytes(one.storageSize), "n"],
    ["ratio", (one) => (one.storageSize ? `${(one.size / one.storageSize).toFixed(1)} ×` : "–"), "n"],
    ["indexes", (one) => count(one.nindexes), "n"],
    ["indexes on disk", (one) => bytes(indexed(one)), "n"],
  ], "none");
}

// ---- the frame ----------------------------------------------------------------------------------

function buttons() {
  for (const button of document.querySelectorAll("#stretches button[data-minutes]")) {
    const on = !view.zoom && Number(button.dataset.minutes) === view.minutes;
    button.setAttribute("aria-pressed", String(on));
  }
}

const THEMES = ["system", "light", "dark"];

function theme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try { localStorage.setItem("theme", name); } catch { /* not allowed: it lasts until the page ends */ }
  draw();
}

function build() {
  for (const [text, minutes] of STRETCHES) {
    const button = element("button", { type: "button", textContent: text, onclick: () => setMinutes(minutes) });
    button.dataset.minutes = minutes;
    $("#stretches").append(button);
  }
  let chosen = "system";
  try { chosen = localStorage.getItem("theme") || "system"; } catch { /* as if never chosen */ }
  const paint = element("button", { type: "button", id: "theme" });
  const apply = () => { paint.textContent = `theme: ${chosen}`; theme(chosen); };
  paint.onclick = () => { chosen = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length]; apply(); };
  apply();
  $("#stretches").append(paint);
  // A chart that cannot be seen is not drawn.
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) entry.target.chart.seen = entry.isIntersecting;
    draw();
  }, { rootMargin: "200px" });
  for (const [id, title, list] of SECTIONS) {
    const row = element("div", { className: "row" });
    for (const one of list) {
      const chart = new Chart(one);
      chart.figure.chart = chart;
      charts.push(chart);
      seen.observe(chart.figure);
      row.append(chart.figure);
    }
    const head = element("h2", { id: `h-${id}`, textContent: title });
    const section = element("section", { id }, head, row);
    section.setAttribute("aria-labelledby", head.id);
    $("#charts").append(section);
  }
  for (const head of document.querySelectorAll("main h2")) {
    $("#sections").append(element("a", { href: `#${head.id}`, textContent: head.textContent.split(":")[0] }));
  }
  addEventListener("resize", draw);
  addEventListener("keydown", (event) => { if (event.key === "Escape") setMinutes(view.minutes); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

build();
buttons();
beat();
