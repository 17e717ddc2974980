// The table of the regions at the pointed time, in #table. Drawn are those of the moments of a target: of its data, and
// of what came since.
function regionTable({ map, times }) {
  const $ = id => document.getElementById(id);
  let shown = null, sort = 'start';
  function decode(target, moment) {
    const { aggregation, samples } = moment, surveyed = moment.swapped !== null, from = moment.bytes ?? target.regions;
    let at = moment.offset, end = 0;
    const number = () => {
      let value = 0, scale = 1, byte;
      do { byte = from[at++]; value += (byte & 127) * scale; scale *= 128; } while (byte & 128);
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
      if (map.isSampled()) {
        // Nothing, or one more than twice the frequency in millihertz, plus one if it is the least that there may be.
        region.hz = accesses ? Math.floor((accesses - 1) / 2) / 1e3 : null;
        region.rate = accesses ? heatOf(map.data.scale, region.hz) : null;
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
  function nameOf(target, region) {
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
        if (part > most) { most = part; best = map.data.names[name]; }
      }
    }
    return most > 0 ? best : null;
  }
  // Shows the regions at the time that is held or pointed at, or the last ones.
  function show() {
    const { data, palette, target, pinned, pointed } = map;
    const t = (pinned ?? pointed?.t ?? data.end) * 1e3, moments = [...target.moments, ...target.later?.moments ?? []];
    const body = $('table').tBodies[0];
    if (!moments.length) {
      body.replaceChildren();
      $('moment').textContent = '';
      return;
    }
    const moment = moments.find(m => m.time >= t) ?? moments[moments.length - 1];
    if (shown?.moment !== moment || shown.sort !== sort) {
      const named = decode(target, moment).map(region => ({ ...region, name: nameOf(target, region) }));
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
        const i = Math.round(Math.min(region.rate, 1) * CODES.HIGHEST) * 3;
        fill.style.width = Math.min(region.rate, 1) * 100 + '%';
        fill.style.background = `rgb(${palette.slice(i, i + 3).join(' ')})`;
        const or = (value, text) => value === null || value === undefined ? '' : text(value);
        const cells = [
          region.start.toString(16), size(region.size),
          map.isSampled() ? or(region.hz, hz => (region.least ? '≥ ' : '') + hertz(hz)) : or(region.rate, percent),
          meter,
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
    $('moment').textContent = `at ${times.text(moment.time / 1e3, 2)}: ${shown.count} regions${shown.more}${held}`;
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
      show();
    });
  }
  return {
    show,
    // Other data is shown from now on.
    begin() {
      shown = null;
      document.querySelector('#table [data-key=rate] button').textContent = map.isSampled() ? 'frequency' : 'touched';
      $('table').classList.toggle('unsurveyed', !map.data.surveyed);
      $('map').setAttribute('aria-label', `${map.isSampled() ? 'Frequency' : 'Touched share'} over time and addresses`);
    },
  };
}
