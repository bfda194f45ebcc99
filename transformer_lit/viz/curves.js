// Learning curves, a line for each run.
(function (TL) {
  "use strict";

  const { text, line, colour, dashes, textWidth, fitted, shown, sum, sentenceCase, range, need, ticks, chart, choice, slider } = TL;
  const MARK = 42, GAP = 18; // of the legend: a piece of line, and what lies between

  // The first and the last place of all runs.
  function ends(series) {
    const places = series.flatMap(({ points }) => points.map((p) => p[0]));
    return [Math.min(...places), Math.max(...places)];
  }

  TL.curves = {
    start: ({ series }) => ({ measure: 0, runs: range(series.length), from: Math.min(0, ends(series)[0]) }),
    check({ series, measures }) {
      for (const { name, points } of series) for (const point of points) {
        need(point.length === measures.length + 1 && point.every(Number.isFinite), `A point of ${name} is not what it should be.`);
      }
    },
    controls({ series, measures, x, places }) {
      const [least, last] = ends(series), first = Math.min(0, least), span = last - first;
      return [
        measures.length > 1 && choice("measure", "Measure", measures),
        series.length > 1 && { type: "several", name: "runs", label: "Runs", options: series.map((s) => s.name) },
        least < last && slider("from", `From ${x}`, first, first + 0.9 * span, span / 100, (at) => shown(at, places)),
      ].filter(Boolean);
    },
    draw({ series, measures, x, places, digits }, { measure, runs, from }, width) {
      const chosen = series.map((s, n) => ({ ...s, n })).filter(({ n }) => runs.includes(n));
      const part = (points) => points.filter((p) => p[0] >= from).map((p) => [p[0], p[measure + 1]]);
      const [least, last] = ends(series), all = from <= Math.min(0, least);
      const ys = series.flatMap(({ points }) => part(points).map((p) => p[1]));
      const low = Math.min(all ? 0 : Infinity, ...ys), high = Math.max(...ys), margin = 0.05 * (high - low || Math.abs(high) || 1);
      const y = { low: all && low === 0 ? 0 : low - margin, high: high + margin };
      const end = last > from ? last : from + 1; // one place alone has an axis too
      const left = 14 + Math.max(38, ...ticks(y.low, y.high, 220 / 45).map(([, label]) => textWidth(label)));
      const right = 8 + Math.max(20, textWidth(shown(end, places)) / 2);
      const values = chosen.map(({ points }) => points[points.length - 1][measure + 1]);
      const mean = sum(values) / values.length, spread = Math.max(...values) - Math.min(...values);
      const below = series.length > 1 ? legend(chosen, width) : { svg: "", height: 0 };
      return {
        svg: chart({
          left, top: 30, width: width - left - right, height: 220, title: measures[measure], y,
          x: { low: from, high: end, label: x },
          lines: chosen.map(({ points, n }) => ({ n, points: part(points) })),
          dots: chosen.filter(({ points }) => part(points).length === 1).map(({ points, n }) => ({ n, at: part(points)[0] })),
        }) + below.svg,
        height: 292 + below.height,
        summary: !values.length ? "No run is chosen." : `${sentenceCase(measures[measure])} at the last ${x}: ${shown(mean, digits)}` +
          (values.length > 1 ? `, the mean of ${values.length} runs that differ by ${shown(spread, digits)}.` : "."),
        digits, head: ["run", x, ...measures],
        rows: chosen.flatMap(({ name, points }) => points.map(([at, ...values]) => [name, shown(at, places), ...values])),
      };
    },
  };

  // Which line is whose, in as many rows as it takes.
  function legend(runs, width) {
    let x = 14, y = 302;
    const parts = runs.map(({ name, n }) => {
      const words = fitted(name, width - MARK - 20), wide = MARK + textWidth(words) + GAP;
      if (x > 14 && x + wide > width) [x, y] = [14, y + 20];
      const look = { stroke: colour(n), "stroke-width": 2, "stroke-dasharray": dashes(n) };
      const part = line(x, y, x + MARK - 8, y, look) + text(x + MARK, y, words);
      x += wide;
      return part;
    });
    return { svg: parts.join(""), height: y - 282 };
  }
})(globalThis.TL);
