'use strict';
// Figures as people read them, and the ticks of axes. No two ticks of an axis have the same label.
const trim = (value, digits) => String(Number(value.toFixed(digits)));
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
function size(n) {
  let i = 0;
  while (n >= 1023.5 && i < UNITS.length - 1) { n /= 1024; i++; }
  return trim(n, n < 99.95 ? 1 : 0) + ' ' + UNITS[i];
}
// A size that is shown as it is: in a smaller unit if it has more than one decimal in the usual one.
function exactSize(n) {
  let i = Math.min(Math.floor(Math.log2(Math.max(n, 1)) / 10), UNITS.length - 1);
  while (i > 0 && !Number.isInteger(n / 1024 ** i * 10)) i--;
  return n / 1024 ** i + ' ' + UNITS[i];
}
function seconds(s, digits) {
  if (s < 1 && s > 0 && digits === undefined) return trim(s * 1e3, 1) + ' ms';
  if (s < 120) return (digits === undefined ? trim(s, s < 10 ? 2 : 1) : s.toFixed(digits)) + ' s';
  const places = digits ?? 0, parts = Math.round(s * 10 ** places), whole = Math.floor(parts / 10 ** places);
  const two = v => String(v).padStart(2, '0');
  const part = places ? '.' + String(parts % 10 ** places).padStart(places, '0') : '';
  const h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60;
  return h ? `${h}:${two(m)}:${two(whole % 60)}${part} h` : `${m}:${two(whole % 60)}${part} min`;
}
const hex = n => '0x' + n.toString(16);
const hertz = hz => Number(hz.toPrecision(2)) + ' Hz';
const percent = share => trim(share * 100, share < 0.0995 ? 1 : 0) + ' %';
const bytesOf = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));

function evenStep(rough, factors) {
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  return (factors.find(f => f * magnitude >= rough * 0.999) ?? 10) * magnitude;
}
// Times from t0 to t1 with their labels, at most one in `every` pixels of a width.
function timeTicks(t0, t1, width, every) {
  const usual = [30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  const rough = Math.max((t1 - t0) / Math.max(width / every, 1), 1e-6);
  const step = (rough > 20 && usual.find(s => s >= rough)) || evenStep(rough, [1, 2, 5]);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const ticks = [];
  for (let i = Math.ceil(t0 / step - 1e-6); i * step <= t1 + step * 1e-6; i++) {
    ticks.push([i * step, seconds(i * step, digits)]);
  }
  return ticks;
}
// The labels of marks that have room, each with its place: as `labels` of the pictures has them. A mark is its place
// and the width of its label with the gap after it.
function markLabels(marks, right, least) {
  const shown = [];
  let free = -Infinity;
  marks.forEach(([at, natural], nth) => {
    if (at < free) return;
    const wide = Math.min(natural, right), near = Math.min(wide, least);
    const next = marks.slice(nth + 1).find(([other]) => other - at >= least)?.[0] ?? right;
    let start = at, room = Math.min(wide, Math.min(next, right) - at);
    if (room < near) [start, room] = [right - wide, wide];
    if (start < free) return;
    shown.push({ nth, start, room });
    free = start + room;
  });
  return shown;
}
// The text in at most this width.
function fitted(text, room, widthOf) {
  if (widthOf(text) <= room) return text;
  while (text.length > 1 && widthOf(text + '…') > room) text = text.slice(0, -1);
  return text + '…';
}
// Sizes from one to another with their labels, at most `most` of them.
function sizeTicks(from, to, most, least) {
  const step = 2 ** Math.ceil(Math.log2(Math.max((to - from) / Math.max(most, 1), least))), ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push([at, exactSize(at)]);
  return ticks;
}
