// The schedule of the learning rate.
(function (TL) {
  "use strict";

  const { shown, whole, range, chart, slider } = TL;

  TL.rate = {
    start: ({ start }) => ({ ...start, width: Math.log2(start.width) }),
    controls: () => [
      slider("width", "Width d_model", 5, 12, 1, (n) => whole(2 ** n)),
      slider("warmup", "Warm-up", 100, 20000, 100), slider("step", "Step", 1, 40000),
    ],
    draw(_, { width: power, warmup, step }, width) {
      const d = Math.round(2 ** power), rate = (s, w = warmup, D = d) => 1e3 * D ** -0.5 * Math.min(s ** -0.5, s * w ** -1.5);
      const peak = rate(warmup), here = rate(step), part = (100 * here) / peak, high = Math.max(peak, rate(4000, 4000, 512)) * 1.12;
      const curve = (w, D) => range(401).map((i) => Math.max(1, i * 100)).concat(w).sort((a, b) => a - b).map((s) => [s, rate(s, w, D)]);
      return {
        svg: chart({
          left: 44, top: 30, width: width - 72, height: 220, title: "Rate in thousandths; dashed: the base model",
          x: { low: 0, high: 40000, label: "step" }, y: { low: 0, high },
          lines: [{ points: curve(4000, 512), n: 1, faint: true }, { points: curve(warmup, d), n: 0 }],
          dots: [{ at: [warmup, peak], n: 0, label: "peak" }, { at: [step, here], n: 1, label: step > 34000 ? "" : whole(step) }],
        }),
        height: 292,
        summary: `For width ${d} and a warm-up of ${whole(warmup)} steps the rate rises to ${shown(peak, 4)} thousandths at step ${whole(warmup)}. ` +
          `At step ${whole(step)} it is ${shown(here, 4)}, ${part < 1 ? "less than 1" : whole(part)} % of the peak.`,
        digits: 4, head: ["step", "rate, in thousandths"],
        rows: [0.25, 0.5, 1, 2, 4, 16].map((part) => Math.round(part * warmup)).map((s) => [whole(s), rate(s)]).concat([[`${whole(step)} (chosen)`, here]]),
      };
    },
  };
})(globalThis.TL);
