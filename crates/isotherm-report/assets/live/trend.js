// The memory and the working set of a group over the last hour.
class Trend {
  static SPAN = 3600;
  static MOST = 400;
  points = [];

  // Takes in points, each with its time in seconds. Those that are there already count once.
  take(points) {
    const last = this.points[this.points.length - 1]?.time ?? 0;
    this.points.push(...points.filter(point => point.time > last));
    const now = this.points[this.points.length - 1]?.time ?? 0;
    this.points = this.points.filter(point => point.time > now - Trend.SPAN).slice(-Trend.MOST);
  }

  // Draws both as lines into a picture of 100 × 24.
  draw(picture) {
    const { points } = this;
    if (points.length < 2) {
      picture.replaceChildren();
      picture.setAttribute('aria-label', 'not known yet');
      return;
    }
    const [first, last] = [points[0], points[points.length - 1]], span = Math.max(last.time - first.time, 1);
    const top = Math.max(...points.map(point => point.resident), 1);
    const line = key => {
      // A time without a figure is a gap.
      let pen = 'M';
      return points.map(point => {
        if (point[key] === null) {
          pen = 'M';
          return '';
        }
        const x = (point.time - first.time) / span * 100, y = 23 - point[key] / top * 22;
        const step = `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
        pen = 'L';
        return step;
      }).join('');
    };
    picture.replaceChildren(
      svg('path', { d: line('resident'), class: 'second' }), svg('path', { d: line('touched'), class: 'curve' }));
    const change = last.resident - first.resident, sign = change < 0 ? '−' : '+';
    picture.setAttribute('aria-label', `in memory ${sign}${size(Math.abs(change))} in ${seconds(span)}`);
  }
}
