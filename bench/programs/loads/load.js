// 200,000 objects and 128 MiB of buffers. A fifth of each is read twice a second, beside short-lived objects.
// Arguments: a divisor of these sizes; a file. If there is one, half of each page of the buffers is random, and the
// file gets a line for each slice of a hundredth of a second: when it began, in seconds since 1970, and how many
// microseconds it took.
'use strict';
const fs = require('fs');
const crypto = require('crypto');
const divisor = Number(process.argv[2] ?? 1);
const log = process.argv[3] ? fs.openSync(process.argv[3], 'w') : null;
let lines = '';
const objects = [];
for (let i = 0; i < 200000 / divisor; i++) {
  objects.push({ id: i, name: `object ${i}`, tags: [i, i + 1, i + 2], text: 'x'.repeat(20) + i, next: null });
}
const blocks = [];
for (let i = 0; i < 128 / divisor; i++) blocks.push(Buffer.alloc(1 << 20, i));
if (log !== null) {
  for (const block of blocks) for (let at = 0; at < block.length; at += 4096) crypto.randomFillSync(block, at, 2048);
}

const SLICES = 50;
let slice = 0;
let rounds = 0;
let sink = 0;
setInterval(() => {
  const began = process.hrtime.bigint();
  for (let i = slice; i < objects.length / 5; i += SLICES) {
    sink += objects[i].id + objects[i].tags[1] + objects[i].name.length;
  }
  for (let block = 0; block < blocks.length; block += 5) {
    const size = blocks[block].length / SLICES;
    for (let at = Math.floor(slice * size); at < (slice + 1) * size; at += 1024) sink += blocks[block][at];
  }
  const young = [];
  for (let i = 0; i < 500; i++) young.push({ i, text: `${i}${sink}` });
  sink += young.length;
  slice = (slice + 1) % SLICES;
  if (log !== null) {
    const took = Number(process.hrtime.bigint() - began) / 1e3;
    lines += `${(Date.now() / 1e3 - took / 1e6).toFixed(6)} ${took.toFixed(1)}\n`;
    if (slice === 0) {
      fs.writeSync(log, lines);
      lines = '';
    }
  }
  if (slice === 0 && ++rounds === (log === null ? 40 : 4)) console.log('ready');
}, 10);
