// The heatmap to zoom into and read off, and the regions at the pointed time. What is drawn is in #data.
(() => {
  const $ = id => document.getElementById(id);
  const data = JSON.parse($('data').textContent);
  if (!data.targets.length) return;
  const palette = bytesOf(data.palette);
  // The place of a frequency on the scale of colours.
  const heat = hz => Math.min(Math.log1p(hz / data.scale[0]) / Math.log1p(data.scale[1] / data.scale[0]), 1);
  const HIGHEST = 250, UNKNOWN = 251, ABSENT = 252, SWAP = 253, DARK = 254, NOTHING = 255, PAGE = 4096;
  // Without samples there are no access rates, and what was touched is in their place.
  const SAMPLED = data.measure === 'frequency';

  // ---- the target that is shown
  // What the colours show: the measure of the page, or the share that surveys found touched.
  let measure = 'cells';
  let target, view, pinned = null, pointed = null;

  // The cells of a target as an image, made when it is first needed.
  function image(t) {
    t.images ??= {};
    if (t.images[measure]) return t.images[measure];
    if (typeof t.cells === 'string') {
      t.cells = bytesOf(t.cells);
      if (t.touched) t.touched = bytesOf(t.touched);
    }
    const canvas = document.createElement('canvas');
    canvas.width = t.columns;
    canvas.height = Math.max(t.rows, 1);
    const context = canvas.getContext('2d'), pixels = context.createImageData(canvas.width, canvas.height);
    for (let row = 0; row < t.rows; row++) {
      for (let column = 0; column < t.columns; column++) {
        const code = t[measure][row * t.columns + column];
        if (code === NOTHING) continue;
        const at = ((t.rows - 1 - row) * t.columns + column) * 4;
        for (let i = 0; i < 3; i++) pixels.data[at + i] = palette[code * 3 + i];
        pixels.data[at + 3] = 255;
      }
    }
    context.putImageData(pixels, 0, 0);
    t.images[measure] = canvas;
    return canvas;
  }
  // Shows a target, and of the time what was shown before.
  function load(index) {
    const t = data.targets[index];
    if (!t.ready) {
      t.ready = true;
      image(t);
      t.ages = bytesOf(t.ages);
      if (t.hz) t.hz = bytesOf(t.hz);
      if (t.present) [t.present, t.swapped] = [bytesOf(t.present), bytesOf(t.swapped)];
      t.regions = bytesOf(t.regions);
      for (const area of t.areas) {
        let below = 0;
        area.below = area.pieces.map(piece => { const here = below; below += piece[1]; return here; });
      }
    }
    target = t;
    pinned = pointed = shown = null;
    view = { t0: view?.t0 ?? data.start, t1: view?.t1 ?? data.end, r0: 0, r1: target.rows };
    $('title').textContent = t.title;
    table();
    draw();
  }

  function reset() {
    view = { t0: data.start, t1: data.end, r0: 0, r1: target.rows };
    draw();
  }

  // ---- the canvas
  const map = $('map');
  const PAD = { left: 118, right: 150, top: data.marks.length ? 22 : 6, bottom: 26 };
  let width = 0, height = 0;
  const plot = () => ({
    x: PAD.left, y: PAD.top,
    w: Math.max(width - PAD.left - PAD.right, 20), h: Math.max(height - PAD.top - PAD.bottom, 20),
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
    if (waiting) return;
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
    c.imageSmoothingEnabled = false;
    c.save();
    c.beginPath();
    c.rect(p.x, p.y, p.w, p.h);
    c.clip();
    const left = xOf(target.start, p), right = xOf(target.end, p), top = yOf(target.rows, p), bottom = yOf(0, p);
    c.drawImage(image(target), left, top, Math.max(right - left, 1), bottom - top);
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
    for (const [t, label] of timeTicks(view.t0, view.t1, p.w, 90)) {
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
    for (const run of seen.slice(0, 200)) {
      const middle = (run.y0 + run.y1) / 2;
      c.strokeRect(p.x + p.w + 4.5, run.y0 + 1.5, 4, Math.max(run.y1 - run.y0 - 3, 1));
      c.clearRect(p.x + p.w + 3, run.y0 + 2, 4, Math.max(run.y1 - run.y0 - 4, 0));
      if (!free(named, middle, 14)) continue;
      c.fillText(fitted(baseName(data.names[run.name]), PAD.right - 18, widthOf), p.x + p.w + 14, middle + 4);
    }
    map.dataset.view = [view.t0, view.t1, view.r0, view.r1].join(' ');
    const whole = view.t0 <= data.start && view.t1 >= data.end && view.r0 <= 0 && view.r1 >= target.rows;
    $('view').textContent =
      `${seconds(view.t0)} to ${seconds(view.t1)}` + (whole ? `, ${target.size}` : ', zoomed in');
    $('reset').disabled = whole;
    lanes.paint(view, target, p.w);
    panels.follow(view.t0, view.t1, view.t0 <= data.start && view.t1 >= data.end);
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
  function placed(cell, area, row) {
    if (!target.present || target.present[cell] === NOTHING) return '';
    const i = row - area.first, bytes = area.edges[i + 1] - area.edges[i];
    const share = code => code === NOTHING ? 0 : code / HIGHEST;
    const [present, swapped] = [share(target.present[cell]), share(target.swapped[cell])];
    const shares = [[present, 'in memory'], [swapped, 'in swap'], [1 - present - swapped, 'absent']];
    const some = shares.filter(([part, what]) => part > 0.5 / HIGHEST && !(what === 'absent' && target.physical));
    return some.map(([part, what]) => `${size(part * bytes)} ${what}`).join(', ') + ` of ${size(bytes)}`;
  }
  // How often a page is accessed, or which share of the memory was touched.
  function value(cell, code) {
    if (!target.hz) return `${data.measure} ${percent(code / HIGHEST)}`;
    const hz = (2 ** (target.hz[cell] / 8) - 1) / 1e3;
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
    const lived = t >= target.start && t <= target.end, each = (target.end - target.start) / target.columns;
    const column = Math.min(Math.max(Math.floor((t - target.start) / each), 0), target.columns - 1);
    const area = target.areas.find(area => row < area.first + area.rows);
    const piece = area && pieceAt(area, Math.floor(offsetAt(area, r)));
    const cell = row * target.columns + column, code = lived ? target.cells[cell] : NOTHING;
    const age = (2 ** (target.ages[cell] / 8) - 1) / 1e3;
    const what = code === NOTHING ? 'nothing mapped or recorded'
      : code === DARK ? 'could not be observed' : code === UNKNOWN ? 'not known yet' : code === SWAP ? 'mostly in swap'
      : code === ABSENT ? 'nothing in memory'
      : `${value(cell, code)}, ${SAMPLED ? 'for' : 'idle for'} about ` +
        (age < 0.0005 ? '0 s' : seconds(Number(age.toPrecision(2))));
    const share = lived && target.touched ? target.touched[cell] : NOTHING;
    const touched = share <= HIGHEST ? `touched share ${percent(share / HIGHEST)} in a survey interval`
      : share === DARK && code !== DARK ? 'touched share could not be observed'
      : share === UNKNOWN && code !== UNKNOWN ? 'touched share not known yet' : '';
    const digits = Math.max(0, Math.min(4, Math.ceil(-Math.log10(each || 1)) + 1));
    const [address, name] = piece ? [hex(Math.floor(piece.address)), piece.name] : ['', ''];
    const parts = [seconds(t, digits), address, name, what, touched, area && lived ? placed(cell, area, row) : ''];
    const mark = data.marks.find(([at]) => Math.abs(xOf(at, p) - x) <= 4);
    if (mark) parts.push(`mark: ${mark[1]}`);
    $('readout').textContent = parts.filter((part, i) => i < 4 || part).join(' · ');
    pointed = { t, address: piece ? piece.address : 0 };
    table();
    draw();
  }

  // ---- the regions at the pointed time
  let shown = null, sort = 'start';
  function decode(moment) {
    const { aggregation, samples } = moment, surveyed = moment.swapped !== null;
    let at = moment.offset, end = 0;
    const number = () => {
      let value = 0, scale = 1, byte;
      do { byte = target.regions[at++]; value += (byte & 127) * scale; scale *= 128; } while (byte & 128);
      return value;
    };
    const range = () => {
      const start = end + number(), pages = number();
      end = start + pages;
      return { start: start * PAGE, size: pages * PAGE };
    };
    // Bytes, or null if they are not known.
    const bytes = () => { const pages = number(); return pages ? (pages - 1) * PAGE : null; };
    const regions = Array.from({ length: moment.regions }, () => {
      const region = range(), accesses = number();
      region.dark = number() / samples;
      if (SAMPLED) {
        // Nothing, or one more than twice the frequency in millihertz, plus one if it is the least that there may be.
        region.hz = accesses ? Math.floor((accesses - 1) / 2) / 1e3 : null;
        region.rate = accesses ? heat(region.hz) : null;
        region.least = accesses % 2 === 0;
      } else {
        region.rate = accesses / samples;
      }
      region.age = number() * aggregation / 1e3;
      return surveyed ? { ...region, swapped: bytes(), absent: bytes() } : region;
    });
    // What is in swap without a region has no rate and no age.
    end = 0;
    const swapped = Array.from({ length: moment.swapped ?? 0 }, () => ({
      ...range(), rate: null, dark: 0, age: null, swapped: bytes(), absent: bytes(),
    }));
    return [...regions, ...swapped];
  }
  function nameOf(region) {
    let best = '', most = 0;
    for (const area of target.areas) {
      let low = 0, high = area.pieces.length;
      while (low < high) {
        const middle = (low + high) >> 1, [start, length] = area.pieces[middle];
        if (start + length <= region.start) low = middle + 1; else high = middle;
      }
      for (; low < area.pieces.length && area.pieces[low][0] < region.start + region.size; low++) {
        const [start, bytes, name] = area.pieces[low];
        const part = Math.min(start + bytes, region.start + region.size) - Math.max(start, region.start);
        if (part > most) { most = part; best = data.names[name]; }
      }
    }
    return most > 0 ? best : null;
  }
  function table() {
    const t = (pinned ?? pointed?.t ?? data.end) * 1e3, moments = target.moments;
    if (!moments.length) return;
    let moment = moments.find(m => m.time >= t) ?? moments[moments.length - 1];
    const body = $('table').tBodies[0];
    if (shown?.moment !== moment || shown.sort !== sort) {
      const named = decode(moment).map(region => ({ ...region, name: nameOf(region) }));
      const regions = named.filter(region => region.name !== null);
      const key = region => region[sort];
      if (sort === 'name') regions.sort((a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : a.start - b.start);
      else if (sort === 'start') regions.sort((a, b) => a.start - b.start);
      else regions.sort((a, b) => (key(b) ?? -1) - (key(a) ?? -1));
      const most = 1000;
      body.replaceChildren(...regions.slice(0, most).map(region => {
        const row = document.createElement('tr'), meter = document.createElement('div');
        meter.className = 'rate';
        const fill = meter.appendChild(document.createElement('div'));
        const i = Math.round(Math.min(region.rate, 1) * HIGHEST) * 3;
        fill.style.width = Math.min(region.rate, 1) * 100 + '%';
        fill.style.background = `rgb(${palette.slice(i, i + 3).join(' ')})`;
        const or = (value, text) => value === null || value === undefined ? '' : text(value);
        const cells = [
          region.start.toString(16), size(region.size),
          SAMPLED ? or(region.hz, hz => (region.least ? '≥ ' : '') + hertz(hz)) : or(region.rate, percent), meter,
          or(region.age, seconds),
          region.dark ? percent(region.dark) : '', or(region.absent, size), or(region.swapped, size), region.name,
        ];
        for (const cell of cells) row.insertCell().append(cell);
        region.row = row;
        return row;
      }));
      const more = regions.length > most ? `, the first ${most} shown` : '';
      const outside = moment.absent ? `; ${size(moment.absent)} absent outside of regions` : '';
      shown = { moment, sort, regions, more: more + outside, count: regions.filter(r => r.age !== null).length };
    }
    const held = pinned === null ? '' : ', held';
    $('moment').textContent = `at ${seconds(moment.time / 1e3, 2)}: ${shown.count} regions${shown.more}${held}`;
    for (const region of shown.regions) {
      const inside = pointed && pointed.address >= region.start && pointed.address < region.start + region.size;
      region.row?.classList.toggle('pointed', Boolean(inside));
    }
  }
  for (const head of document.querySelectorAll('#table th[data-key]')) {
    head.addEventListener('click', () => {
      for (const other of document.querySelectorAll('#table th[aria-sort]')) other.removeAttribute('aria-sort');
      sort = head.dataset.key;
      head.setAttribute('aria-sort', sort === 'start' || sort === 'name' ? 'ascending' : 'descending');
      table();
    });
  }

  // ---- setting up
  const lanes = laneList({
    data, image,
    choose: load,
    life: i => {
      load(i);
      show(target.start, target.end, 0, target.rows);
    },
  });
  const panels = timePanels({
    marks: data.marks, reset,
    choose: (t0, t1) => show(t0, t1, view.r0, view.r1),
    zoom: (factor, t) => show(t - (t - view.t0) * factor, t + (view.t1 - t) * factor, view.r0, view.r1),
  });
  $('reset').addEventListener('click', reset);
  const hasTouched = data.targets.some(t => t.touched);
  $('measures').hidden = !hasTouched;
  $('measure').addEventListener('change', () => {
    measure = $('measure').value;
    $('legend').hidden = measure !== 'cells';
    $('touched-legend').hidden = measure === 'cells';
    draw();
  });
  if (!SAMPLED) {
    map.setAttribute('aria-label', 'Touched share over time and addresses');
    document.querySelector('#table [data-key=rate] button').textContent = 'touched';
  }
  $('table').classList.toggle('unsurveyed', !data.surveyed);
  $('heatmap').hidden = $('regions').hidden = false;
  load(0);
  new ResizeObserver(draw).observe(map);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
})();
