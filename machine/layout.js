// Where everything stands. A weight's cell is one unit wide and high; x runs to
// the right, y up, z to the viewer. Row 0 of a matrix is at its top.
(function (TL) {
  "use strict";

  const GAP = 5; // between matrices that are not one group
  const SLICE = 1.5; // between the slices of a matrix that are its heads
  const DECODER = 304; // where the decoder begins
  const TALL = 2; // the height of a token's row
  const NAMES = 9; // room for the tokens at the left of a table
  const EDGE = 10; // pixels that stay free around what a step shows

  // The blocks of a run and the lines between them. A block shows columns
  // col0 to col0 + cols of one tensor, its top left corner at (x, y), its cells
  // sx wide and sy high. `room` is the number of tokens to leave room for.
  function layout(run, model, room) {
    const blocks = [], lines = [];
    const H = model.config.n_heads, D = model.config.d_model, F = model.config.d_ff;
    const S = run.tensors["encoder.x"].rows, T = run.tensors["decoder.x"].rows;
    const high = TALL * room, pitch = 202 + 5 * high; // from a layer to the next
    const wide = D + (H - 1) * SLICE; // a matrix cut into heads
    const across = 3 * wide + 2 * NAMES; // an attention sub-layer
    const share = Math.min(1.5, (across / H - NAMES - 3) / 2 / room); // a cell's width there

    // Put a tensor with its lower left corner at (x, y); returns its top.
    function put(name, x, y, slices = 1) {
      const tensor = run.tensors[name] || model.weights[name];
      const { rows, op } = tensor, cols = tensor.cols / slices;
      const sy = op === "weight" ? 1 : TALL, sx = tensor.head === undefined ? 1 : share;
      for (let h = 0; h < slices; h++) {
        blocks.push({ name, tensor, x: x + h * (cols + SLICE), y: y + rows * sy, sx, sy, cols, col0: h * cols, rows, last: h === slices - 1 });
      }
      return y + rows * sy;
    }

    // A weight matrix, its bias and the output above them, columns aligned.
    function product(map, output, x, y, slices) {
      y = put(map + ".w", x, y, slices) + 1;
      y = put(map + ".b", x, y, slices) + 1;
      return put(output, x, y, slices);
    }

    function leave(p, x, y) {
      const sum = put(p + ".sum", x, y + 2);
      const gain = put(p + ".gain", x, sum + 1);
      return put(p + ".norm", x, put(p + ".bias", x, gain + 0.5) + 1);
    }

    function line(kind, ...points) {
      lines.push({ kind, points });
    }

    function middle(name) {
      const parts = blocks.filter((b) => b.name === name);
      const [first, last] = [parts[0], parts[parts.length - 1]];
      const right = last.x + last.cols * last.sx;
      return { left: first.x, right, x: (first.x + right) / 2, top: first.y, bottom: first.y - first.rows * first.sy };
    }

    // A sub-layer stands on its bus; the residual rail runs up beside it.
    function rails(p, from, x, y, foots) {
      const start = middle(from), sum = middle(p + ".sum"), side = x - 4, height = (sum.top + sum.bottom) / 2;
      const [up, bus] = [start.top + 3, y - 4];
      line("flow", [start.x, start.top], [start.x, up], [side, up], [side, bus], [foots[foots.length - 1], bus]);
      for (const foot of foots) line("flow", [foot, bus], [foot, y]);
      line("residual", [side, Math.min(bus, up)], [side, height], [sum.left, height]);
    }

    function attention(p, from, x, y, memory) {
      const at = [x, x + wide + NAMES, x + 2 * (wide + NAMES)];
      let top = y;
      ["q", "k", "v"].forEach((letter, n) => { top = Math.max(top, product(`${p}.${letter}`, `${p}.${letter}`, at[n], y, H)); });
      const each = across / H;
      for (let h = 1; h <= H; h++) {
        const left = x + (h - 1) * each + NAMES / 2;
        put(`${p}.scores.${h}`, left, top + GAP + 3);
        put(`${p}.weights.${h}`, left + run.tensors[`${p}.scores.${h}`].cols * share + 2.5, top + GAP + 3);
      }
      top = put(p + ".mixed", at[1], top + 2 * GAP + 3 + TALL * run.tensors[p + ".q"].rows, H);
      const centre = at[1] + (wide - D) / 2;
      leave(p, centre, product(p + ".o", p + ".out", centre, top + 3));
      const foots = at.map((left) => left + wide / 2);
      rails(p, from, x, y, memory ? foots.slice(0, 1) : foots);
      if (memory) {
        const { x: mx, top: my } = middle(memory), bus = y - 8;
        line("memory", [mx, my], [mx, my + 8], [DECODER - 16, my + 8], [DECODER - 16, bus], [foots[2], bus], [foots[2], y]);
        line("memory", [foots[1], bus], [foots[1], y]);
      }
      return x + across + 3 * GAP;
    }

    function feedForward(p, from, x, y) {
      const top = put(p + ".relu", x, product(p + ".1", p + ".inner", x, y) + 2);
      const centre = x + (F - D) / 2;
      leave(p, centre, product(p + ".2", p + ".out", centre, top + 3));
      rails(p, from, x, y, [x + F / 2]);
    }

    function stack(name, x, parts) {
      const left = name === "encoder" ? 230 - 4 * NAMES - 2 * D : x + 2 * NAMES; // beside E
      put(name + ".embedded", left, low);
      put(name + ".positions", left + D + 2 * NAMES, low);
      put(name + ".x", left + D / 2 + NAMES, low + high + 10);
      const sum = middle(name + ".x");
      for (const part of ["embedded", "positions"]) {
        const from = middle(`${name}.${part}`);
        line("flow", [from.x, from.top], [from.x, sum.bottom - 2], [sum.x, sum.bottom - 2], [sum.x, sum.bottom]);
      }
      let from = name + ".x";
      for (let n = 1; n <= model.config.n_layers; n++) {
        let left = x;
        for (const part of parts) {
          const p = `${name}.${n}.${part}`, y = (n - 1) * pitch;
          if (part === "ffn") feedForward(p, from, left, y);
          else left = attention(p, from, left, y, part === "cross" && `encoder.${model.config.n_layers}.ffn.norm`);
          from = p + ".norm";
        }
      }
      return from;
    }

    const low = -2 * high - 26;
    stack("encoder", 0, ["self", "ffn"]);
    const last = stack("decoder", DECODER, ["self", "cross", "ffn"]);
    put("E", 250, low - 12);
    const { x: cx, top } = middle(last), table = model.weights["E.T"].cols;
    const left = cx - table / 2;
    put("probabilities", left, put("logits", left, put("E.T", left, top + 10) + 2) + 7);
    line("flow", [cx, top], [cx, top + 10]);
    const out = middle("probabilities"), back = middle("decoder.embedded"), side = out.right + 45;
    line("loop", [out.right, (out.top + out.bottom) / 2], [side, (out.top + out.bottom) / 2], [side, back.bottom - 8], [back.x, back.bottom - 8], [back.x, back.bottom]);
    for (const name of ["encoder", "decoder"]) threads(name);
    arcs();
    return { blocks, lines, signs: signs() };

    // What stands on the whole machine in words; `at`: which end is at (x, y).
    function signs() {
      const inputs = low + high / 2, found = [
        { text: "Encoder", strong: true, x: 0, y: inputs },
        { text: "Decoder", strong: true, x: DECODER + 5 * D, y: inputs },
        { text: "next token", at: "right", x: left - 4, y: out.bottom },
        { text: "E", x: middle("E").right + 4, y: low - 8 },
      ];
      for (let n = 1; n <= model.config.n_layers; n++) {
        for (const x of [-2, DECODER - 2]) found.push({ text: `layer ${n}`, x, y: (n - 1) * pitch + 60 + 3 * high });
      }
      return found;
    }

    // From the rows of E to the tokens that they stand for.
    function threads(name) {
      const table = middle("E"), input = middle(name + ".embedded");
      const right = name === "decoder";
      run.tensors[name + ".embedded"].ids.forEach((id, row) => {
        const from = [right ? table.right : table.left, table.top - id - 0.5];
        line("thread", from, [right ? input.left : input.right, input.top - (row + 0.5) * TALL]);
      });
    }

    // Cross-attention: from each written token to the words that it reads,
    // as strong as the heads' mean weight.
    function arcs() {
      for (let n = 1; n <= model.config.n_layers; n++) {
        const p = `decoder.${n}.cross`, to = middle(p + ".sum");
        const from = middle(`encoder.${model.config.n_layers}.ffn.norm`);
        for (let t = 0; t < T; t++) {
          for (let s = 0; s < S; s++) {
            let weight = 0;
            for (let h = 1; h <= H; h++) weight += run.tensors[`${p}.weights.${h}`].data[t * S + s] / H;
            if (weight < 0.15) continue;
            lines.push({ kind: "arc", weight, row: t, name: p, points: [[from.right, from.top - (s + 0.5) * TALL], [to.left, to.top - (t + 0.5) * TALL]] });
          }
        }
      }
    }
  }

  // ---- The camera: orthographic, turned by yaw, then by pitch ----

  function project(camera, x, y, z = 0) {
    const { cx, cy, zoom, yaw, pitch, width, height } = camera;
    const dx = x - cx, dy = y - cy;
    const near = -dx * Math.sin(yaw) + z * Math.cos(yaw);
    return [
      width / 2 + zoom * (dx * Math.cos(yaw) + z * Math.sin(yaw)),
      height / 2 - zoom * (dy * Math.cos(pitch) - near * Math.sin(pitch)),
    ];
  }

  // The six numbers of setTransform that carry (column, row) to the screen.
  function affine(camera, block, z = 0) {
    const o = project(camera, block.x, block.y, z);
    const c = project(camera, block.x + block.sx, block.y, z);
    const r = project(camera, block.x, block.y - block.sy, z);
    return [c[0] - o[0], c[1] - o[1], r[0] - o[0], r[1] - o[1], o[0], o[1]];
  }

  // The column and row under a point of the screen, as fractions.
  function unproject([a, b, c, d, e, f], x, y) {
    const det = a * d - b * c;
    return [((x - e) * d - (y - f) * c) / det, ((y - f) * a - (x - e) * b) / det];
  }

  // The corners of a block on the screen, from its top left one clockwise.
  function corners(camera, { x, y, cols, rows, sx, sy }, z = 0) {
    const [right, low] = [x + cols * sx, y - rows * sy];
    return [[x, y], [right, y], [right, low], [x, low]].map(([px, py]) => project(camera, px, py, z));
  }

  // A place in a block, in columns and rows, on the screen.
  function spot(camera, block, col, row, lift = 0) {
    return project(camera, block.x + col * block.sx, block.y - row * block.sy, block.thick + lift);
  }

  // How far a height of 1 moves a point, in columns and rows of a block.
  function slope({ yaw, pitch }, { sx, sy }) {
    return [Math.tan(yaw) / sx, Math.tan(pitch) / Math.cos(yaw) / sy];
  }

  // The nearest camera that shows these blocks whole. `beside` gives the pixels
  // that a block's words need at a zoom: [left, right, above, below].
  function fit(blocks, view, beside = () => [0, 0, 0, 0]) {
    const size = [view.width, view.height], start = { ...view, cx: 0, cy: 0, zoom: 1 };
    const flat = blocks.map((b) => [...corners(start, b), ...corners(start, b, b.thick || 0)]);
    // From the first to the last pixel across (n = 0) or down (n = 1).
    const span = (n, zoom) => {
      const ends = flat.map((points, k) => {
        const all = points.map((p) => (p[n] - size[n] / 2) * zoom), words = beside(blocks[k], zoom);
        return [Math.min(...all) - words[2 * n], Math.max(...all) + words[2 * n + 1]];
      });
      return [Math.min(...ends.map((e) => e[0])), Math.max(...ends.map((e) => e[1]))];
    };
    let [zoom, most] = [0.1, 40];
    for (let n = 0; n < 20; n++) {
      const between = Math.sqrt(zoom * most);
      const fits = [0, 1].every((axis) => { const [from, to] = span(axis, between); return to - from <= size[axis] - 2 * EDGE; });
      [zoom, most] = fits ? [between, most] : [zoom, between];
    }
    const [x, y] = [0, 1].map((axis) => span(axis, zoom).reduce((a, b) => a + b) / 2 / zoom);
    const cx = x / Math.cos(view.yaw);
    const cy = -(y + cx * Math.sin(view.yaw) * Math.sin(view.pitch)) / Math.cos(view.pitch);
    return { ...view, cx, cy, zoom };
  }

  Object.assign(TL, { layout, project, affine, unproject, corners, spot, slope, fit });
})((globalThis.TL = globalThis.TL || {}));
