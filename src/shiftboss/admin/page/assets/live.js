// Patches the element's children into the shape of `html` and sends what is pressed to the server.

function key(node) {
  return node.nodeType === 1 ? node.dataset.key || node.id || null : null;
}

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);
}

function copyAttributes(from, to) {
  for (const { name } of [...to.attributes])
    if (!from.hasAttribute(name) && name !== "open") to.removeAttribute(name); // what is open, people opened
  for (const { name, value } of [...from.attributes])
    if (to.getAttribute(name) !== value) to.setAttribute(name, value);
}

function patch(to, from) {
  if (to.nodeType !== 1) {
    if (to.data !== from.data) to.data = from.data;
    return;
  }
  copyAttributes(from, to);
  // A form belongs to the one who fills it in: it is replaced only when its key changes.
  if (to.nodeName === "FORM") return;
  // Relative times are the browser's own text.
  if (to.nodeName === "TIME") return window.shiftboss?.tell(to);
  patchChildren(to, from);
}

function patchChildren(to, from) {
  const keyed = new Map([...to.children].filter(key).map((node) => [key(node), node]));
  let at = to.firstChild;
  for (const wanted of [...from.childNodes]) {
    let have = key(wanted) ? keyed.get(key(wanted)) : at;
    if (have && have.parentNode === to && alike(have, wanted)) {
      if (have !== at) to.insertBefore(have, at);
      else at = at.nextSibling;
      patch(have, wanted);
    } else {
      to.insertBefore(document.importNode(wanted, true), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// A dialog with a new number opens; what it said is gone when it closes.
function openNew(dialog) {
  if (dialog.opened === dialog.dataset.open) return;
  dialog.opened = dialog.dataset.open;
  dialog.onclose = () => dialog.replaceChildren();
  if (!dialog.open) dialog.showModal();
}

// A file goes by HTTP; the answer is a text to tell, and what was wrong with single lines.
async function upload(form) {
  const { file, ...fields } = Object.fromEntries(new FormData(form));
  const query = new URLSearchParams({ ...fields, name: file.name });
  const answer = await fetch(`${form.dataset.upload}?${query}`, { method: "POST", body: file });
  const said = await answer.json();
  if (!answer.ok) throw new Error([said.detail, said.hint].filter(Boolean).join(". "));
  if (said.problems.length) throw new Error([said.told, ...said.problems].join("\n"));
  return { arg: said.told };
}

function valuesOf(form) {
  if (form.dataset.upload) return upload(form);
  return { arg: form.dataset.arg || "", ...Object.fromEntries(new FormData(form)) };
}

export default {
  template: "<div></div>",
  props: { html: String },
  emits: ["act"],
  mounted() {
    this.paint();
    this.$el.addEventListener("click", (event) => this.clicked(event));
    this.$el.addEventListener("submit", (event) => this.submitted(event));
    this.$el.addEventListener("change", ({ target }) => {
      if (target.dataset.act) this.$emit("act", [target.dataset.act, { arg: target.value }]);
    });
  },
  watch: {
    html() {
      this.paint();
    },
  },
  methods: {
    paint() {
      const template = document.createElement("template");
      template.innerHTML = this.html;
      patchChildren(this.$el, template.content);
      window.shiftboss?.tellAll(this.$el);
      this.$el.querySelectorAll("dialog[data-open]").forEach(openNew);
    },
    async clicked(event) {
      const button = event.target.closest("button[data-act]");
      if (!button || button.disabled) return;
      if (await window.shiftboss.confirmed(button)) this.$emit("act", [button.dataset.act, { arg: button.dataset.arg }]);
    },
    async submitted(event) {
      const form = event.target;
      if (!form.dataset.act) return;
      event.preventDefault();
      if (!(await window.shiftboss.confirmed(form))) return;
      try {
        this.$emit("act", [form.dataset.act, await valuesOf(form)]);
      } catch (error) {
        window.shiftboss.toast(error.message, true);
      }
    },
  },
};
