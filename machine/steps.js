// The walk: for each section of book/machine.md, in order, what the stage
// shows. `show`: the blocks in focus, by name; null is the whole
// machine. `trace`: the kind of line that the text speaks of.
(function (TL) {
  "use strict";

  const whole = { show: null, yaw: -0.3, pitch: 0.34 };
  const near = (show, more = {}) => ({ show, yaw: -0.28, pitch: 0.26, ...more });
  const weights = /\.(w|b|gain|bias)$|^E/;

  const STEPS = [
    whole, // 1 the machine
    { ...whole, yaw: -0.12, pitch: 0.16 }, // 2 the task
    near(/^E$/, { trace: "thread", cursor: ["E", 6, 0] }), // 3 one table
    near(/^E$|^encoder\.embedded$/, { trace: "thread", cursor: ["encoder.embedded", 0, 0] }), // 4 look-up
    near(/^encoder\.(embedded|positions|x)$/, { cursor: ["encoder.positions", 1, 0] }), // 5 positions
    near(/^encoder\.1\.self\.[qkv](\.[wb])?$/, { cursor: ["encoder.1.self.q", 1, 5] }), // 6 q, k, v
    near(/^encoder\.1\.self\.([qk]|scores\.\d)$/, { cursor: ["encoder.1.self.scores.1", 0, 1] }), // 7 scores
    near(/^encoder\.1\.self\.(scores|weights)\.\d$/, { cursor: ["encoder.1.self.weights.1", 0, 1] }), // 8 softmax
    near(/^encoder\.1\.self\.(weights\.\d|v|mixed)$/, { cursor: ["encoder.1.self.mixed", 0, 0] }), // 9 mix
    near(/^encoder\.1\.self\.(mixed|o\.[wb]|out)$/, { cursor: ["encoder.1.self.out", 0, 0] }), // 10 W^O
    near(/^encoder\.1\.self\.(out|sum|gain|bias|norm)$/, { trace: "residual", cursor: ["encoder.1.self.norm", 0, 0] }), // 11 add and norm
    near(/^encoder\.1\.ffn\./, { cursor: ["encoder.1.ffn.relu", 0, 0] }), // 12 feed-forward
    near(/^encoder\.2\./), // 13 again
    near(/^encoder\.2\.ffn\.norm$|^decoder\.2\.cross\.[kv]$/, { trace: "memory", cursor: ["encoder.2.ffn.norm", 0, 0] }), // 14 memory
    near(/^E$|^decoder\.(embedded|positions|x)$/, { trace: "thread", cursor: ["decoder.embedded", 0, 0] }), // 15 shifted right
    near(/^decoder\.1\.self\.(scores|weights)\.\d$/, { cursor: ["decoder.1.self.scores.1", 0, 1] }), // 16 mask
    near(/^decoder\.2\.cross\.([qkv]|weights\.\d|sum)$|^encoder\.2\.ffn\.norm$/, { cursor: ["decoder.2.cross.sum", 1, 0] }), // 17 cross
    near(/^decoder\.1\./), // 18 a decoder layer
    near(/^decoder\.2\.ffn\.norm$|^E\.T$|^logits$/, { cursor: ["logits", 0, "best"] }), // 19 logits
    near(/^logits$|^probabilities$/, { cursor: ["probabilities", 0, "best"] }), // 20 probabilities
    { ...whole, play: true, trace: "loop", cursor: ["probabilities", 0, "best"] }, // 21 one token at a time
    near(/^probabilities$|^logits$/, { beam: true }), // 22 beam
    near(/^probabilities$/, { overlay: "smoothing" }), // 23 loss
    { ...whole, show: weights }, // 24 rate
    near(/^encoder\.(x|1\.(self|ffn)\.out)$/, { overlay: "dropout" }), // 25 dropout
    { ...whole, show: weights }, // 26 count
    near(/^encoder\.2\.self\.weights\.\d$/), // 27 why attention
    whole, // 28 results
    near(/^decoder\.2\.cross\.weights\.\d$/, { cursor: ["decoder.2.cross.weights.1", 0, 0] }), // 29 reading
    { ...whole, yaw: 0, pitch: 0 }, // 30 on your own
  ];

  Object.assign(TL, { STEPS });
})((globalThis.TL = globalThis.TL || {}));
