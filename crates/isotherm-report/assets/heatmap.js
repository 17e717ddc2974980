// The heatmap to zoom into and read off, in #map. Drawn is `data`: targets, each with cells that are made of one or
// several parts of the time, and marks. `times` are the labels of times. `painted` is called after each painting, and
// `pointed` when another time or address is pointed at.
const CODES = { HIGHEST: 250, UNKNOWN: 251, ABSENT: 252, SWAP: 253, DARK: 254, NOTHING: 255 };
const PAGE = 4096;
const SINCE_START = { ticks: timeTicks, text: seconds };

// The place of a frequency on the scale of colours.
const heatOf = (scale, hz) => Math.min(Math.log1p(hz / scale[0]) / Math.log1p(scale[1] / scale[0]), 1);
// A frequency or an age of a byte, on a logarithmic scale.
const fromCode = code => (2 ** (code / 8) - 1) / 1e3;

function heatmapView({ times, painted, pointed: told }) {
  const $ = id => document.getElementById(id);
  const { HIGHEST, UNKNOWN, ABSENT, SWAP, DARK, NOTHING } = CODES;
  let data, palette;
  // Without samples there are no access rates, and what was touched is in their place.
  const isSampled = () => data.measure === 'frequency';

  // ---- the target that is shown
  // What the colours show: the measure of the page, or the share that surveys found touched.
  let measure = 'cells';
  let target, view, pinned = null, pointed = null;

  // The parts of the time of a target: a target is one itself, and what came since may be another.
  const parts = t => t.later ? [t, t.later] : [t];

  // Paints columns of a part into its image.
  function fill(part, rows, shown, from, to) {
    const context = part.images[shown].getContext('2d'), cells = part[shown];
    const pixels = context.createImageData(to - from, Math.max(rows, 1));
    for (let row = 0; row < rows; row++) {
      for (let column = from; column < to; column++) {
        const code = cells[row * part.columns + column];
        if (code === NOTHING) continue;
        const at = ((rows - 1 - row) * (to - from) + column - from) * 4;
        for (let i = 0; i < 3; i++) pixels.data[at + i] = palette[code * 3 + i];
        pixels.data[at + 3] = 255;
      }
    }
    context.putImageData(pixels, from, 0);
  }
  // The cells of a part of a target as an image, made when it is first needed.
  function image(part, rows) {
    part.images ??= {};
    if (part.images[measure]) return part.images[measure];
    if (typeof part.cells === 'string') {
      part.cells = bytesOf(part.cells);
      if (part.touched) part.touched = bytesOf(part.touched);
    }
    const canvas = document.createElement('canvas');
    canvas.width = part.columns;
    canvas.height = Math.max(rows, 1);
    part.images[measure] = canvas;
    fill(part, rows, measure, 0, part.columns);
    return canvas;
  }
  // Draws the cells of a target. `x` is the place of a time.
  function drawCells(context, t, x, top, height) {
    context.imageSmoothingEnabled = false;
    for (const part of parts(t)) {
      const [left, right] = [x(part.start), x(part.end)];
      context.drawImage(image(part, t.rows), left, top, Math.max(right - left, 1), height);
    }
  }
  // Some columns of a part have changed.
  function changed(part, rows, from, to) {
    for (const shown of Object.keys(part.images ?? {})) fill(part, rows, shown, from, to);
    draw();
  }
  // Shows a target, and of the time what was shown before.
  function load(index) {
    const t = ready(data.targets[index]);
    target = t;
    pinned = pointed = null;
    view = { t0: view?.t0 ?? data.start, t1: view?.t1 ?? data.end, r0: 0, r1: target.rows };
    $('title').textContent = t.title;
    told();
    draw();
  }
  // A target whose cells are decoded.
  function ready(t) {
    if (!t.ready) {
      t.ready = true;
      image(t, t.rows);
      t.ages = bytesOf(t.ages);
      if (t.hz) t.hz = bytesOf(t.hz);
      if (t.present) [t.present, t.swapped] = [bytesOf(t.present), bytesOf(t.swapped)];
      t.regions = bytesOf(t.regions);
      for (const area of t.areas) {
        let below = 0;
        area.below = area.pieces.map(piece => { const here = below; below += piece[1]; return here; });
      }
    }
    return t;
  }
  // Shows other data: of the target that was shown, if that is there, and all of its time.
  function replace(next) {
    const before = target, held = pinned, zoomed = view && !isWhole() ? view : null;
    [data, palette] = [next, bytesOf(next.palette)];
    PAD.top = data.marks.length ? 22 : 6;
    if (!data.targets.some(t => t[measure] || measure === 'cells')) measure = 'cells';
    // The part that was zoomed into stays if it is still there.
    view = zoomed && zoomed.t1 > data.start && zoomed.t0 < data.end ? { t0: zoomed.t0, t1: zoomed.t1 } : null;
    const same = before ? data.targets.findIndex(t => t.title === before.title && t.pid === before.pid) : -1;
    load(Math.max(same, 0));
    if (same >= 0 && held !== null && held >= data.start) pinned = held;
    if (same >= 0 && zoomed && target.rows === before.rows) [view.r0, view.r1] = [zoomed.r0, zoomed.r1];
  }
  // The time goes on: what was shown as a whole is so.
  function advance(start, end) {
    const whole = isWholeTime();
    [data.start, data.end] = [start, end];
    if (whole) [view.t0, view.t1] = [start, end];
    draw();
  }
  const isWholeTime = () => view.t0 <= data.start && view.t1 >= data.end;
  const isWhole = () => isWholeTime() && view.r0 <= 0 && view.r1 >= target.rows;

  function reset() {
    view = { t0: data.start, t1: data.end, r0: 0, r1: target.rows };
    draw();
  }

  // ---- the canvas
  const map = $('map');
  const PAD = { left: 118, right: 150, top: 6, bottom: 26 };
  let width = 0, height = 0;
  // On a narrow screen there is no room for names.
  const hasNames = () => width > 600;
  const plot = () => ({
    x: PAD.left, y: PAD.top,
    w: Math.max(width - PAD.left - (hasNames() ? PAD.right : 12), 20), h: Math.max(height - PAD.top - PAD.bottom, 20),
  });
  const xOf = (t, p) => p.x + (t - view.t0) / (view.t1 - view.t0) * p.w;
  const yOf = (r, p) => p.y + p.h - (r - view.r0) / (view.r1 - view.r0) * p.h;
  const tAt = (x, p) => view.t0 + (x - p.x) / p.w * (view.t1 - view.t0);
  const rAt = (y, p) => view.r0 + (p.y + p.h - y) / p.h * (view.r1 - view.r0);

  // Mapped bytes of an area below a row, which may lie between two edges; and the other way round.
  function offsetAt(area, row) {
    const at = Math.min(Math.max(row - area.first, 0), area.rows), i = Math.min(Math.floor(at), area.rows - 1);
    return area.edges[i] + (at - i) * (area.edges[i + 1] - area.edges[i]);
  }
  function rowAt(area, offset) {
    let i = 0;
    while (i < area.rows - 1 && area.edges[i + 1] <= offset) i++;
    return area.first + i + (offset - area.edges[i]) / Math.max(area.edges[i + 1] - area.edges[i], 1);
  }
  function pieceAt(area, offset) {
    let low = 0, high = area.pieces.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (area.below[middle] <= offset) low = middle + 1; else high = middle;
    }
    const i = Math.max(low - 1, 0);
    const piece = area.pieces[i];
    return piece && { address: piece[0] + offset - area.below[i], name: data.names[piece[2]] };
  }
  const baseName = name => name.startsWith('/') ? name.slice(name.lastIndexOf('/') + 1) : name;

  let waiting = false;
  function draw() {
    if (waiting || !target) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; paint(); });
  }

  function paint() {
    const ratio = window.devicePixelRatio || 1;
    width = map.clientWidth;
    height = map.clientHeight;
    if (map.width !== Math.round(width * ratio) || map.height !== Math.round(height * ratio)) {
      map.width = Math.round(width * ratio);
      map.height = Math.round(height * ratio);
    }
    const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(name).trim();
    const c = map.getContext('2d'), p = plot();
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    c.fillStyle = colour('--soft');
    c.fillRect(p.x, p.y, p.w, p.h);
    c.save();
    c.beginPath();
    c.rect(p.x, p.y, p.w, p.h);
    c.clip();
    const top = yOf(target.rows, p);
    drawCells(c, target, t => xOf(t, p), top, yOf(0, p) - top);
    c.fillStyle = colour('--back');
    for (const area of target.areas) if (area.first > 0) c.fillRect(p.x, yOf(area.first, p) - 2, p.w, 4);
    const mark = pinned ?? pointed?.t;
    if (mark !== undefined && mark !== null) {
      c.fillStyle = pinned === null ? 'rgb(255 255 255 / .55)' : '#fff';
      c.fillRect(xOf(mark, p) - .5, p.y, 1, p.h);
    }
    for (const [t] of data.marks) {
      const x = xOf(t, p);
      c.fillStyle = 'rgb(0 0 0 / .5)';
      c.fillRect(x - 1.5, p.y, 3, p.h);
      c.fillStyle = '#fff';
      c.fillRect(x - .5, p.y, 1, p.h);
    }
    c.restore();

    c.font = '12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
    c.fillStyle = colour('--quiet');
    c.strokeStyle = colour('--quiet');
    const widthOf = text => c.measureText(text).width;
    const marks = data.marks.filter(([t]) => t >= view.t0 && t <= view.t1);
    const places = marks.map(([t, text]) => [xOf(t, p), Math.min(widthOf(text) + 10, 240)]);
    c.textAlign = 'left';
    for (const { nth, start, room } of markLabels(places, width - 8, 48)) {
      c.fillText(fitted(marks[nth][1], room - 8, widthOf), start, p.y - 5);
    }
    c.textAlign = 'center';
    for (const [t, label] of times.ticks(view.t0, view.t1, p.w, 90)) {
      const x = xOf(t, p);
      c.fillRect(x, p.y + p.h, 1, 4);
      c.fillText(label, Math.min(x, width - 24), p.y + p.h + 18);
    }
    const taken = [];
    const free = (list, y, gap) => list.every(other => Math.abs(other - y) >= gap) && list.push(y);
    c.textAlign = 'right';
    for (const area of target.areas) {
      const low = Math.max(area.first, view.r0), high = Math.min(area.first + area.rows, view.r1);
      if (low >= high) continue;
      const from = offsetAt(area, low), to = offsetAt(area, high), y = yOf(low, p), tall = y - yOf(high, p);
      const start = pieceAt(area, Math.ceil(from));
      if (start && free(taken, y, 14)) c.fillText(hex(Math.floor(start.address / PAGE) * PAGE), p.x - 8, y - 1);
      for (const [offset, label] of sizeTicks(from, to, tall / 44, PAGE)) {
        const at = yOf(rowAt(area, offset), p);
        if (offset > 0 && at > p.y + 4 && free(taken, at, 15)) {
          c.fillRect(p.x - 4, at, 4, 1);
          c.fillText('+' + label, p.x - 8, at + 4);
        }
      }
    }
    // Names at the right: of runs too close together, the tallest.
    const runs = [];
    for (const area of target.areas) {
      let below = 0;
      for (const [, bytes, name] of area.pieces) {
        const low = rowAt(area, below), high = rowAt(area, below + bytes);
        below += bytes;
        const last = runs[runs.length - 1];
        if (last && last.name === name && last.area === area) last.high = high;
        else runs.push({ area, name, low, high });
      }
    }
    const seen = runs
      .map(run => ({ ...run, y0: yOf(Math.min(run.high, view.r1), p), y1: yOf(Math.max(run.low, view.r0), p) }))
      .filter(run => run.y1 - run.y0 > 4 && run.y1 > p.y && run.y0 < p.y + p.h)
      .sort((a, b) => (b.y1 - b.y0) - (a.y1 - a.y0));
    const named = [];
    c.textAlign = 'left';
    for (const run of hasNames() ? seen.slice(0, 200) : []) {
      const middle = (run.y0 + run.y1) / 2;
      c.strokeRect(p.x + p.w + 4.5, run.y0 + 1.5, 4, Math.max(run.y1 - run.y0 - 3, 1));
      c.clearRect(p.x + p.w + 3, run.y0 + 2, 4, Math.max(run.y1 - run.y0 - 4, 0));
      if (!free(named, middle, 14)) continue;
      c.fillText(fitted(baseName(data.names[run.name]), PAD.right - 18, widthOf), p.x + p.w + 14, middle + 4);
    }
    map.dataset.view = [view.t0, view.t1, view.r0, view.r1].join(' ');
    const whole = isWhole();
    $('view').textContent =
      `${times.text(view.t0)} to ${times.text(view.t1)}` + (whole ? `, ${target.size}` : ', zoomed in');
    $('reset').disabled = whole;
    painted(view, target, p.w, isWholeTime());
  }

  // ---- zooming and moving
  function show(t0, t1, r0, r1) {
    const clamp = (low, high, min, max, least) => {
      const span = Math.min(Math.max(high - low, least), max - min);
      const start = Math.min(Math.max(low + (high - low - span) / 2, min), max - span);
      return [start, start + span];
    };
    [view.t0, view.t1] = clamp(t0, t1, data.start, data.end, (target.end - target.start) / target.columns * 4);
    [view.r0, view.r1] = clamp(r0, r1, 0, target.rows, Math.min(4, target.rows));
    draw();
  }
  function zoom(factor, x, y, time, rows) {
    const p = plot(), t = tAt(x, p), r = rAt(y, p), ft = time ? factor : 1, fr = rows ? factor : 1;
    show(t - (t - view.t0) * ft, t + (view.t1 - t) * ft, r - (r - view.r0) * fr, r + (view.r1 - r) * fr);
  }
  const place = event => {
    const box = map.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  map.addEventListener('wheel', event => {
    event.preventDefault();
    const amount = event.deltaY || event.deltaX;
    zoom(Math.exp(Math.max(-1, Math.min(1, amount / 300))), ...place(event), !event.altKey, !event.shiftKey);
    point(...place(event));
  }, { passive: false });

  let drag = null;
  map.addEventListener('pointerdown', event => {
    if (event.button > 1) return;
    const [x, y] = place(event);
    drag = { x, y, move: event.shiftKey || event.button === 1, from: { ...view }, far: false };
    map.setPointerCapture(event.pointerId);
    event.preventDefault();
    map.focus({ preventScroll: true });
  });
  map.addEventListener('pointermove', event => {
    const [x, y] = place(event), p = plot();
    if (drag) {
      drag.far ||= Math.hypot(x - drag.x, y - drag.y) > 4;
      if (drag.move) {
        const { t0, t1, r0, r1 } = drag.from, dt = (drag.x - x) / p.w * (t1 - t0), dr = (y - drag.y) / p.h * (r1 - r0);
        show(t0 + dt, t1 + dt, r0 + dr, r1 + dr);
      } else if (drag.far) {
        const box = $('box');
        box.hidden = false;
        const clampX = v => Math.min(Math.max(v, p.x), p.x + p.w), clampY = v => Math.min(Math.max(v, p.y), p.y + p.h);
        const [x0, x1] = [clampX(drag.x), clampX(x)].sort((a, b) => a - b);
        const [y0, y1] = [clampY(drag.y), clampY(y)].sort((a, b) => a - b);
        Object.assign(box.style, { left: x0 + 'px', top: y0 + 'px', width: x1 - x0 + 'px', height: y1 - y0 + 'px' });
        drag.box = [x0, x1, y0, y1];
      }
    }
    point(x, y);
  });
  function drop(event) {
    if (!drag) return;
    const done = drag, p = plot();
    drag = null;
    $('box').hidden = true;
    if (event.type === 'pointercancel') return;
    if (!done.far) {
      const t = tAt(done.x, p);
      if (done.x >= p.x && done.x <= p.x + p.w) pinned = pinned === null ? t : null;
      point(done.x, done.y);
      draw();
    } else if (done.box) {
      const [x0, x1, y0, y1] = done.box;
      if (x1 - x0 > 3 && y1 - y0 > 3) show(tAt(x0, p), tAt(x1, p), rAt(y1, p), rAt(y0, p));
    }
  }
  map.addEventListener('pointerup', drop);
  map.addEventListener('pointercancel', drop);
  map.addEventListener('dblclick', () => { pinned = null; reset(); });
  map.addEventListener('pointerleave', () => { if (!drag) { pointed = null; draw(); } });
  map.addEventListener('keydown', event => {
    const p = plot(), dt = (view.t1 - view.t0) / 10, dr = (view.r1 - view.r0) / 10, { t0, t1, r0, r1 } = view;
    const centre = [p.x + p.w / 2, p.y + p.h / 2, true, true];
    const act = {
      ArrowLeft: () => show(t0 - dt, t1 - dt, r0, r1), ArrowRight: () => show(t0 + dt, t1 + dt, r0, r1),
      ArrowUp: () => show(t0, t1, r0 + dr, r1 + dr), ArrowDown: () => show(t0, t1, r0 - dr, r1 - dr),
      '+': () => zoom(0.8, ...centre), '=': () => zoom(0.8, ...centre), '-': () => zoom(1.25, ...centre),
      '0': reset, Escape: reset,
    }[event.key];
    if (act && !event.ctrlKey && !event.metaKey) { act(); event.preventDefault(); }
  });

  // ---- reading off
  // Where the memory of a cell is: in memory, in swap, or nowhere.
  function placed(part, cell, area, row) {
    if (!part.present || part.present[cell] === NOTHING) return '';
    const i = row - area.first, bytes = area.edges[i + 1] - area.edges[i];
    const share = code => code === NOTHING ? 0 : code / HIGHEST;
    const [present, swapped] = [share(part.present[cell]), share(part.swapped[cell])];
    const shares = [[present, 'in memory'], [swapped, 'in swap'], [1 - present - swapped, 'absent']];
    const some = shares.filter(([part, what]) => part > 0.5 / HIGHEST && !(what === 'absent' && target.physical));
    return some.map(([part, what]) => `${size(part * bytes)} ${what}`).join(', ') + ` of ${size(bytes)}`;
  }
  // How often a page is accessed, or which share of the memory was touched.
  function value(part, cell, code) {
    if (!part.hz) return `${data.measure} ${percent(code / HIGHEST)}`;
    const hz = fromCode(part.hz[cell]);
    return hertz(hz < 0.0005 ? 0 : hz);
  }
  function point(x, y) {
    const p = plot(), t = tAt(x, p), r = rAt(y, p);
    if (x < p.x || x > p.x + p.w || y < p.y || y > p.y + p.h || r < 0 || r >= target.rows) {
      pointed = null;
      draw();
      return;
    }
    const row = Math.floor(r);
    const lived = parts(target).find(part => t >= part.start && t <= (part.filled ?? part.end)), part = lived ?? target;
    const each = (part.end - part.start) / part.columns;
    const column = Math.min(Math.max(Math.floor((t - part.start) / each), 0), part.columns - 1);
    const area = target.areas.find(area => row < area.first + area.rows);
    const piece = area && pieceAt(area, Math.floor(offsetAt(area, r)));
    const cell = row * part.columns + column, code = lived ? part.cells[cell] : NOTHING;
    const age = fromCode(part.ages[cell]);
    const what = code === NOTHING ? 'nothing mapped or recorded'
      : code === DARK ? 'could not be observed' : code === UNKNOWN ? 'not known yet' : code === SWAP ? 'mostly in swap'
      : code === ABSENT ? 'nothing in memory'
      : `${value(part, cell, code)}, ${isSampled() ? 'for' : 'idle for'} about ` +
        (age < 0.0005 ? '0 s' : seconds(Number(age.toPrecision(2))));
    const share = lived && part.touched ? part.touched[cell] : NOTHING;
    const touched = share <= HIGHEST ? `touched share ${percent(share / HIGHEST)} in a survey interval`
      : share === DARK && code !== DARK ? 'touched share could not be observed'
      : share === UNKNOWN && code !== UNKNOWN ? 'touched share not known yet' : '';
    const digits = Math.max(0, Math.min(4, Math.ceil(-Math.log10(each || 1)) + 1));
    const [address, name] = piece ? [hex(Math.floor(piece.address)), piece.name] : ['', ''];
    const shown = [times.text(t, digits), address, name, what, touched];
    shown.push(area && lived ? placed(part, cell, area, row) : '');
    const mark = data.marks.find(([at]) => Math.abs(xOf(at, p) - x) <= 4);
    if (mark) shown.push(`mark: ${mark[1]}`);
    $('readout').textContent = shown.filter((part, i) => i < 4 || part).join(' · ');
    pointed = { t, address: piece ? piece.address : 0 };
    told();
    draw();
  }

  $('reset').addEventListener('click', reset);
  $('measure').addEventListener('change', () => {
    measure = $('measure').value;
    $('legend').hidden = measure !== 'cells';
    $('touched-legend').hidden = measure === 'cells';
    draw();
  });
  new ResizeObserver(draw).observe(map);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  return {
    replace, load, reset, show, draw, drawCells, changed, advance, ready, isSampled,
    get data() { return data; },
    get palette() { return palette; },
    get target() { return target; },
    get view() { return view; },
    get pinned() { return pinned; },
    get pointed() { return pointed; },
  };
}
