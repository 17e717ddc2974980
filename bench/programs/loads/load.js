// 200,000 objects and 128 MiB of buffers. A fifth of each is read twice a second, beside short-lived objects.
// Argument: a divisor of these sizes.
'use strict';
const divisor = Number(process.argv[2] ?? 1);
const objects = [];
for (let i = 0; i < 200000 / divisor; i++) {
  objects.push({ id: i, name: `object ${i}`, tags: [i, i + 1, i + 2], text: 'x'.repeat(20) + i, next: null });
}
const blocks = [];
for (let i = 0; i < 128 / divisor; i++) blocks.push(Buffer.alloc(1 << 20, i));

const SLICES = 50;
let slice = 0;
let rounds = 0;
let sink = 0;
setInterval(() => {
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
  if (slice === 0 && ++rounds === 40) console.log('ready');
}, 10);
