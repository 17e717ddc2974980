// The columns of a heatmap after those that the daemon's report has: made of the snapshots of the stream, in the same
// way. A cell is the mean over its bytes and its time.
const liveColumns = (() => {
  const { HIGHEST, UNKNOWN, ABSENT, SWAP, DARK, NOTHING } = CODES;
  // The most columns of a target, and cells of them; and moments whose regions are kept.
  const MOST = 120, MOST_CELLS = 60_000, MOMENTS = 60;
  // Sums of a row: bytes; those of them that were observed, or are not known; those with a frequency; accesses; ages;
  // bytes that were touched, and what these are a part of.
  const SUMS = 8;

  // The mapped bytes of an area below an address.
  function offsetOf(area, address) {
    let low = 0, high = area.pieces.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (area.pieces[middle][0] <= address) low = middle + 1; else high = middle;
    }
    if (low === 0) return 0;
    const [start, bytes] = area.pieces[low - 1];
    return area.below[low - 1] + Math.min(address - start, bytes);
  }
  // Calls `each` with the rows that a range lies in, and the bytes of the axis that it has there. Returns all of these.
  function rowsOf(target, start, end, each) {
    let all = 0;
    for (const area of target.areas) {
      const from = offsetOf(area, start), to = offsetOf(area, end);
      if (from >= to) continue;
      let low = 0, high = area.rows;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (area.edges[middle] <= from) low = middle + 1; else high = middle;
      }
      for (let i = Math.max(low - 1, 0); i < area.rows && area.edges[i] < to; i++) {
        const bytes = Math.min(area.edges[i + 1], to) - Math.max(area.edges[i], from);
        if (bytes > 0) each(area.first + i, bytes);
      }
      all += to - from;
    }
    return all;
  }

  // The part of a target that begins where its report ends. `each` are the seconds of a column.
  function begin(target, each, hasTouched) {
    const columns = Math.max(Math.min(MOST, Math.floor(MOST_CELLS / Math.max(target.rows, 1))), 8);
    const cells = () => new Uint8Array(target.rows * columns);
    const { end: start } = target, blank = cells().fill(NOTHING);
    return {
      start, end: start + each * columns, filled: start, columns, each,
      cells: blank, touched: hasTouched ? blank.slice() : null, hz: cells(), ages: cells(),
      moments: [], open: -1, sums: new Float64Array(target.rows * SUMS),
    };
  }

  // Writes the figures of a column.
  function write(target, later, column, scale) {
    const { sums, columns } = later;
    for (let row = 0; row < target.rows; row++) {
      const at = row * columns + column, s = row * SUMS;
      const [weight, observed, unknown, rated, hertz, age, touched, surveyed] = sums.subarray(s, s + SUMS);
      if (!weight) {
        // Where no region is, nothing has come since the last survey.
        const before = target.cells[row * target.columns + target.columns - 1];
        later.cells[at] = before === ABSENT || before === SWAP ? before : NOTHING;
        if (later.touched) later.touched[at] = later.cells[at];
        continue;
      }
      const hz = rated ? hertz / rated : 0, dark = 1 - observed / weight, unseen = unknown / weight;
      later.hz[at] = toCode(hz);
      later.ages[at] = toCode(age / weight);
      later.cells[at] = dark + unseen > 0.5 ? (dark >= unseen ? DARK : UNKNOWN)
        : Math.max(Math.round(heatOf(scale, hz) * HIGHEST), hz > 0 ? 1 : 0);
      if (later.touched) {
        const share = surveyed ? touched / surveyed : 0;
        later.touched[at] = surveyed ? Math.max(Math.round(share * HIGHEST), share > 0 ? 1 : 0) : UNKNOWN;
      }
    }
  }

  // Adds a snapshot to a target. Returns the columns that have changed, and which share of its memory is not on the
  // axis. `null` if there is no room for it.
  function add(target, snapshot, regions, scale) {
    const { later } = target, time = snapshot.unix_ns / 1e9;
    const from = Math.max(later.filled, time - snapshot.aggregation_ns / 1e9);
    if (time > later.end) return null;
    if (time <= from) return { first: 0, last: 0, outside: 0 };
    const sums = new Float64Array(target.rows * SUMS);
    let all = 0, outside = 0;
    for (const region of regions) {
      const { observed_share: observed, unknown_share: unknown, access_hz: hz, age_ns, pages } = region;
      const known = pages ? region.present_bytes - pages.unobservable_bytes : 0;
      const touched = known > 0 && pages.unknown_bytes < known / 2 ? pages.touched_bytes / known : null;
      const bytes = rowsOf(target, region.start, region.end, (row, bytes) => {
        const s = row * SUMS;
        sums[s] += bytes;
        sums[s + 1] += bytes * (observed + unknown);
        sums[s + 2] += bytes * unknown;
        sums[s + 3] += bytes * observed;
        sums[s + 4] += bytes * observed * hz;
        sums[s + 5] += bytes * age_ns / 1e9;
        if (touched !== null) {
          sums[s + 6] += bytes * Math.min(touched, 1);
          sums[s + 7] += bytes;
        }
      });
      const present = region.present_bytes ?? region.end - region.start;
      all += present;
      if (!bytes) outside += present;
    }
    const columnOf = t => Math.min(Math.max(Math.floor((t - later.start) / later.each), 0), later.columns - 1);
    const [first, last] = [columnOf(from), columnOf(time - 1e-6)];
    for (let column = first; column <= last; column++) {
      if (column !== later.open) {
        later.open = column;
        later.sums.fill(0);
      }
      const left = later.start + column * later.each;
      const shared = Math.min(time, left + later.each) - Math.max(from, left);
      for (let i = 0; i < sums.length; i++) later.sums[i] += sums[i] * shared;
      write(target, later, column, scale);
    }
    later.filled = time;
    later.moments.push({
      time: time * 1e3, absent: 0,
      list: regions.map(region => ({
        start: region.start, size: region.end - region.start, age: region.age_ns / 1e9,
        hz: region.observed_share ? region.access_hz : null,
        rate: region.observed_share ? heatOf(scale, region.access_hz) : null,
        dark: Math.max(1 - region.observed_share - region.unknown_share, 0),
        swapped: region.pages?.swapped_bytes ?? null,
      })),
    });
    if (later.moments.length > MOMENTS) later.moments.shift();
    return { first, last: last + 1, outside: all ? outside / all : 0 };
  }
  return { begin, add };
})();
