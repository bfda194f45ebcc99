// The tree of a beam search.
(function (TL) {
  "use strict";

  const { tag, text, textWidth, fitted, shown, whole, need, choice, slider } = TL;
  const LEFT = 44; // where the tree begins

  // What has ended when a search for the best output stops, the best first,
  // and after how many steps. Which outputs grow does not depend on alpha.
  function replay(tree, size, alpha, room, end) {
    const penalty = (length) => ((5 + length) / 6) ** alpha, ended = [];
    let growing = [[]];
    for (const [n, step] of tree.entries()) {
      const longer = [], probs = [];
      for (const [parent, token, logProb] of step) {
        if (token === end) ended.push({ tokens: growing[parent], logProb, length: n + 1, penalty: penalty(n + 1), score: logProb / penalty(n + 1) });
        else if (longer.length < size) {
          longer.push([...growing[parent], token]);
          probs.push(logProb);
        }
      }
      growing = longer;
      ended.sort((a, b) => b.score - a.score);
      if (ended.length && probs[0] / penalty(room) <= ended[0].score) return { ended, steps: n + 1 };
    }
    throw new Error("The tree ends before the search does.");
  }

  TL.beam = {
    check({ trees, words }) {
      for (const [, token, p] of trees.flat(2)) need(token in words && p <= 0, "A step of the search is not what it should be.");
    },
    controls: ({ sizes }) => [choice("size", "Beam", sizes), slider("alpha", "alpha", 0, 2, 0.1, (a) => shown(a, 1))],
    draw({ trees, sizes, words, greedy, end, room }, { size: at, alpha }, width) {
      const size = sizes[at], { ended, steps } = replay(trees[at], size, alpha, room, end), tree = trees[at].slice(0, steps);
      const said = (tokens) => tokens.map((i) => words[i]).join(" ") || "(no word)", best = ended[0];
      const path = [...best.tokens, end];
      const most = Math.max(...tree.map((step) => step.length)), row = Math.min(30, 400 / most);
      const step = Math.max(110, (width - LEFT) / steps), wide = step - 18;
      const parts = [];
      let ends = [{ x: LEFT - 6, y: row / 2, tokens: [] }];
      tree.forEach((candidates, n) => {
        const x = LEFT + n * step + 16, growing = [];
        candidates.forEach(([parent, token, p], i) => {
          const from = ends[parent], tokens = [...from.tokens, token], y = (i + 0.5) * row, middle = (from.x + x) / 2;
          const grows = token !== end && growing.length < size, thick = tokens.every((one, k) => one === path[k]);
          const stroke = thick ? "var(--c0)" : grows || token === end ? "var(--ink)" : "var(--line)";
          const quiet = grows || token === end ? "" : "quiet";
          parts.push(tag("path", { d: `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${y} ${x} ${y}`, fill: "none", stroke, "stroke-width": thick ? 3 : 1 }),
            tag("rect", { x, y: y - row * 0.42, width: wide, height: row * 0.84, rx: token === end ? 0 : 8, fill: "none", stroke,
              "stroke-width": thick ? 2 : 1, "stroke-dasharray": quiet ? "3 3" : "none" }),
            text(x + 5, y, fitted(words[token], wide - 12 - textWidth(shown(p, 1), 11), 11), { class: quiet, style: "font-size:11px" }),
            text(x + wide - 4, y, shown(p, 1), { class: quiet, "text-anchor": "end", style: "font-size:11px" }));
          if (grows) growing.push({ x: x + wide, y, tokens });
        });
        ends = growing;
      });
      return {
        svg: text(2, row / 2, "begin", { style: "font-size:12px" }) + parts.join(""), height: most * row + 4, width: LEFT + steps * step,
        summary: `With a beam of ${size} and alpha ${shown(alpha, 1)} the search stops after ${steps} steps. ` +
          `Best: ${said(best.tokens)}, log p ${shown(best.logProb, 3)}, score ${shown(best.score, 3)}. ` +
          `Greedy search finds ${said(greedy) === said(best.tokens) ? "the same" : "another output"}.`,
        digits: 3, head: ["output", "log p", "length", "penalty", "score"],
        rows: ended.map((one) => [said(one.tokens), one.logProb, whole(one.length), one.penalty, one.score]),
      };
    },
  };
})(globalThis.TL);
