// Attention heads: lines from words to what they look at, or squares.
(function (TL) {
  "use strict";

  const { tag, text, line, colour, written, textWidth, fitted, shown, sum, sentenceCase, range, need, choice } = TL;

  // The words of a sentence for another one: with their place, where a word
  // stands there more than once.
  const named = (words) => words.map((word, n) => words.indexOf(word) === words.lastIndexOf(word) ? word : `${word} (${n + 1})`);

  TL.heads = {
    start: ({ start }) => ({ ...start, seen: start.view, heads: null, look: 0 }),
    check({ views, scale }) {
      for (const { queries, keys, layers } of views) {
        for (const { heads } of layers) for (const { weights } of heads) {
          need(weights.length === queries.length, "The attention has not a row for each token.");
          for (const row of weights) {
            need(row.length === keys.length, "The attention has not a column for each key.");
            const total = sum(row);
            need(total === 0 || Math.abs(total / scale - 1) < 0.02, "A row of the attention does not sum to 1.");
          }
        }
      }
    },
    controls({ views }, state) {
      const { layers, queries } = views[state.view];
      state.layer = Math.min(state.layer, layers.length - 1);
      const { heads } = layers[state.layer];
      state.heads = state.heads?.filter((h) => h < heads.length) ?? range(heads.length);
      if (state.view !== state.seen) Object.assign(state, { word: -1, seen: state.view }); // other words
      return [
        views.length > 1 && choice("view", "Attention", views.map((v) => v.name)),
        layers.length > 1 && choice("layer", "Layer", layers.map((l) => l.name)),
        { type: "select", name: "word", label: "Word", options: ["every word", ...named(queries)], first: -1 },
        choice("look", "Drawn as", ["lines", "squares"]),
        heads.length > 1 && { type: "several", name: "heads", label: "Heads", options: heads.map((h) => h.name) },
      ].filter(Boolean);
    },
    draw({ views, scale }, state, width) {
      const view = views[state.view], { queries, keys } = view, layer = view.layers[state.layer];
      const from = named(queries), to = named(keys);
      const heads = layer.heads.map((h, n) => ({ ...h, n })).filter((_, n) => state.heads.includes(n));
      const t = state.hover ?? state.word, rows = t >= 0 ? [t] : range(queries.length);
      const look = state.look ? squares : lines;
      const best = heads.map((head) => {
        let [r, s] = [rows[0], 0];
        for (const i of rows) keys.forEach((_, j) => { if (head.weights[i][j] > head.weights[r][s]) [r, s] = [i, j]; });
        const link = `${t >= 0 ? "" : `from ${from[r]} `}to ${to[s]}, ${shown(head.weights[r][s] / scale, 2)}`;
        return `in head ${head.name} ${head.weights[r][s] ? link : "nowhere"}`;
      });
      const summary = `${sentenceCase(view.name)}, layer ${layer.name}. ` +
        (best.length ? `The strongest weight${t >= 0 ? ` of ${from[t]}` : ""} goes ${best.join("; ")}.` : "No head is chosen.");
      const mean = (r) => keys.map((_, s) => heads.length ? sum(heads.map((h) => h.weights[r][s])) / (heads.length * scale) : 0);
      const table = t >= 0
        ? { head: [`from ${from[t]}`, ...to], rows: heads.map((h) => [`head ${h.name}`, ...h.weights[t].map((w) => w / scale)]) }
        : { head: ["mean of the heads", ...to], rows: from.map((query, r) => [query, ...mean(r)]) };
      return { ...look({ queries, keys, heads, rows, t, scale, mean, width }), summary, digits: 3, ...table };
    },
  };

  function lines({ queries, keys, heads, rows, t, scale, width }) {
    const most = Math.max(queries.length, keys.length), step = Math.max(13, Math.min(30, 380 / most));
    const bar = Math.min(14, (width * 0.28) / heads.length), bars = t >= 0 ? bar * heads.length : 0;
    const from = width * 0.34, to = width * 0.66 - bars / 2, size = Math.min(15, step);
    const Y = (n) => 26 + n * step, style = `font-size:${size}px`, parts = [];
    for (const r of rows) heads.forEach((head, h) => head.weights[r].forEach((whole, s) => {
      const w = whole / scale, shift = ((h + 0.5) / heads.length - 0.5) * step * 0.6;
      if (w > 0.01) {
        const look = { stroke: colour(head.n), "stroke-width": (0.5 + 3 * w).toFixed(2), "stroke-opacity": w.toFixed(3) };
        parts.push(line(from, Y(r) + shift * 0.4, to, Y(s) + shift * 0.4, { ...look, "stroke-linecap": "round" }));
        if (t >= 0) parts.push(tag("rect", {
          x: to + 4 + bar * h, y: Y(s) - step * 0.42, width: bar * 0.86, height: step * 0.84, fill: colour(head.n), "fill-opacity": w.toFixed(3) }));
      }
    }));
    if (t >= 0 && bar > 8) heads.forEach((head, h) => parts.push(text(to + 4 + bar * (h + 0.43), 8, head.name, { "text-anchor": "middle", class: "bold", style: written(head.n) })));
    queries.forEach((word, r) => parts.push(
      tag("rect", { "data-word": r, class: "word", x: 0, y: Y(r) - step / 2, width: from, height: step, fill: "transparent" }),
      text(from - 6, Y(r), fitted(word, from - 12, size), { "text-anchor": "end", style, class: r === t ? "bold" : t >= 0 ? "quiet" : "", "pointer-events": "none" })));
    keys.forEach((word, s) => parts.push(text(to + bars + 8, Y(s), fitted(word, width - to - bars - 10, size), { style })));
    return { svg: parts.join(""), height: Y(most - 1) + step };
  }

  function squares({ queries, keys, t, mean, width }) {
    const shortKeys = keys.map((word) => fitted(word, 90, 14)), wide = width * 0.3, room = 0.87 * Math.max(...shortKeys.map((word) => textWidth(word, 14))) + 18;
    const size = Math.min((width - wide - 40) / keys.length, Math.max(11, (400 - room) / queries.length), 34);
    const font = Math.min(14, size), style = `font-size:${font}px`, X = (s) => wide + s * size, Y = (r) => room + r * size, parts = [];
    queries.forEach((word, r) => {
      const row = mean(r);
      parts.push(text(wide - 6, Y(r + 0.5), fitted(word, wide - 12, font), { "text-anchor": "end", style, class: r === t ? "bold" : "", "pointer-events": "none" }));
      row.forEach((w, s) => parts.push(tag("rect", { x: X(s), y: Y(r), width: size, height: size, class: "grid" }),
        tag("rect", { x: X(s), y: Y(r), width: size, height: size, fill: "var(--c0)", "fill-opacity": (t < 0 || r === t ? w : w / 4).toFixed(3) })));
      parts.push(tag("rect", { "data-word": r, class: "word", x: 0, y: Y(r), width: X(keys.length), height: size, fill: "transparent" }));
    });
    shortKeys.forEach((word, s) => parts.push(text(0, 0, word, { style, transform: `translate(${X(s + 0.5)} ${room - 6}) rotate(-60)` })));
    return { svg: parts.join(""), height: Y(queries.length) + 4 };
  }
})(globalThis.TL);
