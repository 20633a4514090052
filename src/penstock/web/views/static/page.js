// The page's only script: light or dark, news as they come, a log that grows. Without it the pages are plain HTML that
// shows how things stood when they were asked for.
"use strict";

// ---- light or dark: a cookie, so that the server's next page has it from the start -----------------------------
const root = document.documentElement;
document.querySelector("[data-toggle-theme]")?.addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `penstock_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
});

// ---- news: the server says that there are some, and the same page is asked for again, one question at a time ----
const shown = new Map();  // what each part was given last: a row that still flashes is no reason to draw it again
const live = document.getElementById("live");
if (live) {
  let seen = Number(live.dataset.number), newest = seen, asking = false, cut = false;
  const stream = new EventSource(live.dataset.stream);
  stream.onopen = () => live.classList.remove("cut");
  stream.onmessage = (news) => { newest = Math.max(newest, Number(news.data)); refresh(); };
  stream.onerror = () => {  // the browser asks again by itself, unless it was told no
    cut = true;
    live.classList.add("cut");
    shown.delete("as-of");
    document.getElementById("as-of").textContent = "not live; reconnecting";
    if (stream.readyState === EventSource.CLOSED) document.getElementById("as-of").textContent = "not live; reload the page";
  };

  async function refresh() {
    if (asking || (newest <= seen && !cut)) return;
    asking = true;
    try {
      const asked = newest;
      const answer = await fetch(location.href, { headers: { "Accept": "text/html" } });
      if (!answer.ok) return;
      swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
      [seen, cut] = [asked, false];
    } catch {  // gone for a moment: the stream says when it is back
      return;
    } finally {
      asking = false;
    }
    if (newest > seen) refresh();
  }
}

function swap(fresh) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const next = fresh.getElementById(part.id);
    if (!next || next.innerHTML === (shown.get(part.id) ?? part.innerHTML)) continue;
    shown.set(part.id, next.innerHTML);
    const known = new Set([...part.querySelectorAll("li[id]")].map((item) => item.id));
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    part.replaceChildren(...[...next.childNodes].map((node) => document.importNode(node, true)));
    if (known.size) for (const item of part.querySelectorAll("li[id]")) if (!known.has(item.id)) item.classList.add("fresh");
    if (focused) [...part.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
  }
}

// ---- the log: pieces, each from where the last one ended, so nothing is lost or doubled ---------------------------
const log = document.getElementById("log");
if (log) { log.scrollTop = log.scrollHeight; follow(); }

async function follow() {
  let attempt = log.dataset.attempt, next = Number(log.dataset.next), rest = 1;
  while (log.dataset.ended !== "yes") {
    try {
      const asked = new URLSearchParams({ attempt, after: String(next), wait: "25" });
      const answer = await fetch(`${log.dataset.from}?${asked}`);
      if (!answer.ok) throw new Error(String(answer.status));
      const told = (name) => answer.headers.get(`Penstock-${name}`);
      const text = await answer.text();
      show(text);
      [attempt, next, rest] = [told("Attempt"), Number(told("Next")), 1];
      if (text || told("More") === "true") continue;
      if (told("Then")) {
        [attempt, next] = [told("Then"), 0];
        show(`--- ${attempt} ---\n`);
      } else if (told("Ended") === "true") {
        log.dataset.ended = "yes";
      }
    } catch {  // Penstock is being started again, or the line is cut: less and less often
      await new Promise((done) => setTimeout(done, rest * 1000));
      rest = Math.min(30, rest * 2);
    }
  }
}

const MOST = 400000;  // characters kept; the whole log is a link away

function show(text) {
  if (!text) return;
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
  log.append(text);
  if (log.textContent.length > MOST) log.textContent = log.textContent.slice(-MOST / 2);
  if (atEnd) log.scrollTop = log.scrollHeight;
}
