// Makes the figure of this document live. Its kind, in a file of its own, has
// `controls`, what a reader may set; `draw`, which from the data and what is
// set makes a picture, a sentence and a table; and it may have `start`, what is
// set at first, and `check` of the data. Nothing is kept, loaded or sent.
(function (TL) {
  "use strict";

  // ---- Text and pictures ----

  const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const tag = (name, attributes, inner = "") =>
    `<${name}${Object.entries(attributes).map(([key, value]) => ` ${key}="${escaped(value)}"`).join("")}>${inner}</${name}>`;
  const text = (x, y, words, attributes = {}) => tag("text", { x, y, "dominant-baseline": "central", ...attributes }, escaped(words));
  const line = (x1, y1, x2, y2, attributes) => tag("path", { d: `M${x1} ${y1}L${x2} ${y2}`, fill: "none", ...attributes });
  const colour = (n) => `var(--c${n % 8})`;
  const written = (n) => `fill:color-mix(in srgb, ${colour(n)} 70%, var(--ink))`; // dark enough to be read
  // Two lines of one colour have other dashes.
  const dashes = (n) => ["none", "6 3", "8 3 2 3", "2 3"][(n + Math.floor(n / 8)) % 4];

  // A value as tables and sentences show it, as in Python.
  function shown(value, digits) {
    if (typeof value === "string") return value;
    const [whole, rest] = Math.abs(value).toFixed(digits).split(".");
    const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
    const sign = value < 0 && /[1-9]/.test(whole + rest) ? "−" : ""; // no minus before a zero
    return sign + grouped + (rest ? `.${rest}` : "");
  }
  const whole = (value) => shown(value, 0);
  const sentenceCase = (name) => name.slice(0, 1).toUpperCase() + name.slice(1);
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const range = (n, first = 0) => Array.from({ length: n }, (_, i) => first + i);

  // Words, cut to the room there is for them.
  const pen = document.createElement("canvas").getContext("2d");
  function textWidth(words, size = 13) {
    pen.font = `${size}px system-ui, sans-serif`;
    return pen.measureText(words).width;
  }
  function fitted(words, room, size = 13) {
    if (textWidth(words, size) <= room) return words;
    const signs = [...words];
    while (signs.length > 1 && textWidth(`${signs.join("")}…`, size) > room) signs.pop();
    return `${signs.join("")}…`;
  }

  function need(truth, sentence) {
    if (!truth) throw new Error(sentence);
  }

  // Round places for about `count` marks on an axis.
  function ticks(low, high, count) {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((s) => s >= rough);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
    return range(last - first + 1, first).map((n) => [n * step, shown(n * step, digits)]);
  }

  // Lines and dots over two axes, inside a box.
  function chart({ left, top, width, height, x, y, lines, dots = [], title }) {
    const X = (v) => left + ((v - x.low) / (x.high - x.low)) * width;
    const Y = (v) => top + height - ((v - y.low) / (y.high - y.low)) * height;
    const parts = [];
    for (const [v, label] of x.ticks || ticks(x.low, x.high, width / 90)) {
      parts.push(line(X(v), top, X(v), top + height, { class: "grid" }), text(X(v), top + height + 12, label, { class: "quiet", "text-anchor": "middle" }));
    }
    for (const [v, label] of ticks(y.low, y.high, height / 45)) {
      parts.push(line(left, Y(v), left + width, Y(v), { class: "grid" }), text(left - 6, Y(v), label, { class: "quiet", "text-anchor": "end" }));
    }
    parts.push(text(left + width / 2, top + height + 30, x.label, { class: "quiet", "text-anchor": "middle" }));
    parts.push(text(left, top - 13, title));
    for (const { points, n, faint } of lines) {
      const d = points.map(([a, b], i) => `${i ? "L" : "M"}${X(a).toFixed(1)} ${Y(b).toFixed(1)}`).join("");
      parts.push(tag("path", { d, fill: "none", stroke: faint ? "var(--quiet)" : colour(n), "stroke-width": faint ? 1 : 2, "stroke-dasharray": dashes(n) }));
    }
    for (const { at, n, label, anchor = "start" } of dots) {
      const [px, py] = [X(at[0]), Y(at[1])];
      parts.push(tag("circle", { cx: px, cy: py, r: 5, fill: colour(n), stroke: "var(--paper)" }));
      if (label) parts.push(text(px + (anchor === "end" ? -9 : 9), py - 9, label, { "text-anchor": anchor, style: written(n) }));
    }
    return parts.join("");
  }

  // ---- Controls ----

  const choice = (name, label, options) => ({ type: "select", name, label, options });
  const slider = (name, label, min, max, step = 1, told = whole) => ({ type: "range", name, label, min, max, step, told });
  const option = (label, value) => tag("option", { value }, escaped(label));
  const check = (name, label, value) => `<label><input type="checkbox" name="${name}" value="${value}">${escaped(label)}</label>`;

  function control({ type, name, label, options, first = 0, min, max, step }) {
    if (type === "check") return check(name, label, "");
    if (type === "several") return `<fieldset><legend>${escaped(label)}</legend>${options.map((one, n) => check(name, one, n)).join("")}</fieldset>`;
    if (type === "select") return `<label>${escaped(label)} <select name="${name}">${options.map((one, n) => option(one, n + first)).join("")}</select></label>`;
    return `<label>${escaped(label)} ${tag("input", { type: "range", name, min, max, step })}<span class="value" aria-hidden="true"></span></label>`;
  }

  function tableOf({ head, rows, digits }) {
    const cell = (value) => typeof value === "string" ? `<td>${escaped(value)}</td>` : `<td data-value="${value}">${shown(value, digits)}</td>`;
    return `<table><thead><tr>${head.map((h) => `<th scope="col">${escaped(h)}</th>`).join("")}</tr></thead><tbody>` +
      rows.map(([first, ...rest]) => `<tr><th scope="row">${escaped(first)}</th>${rest.map(cell).join("")}</tr>`).join("") + "</tbody></table>";
  }

  class Figure {
    constructor(root, data) {
      this.root = root;
      this.data = data;
      this.kind = TL[root.dataset.viz];
      this.kind.check?.(data);
      this.state = this.kind.start ? this.kind.start(data) : { ...data.start };
      [this.form, this.picture, this.summary, this.scroll] = ["form", ".picture", ".summary", ".scroll"].map((s) => root.querySelector(s));
      this.buttons();
      this.render();
      this.form.addEventListener("submit", (event) => event.preventDefault());
      this.form.addEventListener("input", (event) => this.take(event.target));
      for (const name of ["pointermove", "pointerleave", "click"]) this.picture.addEventListener(name, (event) => this.point(event));
      new ResizeObserver(() => { if (this.picture.clientWidth !== this.seen) this.render(); }).observe(this.picture);
    }

    buttons() {
      const bar = document.createElement("p");
      bar.className = "buttons";
      bar.innerHTML = '<button type="button">Download SVG</button><button type="button">Copy values</button><span role="status"></span>';
      this.root.append(bar);
      const [download, copy] = bar.querySelectorAll("button"), said = bar.lastChild;
      download.onclick = () => this.download();
      copy.onclick = async () => { said.textContent = (await copied(this.values())) ? "Copied." : "The browser does not let a page copy."; };
    }

    // A control was moved.
    take(input) {
      const { name, type, value } = input;
      if (type === "checkbox" && input.closest("fieldset")) {
        this.state[name] = [...this.form.elements].filter((one) => one.name === name && one.checked).map((one) => Number(one.value));
      } else this.state[name] = type === "checkbox" ? input.checked : Number(value);
      this.render();
    }

    // The mouse is over a word, or one was tapped.
    point({ type, target, pointerType }) {
      const word = target.dataset.word;
      if (type === "click") {
        if (word !== undefined) this.state.word = this.state.word === Number(word) ? -1 : Number(word);
      } else if (pointerType !== "mouse") return;
      const hover = type === "pointermove" && word !== undefined ? Number(word) : undefined;
      if (type !== "click" && hover === this.state.hover) return;
      this.state.hover = type === "click" ? undefined : hover;
      this.render();
    }

    render() {
      const { state, form } = this, specs = this.kind.controls(this.data, state), html = specs.map(control).join("");
      if (html !== this.html) {
        const focused = document.activeElement?.name;
        form.innerHTML = this.html = html;
        if (focused) form.elements[focused]?.focus?.();
      }
      for (const { name, type, told } of specs) for (const input of form.querySelectorAll(`[name="${name}"]`)) {
        if (type === "check") input.checked = state[name];
        else if (type === "several") input.checked = state[name].includes(Number(input.value));
        else input.value = state[name];
        if (type === "range") {
          input.nextElementSibling.textContent = told(state[name]);
          input.setAttribute("aria-valuetext", told(state[name]));
        }
      }
      this.seen = this.picture.clientWidth;
      const room = Math.max(280, Math.min(740, this.seen)), drawn = this.drawn = this.kind.draw(this.data, state, room);
      const { width = room, height, svg, summary } = drawn, title = this.root.querySelector("figcaption").textContent;
      this.picture.classList.remove("static");
      this.picture.innerHTML = tag("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title }, svg);
      const scrolls = { tabindex: 0, role: "region", "aria-label": "The picture, wider than the page" };
      for (const [key, value] of Object.entries(scrolls)) width > room ? this.picture.setAttribute(key, value) : this.picture.removeAttribute(key);
      this.summary.textContent = summary;
      this.scroll.innerHTML = tableOf(drawn);
    }

    values() {
      return [this.drawn.head, ...this.drawn.rows].map((row) => row.join("\t")).join("\n");
    }

    // The picture in light colours, which it carries itself: drawing programs
    // know no style sheet's variables.
    download() {
      const { dataset } = document.documentElement, { theme } = dataset, drawn = this.picture.firstChild, svg = drawn.cloneNode(true);
      dataset.theme = "light";
      const copies = [svg, ...svg.querySelectorAll("*")];
      [drawn, ...drawn.querySelectorAll("*")].forEach((one, n) => {
        const style = getComputedStyle(one);
        for (const name of ["fill", "stroke", "font-family", "font-size", "font-weight"]) {
          copies[n].removeAttribute(name);
          copies[n].style.setProperty(name, style.getPropertyValue(name));
        }
      });
      if (theme === undefined) delete dataset.theme;
      else dataset.theme = theme;
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" }));
      link.download = `${this.root.dataset.viz}.svg`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }
  }

  async function copied(values) {
    try {
      await navigator.clipboard.writeText(values);
      return true;
    } catch {
      const area = Object.assign(document.createElement("textarea"), { value: values });
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  // The theme of the page around, where it may be asked: of the book, of
  // JupyterLab. Otherwise that of the system.
  function follow() {
    const there = parent.document, dark = () => {
      const { theme } = there.documentElement.dataset, light = there.body.dataset.jpThemeLight;
      document.documentElement.dataset.theme = theme === "dark" || theme === "light" ? theme : light ? (light === "true" ? "light" : "dark") : "";
    };
    const watch = new MutationObserver(dark);
    for (const element of [there.documentElement, there.body]) watch.observe(element, { attributes: true, attributeFilter: ["data-theme", "data-jp-theme-light"] });
    dark();
    const card = frameElement.closest(".text_html"); // of Jupyter Book: light in its dark theme
    if (card) card.style.background = "none";
  }

  // As high as what is in it; the picture below it is no longer needed.
  function fit(frame) {
    frame.previousElementSibling.style.display = "none";
    new ResizeObserver(() => { frame.style.height = `${document.body.scrollHeight + 4}px`; }).observe(document.body);
  }

  TL.start = (root, data) => {
    try {
      new Figure(root, JSON.parse(data));
      root.dataset.state = "ready";
    } catch (error) {
      root.dataset.state = "failed";
      root.querySelector(".summary").textContent = `This figure cannot be shown live. ${error.message}`;
    }
    try {
      if (frameElement) {
        follow();
        fit(frameElement);
      }
    } catch { /* a sandbox: nothing around it may be asked */ }
  };

  Object.assign(TL, { escaped, tag, text, line, colour, written, dashes, textWidth, fitted, shown, whole, sentenceCase, sum, range, need, ticks, chart, choice, slider });
})((globalThis.TL = {}));
