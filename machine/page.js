// The page around the stage: the number, the steps, what a cell means.
(function (TL) {
  "use strict";

  const HTML = `
    <form class="tl-bar">
      <label><span>Number</span> <input name="number" inputmode="text" autocomplete="off" spellcheck="false" size="9"></label>
      <button type="button" name="draw" title="A number that the model never trained on">Random held-out</button>
      <output class="tl-said"></output>
      <label class="tl-written"><span>Written</span> <input name="written" type="range" min="1" value="1"><b></b></label>
    </form>
    <div class="tl-view">
      <canvas tabindex="0" role="img"></canvas>
    </div>
    <div class="tl-cell" role="status" aria-live="polite" tabindex="0"></div>
    <nav class="tl-nav" aria-label="Steps">
      <button type="button" name="previous">←<span> Previous</span></button>
      <span class="tl-step"></span>
      <button type="button" name="next"><span>Next </span>→</button>
      <button type="button" name="replay" title="This step again, from its side">Replay</button>
      <button type="button" name="whole" title="The whole machine">Whole</button>
      <button type="button" name="in" aria-label="Zoom in">+</button>
      <button type="button" name="out" aria-label="Zoom out">−</button>
    </nav>`;
  // Text beside the stage; else it is below. As in machine.css.
  const WIDE = "(min-width: 1000px), (min-width: 640px) and (max-height: 500px)";
  const MORE = `
    <summary>The numbers as a table</summary>
    <p><label>Matrix <select></select></label> <button type="button">Copy as text</button></p>
    <p class="tl-summary"></p>
    <div class="tl-scroll" tabindex="0" role="region" aria-label="Values of the matrix"><table></table></div>`;
  const BEAM = `
    <p><label>Beam <select>${[1, 2, 3, 4, 5, 6, 7, 8].map((n) => `<option>${n}</option>`).join("")}</select></label>
    <label>α <input type="number" min="0" max="10" step="0.1" value="0.6"></label></p>
    <div class="tl-scroll" tabindex="0" role="region" aria-label="The tree of the search"></div>
    <div class="tl-scroll" tabindex="0" role="region" aria-label="What the search found"><table><thead><tr><th>Output</th><th>log p</th><th>penalty</th><th>score</th></tr></thead><tbody></tbody></table></div>`;

  class Page {
    // root: where the stage goes; its parent holds a section for each step.
    constructor(root) {
      this.root = root;
      this.walk = root.parentElement;
      this.sections = [...this.walk.querySelectorAll("h2")].map((h) => h.closest("section")).slice(0, TL.STEPS.length);
      this.model = TL.loadModel(TL.data);
      this.step = -1;
      this.build();
      this.readHash(true);
      root.dataset.state = "ready";
    }

    find(selector) {
      return this.root.querySelector(selector);
    }

    build() {
      const style = document.createElement("style");
      style.textContent = TL.style;
      document.head.append(style);
      document.documentElement.classList.add("tl-page");
      this.walk.classList.add("tl-walk");
      this.root.classList.add("tl-machine");
      this.root.innerHTML = `<div class="tl-stick">${HTML}</div>`;
      this.more = document.createElement("details");
      this.more.className = "tl-more";
      this.more.innerHTML = MORE;
      this.sections[0].before(this.more);
      this.beamBox = document.createElement("div");
      this.beamBox.className = "tl-beam";
      this.beamBox.innerHTML = BEAM;
      this.sections[TL.STEPS.findIndex((step) => step.beam)].append(this.beamBox);
      this.beamBox.querySelector("select").value = "4";
      this.canvas = this.find("canvas");
      this.stage = new TL.Stage(this.canvas, { onCursor: (cursor, spoken) => this.tell(spoken) });
      this.stage.onResize = () => this.resize();
      this.makeRoom();
      this.listen();
      this.followTheme();
    }

    listen() {
      const form = this.find("form");
      const on = (name, act) => this.find(`[name=${name}]`).addEventListener("click", act);
      form.addEventListener("submit", (event) => event.preventDefault());
      form.number.addEventListener("input", () => this.choose(true));
      form.number.addEventListener("change", () => { this.typing = false; });
      form.written.addEventListener("input", () => { this.stopPlay(); this.compute(Number(form.written.value)); });
      on("draw", () => { form.number.value = TL.drawHeldOut(); this.choose(false); });
      on("in", () => this.stage.zoomBy(1.4));
      on("out", () => this.stage.zoomBy(1 / 1.4));
      on("previous", () => this.go(this.step - 1));
      on("next", () => this.go(this.step + 1));
      on("replay", () => this.show(this.step));
      on("whole", () => this.stage.look(null, -0.3, 0.34));
      window.addEventListener("hashchange", () => this.readHash());
      window.addEventListener("resize", () => this.makeRoom());
      this.more.addEventListener("toggle", () => this.table());
      const select = this.more.querySelector("select");
      select.addEventListener("change", () => this.stage.setCursor({ name: select.value, row: 0, col: 0 }, { follow: true }));
      this.more.querySelector("button").addEventListener("click", () => navigator.clipboard?.writeText(this.asText()));
      for (const control of this.beamBox.querySelectorAll("select, input")) control.addEventListener("input", () => this.beam());
      new IntersectionObserver(([entry]) => { // searched for when it is looked at
        this.beamSeen = entry.isIntersecting;
        if (this.beamSeen) this.beam();
      }).observe(this.beamBox);
      this.watch();
    }

    // The stage stands below the book's header and ends with the window.
    makeRoom() {
      const header = document.querySelector(".bd-header-article"), { style } = this.walk;
      const above = matchMedia(WIDE).matches ? this.root.getBoundingClientRect().top + scrollY : 0;
      style.setProperty("--tl-top", `${header ? header.offsetHeight : 0}px`);
      style.setProperty("--tl-room", `${above}px`);
    }

    // The section that is being read sets the step.
    watch() {
      const wide = matchMedia(WIDE);
      const start = () => {
        this.observer?.disconnect();
        this.observer = new IntersectionObserver((entries) => {
          for (const { isIntersecting, target } of entries) {
            if (isIntersecting && !this.going) this.show(this.sections.indexOf(target));
          }
        }, { rootMargin: wide.matches ? "-38% 0px -60% 0px" : "-76% 0px -22% 0px" });
        this.sections.forEach((section) => this.observer.observe(section));
      };
      wide.addEventListener("change", start);
      start();
    }

    followTheme() {
      const html = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
      const show = (dark) => {
        this.root.dataset.dark = dark;
        this.stage.setTheme(dark);
      };
      const set = () => {
        const { theme } = html.dataset;
        show(theme === "dark" || (theme !== "light" && system.matches));
      };
      new MutationObserver(set).observe(html, { attributeFilter: ["data-theme"] });
      system.addEventListener("change", set);
      window.addEventListener("beforeprint", () => { show(false); this.stage.paint(); });
      window.addEventListener("afterprint", set);
      set();
    }

    // ---- The number ----

    // The reader's number has an entry of its own in the history, in which the
    // keys of one typing have their part.
    choose(typing) {
      const before = this.number;
      this.read();
      if (this.number === before) return;
      this.writeHash(!this.typing);
      this.typing = typing;
    }

    // What stands in the field; a sentence where it is no number.
    read() {
      const { number } = this.find("form");
      let n;
      try {
        n = TL.readNumber(number.value);
      } catch (error) {
        number.setAttribute("aria-invalid", "true");
        this.find(".tl-said").textContent = error.message;
        return;
      }
      number.removeAttribute("aria-invalid");
      this.use(n);
    }

    use(n) {
      this.stopPlay();
      this.number = n;
      this.src = TL.sourceIds(n, this.model.tokens, this.model.config);
      this.best = TL.greedy(this.model, this.src);
      const { room } = this;
      this.compute(this.best.tokens.length + 1);
      if (this.room !== room) this.aim(true); // the blocks have moved
      if (this.beamSeen) this.beam();
    }

    // The whole run, with the first `written` tokens written.
    compute(written) {
      const { bos_id } = this.model.config, { tokens } = this.model, form = this.find("form");
      this.run = TL.forward(this.model, this.src, [bos_id, ...this.best.tokens].slice(0, written));
      form.written.max = this.best.tokens.length + 1;
      form.written.value = written;
      this.find(".tl-written b").textContent = `${written} of ${form.written.max}`;
      const held = TL.isHeldOut(this.number) ? ", never trained on" : "";
      const word = this.best.tokens.slice(0, written).map((id) => tokens[id]).join("");
      this.find(".tl-said").textContent = `${TL.english(this.number).join(" ")}${held} → ${word}`;
      this.room = Math.max(this.src.length, this.best.tokens.length + 1);
      this.stage.setScene(TL.layout(this.run, this.model, this.room), this.run);
      this.stage.truth = [...this.best.tokens, this.model.config.eos_id];
      const { cursor } = this.stage, kept = cursor && (this.run.tensors[cursor.name] || this.model.weights[cursor.name]);
      if (kept) {
        const within = (v, n) => Math.min(v, n - 1);
        this.stage.setCursor({ name: cursor.name, row: within(cursor.row, kept.rows), col: within(cursor.col, kept.cols) });
      } else this.tell();
      this.table();
    }

    // ---- The steps ----

    namesOf(step) {
      if (!step.show) return null;
      return new Set(this.stage.blocks.map((b) => b.name).filter((name) => step.show.test(name)));
    }

    show(n, animate = true) {
      const step = TL.STEPS[n];
      if (!step) return;
      this.stopPlay();
      this.step = n;
      this.sections.forEach((section, at) => section.classList.toggle("tl-now", at === n));
      this.find(".tl-step").textContent = `${n + 1} of ${TL.STEPS.length}`;
      this.find("[name=previous]").disabled = n === 0;
      this.find("[name=next]").disabled = n === TL.STEPS.length - 1;
      Object.assign(this.stage, { overlay: step.overlay, trace: step.trace });
      this.aim(animate);
      this.stage.setCursor(step.cursor ? this.inside(step.cursor) : null);
      this.canvas.setAttribute("aria-label", `The machine: ${this.sections[n].querySelector("h2").textContent.replace("#", "")}. Arrow keys move a cursor from number to number, Page keys from matrix to matrix; with Shift the arrows turn the machine, W A S D move it, plus and minus zoom.`);
      if (step.play && animate && !this.stage.motion.matches) this.play();
      this.writeHash();
    }

    // A step's cursor, where the run has such a cell; "best": the row's largest.
    inside([name, row, col]) {
      const x = this.run.tensors[name] || this.model.weights[name];
      if (col === "best") return { name, row, col: TL.largest(x, row) };
      return { name, row: Math.min(row, x.rows - 1), col: Math.min(col, x.cols - 1) };
    }

    go(n) {
      if (!TL.STEPS[n]) return;
      this.going = true; // the observer is silent while the page jumps
      this.sections[n].scrollIntoView({ block: "start", behavior: "instant" });
      this.show(n);
      setTimeout(() => { this.going = false; }, 150);
    }

    // Write the output again, token by token.
    play() {
      this.compute(1);
      const most = this.best.tokens.length + 1;
      this.playing = setInterval(() => {
        const written = this.run.tensors["decoder.x"].rows + 1;
        this.compute(written);
        this.stage.setCursor(this.inside(["probabilities", written - 1, "best"]));
        if (written >= most) this.stopPlay();
      }, 900);
    }

    stopPlay() {
      if (!this.playing) return;
      clearInterval(this.playing);
      this.playing = null;
      if (this.run.tensors["decoder.x"].rows <= this.best.tokens.length) this.compute(this.best.tokens.length + 1);
    }

    // The camera goes where the step wants it.
    aim(animate) {
      const step = TL.STEPS[this.step];
      if (step) this.stage.look(this.namesOf(step), step.yaw, step.pitch, animate);
    }

    // A new width breaks the lines anew: what is read stays where it was.
    resize() {
      const { width } = this.stage.camera;
      this.stage.resize();
      this.aim(false);
      if (scrollY && this.stage.camera.width !== width) this.go(this.step);
    }

    // ---- The address holds the state ----

    writeHash(push) {
      const hash = `#step-${this.step + 1}&n=${this.number}`;
      if (hash === location.hash) return;
      try { history[push ? "pushState" : "replaceState"](null, "", hash); } catch { /* a frame without an address */ }
    }

    readHash(first) {
      const step = /step-(\d+)/.exec(location.hash), n = /n=(\d+)/.exec(location.hash);
      this.typing = false;
      if (first) this.use(21042);
      if (first || n) this.find("form").number.value = n ? n[1] : this.number;
      if (n) this.read();
      if (first) this.stage.resize();
      if (step) this.go(Number(step[1]) - 1);
      if (step && first) window.addEventListener("load", () => this.go(this.step)); // till then the page may move
      if (first && this.step < 0) this.show(0, false);
    }

    // ---- What a cell says ----

    // Spoken when keys or a tap chose the cell; a moving mouse is not.
    tell(spoken) {
      const { cursor } = this.stage, box = this.find(".tl-cell");
      box.setAttribute("aria-live", spoken ? "polite" : "off");
      if (!cursor) {
        box.innerHTML = `<b>${this.model.count.toLocaleString("en")}</b> learned numbers, checksum <code title="sha256 of the weights">${this.model.sha256.slice(0, 12)}</code>. Point at a cell, tap it, or use the arrow keys.`;
        return;
      }
      const { title, shape, row, col, value, how } = TL.explain(this.run, cursor.name, cursor.row, cursor.col);
      box.innerHTML = `<b></b> <span></span><strong></strong><p></p>`;
      box.children[0].textContent = title;
      box.children[1].textContent = ` (${shape}), ${row}, ${col}: `;
      box.children[2].textContent = TL.round(value);
      box.children[3].textContent = how + ".";
      this.table();
    }

    // ---- The table of values ----

    table() {
      if (!this.more.open) return;
      const select = this.more.querySelector("select");
      const names = [...Object.keys(this.run.tensors), ...Object.keys(this.model.weights)];
      if (select.length !== names.length) select.replaceChildren(...names.map((name) => new Option(TL.title(name), name)));
      const name = this.stage.cursor?.name || names[0], x = this.run.tensors[name] || this.model.weights[name];
      select.value = name;
      const finite = Array.from(x.data).filter(Number.isFinite);
      const mean = finite.reduce((sum, v) => sum + v, 0) / finite.length;
      this.more.querySelector(".tl-summary").textContent =
        `${TL.title(name)}: ${x.rows} rows, ${x.cols} columns; least ${TL.round(Math.min(...finite))}, mean ${TL.round(mean)}, most ${TL.round(Math.max(...finite))}.`;
      const { rows, cols } = TL.axes(this.run, name), cell = (kind, text) => `<${kind}>${String(text).replace("<", "&lt;")}</${kind}>`;
      const head = Array.from({ length: x.cols }, (_, j) => cell("th", cols ? cols[j] : j)).join("");
      const body = Array.from({ length: x.rows }, (_, i) => {
        const numbers = Array.from(x.data.subarray(i * x.cols, (i + 1) * x.cols), (v) => cell("td", TL.round(v)));
        return `<tr>${cell("th", rows ? rows[i] : i)}${numbers.join("")}</tr>`;
      });
      this.more.querySelector("table").innerHTML = `<thead><tr><td></td>${head}</tr></thead><tbody>${body.join("")}</tbody>`;
    }

    asText() {
      const rows = [...this.more.querySelectorAll("table tr")];
      return rows.map((row) => [...row.cells].map((c) => c.textContent).join("\t")).join("\n");
    }

    // ---- Beam search ----

    beam() {
      const size = Number(this.beamBox.querySelector("select").value), alpha = Number(this.beamBox.querySelector("input").value);
      if (!(alpha >= 0 && alpha <= 10)) return;
      const { found, tree } = TL.beam(this.model, this.src, { size, alpha });
      const word = (ids) => ids.map((id) => this.model.tokens[id]).join("");
      this.beamBox.querySelector(".tl-scroll").innerHTML = TL.drawTree(tree, this.model.tokens);
      this.beamBox.querySelector("tbody").innerHTML = found.map(({ tokens, logProb, score }) =>
        `<tr><td>${word(tokens)}</td><td>${TL.round(logProb)}</td><td>${TL.round(logProb / score)}</td><td>${TL.round(score)}</td></tr>`).join("");
    }
  }

  TL.start = (root) => (TL.page = new Page(root));
})((globalThis.TL = globalThis.TL || {}));
