// What each change of a model did: a line for each variant, a dot for each seed.
(function (TL) {
  "use strict";

  const { tag, text, line, colour, textWidth, fitted, shown, sum, sentenceCase, need, ticks, choice } = TL;
  const mean = (values) => sum(values) / values.length;

  TL.ablations = {
    check({ measures }) {
      for (const { name, values } of measures.flatMap((m) => m.variants)) {
        need(values.length && values.every(Number.isFinite), `A score of ${name} is not a number.`);
      }
    },
    controls({ measures }, state) {
      const { variants } = measures[state.measure];
      if (state.base >= variants.length) state.base = 0;
      return [
        measures.length > 1 && choice("measure", "Score", measures.map((m) => m.name)),
        variants.length > 1 && choice("base", "Compare with", variants.map((v) => v.name)),
      ].filter(Boolean);
    },
    draw({ measures, digits }, { measure, base: at }, width) {
      const { name, variants } = measures[measure], base = variants[at], level = mean(base.values);
      const rows = variants.map(({ name, values }) =>
        [name, mean(values), mean(values) - level, Math.min(...values), Math.max(...values), String(values.length)]);
      const [far] = rows.filter((_, n) => n !== at).sort((a, b) => Math.abs(b[2]) - Math.abs(a[2]));
      const spread = Math.max(...base.values) - Math.min(...base.values);
      const apart = spread ? `differ by ${shown(spread, digits)}` : "are equal";
      return {
        ...dots(name, variants, at, level, width),
        summary: `${sentenceCase(name)} of ${base.name}: ${shown(level, digits)}` +
          (base.values.length > 1 ? ` on average; its ${base.values.length} runs ${apart}` : "") +
          (far ? `. Furthest from it is ${far[0]}${gap(far[2], digits)}.` : "."),
        digits, head: ["variant", "mean", "difference", "least", "most", "runs"], rows,
      };
    },
  };

  function gap(value, digits) {
    return value ? `: ${shown(Math.abs(value), digits)} ${value > 0 ? "above" : "below"}` : ", which equals it";
  }

  function dots(name, variants, at, level, width) {
    const all = variants.flatMap((v) => v.values), low = Math.min(...all), high = Math.max(...all), room = (high - low || 1) * 0.04;
    const left = Math.min(width * 0.4, 16 + 1.1 * Math.max(...variants.map((v) => textWidth(v.name)))), wide = width - left - 24;
    const step = Math.max(13, Math.min(26, 330 / variants.length)), bottom = 12 + step * variants.length;
    const X = (v) => left + ((v - low + room) / (high - low + 2 * room)) * wide, Y = (n) => 10 + (n + 0.5) * step;
    const axis = ticks(low - room, high + room, wide / 90).map(([v, label]) =>
      line(X(v), 10, X(v), bottom, { class: "grid" }) + text(X(v), bottom + 12, label, { class: "quiet", "text-anchor": "middle" }));
    const lines = variants.map((v, n) =>
      text(left - 8, Y(n), fitted(v.name, 0.9 * (left - 10)), { "text-anchor": "end", class: n === at ? "bold" : "", style: `font-size:${Math.min(13, step)}px` }) +
      v.values.map((value) => tag("circle", { cx: X(value), cy: Y(n), r: 4.5, fill: colour(n === at ? 1 : 0), "fill-opacity": 0.7 })).join("") +
      line(X(mean(v.values)), Y(n) - step * 0.4, X(mean(v.values)), Y(n) + step * 0.4, { stroke: "var(--ink)", "stroke-width": 2 }));
    return {
      svg: axis.join("") + line(X(level), 10, X(level), bottom, { stroke: colour(1), "stroke-dasharray": "4 3" }) + lines.join("") +
        text(left + wide / 2, bottom + 30, name, { class: "quiet", "text-anchor": "middle" }),
      height: bottom + 42,
    };
  }
})(globalThis.TL);
