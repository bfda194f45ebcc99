// The only script on every page: where a page holds the machine's picture,
// load the machine and put it in the picture's place. And print on white.
(function () {
  "use strict";

  const here = document.currentScript.src.replace(/_static\/[^/]*$/, "machine/");

  function load(name) {
    return new Promise((done, failed) => {
      const script = document.createElement("script");
      Object.assign(script, { src: here + name, onload: done, onerror: failed });
      document.head.append(script);
    });
  }

  // Where the window is not wide, close the list of chapters; its button opens it.
  function makeRoom() {
    if (!matchMedia("(min-width: 1000px) and (max-width: 1599px)").matches) return;
    document.getElementById("pst-primary-sidebar")?.classList.add("pst-sidebar-hidden");
  }

  const { dataset } = document.documentElement;
  let theme;
  addEventListener("beforeprint", () => {
    theme = dataset.theme;
    dataset.theme = "light";
  });
  addEventListener("afterprint", () => {
    if (theme) dataset.theme = theme;
    else delete dataset.theme;
  });

  document.addEventListener("DOMContentLoaded", async () => {
    const figure = document.getElementById("machine-stage")?.closest("figure");
    if (!figure) return;
    const root = document.createElement("div");
    root.dataset.viz = "machine";
    try {
      await load("machine.js");
      await load("data.js");
      figure.before(root);
      TL.start(root);
      figure.hidden = true;
      makeRoom();
    } catch (error) {
      root.dataset.state = "failed"; // the picture stays
      throw error;
    }
  });
})();
