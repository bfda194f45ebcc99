// What a cell is and how it was computed, in words and numbers.
(function (TL) {
  "use strict";

  const PARTS = {
    self: "self-attention", cross: "cross-attention", ffn: "feed-forward",
    q: "Q", k: "K", v: "V", scores: "scores", weights: "softmax", mixed: "heads side by side",
    out: "output", sum: "input + output", norm: "LayerNorm", inner: "x W₁ + b₁", relu: "ReLU",
    embedded: "√d · E[token]", positions: "position encoding", x: "input x", logits: "logits",
    probabilities: "probabilities", gain: "gain", bias: "bias", E: "E",
  };
  const MAPS = { q: "W^Q", k: "W^K", v: "W^V", o: "W^O", 1: "W₁", 2: "W₂" };

  // encoder.1.self.q.w -> Encoder 1 · self-attention · W^Q
  function title(name) {
    if (name === "E.T") return "E, transposed";
    const [stack, ...rest] = name.split(".");
    const last = rest[rest.length - 1];
    if (last === "w" || last === "b") {
      const map = MAPS[rest[rest.length - 2]];
      return `${place(stack, rest)} · ${last === "w" ? map : map.replace("W", "b")}`;
    }
    if (stack !== "encoder" && stack !== "decoder") return PARTS[name];
    return `${place(stack, rest)} · ${label(name)}`;
  }

  function place(stack, rest) {
    const name = stack === "encoder" ? "Encoder" : "Decoder";
    return rest.length > 1 ? `${name} ${rest[0]} · ${PARTS[rest[1]]}` : name;
  }

  // The short name that stands beside a block.
  function label(name) {
    const parts = name.split("."), last = parts[parts.length - 1];
    if (name === "E.T") return "Eᵀ";
    if (last === "w") return MAPS[parts[parts.length - 2]];
    if (last === "b") return MAPS[parts[parts.length - 2]].replace("W", "b");
    if (parts[3] === "scores" || parts[3] === "weights") return `${PARTS[parts[3]]} ${last}`;
    return PARTS[last];
  }

  // The tokens along a tensor's rows and columns; none where there are none.
  function axes(run, name) {
    const { tokens } = run.model, words = (ids) => ids.map((id) => tokens[id]);
    const src = words(run.tensors["encoder.embedded"].ids), tgt = words(run.tensors["decoder.embedded"].ids);
    const [stack, , part, kind] = name.split(".");
    if (name === "E") return { rows: tokens, cols: null };
    if (name === "E.T") return { rows: null, cols: tokens };
    if (name === "logits" || name === "probabilities") return { rows: tgt, cols: tokens };
    if (!run.tensors[name]) return { rows: null, cols: null };
    const own = stack === "encoder" ? src : tgt, keys = part === "cross" ? src : own;
    if (kind === "scores" || kind === "weights") return { rows: own, cols: keys };
    return { rows: kind === "k" || kind === "v" ? keys : own, cols: null };
  }

  function round(v) {
    if (v === -Infinity) return "−∞";
    const text = v !== 0 && Math.abs(v) < 0.0005 ? v.toExponential(2) : v.toFixed(4);
    return text.replace("-", "−");
  }

  const signed = (v) => (v < 0 ? `(${round(v)})` : round(v));

  // The three largest products, then the rest in one sum.
  function sum(terms) {
    const sorted = [...terms].sort((a, b) => Math.abs(b[0] * b[1]) - Math.abs(a[0] * a[1]));
    const shown = sorted.slice(0, 3).map(([a, b], n) => `${n ? signed(a) : round(a)} · ${signed(b)}`).join(" + ");
    const rest = sorted.slice(3).reduce((total, [a, b]) => total + a * b, 0);
    return terms.length > 3 ? `${shown} + ${signed(rest)} from ${terms.length - 3} more products` : shown;
  }

  // Each operation: the words, and the value again by its definition.
  const HOW = {
    weight: (_, x, i, j) => [
      "a learned number; it is the same for every input", x.data[i * x.cols + j]],
    embed: (run, x, i, j, [E]) => {
      const entry = E.data[x.ids[i] * E.cols + j], root = Math.sqrt(E.cols);
      return [`entry ${j} of the row of “${run.model.tokens[x.ids[i]]}” in E, times √${E.cols}: ` +
        `${round(entry)} · ${round(root)}`, entry * root];
    },
    positions: (_, x, i, j) => {
      const angle = i / 10000 ** ((j - (j % 2)) / x.cols), wave = j % 2 ? "cos" : "sin";
      return [`${wave}(${i} / 10000^(${j - (j % 2)}/${x.cols})) = ${wave} ${round(angle)}`, Math[wave](angle)];
    },
    add: (_, x, i, j, [a, b]) => {
      const at = i * x.cols + j, parts = b.op === "positions" ? "the token and its place" : "what came in and what was made of it";
      return [`${round(a.data[at])} + ${signed(b.data[at])}: ${parts}`, a.data[at] + b.data[at]];
    },
    linear: (_, x, i, j, [a, w, b]) => {
      const terms = Array.from({ length: a.cols }, (_, k) => [a.data[i * a.cols + k], w.data[k * w.cols + j]]);
      const total = terms.reduce((t, [p, q]) => t + p * q, b ? b.data[j] : 0);
      const bias = b ? ` + bias ${signed(b.data[j])}` : "";
      return [`row ${i} of the input times column ${j} of the matrix: ${sum(terms)}${bias}`, total];
    },
    relu: (_, x, i, j, [a]) => {
      const v = a.data[i * x.cols + j];
      return [`max(0, ${round(v)})`, Math.max(0, v)];
    },
    norm: (run, x, i, j, [a, gain, bias]) => {
      const row = a.data.subarray(i * a.cols, (i + 1) * a.cols);
      const { mean, deviation } = TL.moments(row, run.model.config.layer_norm_eps);
      return [`(${round(row[j])} − mean ${signed(mean)}) / deviation ${round(deviation)} · gain ${signed(gain.data[j])} + bias ${signed(bias.data[j])}`,
        ((row[j] - mean) / deviation) * gain.data[j] + bias.data[j]];
    },
    scores: (run, x, i, j, [q, k]) => {
      if (x.data[i * x.cols + j] === -Infinity) return ["masked: this key comes later than the query, so it must not be seen", -Infinity];
      const terms = Array.from({ length: run.K }, (_, c) => {
        const at = x.head * run.K + c;
        return [q.data[i * q.cols + at], k.data[j * k.cols + at]];
      });
      const total = terms.reduce((t, [p, r]) => t + p * r, 0) / Math.sqrt(run.K);
      return [`query ${i} · key ${j} of head ${x.head + 1}, divided by √${run.K}: (${sum(terms)}) / ${round(Math.sqrt(run.K))}`, total];
    },
    softmax: (_, x, i, j, [a]) => {
      const row = Array.from(a.data.subarray(i * a.cols, (i + 1) * a.cols)), most = Math.max(...row);
      const total = row.reduce((t, v) => t + Math.exp(v - most), 0), own = row[j];
      if (own === -Infinity) return ["masked: exp(−∞) is 0", 0];
      return [`exp(${round(own)}) divided by the sum of exp over its row of ${row.length}`, Math.exp(own - most) / total];
    },
    mix: (run, x, i, j, from) => {
      const head = Math.floor(j / run.K), a = from[head], v = from[from.length - 1];
      const terms = Array.from({ length: v.rows }, (_, s) => [a.data[i * a.cols + s], v.data[s * v.cols + j]]);
      return [`the values' column ${j}, weighted by row ${i} of head ${head + 1}: ${sum(terms)}`,
        terms.reduce((t, [p, q]) => t + p * q, 0)];
    },
  };

  // A cell in words: where it is, its value, how it was computed.
  function explain(run, name, i, j) {
    const x = run.tensors[name] || run.model.weights[name], { rows, cols } = axes(run, name);
    const from = x.from.map((other) => run.tensors[other] || run.model.weights[other]);
    const [how, again] = HOW[x.op](run, x, i, j, from);
    const row = rows ? `row ${i} “${rows[i]}”` : `row ${i}`;
    const col = cols ? `column ${j} “${cols[j]}”` : `column ${j}`;
    return { title: title(name), shape: `${x.rows} × ${x.cols}`, row, col, value: x.data[i * x.cols + j], how, again };
  }

  Object.assign(TL, { explain, title, label, axes, round });
})((globalThis.TL = globalThis.TL || {}));
