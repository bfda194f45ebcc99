// Beam search as a tree: a column for each step, a box for each of the
// continuations that were looked at.
(function (TL) {
  "use strict";

  const STEP = 144, ROW = 30, WIDE = 122, HIGH = 24;

  // The tree of TL.beam as the text of an SVG; tokens are the vocabulary's.
  function drawTree(tree, tokens) {
    const tall = Math.max(...tree.map((step) => step.length)) * ROW + 8;
    const wide = tree.length * STEP + 60, parts = [`<text x="4" y="${tall / 2 + 4}">&lt;bos&gt;</text>`];
    let parents = [{ x: 44, y: tall / 2 }];
    tree.forEach((step, n) => {
      const x = 60 + n * STEP, next = [];
      step.forEach((one, row) => {
        const y = row * ROW + 4 + HIGH / 2, from = parents[one.parent], middle = (from.x + x) / 2;
        const fate = one.fate || "dropped", mark = { ended: " ■", kept: "", dropped: " ×" }[fate];
        const word = tokens[one.token].replace("<", "&lt;") + mark, p = one.logProb.toFixed(2).replace("-", "−");
        parts.push(
          `<path class="${fate}" d="M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${y} ${x} ${y}"/>`,
          `<rect class="${fate}" x="${x}" y="${y - HIGH / 2}" width="${WIDE}" height="${HIGH}" rx="5"/>`,
          `<text class="${fate}" x="${x + 6}" y="${y + 4}">${word}</text>`,
          `<text class="${fate}" x="${x + WIDE - 5}" y="${y + 4}" text-anchor="end">${p}</text>`);
        if (fate === "kept") next.push({ x: x + WIDE, y });
      });
      parents = next;
    });
    return `<svg class="beam-tree" aria-hidden="true" width="${wide}" height="${tall}" viewBox="0 0 ${wide} ${tall}">${parts.join("")}</svg>`;
  }

  Object.assign(TL, { drawTree });
})((globalThis.TL = globalThis.TL || {}));
