// Keeps an open page up to date, confirms actions and opens dialogs. Every page also works without it.
(() => {
  const root = document.documentElement;
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
  root.classList.add("scripted");

  // Times: relative to now, exact on hover.
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  function relative(seconds) {
    const size = Math.abs(seconds);
    if (size < 1) return "now";
    const [unit, name] = UNITS.find(([unit]) => size >= unit);
    return seconds < 0 ? `in ${Math.round(size / unit)} ${name}` : `${Math.floor(size / unit)} ${name} ago`;
  }

  function writeTime(time) {
    const text = relative((Date.now() - Date.parse(time.dateTime)) / 1000);
    if (time.textContent !== text) time.textContent = text;
  }

  const writeTimes = (within) => $$("time", within).forEach(writeTime);

  // Morphing changes only what differs, so that focus, selection, scroll position and open details survive.
  const keyOf = (node) => (node.nodeType === 1 ? node.dataset.key || node.id || null : null);
  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

  function copyAttributes(from, to) {
    for (const { name } of [...to.attributes])
      if (!from.hasAttribute(name) && name !== "open" && name !== "aria-selected") to.removeAttribute(name);
    for (const { name, value } of [...from.attributes])
      if (to.getAttribute(name) !== value) to.setAttribute(name, value);
  }

  function morph(to, from) {
    if (to.nodeType !== 1) {
      if (to.data !== from.data) to.data = from.data;
      return;
    }
    copyAttributes(from, to);
    if (to.nodeName === "FORM") return; // keep what the user has typed
    if (to.nodeName === "TIME") return writeTime(to);
    morphChildren(to, from);
  }

  function morphChildren(to, from) {
    const keyed = new Map([...to.children].filter(keyOf).map((node) => [keyOf(node), node]));
    let at = to.firstChild;
    for (const wanted of [...from.childNodes]) {
      let have = keyOf(wanted) ? keyed.get(keyOf(wanted)) : at;
      if (!have || !alike(have, wanted) || have.parentNode !== to) {
        to.insertBefore(wanted, at);
        if (wanted.nodeType === 1) writeTimes(wanted);
        if (wanted.nodeName === "TIME") writeTime(wanted);
        continue;
      }
      if (have !== at) to.insertBefore(have, at);
      else at = at.nextSibling;
      morph(have, wanted);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function parse(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content;
  }

  // One event stream per page, closed while the page is hidden.
  let stream = null;
  let retry = 0;

  function open() {
    if (stream || document.hidden || !$("[data-piece]")) return;
    const address = new URL(location.href);
    address.hash = "";
    const have = $$("[data-digest]").map((piece) => `${piece.dataset.piece}:${piece.dataset.digest}`);
    address.searchParams.set("have", have.join(","));
    stream = new EventSource(address);
    stream.onopen = () => lost(false);
    stream.onerror = () => {
      lost(true);
      if (stream?.readyState === EventSource.CLOSED) again();
    };
    stream.addEventListener("piece", (event) => show(...JSON.parse(event.data)));
    stream.addEventListener("gone", toLogin);
  }

  function toLogin() {
    location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  }

  function close() {
    stream?.close();
    stream = null;
  }

  function again() {
    close();
    clearTimeout(retry);
    retry = setTimeout(open, 3000);
  }

  function lost(yes) {
    const line = $("#lost");
    if (line) line.hidden = !yes;
  }

  function show(name, digest, html) {
    const piece = $(`[data-piece="${CSS.escape(name)}"]`);
    if (!piece) return;
    morphChildren(piece, parse(html));
    piece.dataset.digest = digest;
    selectionChanged();
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());

  // Messages.
  function toast(text, bad) {
    const sheet = $("#sheet");
    const told = sheet?.open && $(".told", sheet);
    if (bad && told) return void (told.textContent = text);
    if (sheet?.open) sheet.close();
    const line = document.createElement("p");
    line.textContent = text;
    if (bad) line.className = "bad";
    $("#toasts").append(line);
    setTimeout(() => line.remove(), bad ? 10000 : 5000);
  }

  // Dialogs.
  function openSheet(html) {
    const sheet = $("#sheet");
    sheet.replaceChildren(parse(html));
    writeTimes(sheet);
    if (!sheet.open) sheet.showModal();
    $("input:not([type=hidden]):not([readonly]), select, textarea", sheet)?.focus();
  }

  async function fetchSheet(link) {
    const answer = await fetch(link.href, { headers: { "X-Sheet": "1", Accept: "text/html" } });
    if (answer.redirected) return location.assign(answer.url);
    if (!answer.ok) return toast("This dialog cannot be opened", true);
    openSheet(await answer.text());
  }

  function confirmed(element) {
    const question = element?.dataset.confirm;
    if (!question) return Promise.resolve(true);
    const dialog = $("#ask");
    $("p", dialog).textContent = question;
    $("[value=yes]", dialog).textContent = `Yes, ${element.textContent.trim().toLowerCase()}`;
    dialog.returnValue = "";
    dialog.showModal();
    return new Promise((resolve) =>
      dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }),
    );
  }

  // Forms are sent without leaving the page.
  async function send(form, submitter) {
    const data = new FormData(form, submitter);
    if (!(await confirmed(submitter))) return;
    const body = form.enctype === "multipart/form-data" ? data : new URLSearchParams(data);
    if (submitter) submitter.disabled = true;
    try {
      const answer = await fetch(form.action, { method: "POST", body, headers: { Accept: "application/json" } });
      const done = await answer.json();
      if (done.go) return toLogin();
      if (done.told) toast(done.told, done.bad);
      if (done.sheet) openSheet(done.sheet);
      if (answer.ok && form.matches("#acts")) $$("input[form=acts]:checked").forEach((box) => (box.checked = false));
      selectionChanged();
    } catch {
      toast("The server did not respond", true);
    } finally {
      if (submitter) submitter.disabled = false;
    }
  }

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || /^\/log(in|out)/.test(form.getAttribute("action") || "")) return;
    event.preventDefault();
    send(form, event.submitter);
  });

  async function copy(button) {
    const text = $("pre", button.closest(".snippet") || button.closest("dialog"));
    getSelection().selectAllChildren(text); // lets the user press Ctrl+C if the clipboard is not accessible
    await navigator.clipboard?.writeText(text.textContent);
    button.textContent = "Copied";
  }

  function toggleTheme() {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = `shiftboss_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
  }

  const ACTIONS = {
    theme: toggleTheme,
    menu: (button) => button.setAttribute("aria-expanded", document.body.classList.toggle("menu")),
    keys: () => $("#keys").showModal(),
    close: (button) => {
      const dialog = button.closest("dialog");
      dialog.close();
      dialog.replaceChildren();
    },
    copy,
  };

  document.addEventListener("click", (event) => {
    const action = event.target.closest("[data-do]");
    const link = event.target.closest("[data-sheet]");
    if (action) {
      event.preventDefault();
      ACTIONS[action.dataset.do](action);
    } else if (link && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      fetchSheet(link);
    }
  });

  // Selected rows.
  function selectionChanged() {
    document.body.classList.toggle("selecting", Boolean($("input[form=acts]:checked")));
  }
  document.addEventListener("change", selectionChanged);

  // The tooltip with the values of a chart.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.addEventListener("pointermove", (event) => {
    const text = event.target.closest?.("[data-tip]")?.dataset.tip;
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    tip.style.setProperty("left", `${left}px`);
    tip.style.setProperty("top", `${event.clientY + 14}px`);
  });

  // Keyboard.
  let row = null;

  function go(step) {
    const rows = $$("main tbody tr");
    if (!rows.length) return;
    const at = row?.isConnected ? rows.indexOf(row) : -1;
    row?.removeAttribute("aria-selected");
    row = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
    row.setAttribute("aria-selected", "true");
    row.scrollIntoView({ block: "nearest" });
  }

  function search() {
    const box = $("details.filter-box");
    if (box) box.open = true;
    ($("[role=search] input[type=search]") || $("[role=search] input"))?.focus();
  }

  const KEYS = {
    "/": search,
    "?": () => $("#keys").showModal(),
    j: () => go(1),
    k: () => go(-1),
    x: () => row && $("input[type=checkbox]", row)?.click(),
    r: () => ($("[data-hotkey=r]", row || document.createElement("p")) || (!$("main tbody tr") && $("[data-hotkey=r]")))?.click(),
    Enter: () => row && $("a", row)?.click(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.body.classList.remove("menu");
    if (event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
    // A control that was used keeps the focus, so letters must work there too; Enter presses it.
    if (event.target.closest("input:not([type=checkbox]), select, textarea")) return;
    if (event.key === "Enter" && event.target.closest("button, a, summary")) return;
    const action = KEYS[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });

  document.body.append(tip);
  writeTimes(document);
  setInterval(() => document.hidden || writeTimes(document), 1000);
  const sheet = $("#sheet");
  if (sheet?.open) {
    sheet.close();
    sheet.showModal();
  }
  $(".told-line") && setTimeout(() => $(".told-line")?.remove(), 8000);
  open();
})();
