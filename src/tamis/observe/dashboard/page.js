// Asks what has changed and puts it into its place. The server answers when something has. No libraries; it escapes what it sends.
"use strict";

const tip = document.getElementById("tip");
const lost = document.getElementById("lost");
const state = { range: "all", seen: "", frozen: false, ended: false, failures: 0, timer: 0, asking: null };
let pointer = null;

// Titles of charts become tips of our own: those of the browser vanish whenever the chart is drawn anew.
function adopt(place) {
  for (const title of place.querySelectorAll("svg title")) {
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }
}

function put(id, html) {
  const place = document.getElementById(id);
  if (!place) return;
  const scrolled = [...place.querySelectorAll(".scroll")].map((e) => [e.scrollLeft, e.scrollTop]);
  place.innerHTML = html;
  place.querySelectorAll(".scroll").forEach((e, i) => {
    if (scrolled[i]) [e.scrollLeft, e.scrollTop] = scrolled[i];
  });
  adopt(place);
  const section = place.closest("section");
  if (section) section.hidden = html === "";
}

// Sections are 6 or 12 columns wide and hidden where empty: the last one of each row takes what would stay empty.
function arrange() {
  const shown = [...document.querySelectorAll("main > section:not([hidden])")];
  const width = (section) => (section.matches(".full") ? 12 : 6);
  let used = 0;
  shown.forEach((section, i) => {
    used = used + width(section) > 12 ? width(section) : used + width(section);
    const next = shown[i + 1];
    const rest = !next || used + width(next) > 12 ? 12 - used : 0;
    section.dataset.span = String(width(section) + rest);
  });
}

function say(sentence) {
  lost.hidden = sentence === "";
  if (lost.textContent !== sentence) lost.textContent = sentence;
}

async function ask(stop) {
  const query = new URLSearchParams({ range: state.range, seen: state.seen, wait: "1" });
  const signal = AbortSignal.any([stop, AbortSignal.timeout(30000)]);
  const answer = await fetch(`/fragments?${query}`, { cache: "no-store", signal });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  const news = await answer.json();
  if (stop.aborted) return; // another question has been asked meanwhile
  state.seen = news.version;
  for (const [id, html] of Object.entries(news.fragments)) put(id, html);
  arrange();
  if ("head" in news.fragments) {
    const title = document.querySelector("#head h1");
    const badge = document.querySelector("#head .badge");
    document.title = `${title ? title.textContent : ""} ${badge ? badge.textContent : ""} · Tamis`;
  }
  if (pointer) point(pointer.x, pointer.y);
  state.failures = 0;
  state.ended = news.ended;
  say(news.ended ? "The run has ended, and this page with it. `tamis dashboard` shows the run again." : "");
}

// One question at a time: this one takes the place of the one under way.
async function turn() {
  clearTimeout(state.timer);
  if (state.asking) state.asking.abort();
  state.asking = null;
  if (state.ended || state.frozen || document.hidden) return;
  const asking = new AbortController();
  state.asking = asking;
  try {
    await ask(asking.signal);
  } catch (error) {
    if (asking.signal.aborted) return;
    state.failures += 1;
    if (state.failures > 1) say(`No answer from the dashboard (${error.message}). What is below may be old.`);
  }
  if (asking.signal.aborted) return;
  const pause = state.failures ? Math.min(500 * 2 ** state.failures, 15000) : 0;
  state.timer = setTimeout(turn, pause);
}

function point(x, y) {
  const at = document.elementFromPoint(x, y);
  const owner = at && at.closest("[data-tip]");
  tip.hidden = !owner;
  if (!owner) return;
  tip.textContent = owner.dataset.tip;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
  const top = y + 14 + box.height > innerHeight ? y - 14 - box.height : y + 14;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

for (const kind of ["pointermove", "pointerdown"]) {
  document.addEventListener(kind, (event) => {
    pointer = { x: event.clientX, y: event.clientY };
    point(pointer.x, pointer.y);
  });
}
document.addEventListener("pointerleave", () => { pointer = null; tip.hidden = true; });
document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
document.addEventListener("visibilitychange", turn);

for (const button of document.querySelectorAll("[data-range]")) {
  button.addEventListener("click", () => {
    state.range = button.dataset.range;
    state.seen = "";
    for (const other of document.querySelectorAll("[data-range]")) other.setAttribute("aria-pressed", String(other === button));
    turn();
  });
}
document.getElementById("freeze").addEventListener("click", (event) => {
  state.frozen = !state.frozen;
  event.target.setAttribute("aria-pressed", String(state.frozen));
  turn();
});

// The token, if there was one, is in a cookie by now: not in the address, where people see and copy it.
if (location.search) history.replaceState(null, "", location.pathname);
turn();
