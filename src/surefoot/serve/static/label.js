"use strict";
// Keys, the rows ahead, and the message after each label. Cards come from the server, which escapes them.

import {drawChart, drawCounts, svg} from "./chart.js";

const byId = id => document.getElementById(id);
const token = document.querySelector("meta[name=write-token]").content;
const known = new Map();      // row -> card
const inFlight = new Set();   // rows whose answers are on their way
let queue = [];               // rows to label, the first is shown
let shown = null;             // the row on the screen
let standing = null;
let beyond = false;           // labeling goes on although the target is proved
let chain = Promise.resolve();
let robot = false;

const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), b => b.toString(16).padStart(2, "0")).join("");

async function send(path, body) {
  try {
    const response = await fetch(path, {
      method: "POST", headers: {"content-type": "application/json", "x-write-token": token}, body: JSON.stringify(body),
    });
    const text = await response.text();
    try {
      return JSON.parse(text);
    } catch {
      return {saved: false, message: text.trim() || `The server answered ${response.status}.`};
    }
  } catch {
    return {saved: false, message: "The server does not respond. Nothing is lost. Start it again, then repeat the label."};
  }
}

function say(text, kind = "") {
  const saved = byId("saved");
  saved.textContent = text;
  saved.className = `saved ${kind}`;
}

function trouble(text) {
  byId("trouble").hidden = !text;
  if (byId("trouble").textContent !== (text || "")) byId("trouble").textContent = text || "";
}

// ---- rows

function take(state, {first = null} = {}) {
  for (const card of state.rows) if (card.html !== undefined) known.set(card.row, card);
  let rows = state.rows.map(card => card.row).filter(row => !inFlight.has(row) && known.has(row));
  if (first !== null) rows = [first, ...rows.filter(row => row !== first)];
  else if (rows.includes(shown)) rows = [shown, ...rows.filter(row => row !== shown)];
  queue = rows;
  standing = state.standing;
  show();
  showStanding();
}

function show() {
  const row = queue.length ? queue[0] : null;
  const place = byId("card");
  for (const button of document.querySelectorAll(".answer, #do-skip, #do-flag, #do-note")) button.disabled = row === null;
  document.querySelector(".answers").hidden = row === null && inFlight.size === 0 && standing !== null;
  if (row === null) {
    shown = null;
    byId("why").textContent = "";
    byId("marks").textContent = "";
    if (inFlight.size) place.replaceChildren(paragraph("Fetching a row…"));
    else showEnd(place);
    return;
  }
  if (row === shown) return;
  shown = row;
  const card = known.get(row);
  const head = document.createElement("div"), title = document.createElement("b"), chip = document.createElement("span");
  head.className = "card-head";
  title.textContent = `Row ${row + 1}`;
  chip.className = card.purpose === "audit" || card.purpose === "second" ? "chip audit" : "chip";
  chip.textContent = {audit: "audit", second: "second opinion", random: "learning, at random"}[card.purpose] || "learning";
  head.append(title, chip);
  place.innerHTML = card.html;
  place.prepend(head);
  place.scrollTop = 0;
  byId("why").innerHTML = card.why;
  showMarks(card);
  byId("live").textContent = `Row ${row + 1}, ${chip.textContent}. ${place.textContent.slice(0, 400)}`;
}

function showMarks(card) {
  byId("do-flag").setAttribute("aria-pressed", String(card.flagged));
  byId("marks").textContent = [card.flagged ? "Flagged for discussion." : "", ...card.notes.map(note => `Note: ${note}`)].filter(Boolean).join(" ");
}

function paragraph(text) {
  const made = document.createElement("p");
  made.className = "quiet";
  made.textContent = text;
  return made;
}

const isOver = phase => ["proved", "finished", "audited"].includes(phase);

function showEnd(place) {
  if (standing === null) return;
  const done = document.createElement("div"), title = document.createElement("h2"), words = document.createElement("p");
  done.className = "done";
  if (isOver(standing.phase)) {
    const finished = standing.phase !== "proved" || standing.column;  // no further label would count
    const tick = svg("svg", {viewBox: "0 0 48 48", class: "tick", "aria-hidden": "true"});
    tick.append(svg("circle", {cx: 24, cy: 24, r: 23}), svg("path", {d: "M14 25l7 7 14-15"}));
    const files = document.createElement("a"), more = document.createElement("button");
    title.textContent = standing.headline;
    words.textContent = finished ? standing.sentence
      : "You can stop here. The downloads contain the labels and the proved model.";
    files.href = "/finish";
    files.className = "button";
    files.textContent = "Download the files";
    more.type = "button";
    more.className = "plain";
    more.textContent = "Continue labeling";
    more.addEventListener("click", () => { beyond = true; fetchRows(); });
    done.append(tick, title, words, files, ...(finished ? [] : [more]));
  } else if (standing.paused) {
    place.replaceChildren(paragraph("Training a new model. The next row comes in a moment."));
    return;
  } else if (standing.out_of_reach && !beyond) {
    showChoice(place);
    return;
  } else {
    title.textContent = "No row is left";
    words.textContent = "Every row has a label or is open for another annotator.";
    done.append(title, words);
  }
  place.replaceChildren(done);
  byId("live").textContent = `${title.textContent}. ${words.textContent}`;
}

async function fetchRows() {
  try {
    const response = await fetch(`/api/rows${beyond ? "?beyond=1" : ""}`);
    if (response.status === 401) { location.href = "/hello"; return; }
    const state = await response.json();
    if (state.saved) take(state);
    else trouble(state.message);
  } catch {
    trouble("The server does not respond. Check that it is running.");
  }
}

// ---- answers

function answer(label) {
  if (shown === null) return;
  const row = shown, key = newKey();
  inFlight.add(row);
  queue = queue.filter(other => other !== row);
  say("Saving…");
  show();
  chain = chain.then(async () => {
    const state = await send("/api/answer", {row, label, key, have: [...known.keys()].slice(-20), beyond});
    inFlight.delete(row);
    if (state.saved) {
      known.delete(row);
      say(`Saved: ${label === null ? "skipped" : label}`, "good");
      trouble("");
      take(state);
    } else {
      robot = false;
      showRobot();
      say("Not saved", "bad");
      trouble(`Not saved: ${state.message}`);
      queue = [row, ...queue.filter(other => other !== row)];
      show();
    }
  });
}

function undo() {
  say("Undoing…");
  chain = chain.then(async () => {
    const state = await send("/api/undo", {key: newKey(), have: [], beyond: true});
    if (!state.saved) { say("Not undone", "bad"); trouble(state.message); return; }
    if (state.undone === null) { say("Nothing to undo"); return; }
    say(`Row ${state.undone + 1} is open again`, "good");
    shown = null;
    take(state, {first: state.undone});
  });
}

function flag() {
  if (shown === null) return;
  const row = shown, card = known.get(row), flagged = !card.flagged;
  chain = chain.then(async () => {
    const state = await send("/api/flag", {row, flagged});
    if (!state.saved) { say("Not saved", "bad"); trouble(state.message); return; }
    card.flagged = flagged;
    say(flagged ? "Flagged" : "Flag cleared", "good");
    if (shown === row) showMarks(card);
  });
}

function saveNote(event) {
  event.preventDefault();
  const text = byId("note-text").value.trim(), row = shown, card = known.get(row);
  byId("dialog-note").close();
  if (!text || row === null) return;
  chain = chain.then(async () => {
    const state = await send("/api/note", {row, text, key: newKey()});
    if (!state.saved) { say("Note not saved", "bad"); trouble(state.message); return; }
    byId("note-text").value = "";
    card.notes.push(text);
    say("Note saved", "good");
    if (shown === row) showMarks(card);
  });
}

function open(name) {
  const dialog = byId(`dialog-${name}`);
  if (dialog && !(name === "note" && shown === null)) dialog.showModal();
}

const commands = {
  skip: () => answer(null), undo, flag,
  note: () => open("note"), guidelines: () => open("guidelines"), keys: () => open("keys"),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.querySelector("dialog[open]") || event.target.closest("input, textarea, select")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const onButton = event.target.closest("button, a") && event.target.matches(":focus-visible");
  if (key === " " && onButton) return;  // it presses the button
  const command = {" ": "skip", u: "undo", Backspace: "undo", f: "flag", n: "note", g: "guidelines", "?": "keys"}[key];
  const button = [...document.querySelectorAll(".answer")].find(one => one.dataset.keys.split(" ").includes(key));
  if (button && !event.repeat) {
    event.preventDefault();
    button.classList.add("hit");
    setTimeout(() => button.classList.remove("hit"), 120);
    answer(button.dataset.label);
  } else if (command && !(event.repeat && command !== "undo")) {
    event.preventDefault();
    commands[command]();
  }
}

// ---- progress

function put(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

function showStanding() {
  const s = standing, percent = share => `${+(100 * share).toFixed(1)}\u00a0%`;
  put("headline", s.headline);
  byId("headline").dataset.phase = s.phase;
  put("sentence", s.sentence);
  put("labels", String(s.labels));
  put("labels-more", `of ${s.rows} rows${s.skipped ? `, ${s.skipped} skipped` : ""}`);
  put("bound", s.bound ? s.bound.shown : "–");
  put("bound-more", s.bound ? `${s.bound.kind}: ${s.bound.basis}` : "none yet");
  put("target", `≤ ${percent(s.target)}`);
  put("target-more", `wrong, ${percent(s.level)} confidence`);
  const over = isOver(s.phase);
  put("needed", over ? "0" : s.phase === "finishing" ? String(s.needed) : s.needed === null ? "–" : `≈ ${s.needed}`);
  put("needed-more", over ? "you can stop" : s.phase === "finishing" ? "rows that the model is unsure of" : s.needed !== null ? "labels, as estimated" : s.bound ? "target out of reach" : "no estimate yet");
  if (s.column) showColumn(s.column);
  drawChart(byId("chart"), s);
  drawCounts(byId("counts"), s.counts);
  showTargets(s.targets);
  showFit();
  if (s.problem) trouble(s.problem);
}

// An audit of predictions that the table holds: no model, and no curve if the number of labels was planned.
function showColumn(column) {
  for (const name of ["target", "needed"]) {
    put(name, column[name] || "–");
    put(`${name}-more`, column[`${name}_more`]);
  }
  byId("chart").closest("figure").hidden = column.is_planned;
}

// ---- the target: another one, or a finished table

const percentOf = share => `${+(100 * share).toFixed(1)}\u00a0%`;

function choiceButton(text, act, chosen = false) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain";
  button.textContent = text;
  if (chosen) button.setAttribute("aria-current", "true");
  button.addEventListener("click", act);
  return button;
}

function toProve(one) {
  return one.prove === null ? "out of reach" : one.prove === 0 ? "proved" : `${one.prove} labels`;
}

function showTargets(targets) {
  byId("offer").hidden = !targets;
  if (!targets) return;
  const shown = JSON.stringify([targets, standing.target]);
  if (byId("offer-choices").dataset.shown === shown) return;
  byId("offer-choices").dataset.shown = shown;
  byId("offer-choices").replaceChildren(...targets.map(one => {
    const line = document.createElement("tr"), head = document.createElement("th"), prove = document.createElement("td"), end = document.createElement("td");
    head.scope = "row";
    head.textContent = percentOf(one.target);
    const isTarget = one.target === standing.target;
    prove.append(choiceButton(toProve(one), () => choose("target", {target: one.target}), isTarget));
    end.append(choiceButton(`${one.finish} labels`, () => choose("finish", {max_error: one.target})));
    line.append(head, prove, end);
    return line;
  }));
}

async function choose(what, data) {
  const found = await send(`/api/${what}`, data);
  if (!found.saved) return trouble(found.message);
  beyond = false;
  queue = [];
  shown = null;
  await refreshOnce();
  await fetchRows();
}

function showChoice(place) {
  const box = document.createElement("div"), title = document.createElement("h2"), words = document.createElement("p");
  const here = standing.targets.find(one => one.target === standing.target);
  box.className = "done";
  title.textContent = standing.needed === null ? `At most ${percentOf(standing.target)} wrong is out of reach for the model alone`
    : `Proving at most ${percentOf(standing.target)} wrong would take about ${standing.needed} more labels`;
  words.textContent = standing.sentence;
  const easier = standing.targets.filter(one => one.target > standing.target && one.prove !== null);
  const finish = choiceButton(`Finish the table: about ${here.finish} labels`, () => choose("finish", {max_error: here.target}));
  finish.className = "button";
  box.append(title, words, finish,
    ...easier.map(one => choiceButton(`Prove ${percentOf(one.target)}: about ${toProve(one)}`, () => choose("target", {target: one.target}))),
    choiceButton("Continue labeling", () => { beyond = true; fetchRows(); }));
  place.replaceChildren(box);
  byId("live").textContent = `${title.textContent}. ${words.textContent}`;
}

function showFit() {
  const fit = standing.fit, others = standing.people.filter(one => one.answers).length;
  const model = standing.column ? "" : fit.running !== null ? `Training a new model (${Math.round(fit.running)} s)…`
    : fit.labels ? `Model trained on ${fit.labels} labels in ${fit.seconds} s.` : "No model yet.";
  const open = [standing.conflicts ? `${standing.conflicts} conflicts` : "", standing.flagged ? `${standing.flagged} flagged` : ""];
  put("fit", [model, others > 1 ? `${others} people have answered.` : "", open.filter(Boolean).join(", ")].filter(Boolean).join(" "));
}

async function refreshOnce() {
  const response = await fetch("/api/standing");
  if (!response.ok) return false;
  standing = await response.json();
  showStanding();
  return true;
}

async function refresh() {
  try {
    if (await refreshOnce()) {
      if (queue.length === 0 && inFlight.size === 0) await fetchRows();
    }
  } catch {
    // said when the next answer is sent
  }
  setTimeout(refresh, standing && (standing.paused || standing.fit.running !== null) ? 500 : 3000);
}

// ---- the robot of the demonstration

function showRobot() {
  const button = byId("robot");
  if (button) {
    button.setAttribute("aria-pressed", String(robot));
    button.textContent = robot ? "Stop the robot" : "Let the robot label";
  }
}

async function robotStep() {
  const row = shown;
  if (standing && isOver(standing.phase) && row === null) { robot = false; showRobot(); }
  if (robot && row === null && standing && standing.out_of_reach) await choose("finish", {max_error: standing.target});
  // a person would label a row or two while a model is trained, not dozens
  const training = standing && standing.phase === "learning" && standing.fit.running !== null;
  if (robot && row !== null && inFlight.size === 0 && !training) {
    const found = await send("/api/robot", {row});
    if (robot && found.saved && shown === row) answer(found.label);
  }
  if (robot) setTimeout(robotStep, 300);
}

document.addEventListener("keydown", onKey);
for (const button of document.querySelectorAll(".answer")) button.addEventListener("click", () => answer(button.dataset.label));
for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", () => commands[button.dataset.do]());
for (const button of document.querySelectorAll("[data-close]"))
  button.addEventListener("click", () => byId(`dialog-${button.dataset.close}`).close());
byId("note-form").addEventListener("submit", saveNote);
byId("note-text").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("note-form").requestSubmit();
});
if (byId("robot")) {
  byId("robot").addEventListener("click", () => { robot = !robot; showRobot(); robotStep(); });
}
fetchRows();
setTimeout(refresh, 1500);
