// The columns of a heatmap after those of its report, as the daemon makes and sends them.
const liveColumns = (() => {
  // The moments whose regions are kept.
  const MOMENTS = 60;
  const LAYERS = ['cells', 'touched', 'hz', 'ages'];

  // The part of a target that begins where its report ends, and has nothing yet.
  function begin(target) {
    const { end: start, later: { columns, each } } = target;
    const cells = () => new Uint8Array(target.rows * columns).fill(CODES.NOTHING);
    target.later = {
      start, end: start + each * columns, filled: start, columns, moments: [],
      cells: cells(), touched: target.touched ? cells() : null, hz: target.hz ? cells() : null, ages: cells(),
    };
  }
  // Takes in columns that have changed by this time, and the regions at that time.
  function take(target, changed, time) {
    const { later } = target, { first, count, moment } = changed;
    for (const layer of LAYERS.filter(layer => later[layer] && changed[layer])) {
      const bytes = bytesOf(changed[layer]);
      for (let row = 0; row < target.rows; row++) {
        later[layer].set(bytes.subarray(row * count, (row + 1) * count), row * later.columns + first);
      }
    }
    later.filled = time;
    if (!moment) return;
    later.moments.push({ ...moment, time: time * 1e3, bytes: bytesOf(changed.regions) });
    if (later.moments.length > MOMENTS) later.moments.shift();
  }
  return { begin, take };
})();
