// A softmax over scores of wider and wider heads.
(function (TL) {
  "use strict";

  const { tag, colour, shown, sum, range, need, chart, slider } = TL;

  TL.softmax = {
    check({ widths }) {
      for (const one of widths) for (const p of one.largest) need(p > 0 && p <= 1, "A largest weight is not between 0 and 1.");
    },
    controls: ({ widths }) => [
      slider("width", "d_k", 0, widths.length - 1, 1, (n) => String(widths[n].d_k)),
      { type: "check", name: "scaled", label: "divide by √d_k" },
    ],
    draw({ widths }, { width: at, scaled }, width) {
      const one = widths[at], scale = scaled ? Math.sqrt(one.d_k) : 1;
      const most = Math.max(...one.scores), raised = one.scores.map((s) => Math.exp((s - most) / scale)), total = sum(raised);
      const weights = raised.map((e) => e / total), narrow = width < 560, half = narrow ? width : width / 2;
      const box = { left: 40, width: half - 60, height: narrow ? 130 : 210 }, y = { low: 0, high: 1 };
      const n = scaled ? 0 : 1, keys = weights.length, place = (i) => 40 + ((i + 0.5) / keys) * box.width;
      const bars = chart({
        ...box, top: 28, y, lines: [], title: `One query's weights, d_k = ${one.d_k}`,
        x: { low: 0, high: keys, label: "key", ticks: range(keys).map((i) => [i + 0.5, i + 1]) },
      }) + weights.map((p, i) => tag("rect", {
        x: place(i) - box.width / keys / 3, y: 28 + box.height * (1 - p), width: box.width / keys / 1.5, height: box.height * p, fill: colour(n) })).join("");
      const curve = (m) => widths.map((w, i) => [i, w.largest[m]]);
      const means = chart({
        ...box, left: 40 + (narrow ? 0 : half), top: narrow ? 238 : 28, y, title: "Largest weight, mean",
        x: { low: 0, high: widths.length - 1, label: "d_k", ticks: widths.map((w, i) => [i, w.d_k]).filter((_, i) => i % 3 === 0) },
        lines: [{ points: curve(0), n: 1 }, { points: curve(1), n: 0 }],
        dots: ["unscaled", "scaled"].map((label, m) => ({ at: [at, one.largest[m]], n: 1 - m, label, anchor: at > 5 ? "end" : "start" })).slice(at ? 0 : 1),
      });
      return {
        svg: bars + means, height: narrow ? 410 : 282,
        summary: `At width ${one.d_k} the largest of ${keys} weights is on average ${shown(one.largest[0], 2)} without the scale and ${shown(one.largest[1], 2)} with it; ` +
          `the sum of p(1 − p), the slope it learns through, ${shown(one.slope[0], 2)} and ${shown(one.slope[1], 2)}. ` +
          `The bars are ${scaled ? "" : "un"}scaled; the tallest is ${shown(Math.max(...weights), 2)}.`,
        digits: 3, head: ["d_k", "variance of q·k", "its error", "largest, unscaled", "largest, scaled", "p(1 − p), unscaled", "p(1 − p), scaled"],
        rows: widths.map((w) => [String(w.d_k), w.variance, w.error, ...w.largest, ...w.slope]),
      };
    },
  };
})(globalThis.TL);
