// The miniature's vocabulary: English number words in, German pieces out.
// What book/05_1_data.md writes in Python, for the page.
(function (TL) {
  "use strict";

  const LIMIT = 1000000;
  const UNITS = ("zero one two three four five six seven eight nine ten eleven " +
    "twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen").split(" ");
  const TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split(" ");

  // A number below 1,000 in English words.
  function threeDigits(n) {
    const words = [];
    if (n >= 100) words.push(UNITS[Math.floor(n / 100)], "hundred");
    const rest = n % 100;
    if (rest >= 20) {
      words.push(TENS[Math.floor(rest / 10) - 2]);
      if (rest % 10) words.push(UNITS[rest % 10]);
    } else if (rest || !n) words.push(UNITS[rest]);
    return words;
  }

  // A number from 0 to 999,999 in English words.
  function english(n) {
    const thousands = Math.floor(n / 1000), rest = n % 1000;
    const words = thousands ? [...threeDigits(thousands), "thousand"] : [];
    return rest || !thousands ? [...words, ...threeDigits(rest)] : words;
  }

  // Number words added up from left to right, whether they fit or not.
  function value(words) {
    let total = 0, group = 0;
    for (const word of words) {
      if (word === "thousand") [total, group] = [(total + (group || 1)) * 1000, 0];
      else if (word === "hundred") group = (group || 1) * 100;
      else if (UNITS.includes(word)) group += UNITS.indexOf(word);
      else group += 20 + 10 * TENS.indexOf(word);
    }
    return total + group;
  }

  // The number that a reader typed, in digits or in words; an Error says what
  // is wrong with it.
  function readNumber(text) {
    const trimmed = text.trim(), shown = trimmed.length > 30 ? `${trimmed.slice(0, 30)}…` : trimmed;
    if (!trimmed) throw new Error("Type a number from 0 to 999,999.");
    const digits = trimmed.replace(/^[−–]/, "-").replace(/(\d)[\s,.'_](?=\d{3}(?!\d))/g, "$1"); // 21,042 or 21 042
    if (/^[+-]?\d+$/.test(digits)) {
      const n = Number(digits);
      if (n >= 0 && n < LIMIT) return Math.abs(n); // -0
      throw new Error(`${shown} is out of range: this model reads 0 to 999,999.`);
    }
    if (/\d/.test(digits)) throw new Error(`“${shown}” is no whole number: type one from 0 to 999,999.`);
    const words = text.toLowerCase().split(/[\s,-]+/).filter((w) => w && w !== "and");
    const known = [...UNITS, ...TENS, "hundred", "thousand"];
    for (const word of words) {
      if (!known.includes(word)) {
        throw new Error(`“${word.slice(0, 30)}” is no number word: type a number in digits or in English words.`);
      }
    }
    const n = value(words);
    if (n < LIMIT && english(n).join(" ") === words.join(" ")) return n;
    const hint = n < LIMIT ? ` Did you mean “${english(n).join(" ")}”?` : "";
    throw new Error(`“${shown}” names no number.${hint}`);
  }

  // Whether a number is kept for testing: the model never trained on it.
  function isHeldOut(n) {
    return n >= 1000 && (n * 2654435761) % 2 ** 32 < 214748364;
  }

  // A held-out number; `random` gives numbers from 0 to 1, as Math.random.
  function drawHeldOut(random = Math.random) {
    for (;;) {
      const n = Math.floor(random() * LIMIT);
      if (isHeldOut(n)) return n;
    }
  }

  // Source ids of a number, with the end token behind them.
  function sourceIds(n, tokens, config) {
    return [...english(n).map((word) => tokens.indexOf(word)), config.eos_id];
  }

  Object.assign(TL, { english, readNumber, isHeldOut, drawHeldOut, sourceIds });
})((globalThis.TL = globalThis.TL || {}));
