// The stage: what is shown, from where, and what pointer and keys do to it.
// Nothing is drawn while nothing changes.
(function (TL) {
  "use strict";

  const MOVE = 450, REVEAL = 900; // milliseconds
  const ease = (t) => (t < 0.5 ? 4 * t ** 3 : 1 - (2 - 2 * t) ** 3 / 2);

  // The part t of the way, from 0 to 1, on which 0 <= at - t d < 1.
  function between(at, d) {
    if (!d) return at >= 0 && at < 1 ? [0, 1] : [1, 0];
    const ends = [at / d, (at - 1) / d].sort((a, b) => a - b);
    return [Math.max(0, ends[0]), Math.min(1, ends[1])];
  }

  class Stage extends TL.Painter {
    constructor(canvas, { onCursor }) {
      super();
      Object.assign(this, { canvas, onCursor });
      this.context = canvas.getContext("2d");
      this.camera = { cx: 0, cy: 0, zoom: 1, yaw: 0, pitch: 0, width: 1, height: 1 };
      this.focus = null; // names of the blocks that a step speaks of; null: all
      this.reveal = 1;
      this.marks = true; // signs and numbers in the cells
      this.cursor = null; // { name, row, col }
      this.motion = matchMedia("(prefers-reduced-motion: reduce)");
      this.listen();
    }

    // ---- What is shown ----

    setScene({ blocks, lines, signs }, run) {
      Object.assign(this, { blocks, lines, signs, run });
      for (const block of blocks) {
        TL.setScale(block.tensor);
        block.thick = block.tensor.op === "weight" ? TL.THICK / 2 : TL.THICK;
      }
      this.setTheme(this.dark);
    }

    setTheme(dark) {
      this.dark = dark;
      this.theme = TL.THEMES[dark ? "dark" : "light"];
      for (const block of this.blocks || []) block.bitmap = TL.bitmap(this.theme, block);
      this.request();
    }

    resize() {
      const box = this.canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
      if (!box.width) return;
      [this.canvas.width, this.canvas.height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
      Object.assign(this.camera, { width: box.width, height: box.height });
      this.request();
    }

    // The camera that a step wants: its blocks whole, from its side.
    viewOf(names, yaw, pitch) {
      const ends = this.lines.flatMap(({ points }) => points.map(([x, y]) => ({ x, y, cols: 0, rows: 0, sx: 1, sy: 1 })));
      const shown = names ? this.blocks.filter((b) => names.has(b.name)) : [...this.blocks, ...ends];
      const { width, height } = this.camera;
      return TL.fit(shown, { width, height, yaw, pitch }, names ? (b, zoom) => this.beside(b, zoom) : undefined);
    }

    // Show these blocks, whole, from a side.
    look(names, yaw, pitch, animate) {
      this.focus = names;
      this.show(names, this.viewOf(names, yaw, pitch), animate);
    }

    // Go to a camera, then let the blocks in focus fill row by row.
    show(names, camera, animate = true) {
      this.focus = names;
      if (this.motion.matches || !animate) {
        this.tween = null;
        [this.camera, this.reveal] = [camera, 1];
      } else {
        this.tween = { from: this.camera, to: camera, start: performance.now() };
        this.reveal = names ? 0 : 1;
      }
      this.request();
    }

    // ---- Frames: only while something moves ----

    request() {
      if (!this.frame && this.blocks) this.frame = requestAnimationFrame((now) => this.tick(now));
    }

    tick(now) {
      this.frame = null;
      if (this.tween) {
        const { from, to, start } = this.tween, t = Math.max(0, now - start);
        const at = ease(Math.min(1, t / MOVE));
        this.camera = { ...to };
        for (const key of ["cx", "cy", "yaw", "pitch"]) this.camera[key] = from[key] + (to[key] - from[key]) * at;
        this.camera.zoom = from.zoom * (to.zoom / from.zoom) ** at;
        if (this.reveal < 1) this.reveal = Math.min(1, Math.max(0, t - MOVE) / REVEAL);
        if (t >= MOVE && this.reveal >= 1) this.tween = null;
        this.request();
      }
      this.paint();
    }

    // ---- Which cell is where ----

    blockAt(name, col) {
      return this.blocks.find((b) => b.name === name && col >= b.col0 && col < b.col0 + b.cols);
    }

    // The cell under a point of the canvas, or null; what is in focus first.
    hit(x, y) {
      const order = [...this.blocks].sort((a, b) => this.dimmed(a.name) - this.dimmed(b.name));
      for (const block of order) {
        const place = TL.unproject(TL.affine(this.camera, block, block.thick), x, y);
        const found = this.cellAt(block, ...place);
        if (found) return { name: block.name, row: found[0], col: block.col0 + found[1] };
      }
      return null;
    }

    // The nearest cell whose bar, from foot to top, covers a place in a block.
    cellAt(block, j, i) {
      const { across, along, cols, rows } = this.order(block);
      const close = (n, at) => Math.abs(n + 0.5 - at) < 1.5;
      for (const row of rows.filter((n) => close(n, i)).reverse()) {
        for (const col of cols.filter((n) => close(n, j)).reverse()) {
          const h = this.lift(block, row, col), [u, v] = [between(j - col, h * across), between(i - row, h * along)];
          if (Math.max(u[0], v[0]) <= Math.min(u[1], v[1])) return [row, col];
        }
      }
      return null;
    }

    // The middle of a cell's top on the canvas.
    pointOf({ name, row, col }) {
      const block = this.blockAt(name, col), j = col - block.col0;
      return TL.spot(this.camera, block, j + 0.5, row + 0.5, this.lift(block, row, j));
    }

    setCursor(cursor, { follow, spoken } = {}) {
      this.cursor = cursor;
      if (follow && cursor) {
        const [x, y] = this.pointOf(cursor), { width, height, zoom, yaw, pitch } = this.camera;
        const outside = x < 20 || y < 20 || x > width - 20 || y > height - 20;
        const block = this.blockAt(cursor.name, cursor.col);
        if (outside || zoom < 4) {
          const view = TL.fit([block], { width, height, yaw, pitch }, (b, at) => this.beside(b, at));
          this.show(this.focus, { ...view, zoom: Math.min(view.zoom, 16) });
          this.reveal = 1;
        }
      }
      this.onCursor(cursor, spoken);
      this.request();
    }

    // ---- Pointer, wheel, keys ----

    zoomBy(factor, x = this.camera.width / 2, y = this.camera.height / 2) {
      const { camera } = this, zoom = Math.max(0.3, Math.min(60, camera.zoom * factor)), grown = 1 - camera.zoom / zoom;
      this.pan((camera.width / 2 - x) * grown, (camera.height / 2 - y) * grown, zoom);
    }

    // Move by pixels, at a zoom.
    pan(dx, dy, zoom = this.camera.zoom) {
      const { camera } = this, { yaw, pitch } = camera;
      this.tween = null;
      this.reveal = 1;
      const mx = dx / camera.zoom / Math.cos(yaw);
      const my = (dy / camera.zoom - mx * Math.sin(yaw) * Math.sin(pitch)) / Math.cos(pitch);
      this.camera = { ...camera, zoom, cx: camera.cx - mx, cy: camera.cy + my };
      this.request();
    }

    turn(dx, dy) {
      const within = (v) => Math.max(-1.1, Math.min(1.1, v));
      this.tween = null;
      this.reveal = 1;
      this.camera = { ...this.camera, yaw: within(this.camera.yaw + dx * 0.006), pitch: within(this.camera.pitch + dy * 0.006) };
      this.request();
    }

    listen() {
      const { canvas } = this, down = new Map();
      const place = (event) => {
        const box = canvas.getBoundingClientRect();
        return [event.clientX - box.left, event.clientY - box.top];
      };
      let dragged = false;
      canvas.addEventListener("pointerdown", (event) => {
        down.set(event.pointerId, place(event));
        dragged = false;
        if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
      });
      canvas.addEventListener("pointermove", (event) => {
        const [x, y] = place(event), last = down.get(event.pointerId);
        if (!last) {
          if (event.pointerType === "mouse" && !this.tween) this.hover(x, y);
          return;
        }
        const [dx, dy] = [x - last[0], y - last[1]];
        if (Math.hypot(dx, dy) < 3 && !dragged) return;
        dragged = true;
        if (down.size === 2) {
          const other = [...down].find(([id]) => id !== event.pointerId)[1];
          const apart = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]);
          this.zoomBy(apart([x, y]) / Math.max(1, apart(last)), (x + other[0]) / 2, (y + other[1]) / 2);
          this.pan(dx / 2, dy / 2);
        } else if (event.shiftKey || event.buttons === 4) this.pan(dx, dy);
        else this.turn(dx, event.pointerType === "mouse" ? dy : 0);
        down.set(event.pointerId, [x, y]);
      });
      canvas.addEventListener("pointerup", (event) => {
        down.delete(event.pointerId);
        if (!dragged) this.hover(...place(event), true);
      });
      canvas.addEventListener("pointercancel", (event) => down.delete(event.pointerId));
      canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey) return; // the wheel is the page's
        event.preventDefault();
        this.zoomBy(Math.exp(-event.deltaY * 0.004), ...place(event));
      }, { passive: false });
      canvas.addEventListener("keydown", (event) => {
        if (!event.ctrlKey && !event.altKey && !event.metaKey && this.key(event.key, event.shiftKey)) event.preventDefault();
      });
      new ResizeObserver(() => this.onResize && this.onResize()).observe(canvas);
    }

    hover(x, y, spoken) {
      const cell = this.hit(x, y);
      if (cell) this.setCursor(cell, { spoken });
    }

    // The cursor by keys; true if the key meant something.
    key(key, shift) {
      const turns = { ArrowLeft: [-20, 0], ArrowRight: [20, 0], ArrowUp: [0, -20], ArrowDown: [0, 20] };
      if (shift && turns[key]) { this.turn(...turns[key]); return true; }
      const moved = { w: [0, 40], a: [40, 0], s: [0, -40], d: [-40, 0] }[key.toLowerCase()];
      if (moved) { this.pan(...moved); return true; }
      if (key === "+" || key === "=") { this.zoomBy(1.3); return true; }
      if (key === "-") { this.zoomBy(1 / 1.3); return true; }
      const names = [...new Set(this.blocks.filter((b) => !this.dimmed(b.name)).map((b) => b.name))];
      const { name, row, col } = this.cursor && names.includes(this.cursor.name) ? this.cursor : { name: names[0], row: 0, col: 0 };
      const { tensor } = this.blockAt(name, 0), within = (v, n) => Math.max(0, Math.min(n - 1, v));
      const next = (step) => ({ name: names[(names.indexOf(name) + step + names.length) % names.length], row: 0, col: 0 });
      const moves = {
        ArrowLeft: () => ({ name, row, col: within(col - 1, tensor.cols) }),
        ArrowRight: () => ({ name, row, col: within(col + 1, tensor.cols) }),
        ArrowUp: () => ({ name, row: within(row - 1, tensor.rows), col }),
        ArrowDown: () => ({ name, row: within(row + 1, tensor.rows), col }),
        Home: () => ({ name, row, col: 0 }),
        End: () => ({ name, row, col: tensor.cols - 1 }),
        PageDown: () => next(1),
        PageUp: () => next(-1),
      };
      if (!moves[key]) return false;
      this.setCursor(moves[key](), { follow: true, spoken: true });
      return true;
    }
  }

  Object.assign(TL, { Stage });
})((globalThis.TL = globalThis.TL || {}));
