// The masks of padding and of the future, and both together.
(function (TL) {
  "use strict";

  const { tag, text, sum, sentenceCase, range, slider } = TL;

  TL.masks = {
    controls({ longest }, state) {
      for (const name of ["source", "target"]) state[`${name}Padding`] = Math.min(state[`${name}Padding`], state[name] - 1);
      return ["source", "target"].flatMap((name) => [
        slider(name, `${sentenceCase(name)} tokens`, 1, longest),
        slider(`${name}Padding`, `${sentenceCase(name)} padding`, 0, state[name] - 1),
      ]).concat({ type: "check", name: "causal", label: "causal mask" });
    },
    draw(_, { source, sourcePadding, target, targetPadding, causal }, width) {
      const own = (t, s) => s < target - targetPadding, past = (t, s) => !causal || s <= t;
      const grids = [
        ["source padding", source, (t, s) => s < source - sourcePadding],
        ["target padding", target, own], ["causal", target, past],
        ["both", target, (t, s) => own(t, s) && past(t, s)],
      ].map(([name, columns, may]) => [name, range(target).map((t) => range(columns).map((s) => may(t, s)))]);
      const across = width < 560 ? 2 : 4, box = width / across, size = Math.min(28, (box - 48) / Math.max(source, target), 145 / target), tall = size * target + 66;
      const parts = grids.map(([name, grid], n) => {
        const x = (n % across) * box + 34, y = Math.floor(n / across) * tall + 26;
        const cells = grid.flatMap((row, t) => row.map((may, s) =>
          tag("rect", { x: x + s * size, y: y + t * size, width: size, height: size, class: "grid" }) +
          (may ? tag("rect", { x: x + s * size, y: y + t * size, width: size, height: size, fill: "var(--c0)", "fill-opacity": 0.3 }) +
            text(x + (s + 0.5) * size, y + (t + 0.5) * size, "✓", { "text-anchor": "middle" }) : "")));
        const sides = range(target).map((t) => text(x - 4, y + (t + 0.5) * size, t + 1, { "text-anchor": "end", class: "quiet" }))
          .concat(grid[0].map((_, s) => text(x + (s + 0.5) * size, y + target * size + 11, s + 1, { "text-anchor": "middle", class: "quiet" })));
        sides.push(text(x + (size * grid[0].length) / 2, y + target * size + 26, "key", { "text-anchor": "middle", class: "quiet" }),
          text(0, 0, "query", { "text-anchor": "middle", class: "quiet", transform: `translate(${x - 22} ${y + (target * size) / 2}) rotate(-90)` }));
        return text(x, y - 15, name, { class: "bold" }) + cells.join("") + sides.join("");
      });
      const count = Object.fromEntries(grids.map(([name, grid]) => [name, sum(grid.flat().map(Number))]));
      return {
        svg: parts.join(""), height: (4 / across) * tall,
        summary: `Each target position may read ${source - sourcePadding} of the source's ${source}. ` +
          `Of the target's own ${target} × ${target} pairs padding leaves ${count["target padding"]}` +
          (causal ? `, the causal mask ${count.causal}, both together ${count.both}.` : "; the causal mask is off."),
        digits: 0, head: ["mask", "may read keys", "how many"],
        rows: grids.flatMap(([name, grid]) => grid.map((row, t) =>
          [`${name}, query ${t + 1}`, row.flatMap((may, s) => may ? [s + 1] : []).join(" "), sum(row.map(Number))])),
      };
    },
  };
})(globalThis.TL);
