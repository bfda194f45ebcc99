// The Transformer of "Attention Is All You Need", forward only, in doubles.
//
// A tensor is { rows, cols, data } with its numbers row by row. Every tensor
// of a run is kept under its name, with the operation that made it and the
// names of what it was made from: the page draws them and explains each cell.
//
// Letters as in the book: S source length, T target length, D width of the
// model, H heads, K width of a head, F inner width, W vocabulary.
(function (TL) {
  "use strict";

  function tensor(rows, cols) {
    return { rows, cols, data: new Float64Array(rows * cols) };
  }

  function fill(rows, cols, value) {
    const out = tensor(rows, cols);
    for (let i = 0, at = 0; i < rows; i++) {
      for (let j = 0; j < cols; j++) out.data[at++] = value(i, j);
    }
    return out;
  }

  function transpose(x) {
    return fill(x.cols, x.rows, (i, j) => x.data[j * x.cols + i]);
  }

  // ---- The operations ----

  // x W + b: [T, D] times [D, K], plus a row [1, K] if there is one.
  function linear(x, w, b) {
    const out = tensor(x.rows, w.cols);
    for (let i = 0; i < x.rows; i++) {
      const row = out.data.subarray(i * w.cols, (i + 1) * w.cols);
      if (b) row.set(b.data);
      for (let k = 0; k < x.cols; k++) {
        const factor = x.data[i * x.cols + k], at = k * w.cols;
        for (let j = 0; j < w.cols; j++) row[j] += factor * w.data[at + j];
      }
    }
    return out;
  }

  function add(x, y) {
    return fill(x.rows, x.cols, (i, j) => x.data[i * x.cols + j] + y.data[i * x.cols + j]);
  }

  function relu(x) {
    return fill(x.rows, x.cols, (i, j) => Math.max(0, x.data[i * x.cols + j]));
  }

  // Section 3.1: each row to mean 0 and variance 1, then gain and bias.
  function layerNorm(x, gain, bias, eps) {
    const out = tensor(x.rows, x.cols);
    for (let i = 0; i < x.rows; i++) {
      const { mean, deviation } = moments(x.data.subarray(i * x.cols, (i + 1) * x.cols), eps);
      for (let j = 0; j < x.cols; j++) {
        const standard = (x.data[i * x.cols + j] - mean) / deviation;
        out.data[i * x.cols + j] = standard * gain.data[j] + bias.data[j];
      }
    }
    return out;
  }

  function moments(row, eps) {
    const mean = row.reduce((sum, v) => sum + v, 0) / row.length;
    const variance = row.reduce((sum, v) => sum + (v - mean) ** 2, 0) / row.length;
    return { mean, deviation: Math.sqrt(variance + eps) };
  }

  // Equation 1 before its softmax, for one head: columns h K to (h + 1) K.
  // A key that a query must not see scores minus infinity.
  function scores(q, k, head, K, mask) {
    return fill(q.rows, k.rows, (i, j) => {
      if (!mask(i, j)) return -Infinity;
      let sum = 0;
      for (let c = head * K; c < (head + 1) * K; c++) {
        sum += q.data[i * q.cols + c] * k.data[j * k.cols + c];
      }
      return sum / Math.sqrt(K);
    });
  }

  function softmax(x) {
    const out = tensor(x.rows, x.cols);
    for (let i = 0; i < x.rows; i++) {
      const row = x.data.subarray(i * x.cols, (i + 1) * x.cols);
      const most = Math.max(...row);
      const total = row.reduce((sum, v) => sum + Math.exp(v - most), 0);
      for (let j = 0; j < x.cols; j++) out.data[i * x.cols + j] = Math.exp(row[j] - most) / total;
    }
    return out;
  }

  // The heads' mixtures of values, side by side: weights [T, S] per head.
  function mix(weights, v, K) {
    return fill(weights[0].rows, v.cols, (i, c) => {
      const a = weights[Math.floor(c / K)];
      let sum = 0;
      for (let j = 0; j < v.rows; j++) sum += a.data[i * a.cols + j] * v.data[j * v.cols + c];
      return sum;
    });
  }

  // The column of a row's largest number.
  function largest(x, row) {
    const numbers = x.data.subarray(row * x.cols, (row + 1) * x.cols);
    return numbers.indexOf(Math.max(...numbers));
  }

  // Section 3.5: sine and cosine in turn.
  function positions(length, D) {
    return fill(length, D, (p, c) => {
      const angle = p * 10000 ** (-(c - (c % 2)) / D);
      return c % 2 ? Math.cos(angle) : Math.sin(angle);
    });
  }

  // ---- The model ----

  // Weights from the data file, matrices as the paper writes them: [in, out].
  function loadModel(data) {
    const bytes = Uint8Array.from(atob(data.weights), (c) => c.charCodeAt(0));
    const floats = new Float32Array(bytes.buffer);
    const weights = {};
    for (const [name, shape, at] of data.tensors) {
      const [rows, cols] = shape.length === 2 ? shape : [1, shape[0]];
      const stored = { rows, cols, data: Float64Array.from(floats.subarray(at, at + rows * cols)) };
      weights[name] = name !== "E" && shape.length === 2 ? transpose(stored) : stored;
    }
    weights["E.T"] = transpose(weights.E);
    for (const name in weights) Object.assign(weights[name], { name, op: "weight", from: [] });
    return { config: data.config, tokens: data.tokens, sha256: data.sha256, weights, count: floats.length };
  }

  // One run of the model: `tensors` by name, in the order of computation.
  class Run {
    constructor(model) {
      this.model = model;
      this.tensors = {};
      this.K = model.config.d_model / model.config.n_heads;
    }

    keep(name, op, from, value) {
      return (this.tensors[name] = Object.assign(value, { name, op, from: from.map((x) => x.name) }));
    }

    linear(name, x, map) {
      const { [map + ".w"]: w, [map + ".b"]: b } = this.model.weights;
      return this.keep(name, "linear", [x, w, b], linear(x, w, b));
    }

    // LayerNorm(x + y): the end of each sub-layer.
    leave(p, x, y) {
      const { [p + ".gain"]: gain, [p + ".bias"]: bias } = this.model.weights;
      const sum = this.keep(p + ".sum", "add", [x, y], add(x, y));
      const out = layerNorm(sum, gain, bias, this.model.config.layer_norm_eps);
      return this.keep(p + ".norm", "norm", [sum, gain, bias], out);
    }

    // Section 3.4 and 3.5: sqrt(D) times a row of E, plus the position.
    embed(p, ids) {
      const { E } = this.model.weights, D = E.cols;
      const rows = fill(ids.length, D, (i, j) => E.data[ids[i] * D + j] * Math.sqrt(D));
      const x = this.keep(p + ".embedded", "embed", [E], rows);
      x.ids = ids;
      const pe = this.keep(p + ".positions", "positions", [], positions(ids.length, D));
      return this.keep(p + ".x", "add", [x, pe], add(x, pe));
    }

    // Section 3.2.2: queries from x, keys and values from memory.
    attention(p, x, memory, mask) {
      const q = this.linear(p + ".q", x, p + ".q");
      const k = this.linear(p + ".k", memory, p + ".k");
      const v = this.linear(p + ".v", memory, p + ".v");
      const weights = [];
      for (let h = 0; h < this.model.config.n_heads; h++) {
        const s = this.keep(`${p}.scores.${h + 1}`, "scores", [q, k], scores(q, k, h, this.K, mask));
        s.head = h;
        weights.push(this.keep(`${p}.weights.${h + 1}`, "softmax", [s], softmax(s)));
        weights[h].head = h;
      }
      const mixed = this.keep(p + ".mixed", "mix", [...weights, v], mix(weights, v, this.K));
      return this.leave(p, x, this.linear(p + ".out", mixed, p + ".o"));
    }

    // Section 3.3.
    feedForward(p, x) {
      const inner = this.linear(p + ".inner", x, p + ".1");
      const active = this.keep(p + ".relu", "relu", [inner], relu(inner));
      return this.leave(p, x, this.linear(p + ".out", active, p + ".2"));
    }

    encode(src) {
      let x = this.embed("encoder", src);
      for (let n = 1; n <= this.model.config.n_layers; n++) {
        x = this.attention(`encoder.${n}.self`, x, x, () => true);
        x = this.feedForward(`encoder.${n}.ffn`, x);
      }
      return x;
    }

    // Behind the begin token: logits and probabilities [T, W] of each next one.
    decode(tgt, memory) {
      let x = this.embed("decoder", tgt);
      for (let n = 1; n <= this.model.config.n_layers; n++) {
        x = this.attention(`decoder.${n}.self`, x, x, (i, j) => j <= i);
        x = this.attention(`decoder.${n}.cross`, x, memory, () => true);
        x = this.feedForward(`decoder.${n}.ffn`, x);
      }
      const table = this.model.weights["E.T"];
      const logits = this.keep("logits", "linear", [x, table], linear(x, table));
      return this.keep("probabilities", "softmax", [logits], softmax(logits));
    }
  }

  function forward(model, src, tgt) {
    const run = new Run(model);
    run.decode(tgt, run.encode(src));
    return run;
  }

  Object.assign(TL, { Run, loadModel, forward, moments, largest });
})((globalThis.TL = globalThis.TL || {}));
