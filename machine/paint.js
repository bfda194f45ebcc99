// The painter: every matrix a bitmap of its values, drawn by one affine map.
// It draws what a stage (stage.js) holds: blocks, lines, camera, focus, cursor.
(function (TL) {
  "use strict";

  const THICK = 2.5; // of a slab, in cells
  const HEIGHT = 1.6; // of a bar, the largest; lower where it would hide another
  const BARS = 5000; // how many there may be at a time
  const THEMES = {
    light: {
      paper: [255, 255, 255], zero: [240, 240, 236], plus: [196, 78, 10], minus: [22, 84, 170],
      share: [0, 118, 104], masked: [168, 168, 172], ink: "#1c2026", faint: "#59616d",
      weight: "#7a4fb5", frame: "#8b929c", cursor: "#d6006c",
      flow: "#aab1bb", residual: "#3f8f4f", memory: "#b0701a", loop: "#7a4fb5", thread: "#7a4fb5", arc: "#00766f",
    },
    dark: {
      paper: [18, 20, 24], zero: [42, 45, 52], plus: [255, 166, 84], minus: [96, 170, 255],
      share: [72, 214, 190], masked: [98, 100, 106], ink: "#eceef2", faint: "#a4acb8",
      weight: "#b79af0", frame: "#5d6570", cursor: "#ff6fb1",
      flow: "#4d5560", residual: "#6cc27c", memory: "#e0a04a", loop: "#b79af0", thread: "#b79af0", arc: "#48d6be",
    },
  };

  // The colour of a value: orange above zero, blue below, deeper the farther;
  // shares of attention and probabilities are green. Written to out[at ...].
  function colour(theme, tensor, value, out = [], at = 0) {
    const { zero, masked, share, plus, minus } = theme;
    const far = Math.min(1, Math.abs(value) / tensor.scale) ** 0.7;
    const end = value === -Infinity ? masked : tensor.op === "softmax" ? share : value < 0 ? minus : plus;
    for (let n = 0; n < 3; n++) out[at + n] = Math.round(zero[n] + (end[n] - zero[n]) * far);
    return out;
  }

  function setScale(tensor) {
    if (tensor.scale) return;
    let most = 1e-12;
    for (const v of tensor.data) if (v !== -Infinity) most = Math.max(most, Math.abs(v));
    tensor.scale = tensor.op === "softmax" ? 1 : most;
  }

  // Kept with the tensor: weights are drawn once for a theme.
  function bitmap(theme, { tensor, rows, cols, col0 }) {
    if (tensor.theme !== theme) Object.assign(tensor, { theme, bitmaps: {} });
    if (tensor.bitmaps[col0]) return tensor.bitmaps[col0];
    const canvas = (tensor.bitmaps[col0] = document.createElement("canvas"));
    [canvas.width, canvas.height] = [cols, rows];
    const context = canvas.getContext("2d"), image = context.createImageData(cols, rows);
    image.data.fill(255);
    for (let i = 0, at = 0; i < rows; i++) {
      for (let j = 0; j < cols; j++, at += 4) colour(theme, tensor, tensor.data[i * tensor.cols + col0 + j], image.data, at);
    }
    context.putImageData(image, 0, 0);
    return canvas;
  }

  const css = (rgb, shade = 1) => `rgb(${rgb.map((v) => Math.round(v * shade)).join(" ")})`;

  // Black or white, whichever is read better on a colour.
  function inkOn(rgb) {
    const [r, g, b] = rgb.map((v) => (v / 255) ** 2.2); // as bright as the eye has it
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? [0, 0, 0] : [255, 255, 255];
  }

  // A number from 0 to 1 that looks random and is the same each time.
  const draw = (n) => Math.abs(Math.sin(n * 12.9898) * 43758.5453) % 1;

  class Painter {
    paint() {
      const { context: ctx, camera, theme } = this, ratio = this.canvas.width / camera.width;
      this.ratio = ratio;
      ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
      ctx.fillStyle = css(theme.paper);
      ctx.fillRect(0, 0, camera.width, camera.height);
      this.raise();
      for (const line of this.lines) if (line.kind !== "arc") this.paintLine(line);
      for (const block of this.blocks) if (this.inView(block)) this.paintBlock(block);
      for (const line of this.lines) if (line.kind === "arc") this.paintArc(line);
      for (const block of this.blocks) if (this.overlay && this.inView(block) && !this.dimmed(block.name)) this.paintOverlay(block);
      this.named = []; // where a name stands already
      for (const block of this.blocks) if (this.inView(block)) this.paintText(block);
      if (!this.focus) this.signs.forEach((sign) => this.paintSign(sign));
      if (this.cursor) this.paintCursor();
      this.canvas.dataset.frames = Number(this.canvas.dataset.frames || 0) + 1;
    }

    // At rest and near enough, the cells in focus stand up as bars.
    raise() {
      const { camera } = this;
      for (const block of this.blocks) block.bar = 0;
      if (this.tween) return;
      const near = this.blocks.filter((b) => !this.dimmed(b.name) && camera.zoom * b.sx >= 5 && this.inView(b));
      if (near.reduce((sum, b) => sum + b.rows * b.cols, 0) > BARS) return;
      for (const block of near) {
        const [across, along] = TL.slope(camera, block).map(Math.abs);
        block.bar = Math.min(HEIGHT, 0.45 / across, 0.45 / along);
      }
    }

    value({ tensor, col0 }, row, col) {
      return tensor.data[row * tensor.cols + col0 + col];
    }

    lift(block, row, col) {
      const value = this.value(block, row, col);
      return value === -Infinity ? 0 : (block.bar * Math.abs(value)) / block.tensor.scale;
    }

    // Columns and rows from the farthest to the nearest.
    order(block) {
      const [across, along] = TL.slope(this.camera, block), count = (n) => Array.from({ length: n }, (_, k) => k);
      const [cols, rows] = [count(block.cols), count(block.rows)];
      return { across, along, cols: across < 0 ? cols : cols.reverse(), rows: along > 0 ? rows.reverse() : rows };
    }

    // In the block's own coordinates a bar is its top and two sides.
    paintBars(block) {
      const ctx = this.context, { across, along, cols, rows } = this.order(block);
      for (const i of rows) {
        for (const j of cols) {
          const h = this.lift(block, i, j), [dj, di] = [h * across, h * along];
          const rgb = colour(this.theme, block.tensor, this.value(block, i, j));
          const [x, y] = [across < 0 ? j + 1 : j, along > 0 ? i : i + 1];
          ctx.fillStyle = css(rgb, 0.62);
          this.path([[x, i], [x, i + 1], [x + dj, i + 1 + di], [x + dj, i + di]], true);
          ctx.fill();
          ctx.fillStyle = css(rgb, 0.8);
          this.path([[j, y], [j + 1, y], [j + 1 + dj, y + di], [j + dj, y + di]], true);
          ctx.fill();
          ctx.fillStyle = css(rgb);
          ctx.fillRect(j + dj, i + di, 1, 1);
        }
      }
    }

    inView(block) {
      const all = TL.corners(this.camera, block, block.thick), xs = all.map((p) => p[0]), ys = all.map((p) => p[1]);
      return Math.max(...xs) > 0 && Math.min(...xs) < this.camera.width && Math.max(...ys) > 0 && Math.min(...ys) < this.camera.height;
    }

    dimmed(name) {
      return this.focus && !this.focus.has(name);
    }

    path(points, close) {
      const ctx = this.context;
      ctx.beginPath();
      points.forEach(([x, y], n) => (n ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
      if (close) ctx.closePath();
    }

    paintLine({ kind, points }) {
      const ctx = this.context, { theme, camera } = this;
      this.path(points.map(([x, y]) => TL.project(camera, x, y)));
      ctx.strokeStyle = theme[kind];
      const wide = { flow: 1, residual: 1.6, memory: 1.6, loop: 1.4, thread: 0.25 }[kind];
      ctx.lineWidth = Math.max(kind === "thread" ? 0.4 : 0.8, Math.min(3, wide * camera.zoom * 0.55));
      ctx.globalAlpha = kind === "thread" ? 0.5 : this.focus ? 0.6 : 0.9;
      if (kind === this.trace) [ctx.lineWidth, ctx.globalAlpha] = [Math.max(1.2, 1.5 * ctx.lineWidth), 1];
      ctx.setLineDash(kind === "loop" ? [6, 5] : []);
      ctx.lineJoin = "round";
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.globalAlpha = 1;
    }

    // An arc rises to the viewer between a word read and a token written.
    paintArc({ points: [from, to], weight, row, name }) {
      if (this.dimmed(name + ".sum") || this.reveal < 1) return;
      const ctx = this.context, { camera, theme, cursor } = this;
      const [a, b] = [from, to].map(([x, y]) => TL.project(camera, x, y, THICK));
      const c = TL.project(camera, (from[0] + to[0]) / 2, Math.max(from[1], to[1]) + 30, 60);
      ctx.beginPath();
      ctx.moveTo(...a);
      ctx.quadraticCurveTo(...c, ...b);
      ctx.strokeStyle = theme.arc;
      const chosen = cursor && cursor.name.startsWith("decoder"), own = chosen && cursor.row === row;
      ctx.globalAlpha = chosen && !own ? 0.25 * weight : own ? 0.3 + 0.7 * weight : weight;
      ctx.lineWidth = Math.max(own ? 2 : 0.8, Math.min(4, weight * camera.zoom * 0.6));
      ctx.stroke();
      ctx.globalAlpha = 1;
    }

    paintBlock(block) {
      const ctx = this.context, { theme, camera, ratio } = this, weight = block.tensor.op === "weight";
      ctx.globalAlpha = this.dimmed(block.name) ? 0.28 : 1;
      // The two sides of the slab that the viewer sees.
      const front = TL.corners(camera, block, block.thick), back = TL.corners(camera, block, 0);
      const sides = [camera.pitch > 0 ? [0, 1] : [3, 2], camera.yaw < 0 ? [1, 2] : [0, 3]];
      sides.forEach(([p, q], n) => {
        this.path([front[p], front[q], back[q], back[p]], true);
        ctx.fillStyle = css(theme.zero, this.dark ? [1.5, 1.2][n] : [0.86, 0.72][n]);
        ctx.fill();
      });
      const [a, b, c, d, e, f] = TL.affine(camera, block, block.thick);
      ctx.setTransform(ratio * a, ratio * b, ratio * c, ratio * d, ratio * e, ratio * f);
      ctx.imageSmoothingEnabled = camera.zoom * ratio < 1;
      const rows = this.focus && !this.dimmed(block.name) && !weight ? Math.ceil(block.rows * this.reveal) : block.rows;
      ctx.fillStyle = css(theme.zero);
      ctx.fillRect(0, 0, block.cols, block.rows);
      if (block.bar) this.paintBars(block);
      else if (rows) ctx.drawImage(block.bitmap, 0, 0, block.cols, rows, 0, 0, block.cols, rows);
      ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
      if (camera.zoom >= 5 && !block.bar) this.paintGrid(block);
      this.path(front, true);
      ctx.strokeStyle = weight ? theme.weight : theme.frame;
      ctx.lineWidth = camera.zoom < 2 ? 0.5 : 1;
      ctx.stroke();
      ctx.globalAlpha = 1;
    }

    paintGrid(block) {
      const ctx = this.context, at = (col, row) => TL.spot(this.camera, block, col, row);
      ctx.beginPath();
      for (let j = 1; j < block.cols; j++) { ctx.moveTo(...at(j, 0)); ctx.lineTo(...at(j, block.rows)); }
      for (let i = 1; i < block.rows; i++) { ctx.moveTo(...at(0, i)); ctx.lineTo(...at(block.cols, i)); }
      ctx.strokeStyle = css(this.theme.paper);
      ctx.lineWidth = 0.7;
      ctx.stroke();
    }

    // Names, tokens and, where there is room, signs and numbers.
    paintText(block) {
      if (this.dimmed(block.name)) return;
      const { camera, theme } = this, { rows, cols } = TL.axes(this.run, block.name), tall = camera.zoom * block.sy;
      if (this.focus || camera.zoom > 2.2) this.paintName(block);
      if (rows && this.hasRows(block, camera.zoom)) {
        this.font(Math.min(13, tall * 0.8), "right");
        for (let i = 0; i < block.rows; i++) {
          const [x, y] = TL.spot(camera, block, 0, i + 0.5);
          this.write(rows[i], x - 5, y + 4);
        }
      }
      const wide = camera.zoom * block.sx;
      if (cols && this.hasCols(block, camera.zoom)) {
        this.font(Math.max(9, Math.min(12, wide * 0.8)), "right");
        for (let j = 0; j < block.cols; j++) {
          const [x, y] = TL.spot(camera, block, j + 0.5, block.rows);
          this.context.save();
          this.context.translate(x + 4, y + 10);
          this.context.rotate(-Math.PI / 3);
          this.write(cols[block.col0 + j], 0, 0);
          this.context.restore();
        }
      }
      if (block.name === "probabilities" && tall >= 9) {
        this.font(Math.min(13, tall * 0.8), "left", 600); // the token that wins
        for (let i = 0; i < block.rows; i++) {
          const j = TL.largest(block.tensor, i), late = j > block.cols - 8;
          const [x, y] = TL.spot(camera, block, late ? j - 0.6 : j + 1.4, i + 0.5);
          this.context.textAlign = late ? "right" : "left";
          this.write(cols[j], x, y + 4, theme.ink);
        }
      }
      if (this.marks && wide >= 13) this.paintMarks(block);
    }

    // Whether there is room for the tokens of the rows; tables side by side
    // have them once.
    hasRows({ name, col0, sy }, zoom) {
      const second = /\.weights\.\d$/.test(name) && !this.dimmed(name.replace("weights", "scores"));
      return col0 === 0 && zoom * sy >= 7.5 && !second;
    }

    hasCols({ cols, sx }, zoom) {
      return zoom * sx >= (cols < 20 ? 6.5 : 11);
    }

    // Where a block's name stands: above what has a neighbour, below its
    // weights, to the right of everything else; null: it has none.
    placeOf({ name, tensor, col0, last }) {
      if (tensor.rows === 1 && tensor.op === "weight") return null;
      if (/\.[qkv]$|\.(scores|weights)\.\d$|\.(embedded|positions|x)$|^(logits|probabilities)$/.test(name)) return col0 ? null : "above";
      if (/\.[qkv]\.w$/.test(name)) return col0 ? null : "below";
      return last ? "right" : null;
    }

    // The words of a block's name; many in a row are smaller.
    nameOf({ name, tensor }) {
      const head = tensor.head !== undefined, narrow = this.camera.width < 500;
      const [text, raised = ""] = (head && /weights/.test(name) ? "softmax" : TL.label(name)).split("^");
      return { text, raised, size: head ? 10.5 : narrow ? 11 : 13 };
    }

    // The pixels that a block's words take beside it: [left, right, above, below].
    beside(block, zoom) {
      const { rows, cols } = TL.axes(this.run, block.name), place = this.placeOf(block), { context } = this;
      const widest = (words) => Math.max(...words.map((word) => context.measureText(word).width));
      let [left, right, above, below] = [0, 0, 0, 0];
      if (rows && this.hasRows(block, zoom)) {
        this.font(Math.min(13, zoom * block.sy * 0.8), "right");
        left = 6 + widest(rows);
      }
      if (cols && this.hasCols(block, zoom)) {
        this.font(Math.max(9, Math.min(12, zoom * block.sx * 0.8)), "right");
        below = 12 + 0.9 * widest(cols.slice(block.col0, block.col0 + block.cols));
      }
      if (place) {
        const { text, raised, size } = this.nameOf(block);
        this.font(size, "left", 600);
        const wide = widest([text + raised]), own = zoom * block.cols * block.sx;
        right = place === "right" ? 14 + wide : Math.max(0, wide - own);
        if (place === "above") above = 6 + size;
        if (place === "below") below = 22;
      }
      return [left, right, above, below];
    }

    // A block's name, if it covers no other; W^Q gets its superscript.
    paintName(block) {
      const place = this.placeOf(block), { camera, theme } = this, front = TL.corners(camera, block, block.thick);
      if (!place || camera.zoom * block.rows * block.sy < 9) return;
      if (place === "above" && camera.zoom * block.cols * block.sx < 36) return;
      let [x, y] = front[0];
      if (place === "above") y -= 5 + camera.zoom * block.thick * Math.sin(Math.max(0, camera.pitch));
      else if (place === "below") [x, y] = [front[3][0], front[3][1] + 18];
      else [x, y] = [front[1][0] + 8 + camera.zoom * block.thick * Math.sin(Math.max(0, -camera.yaw)), (front[1][1] + front[2][1]) / 2 + 4];
      const { text, raised, size } = this.nameOf(block), ink = block.tensor.op === "weight" ? theme.weight : theme.ink;
      this.font(size, "left", 600);
      const wide = this.context.measureText(text).width;
      if (!this.claim(x, y, wide + 8 * raised.length, size)) return;
      this.write(text, x, y, ink);
      if (!raised) return;
      this.font(9, "left", 600);
      this.write(raised, x + wide + 1, y - 5, ink);
    }

    // Take the place of a word, unless it would cover one that is there.
    claim(x, y, wide, high) {
      const free = this.named.every(([left, low, w, h]) => x > left + w || left > x + wide || y - high > low || low - h > y);
      if (free) this.named.push([x, y, wide, high]);
      return free;
    }

    paintSign({ text, strong, at = "left", x, y }) {
      const narrow = this.camera.width < 500;
      if (narrow && !strong) return;
      this.font(narrow ? 12 : strong ? 17 : 11, at, strong ? 600 : 400);
      this.write(text, ...TL.project(this.camera, x, y), strong ? this.theme.ink : this.theme.faint);
    }

    font(size, align, weight = 400) {
      this.context.font = `${weight} ${size}px system-ui, sans-serif`;
      this.context.textAlign = align;
    }

    write(text, x, y, ink = this.theme.faint) {
      const ctx = this.context;
      ctx.lineWidth = 3;
      ctx.strokeStyle = css(this.theme.paper);
      ctx.lineJoin = "round";
      ctx.strokeText(text, x, y);
      ctx.fillStyle = ink;
      ctx.fillText(text, x, y);
    }

    // A dash for a negative number, a cross for a masked cell; the number
    // itself when a cell is wide enough.
    paintMarks(block) {
      const ctx = this.context, { camera, theme } = this, { tensor } = block, wide = camera.zoom * block.sx * Math.cos(camera.yaw);
      this.font(Math.min(12, wide * 0.3), "center");
      for (let i = 0; i < block.rows; i++) {
        for (let j = 0; j < block.cols; j++) {
          const value = this.value(block, i, j), [x, y] = TL.spot(camera, block, j + 0.5, i + 0.5, this.lift(block, i, j));
          if (x < 0 || y < 0 || x > camera.width || y > camera.height) continue;
          const rgb = colour(theme, tensor, value);
          ctx.fillStyle = css(inkOn(rgb));
          if (value === -Infinity) ctx.fillText("×", x, y + 4);
          else if (wide >= 30) ctx.fillText(value.toFixed(2).replace("-", "−"), x, y + 14);
          else if (value < 0) ctx.fillRect(x - wide * 0.15, y + wide * 0.24, wide * 0.3, 1.2);
        }
      }
    }

    // What training does there: crosses where one draw of dropout falls, or a
    // frame for the smoothed target of a row.
    paintOverlay(block) {
      const ctx = this.context, { camera, theme } = this, { name, rows, cols, col0, tensor } = block;
      const path = { dropout: /\.out$|coder\.x$/, smoothing: /^probabilities$/ }[this.overlay];
      if (!path.test(name)) return;
      const { p_drop } = this.run.model.config;
      ctx.beginPath();
      for (let i = 0; i < rows; i++) {
        for (let j = 0; j < cols; j++) {
          const at = (c, r) => TL.spot(camera, block, j + c, i + r);
          if (this.overlay === "dropout") {
            if (draw(i * tensor.cols + col0 + j + 7 * name.length) >= p_drop) continue;
            ctx.moveTo(...at(0, 0)); ctx.lineTo(...at(1, 1));
            ctx.moveTo(...at(1, 0)); ctx.lineTo(...at(0, 1));
          } else {
            const half = this.truth[i] === j ? 0.46 : 0.12;
            [[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]].forEach(([c, r], n) => ctx[n ? "lineTo" : "moveTo"](...at(0.5 + c * half, 0.5 + r * half)));
          }
        }
      }
      ctx.strokeStyle = theme.cursor;
      ctx.lineWidth = 1.2;
      ctx.stroke();
    }

    paintCursor() {
      const { name, row, col } = this.cursor, block = this.blockAt(name, col);
      if (!block) return;
      const ctx = this.context, j = col - block.col0;
      const lift = this.lift(block, row, j), at = (c, r) => TL.spot(this.camera, block, c, r, lift);
      ctx.strokeStyle = this.theme.cursor;
      ctx.lineWidth = 2.5;
      this.path([at(j, row), at(j + 1, row), at(j + 1, row + 1), at(j, row + 1)], true);
      ctx.stroke();
    }
  }

  Object.assign(TL, { Painter, THEMES, THICK, colour, inkOn, setScale, bitmap });
})((globalThis.TL = globalThis.TL || {}));
