// A pair of the position encoding as the hand of a clock.
(function (TL) {
  "use strict";

  const { tag, text, line, colour, written, shown, range, slider } = TL;
  const COLUMN = 66, ROW = 20; // of the numbers

  TL.rotation = {
    controls: ({ width }) => [
      slider("pair", "Pair i", 0, width / 2 - 1), slider("position", "Position p", 0, 100), slider("offset", "Offset k", 0, 100),
    ],
    draw({ width: d }, { pair, position, offset }, width) {
      const rate = 10000 ** ((-2 * pair) / d), angle = offset * rate, there = position + offset;
      const at = (p) => [Math.sin(p * rate), Math.cos(p * rate)], [sin, cos] = [Math.sin(angle), Math.cos(angle)];
      const [from, to] = [at(position), at(there)];
      const turned = [cos * from[0] + sin * from[1], -sin * from[0] + cos * from[1]];
      const blocks = [
        [`PE(${position})`, [from], written(0)], [`turn by ${offset}`, [[cos, sin], [-sin, cos]], ""],
        [`turn · PE(${position})`, [turned], written(1)], [`PE(${there})`, [to], written(1)],
      ];
      // The numbers stand beside the clock, or below it in two columns.
      const narrow = width < 480, R = narrow ? 78 : 130, cx = narrow ? width / 2 : width / 2 - 90, cy = R + 40;
      const place = narrow ? [[14, 2 * cy], [width / 2 + 14, 2 * cy], [14, 2 * cy + 84], [width / 2 + 14, 2 * cy + 84]]
        : [-118, -58, 22, 82].map((y) => [cx + R + 54, cy + y]);
      return {
        svg: clock(cx, cy, R, at, position, offset) + blocks.map((block, n) => numbers(...place[n], ...block)).join(""),
        height: narrow ? 2 * cy + 124 : 2 * cy,
        summary: `Pair ${pair} of width ${d} turns by ${shown(rate, 4)} radians a position, once around in ${shown((2 * Math.PI) / rate, 1)} positions. ` +
          `From ${position} to ${there} it turns by ${shown(angle, 4)}, as from any p to p + ${offset}.`,
        digits: 4, head: ["", "sine", "cosine"],
        rows: [["PE(p)", ...from], ["R(k), first row", cos, sin], ["R(k), second row", -sin, cos], ["R(k) PE(p)", ...turned], ["PE(p + k)", ...to]],
      };
    },
  };

  // The circle, two hands, and the turn from one to the other.
  function clock(cx, cy, R, at, position, offset) {
    const point = ([s, c], r = R) => [cx + r * s, cy - r * c];
    const hand = (p, n) => {
      const [x, y] = point(at(p)), [tx, ty] = point(at(p), R + 24);
      return line(cx, cy, x, y, { stroke: colour(n), "stroke-width": 3 }) + tag("circle", { cx: x, cy: y, r: 6, fill: colour(n) }) +
        text(tx, ty, p, { "text-anchor": "middle", class: "bold", style: written(n) });
    };
    const turn = range(121).map((i) => point(at(position + (offset * i) / 120), R * (0.4 + (0.2 * i) / 120)));
    const d = `M${turn.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`;
    return tag("circle", { cx, cy, r: R, class: "grid" }) + tag("path", { d, fill: "none", stroke: "var(--quiet)", "stroke-width": 2 }) +
      hand(position, 0) + hand(position + offset, 1);
  }

  // A vector or a matrix in brackets, with its name above.
  function numbers(x, y, name, rows, style) {
    const cells = rows.flatMap((values, i) => values.map((value, j) =>
      text(x + (j + 1) * COLUMN, y + 21 + ROW * i, shown(value, 3), { "text-anchor": "end", style })));
    const down = `v${ROW * rows.length}`, wide = 2 * COLUMN + 8;
    return text(x, y, name, { class: "quiet" }) + cells.join("") +
      tag("path", { d: `M${x + 8} ${y + 11}h-6${down}h6M${x + wide} ${y + 11}h6${down}h-6`, class: "grid" });
  }
})(globalThis.TL);
