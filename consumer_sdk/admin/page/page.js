// The page of a running consumer. It draws what the server sends once a second, and nothing else:
// no library, no request to elsewhere. Texts of records (keys, errors, names) are only ever set as
// text. Rows are kept from frame to frame, so that the focus and the selection stay where they are.
"use strict";

const WINDOW = 300; // seconds of the pictures
const LATE = 5000; // milliseconds without a frame after which what is shown is called old
const SVG = "http://www.w3.org/2000/svg";
const MARKS = new Set(["assigned", "revoked", "lost", "fenced", "ended"]);
const at = (id) => document.getElementById(id);

const model = { frame: null, points: new Map(), chosen: 0, seen: 0, sort: { by: "name", up: true }, waiting: new Map() };

// -- texts ------------------------------------------------------------------------------------

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const number = (n) => (n === null || n === undefined ? "–" : Math.abs(n) < 100000 ? grouped.format(n) : compact.format(n));
const bytes = (n) => (n < 1024 ? `${n} B` : n < 1048576 ? `${grouped.format(n / 1024)} KiB` : `${grouped.format(n / 1048576)} MiB`);

function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s < 1) return `${grouped.format(s * 1000)} ms`;
  if (s < 120) return `${s.toFixed(1)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${grouped.format(s / 3600)} h` : `${grouped.format(s / 86400)} days`;
}

const clock = (s) => new Date(s * 1000).toLocaleTimeString();

function pinnedText(pinned) {
  if (pinned === null) return "–";
  const parts = [pinned.position, pinned.running === null ? pinned.state : `running for ${seconds(pinned.running)}`];
  if (pinned.key !== null) parts.push(`key ${pinned.key}`);
  parts.push(`${seconds(pinned.age)} old`);
  if (pinned.attempts) parts.push(`${pinned.attempts} failed`);
  return parts.join(" · ");
}

function pinnedMood(row) {
  if (row.pinned === null) return "";
  if (row.pinned.age >= 30 && row.holes) return "bad";
  return row.pinned.age >= 10 || row.pinned.attempts ? "warn" : "";
}

function stateMood(state) {
  return { reading: "good", running: "good", failed: "bad", closed: "bad", elsewhere: "" }[state] ?? "warn";
}

// -- elements ---------------------------------------------------------------------------------

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function mood(element, name, base = "") {
  const wanted = `${base} ${name}`.trim();
  if (element.className !== wanted) element.className = wanted;
}

/** Makes the children of an element those of a list, and keeps the ones that it has, by their keys. */
function keep(parent, items, keyOf, create, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let last = null;
  for (const item of items) {
    const key = keyOf(item);
    const child = old.get(key) ?? create(item);
    old.delete(key);
    child.dataset.key = key;
    update(child, item);
    const next = last === null ? parent.firstElementChild : last.nextElementSibling;
    if (child !== next) parent.insertBefore(child, next);
    last = child;
  }
  for (const child of old.values()) child.remove();
}

// -- head and totals --------------------------------------------------------------------------

function drawHead(all, one) {
  const where = one.streams.length && one.streams.length < 4 ? `: ${one.streams.join(", ")}` : "";
  say(at("name"), one.name + where);
  document.title = `${one.name} · ${one.state}`;
  say(at("state"), one.ready || one.state !== "running" ? one.state : "not ready");
  mood(at("state"), one.ready ? "good" : stateMood(one.state), "pill");
  const lag = one.totals.loop_lag >= 0.1 ? ` · event loop late by ${seconds(one.totals.loop_lag)}` : "";
  say(at("facts"), `${one.held} partition${one.held === 1 ? "" : "s"} · sampled in ${number(all.took_us)} µs${lag}`);
  at("actions").hidden = !all.actions;
  at("reasons").hidden = !one.reasons.length;
  keep(at("reasons"), one.reasons, (r) => r.replace(/[\d.]+ s/, ""), () => make("li"), say);
  at("consumers").hidden = all.consumers.length < 2;
  keep(at("consumers"), all.consumers.map((c, i) => [c, i]), ([, i]) => String(i), ([, i]) => {
    const button = make("button", { type: "button" });
    button.addEventListener("click", () => { model.chosen = i; draw(); });
    return button;
  }, (button, [c, i]) => {
    say(button, c.name);
    button.setAttribute("aria-current", String(i === model.chosen));
  });
}

function cards(t, point) {
  return [
    { name: "settled /s", value: number(point?.[1]), more: `${number(t.settled)} in all` },
    { name: "in flight", value: number(t.in_flight), more: `of ${compact.format(t.in_flight_limit)}, ${bytes(t.in_flight_bytes)}`, part: t.in_flight / t.in_flight_limit, mood: t.is_full ? "warn" : "" },
    { name: "handlers", value: number(t.handlers), more: t.handlers_limit ? `of ${number(t.handlers_limit)}, ${number(t.lanes)} lanes` : "records are pulled", part: t.handlers_limit ? t.handlers / t.handlers_limit : undefined },
    { name: "lag", value: number(t.lag), more: t.lag_seconds === null ? "not known yet" : `${seconds(t.lag_seconds)} at most` },
    { name: "retrying", value: number(t.retrying), more: `${number(t.failed)} failures`, mood: t.retrying ? "warn" : "" },
    { name: "dead letters", value: number(t.dead_lettered), more: `${number(point?.[3] ?? 0)} /s`, mood: t.dead_lettered ? "bad" : "" },
    { name: "open trees", value: number(t.trees), more: `${number(t.holes)} holes` },
    { name: "flushes", value: number(t.flushes), more: `${number(t.fetch_errors)} fetch errors`, mood: t.fetch_errors ? "warn" : "" },
  ];
}

function drawCards(one) {
  keep(at("cards"), cards(one.totals, one.points.at(-1)), (c) => c.name, (c) => {
    const card = make("div", { class: "card box" }, make("span", { class: "quiet" }, c.name), make("b"), make("span", { class: "quiet" }));
    if (c.part !== undefined) card.append(make("meter", { min: 0, max: 1, "aria-label": `${c.name}, part of the limit` }));
    return card;
  }, (card, c) => {
    const [, value, more, meter] = card.children;
    say(value, c.value);
    mood(value, c.mood ?? "");
    say(more, c.more);
    if (meter && c.part !== undefined) meter.value = c.part;
  });
}

// -- partitions -------------------------------------------------------------------------------

const COLUMNS = [
  { id: "name", title: "partition", of: (r) => `${r.stream}/${r.id}${r.worker === null ? "" : ` · worker ${r.worker}`}`, rank: (r) => r.order },
  { id: "position", title: "position", of: (r) => r.position ?? "–", rank: (r) => Number(r.position) || 0, numeric: true },
  { id: "state", title: "state", of: (r) => r.state, rank: (r) => r.state },
  { id: "unsettled", title: "unsettled", of: (r) => number(r.in_flight), rank: (r) => r.in_flight, numeric: true },
  { id: "holes", title: "holes", of: (r) => number(r.holes), rank: (r) => r.holes, numeric: true },
  { id: "retrying", title: "retrying", of: (r) => number(r.retrying + r.blocked), rank: (r) => r.retrying + r.blocked, numeric: true },
  { id: "lanes", title: "lanes", of: (r) => number(r.lanes), rank: (r) => r.lanes, numeric: true },
  { id: "lag", title: "lag", of: (r) => (r.lag === null ? seconds(r.lag_seconds) : number(r.lag)), rank: (r) => r.lag ?? r.lag_seconds ?? -1, numeric: true },
  { id: "pinned", title: "pinned by", of: (r) => pinnedText(r.pinned), rank: (r) => r.pinned?.age ?? -1 },
];

function drawColumns() {
  keep(at("columns"), [...COLUMNS, null], (c) => c?.id ?? "act", (c) => {
    if (c === null) return make("th", { "aria-label": "actions" });
    const button = make("button", { type: "button" }, c.title);
    button.addEventListener("click", () => sortBy(c.id));
    return make("th", { scope: "col", class: c.numeric ? "number" : "" }, button);
  }, (head, c) => {
    if (c?.id === model.sort.by) head.setAttribute("aria-sort", model.sort.up ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  });
}

function sortBy(id) {
  const up = model.sort.by === id ? !model.sort.up : id === "name" || id === "state";
  model.sort = { by: id, up };
  at("sorting").value = id;
  draw();
}

function shownRows(one) {
  const wanted = at("filter").value.trim().toLowerCase();
  const column = COLUMNS.find((c) => c.id === model.sort.by);
  const rows = one.partitions.map((r, order) => ({ ...r, order }));
  const found = rows.filter((r) => !wanted || COLUMNS.some((c) => c.of(r).toLowerCase().includes(wanted)) || (r.pause_text ?? "").toLowerCase().includes(wanted));
  const sign = model.sort.up ? 1 : -1;
  return found.sort((a, b) => {
    const [x, y] = [column.rank(a), column.rank(b)];
    return x < y ? -sign : x > y ? sign : a.order - b.order;
  });
}

function makeRow(row) {
  const line = make("tr");
  for (const c of COLUMNS) {
    const cell = make("td", { class: `${c.id}${c.numeric ? " number" : ""}`, "data-name": c.title });
    if (c.id === "state") cell.append(make("span", { class: "pill" }));
    line.append(cell);
  }
  const button = make("button", { type: "button" });
  button.addEventListener("click", () => act(`partitions/${encodeURIComponent(row.stream)}/${encodeURIComponent(row.id)}/${button.dataset.action}`, line.dataset.key));
  line.append(make("td", { class: "act" }, button));
  return line;
}

function updateRow(line, row) {
  COLUMNS.forEach((c, i) => {
    const cell = line.children[i];
    say(c.id === "state" ? cell.firstChild : cell, c.of(row));
    if (c.id === "pinned") mood(cell, pinnedMood(row), "pinned");
  });
  const pill = line.querySelector(".pill");
  mood(pill, stateMood(row.state), "pill");
  pill.title = row.pause_text ?? "";
  const button = line.querySelector("button");
  const waits = model.waiting.get(line.dataset.key);
  if (waits && (waits.wanted === row.is_by_hand || performance.now() > waits.until)) model.waiting.delete(line.dataset.key);
  const action = row.is_by_hand || row.state === "paused: lag" ? "resume" : "pause";
  button.dataset.action = action;
  button.disabled = model.waiting.has(line.dataset.key);
  button.setAttribute("aria-label", `${action} ${row.stream}/${row.id}`);
  say(button, action);
  line.lastElementChild.hidden = !model.frame.actions;
}

function drawPartitions(one) {
  drawColumns();
  const rows = shownRows(one);
  keep(at("rows"), rows, (r) => `${model.chosen} ${r.stream}/${r.id}`, makeRow, updateRow);
  const left = one.held - one.partitions.length;
  const notes = [];
  if (!one.partitions.length) notes.push("No partition is assigned.");
  else if (!rows.length) notes.push("No partition is like that.");
  if (left > 0) notes.push(`${number(left)} more are not shown: those that are pinned least.`);
  say(at("empty"), notes.join(" "));
  at("empty").hidden = !notes.length;
}

// -- pictures ---------------------------------------------------------------------------------

const PICTURES = [
  { title: "records a second", lines: [["settled", (p) => p[1]], ["failed", (p) => p[2]]], text: number },
  { title: "handler time", lines: [["half in", (p) => p[4]], ["95 % in", (p) => p[5]]], text: seconds },
  { title: "lag, records", lines: [["lag", (p) => p[6]]], text: number },
  { title: "in flight", lines: [["in flight", (p) => p[7]]], text: number },
];

function drawPictures(one) {
  const points = model.points.get(model.chosen) ?? [];
  keep(at("pictures"), PICTURES, (p) => p.title, makePicture, (figure, p) => updatePicture(figure, p, points, one));
}

function makePicture(picture) {
  const keys = picture.lines.map(([name], i) => make("span", { class: i ? "key second" : "key" }, name));
  const caption = make("figcaption", {}, make("span", {}, picture.title), make("span", { class: "quiet keys" }, ...keys.flatMap((k) => [k, " "])));
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 300 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  const scale = make("div", { class: "scale quiet", "aria-hidden": "true" }, make("span"), make("span", { class: "key mark-key" }, "rebalance"), make("span", {}, "now"));
  return make("figure", { class: "box" }, caption, svg, scale);
}

function updatePicture(figure, picture, points, one) {
  const now = one.time;
  const shown = points.filter((p) => p[0] > now - WINDOW);
  const values = shown.flatMap((p) => picture.lines.map(([, of]) => of(p))).filter((v) => v !== null);
  const peak = Math.max(...values, 0);
  const top = peak * 1.1 || 1;
  const svg = figure.querySelector("svg");
  const parts = [shape("line", { class: "grid", x1: 0, x2: 300, y1: 100, y2: 100 }), shape("line", { class: "grid", x1: 0, x2: 300, y1: 0, y2: 0 })];
  const marks = one.events.filter((e) => MARKS.has(e.kind) && e.time > now - WINDOW);
  for (const event of marks) {
    const x = 300 - (now - event.time);
    const mark = shape("line", { class: "mark", x1: x, x2: x, y1: 0, y2: 100 });
    const title = document.createElementNS(SVG, "title");
    title.textContent = `${clock(event.time)} ${event.kind} ${event.partitions.join(", ")}`;
    mark.append(title);
    parts.push(mark);
  }
  picture.lines.forEach(([, of], i) => parts.push(shape("path", { class: i ? "line second" : "line", d: path(shown, of, now, top) })));
  svg.replaceChildren(...parts);
  const keys = figure.querySelectorAll(".keys .key");
  const last = shown.at(-1);
  const said = picture.lines.map(([name, of], i) => {
    const text = `${name} ${last ? picture.text(of(last)) : "–"}`;
    say(keys[i], text);
    return text;
  });
  svg.setAttribute("aria-label", `${picture.title}: ${said.join(", ")}; at most ${picture.text(peak)} in five minutes`);
  say(figure.querySelector(".scale span"), `−5 min · top ${values.length ? picture.text(peak) : "–"}`);
  figure.querySelector(".mark-key").hidden = !marks.length;
}

function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** A line through what is known, with a gap where nothing is. */
function path(points, of, now, top) {
  let text = "";
  let before = null;
  for (const point of points) {
    const value = of(point);
    if (value === null) { before = null; continue; }
    const [x, y] = [300 - (now - point[0]), 100 - (value / top) * 100];
    text += `${before !== null && point[0] - before < 4 ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    if (before === null) text += "h0.5";
    before = point[0];
  }
  return text;
}

/** Adds what is new to the points that are there. */
function remember(all) {
  all.consumers.forEach((one, i) => {
    const known = model.points.get(i) ?? [];
    const last = known.at(-1)?.[0] ?? 0;
    known.push(...one.points.filter((p) => p[0] > last));
    model.points.set(i, known.filter((p) => p[0] > one.time - WINDOW));
  });
}

// -- lists ------------------------------------------------------------------------------------

function drawPairs(list, pairs, none) {
  const flat = pairs.length ? pairs.flatMap(([k, v]) => [["dt", k, k], ["dd", k, v]]) : [["dt", "none", none]];
  keep(list, flat, ([tag, key]) => `${tag} ${key}`, ([tag]) => make(tag), (element, [, , text]) => say(element, text));
}

function eventText(event) {
  const { partitions, text } = event;
  if (!partitions.length || text.includes(partitions[0])) return text;
  const where = partitions.length > 3 ? `${partitions.slice(0, 3).join(", ")}, …` : partitions.join(", ");
  return text ? `${where} · ${text}` : where;
}

function drawLists(one) {
  const dead = Object.entries(one.dead_letters).sort((a, b) => b[1] - a[1]);
  drawPairs(at("dead"), dead.map(([k, n]) => [k, number(n)]), "");
  const times = one.handler_times.flatMap((t) => [
    [t.stream, number(t.count)],
    ...["p50", "p95", "p99"].map((part) => [`${part.slice(1)} % of ${t.stream} in`, seconds(t[part])]),
  ]);
  drawPairs(at("times"), times, "");
  keep(at("events"), one.events, (e) => String(e.number), () => make("li", {}, make("span", { class: "quiet" }), make("b"), make("span")), (item, e) => {
    const [when, kind, rest] = item.children;
    say(when, `${clock(e.time)} `);
    say(kind, e.count > 1 ? `${e.kind} × ${number(e.count)} ` : `${e.kind} `);
    say(rest, eventText(e));
  });
}

// -- drawing ----------------------------------------------------------------------------------

function draw() {
  const all = model.frame;
  if (all === null) return;
  model.chosen = Math.min(model.chosen, all.consumers.length - 1);
  const one = all.consumers[model.chosen];
  drawHead(all, one);
  drawCards(one);
  drawPartitions(one);
  drawPictures(one);
  drawLists(one);
}

function notice(text) {
  say(at("notice"), text);
  at("notice").hidden = !text;
}

// -- acting -----------------------------------------------------------------------------------

async function act(what, key = null) {
  if (key !== null) {
    model.waiting.set(key, { wanted: what.endsWith("/pause"), until: performance.now() + 4000 });
    draw();
  }
  try {
    const answer = await fetch(`api/${what}?consumer=${model.chosen}`, { method: "POST", headers: { "X-Consumer-Sdk": "1" }, body: JSON.stringify({ reason: "on the page" }) });
    notice(answer.ok ? (what === "flush" ? "Everything settled so far is durable." : "") : (await answer.json()).error);
    if (!answer.ok && key !== null) model.waiting.delete(key);
  } catch {
    notice("The consumer does not answer; nothing may have happened.");
  }
  draw();
}

at("actions").addEventListener("click", (event) => {
  const what = event.target.dataset.all;
  if (what === "stop") at("sure").showModal();
  else if (what) act(what);
});
at("sure-no").addEventListener("click", () => at("sure").close());
at("sure-yes").addEventListener("click", () => { at("sure").close(); act("stop"); });
at("filter").addEventListener("input", draw);
at("sorting").append(...COLUMNS.map((c) => make("option", { value: c.id }, c.title)));
at("sorting").addEventListener("change", () => sortBy(at("sorting").value));

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, select, dialog")) {
    event.preventDefault();
    at("filter").focus();
  } else if (event.key === "Escape" && event.target === at("filter")) {
    at("filter").value = "";
    draw();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target.closest("tbody")) {
    const buttons = [...at("rows").querySelectorAll("button")];
    const next = buttons[buttons.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) { event.preventDefault(); next.focus(); }
  }
});

// -- the stream -------------------------------------------------------------------------------

function listen() {
  const source = new EventSource("api/events");
  source.onmessage = (event) => {
    model.frame = JSON.parse(event.data);
    if (performance.now() - model.seen > LATE && document.body.classList.contains("stale")) notice("");
    model.seen = performance.now();
    document.body.classList.remove("stale");
    remember(model.frame);
    draw();
  };
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) refused();
  };
}

/** The browser does not say why a stream was refused: ask for the same as one answer. */
async function refused() {
  setTimeout(listen, 4000);
  try {
    const answer = await fetch("api/view");
    if (answer.status === 401) location.reload();
    else if (answer.ok) notice("Too many people look at this page; it is drawn anew every few seconds.");
    if (answer.ok) {
      model.frame = await answer.json();
      model.seen = performance.now();
      remember(model.frame);
      draw();
    }
  } catch {
    lost();
  }
}

function lost() {
  document.body.classList.add("stale");
  const since = model.seen ? ` for ${seconds((performance.now() - model.seen) / 1000)}` : "";
  notice(`The consumer has not answered${since}. What is shown is old.`);
}

setInterval(() => { if (performance.now() - model.seen > LATE) lost(); }, 1000);
listen();
