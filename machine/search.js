// Greedy and beam search, section 6.1, as in book/06_1_translation.md.
(function (TL) {
  "use strict";

  // A function from the tokens so far to the log-probabilities of the next.
  function reader(model, src) {
    const memory = new TL.Run(model).encode(src);
    return (tokens) => {
      const run = new TL.Run(model);
      run.decode([model.config.bos_id, ...tokens], memory);
      const { data, rows, cols } = run.tensors.logits;
      const row = data.subarray((rows - 1) * cols);
      const most = Math.max(...row);
      const total = row.reduce((sum, v) => sum + Math.exp(v - most), 0);
      return row.map((v) => v - most - Math.log(total));
    };
  }

  function greedy(model, src, maxExtra = 50) {
    const next = reader(model, src), { eos_id } = model.config;
    const found = { tokens: [], logProb: 0 };
    for (let length = 0; length < src.length + maxExtra; length++) {
      const logProbs = next(found.tokens);
      const token = logProbs.indexOf(Math.max(...logProbs));
      found.logProb += logProbs[token];
      if (token === eos_id) break;
      found.tokens.push(token);
    }
    return { ...found, score: found.logProb };
  }

  function penalty(length, alpha) {
    return ((5 + length) / 6) ** alpha;
  }

  // The best outputs, best first, and the tree: for every step the 2 k best
  // continuations, each with what became of it: kept, ended or dropped.
  function beam(model, src, { size = 4, alpha = 0.6, maxExtra = 50 } = {}) {
    const next = reader(model, src), { eos_id } = model.config;
    const room = src.length + maxExtra, found = [], tree = [];
    const byScore = (a, b) => b.score - a.score;
    let growing = [{ tokens: [], logProb: 0 }];
    for (let length = 1; length <= room; length++) {
      const step = growing.flatMap((parent, at) =>
        Array.from(next(parent.tokens), (p, token) => (
          { parent: at, token, tokens: [...parent.tokens, token], logProb: parent.logProb + p })));
      step.sort((a, b) => b.logProb - a.logProb).splice(2 * size);
      for (const one of step.filter((each) => each.token === eos_id)) {
        const tokens = one.tokens.slice(0, -1), score = one.logProb / penalty(length, alpha);
        found.push({ tokens, logProb: one.logProb, score });
        one.fate = "ended";
      }
      found.sort(byScore).splice(size);
      growing = step.filter((one) => one.token !== eos_id).slice(0, size);
      growing.forEach((one) => { one.fate = "kept"; });
      tree.push(step);
      const worst = found.length === size ? found[size - 1].score : -Infinity;
      if (growing[0].logProb / penalty(room, alpha) <= worst) break;
    }
    const cut = growing.map((one) => ({ ...one, score: one.logProb / penalty(room, alpha) }));
    return { found: found.length ? found : cut, tree };
  }

  Object.assign(TL, { greedy, beam, penalty });
})((globalThis.TL = globalThis.TL || {}));
