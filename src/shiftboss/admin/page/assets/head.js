// What every page needs before it is drawn: theme, relative times, the menu, the question before an action.
(() => {
  const root = document.documentElement;
  const stored = localStorage.getItem("shiftboss-theme");
  if (stored) root.dataset.theme = stored;

  function toggleTheme() {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("shiftboss-theme", root.dataset.theme);
  }

  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  function relative(seconds) {
    const size = Math.abs(seconds);
    if (size < 1) return "now";
    const [unit, name] = UNITS.find(([unit]) => size >= unit) || [1, "s"];
    const text = `${Math.floor(size / unit)} ${name}`;
    return seconds < 0 ? `in ${text}` : `${text} ago`;
  }

  function tell(time) {
    const text = relative((Date.now() - Date.parse(time.dateTime)) / 1000);
    if (time.textContent !== text) time.textContent = text;
  }

  const tellAll = (within) => within.querySelectorAll("time").forEach(tell);
  setInterval(() => document.hidden || tellAll(document), 1000);

  function confirmed(element) {
    const question = element.dataset.confirm;
    if (!question) return Promise.resolve(true);
    const dialog = document.getElementById("ask");
    dialog.querySelector("p").textContent = question;
    dialog.querySelector("[value=yes]").textContent = element.dataset.yes || element.textContent.trim() || "Yes";
    if (element.nodeName === "FORM") dialog.querySelector("[value=yes]").textContent = element.dataset.yes || "Yes";
    dialog.returnValue = "";
    dialog.showModal();
    return new Promise((resolve) =>
      dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }),
    );
  }

  // What goes wrong in a dialog is told there; what works out ends it.
  function toast(text, bad) {
    const sheet = document.querySelector("#sheet[open]");
    const told = sheet?.querySelector(".told");
    if (bad && told) return void (told.textContent = text);
    sheet?.close();
    const box = document.getElementById("toasts");
    const line = document.createElement("p");
    line.textContent = text;
    if (bad) line.className = "bad";
    box.append(line);
    setTimeout(() => line.remove(), bad ? 10000 : 5000);
  }

  async function copy(button) {
    const secret = button.closest("dialog").querySelector("pre");
    getSelection().selectAllChildren(secret); // where the clipboard is closed to us, Ctrl-C is left
    await navigator.clipboard?.writeText(secret.textContent);
    button.textContent = "Copied";
  }

  const DEEDS = {
    theme: toggleTheme,
    menu: (button) => button.setAttribute("aria-expanded", document.body.classList.toggle("menu")),
    close: (button) => button.closest("dialog").close(),
    copy,
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button) DEEDS[button.dataset.do](button);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.body.classList.remove("menu");
  });

  document.addEventListener("DOMContentLoaded", () => document.getElementById("popup")?.setAttribute("role", "alert"));
  window.shiftboss = { tell, tellAll, confirmed, toast };
})();
