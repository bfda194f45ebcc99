// Learning curves, a line for each run.
(function (TL) {
  "use strict";

  const { text, line, colour, DASHES, shown, sum, sentenceCase, range, need, chart, choice, slider } = TL;

  const last = (series) => Math.max(...series.flatMap(({ points }) => points.map((p) => p[0])));

  TL.curves = {
    start: ({ series }) => ({ measure: 0, runs: range(series.length), from: 0 }),
    check({ series, measures }) {
      for (const { name, points } of series) for (const point of points) {
        need(point.length === measures.length + 1 && point.every(Number.isFinite), `A point of ${name} is not what it should be.`);
      }
    },
    controls: ({ series, measures, x }) => [
      measures.length > 1 && choice("measure", "Measure", measures),
      series.length > 1 && { type: "several", name: "runs", label: "Runs", options: series.map((s) => s.name) },
      slider("from", `From ${x}`, 0, 0.9 * last(series), last(series) / 100),
    ].filter(Boolean),
    draw({ series, measures, x }, { measure, runs, from }, width) {
      const chosen = series.map((s, n) => ({ ...s, n })).filter(({ n }) => runs.includes(n));
      const part = (points) => points.filter((p) => p[0] >= from).map((p) => [p[0], p[measure + 1]]);
      const lines = chosen.map(({ points, n }) => ({ n, points: part(points) }));
      const ys = series.flatMap(({ points }) => part(points).map((p) => p[1]));
      const low = Math.min(from ? Infinity : 0, ...ys), high = Math.max(...ys), margin = 0.05 * (high - low || 1);
      const ends = lines.map(({ points }) => points[points.length - 1][1]);
      const mean = sum(ends) / ends.length, spread = Math.max(...ends) - Math.min(...ends);
      const legend = chosen.map(({ name, n }, i) => {
        const y = 46 + 18 * i;
        return line(width - 150, y, width - 120, y, { stroke: colour(n), "stroke-width": 2, "stroke-dasharray": DASHES[n % 4] }) + text(width - 114, y, name);
      });
      return {
        svg: chart({
          left: 52, top: 30, width: width - 74, height: 220, title: measures[measure], lines,
          x: { low: from, high: last(series), label: x }, y: { low: from ? low - margin : low, high: high + margin },
        }) + (series.length > 1 ? legend.join("") : ""),
        height: 292,
        summary: !ends.length ? "No run is chosen." : `${sentenceCase(measures[measure])} at the last ${x}: ${shown(mean, 4)}` +
          (ends.length > 1 ? `, the mean of ${ends.length} runs that differ by ${shown(spread, 4)}.` : "."),
        digits: 4, head: ["run", x, ...measures],
        rows: chosen.flatMap(({ name, points }) => points.map(([at, ...values]) => [name, shown(at, at % 1 ? 4 : 0), ...values])),
      };
    },
  };
})(globalThis.TL);
