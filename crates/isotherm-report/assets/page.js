// The page of a report: the heatmap, its lanes, the regions, and the pictures over the same time. What is drawn is in
// #data.
(() => {
  const $ = id => document.getElementById(id);
  const data = JSON.parse($('data').textContent);
  if (!data.targets.length) return;
  const map = heatmapView({
    times: SINCE_START,
    painted: (view, target, room, whole) => {
      lanes.paint(view, target, room);
      panels.follow(view.t0, view.t1, whole);
    },
    pointed: () => regions.show(),
  });
  const regions = regionTable({ map, times: SINCE_START });
  const lanes = laneList({ map, times: SINCE_START });
  const panels = timePanels({
    marks: data.marks, reset: map.reset,
    choose: (t0, t1) => map.show(t0, t1, map.view.r0, map.view.r1),
    zoom: (factor, t) => {
      const { t0, t1, r0, r1 } = map.view;
      map.show(t - (t - t0) * factor, t + (t1 - t) * factor, r0, r1);
    },
  });
  $('measures').hidden = !data.targets.some(t => t.touched);
  $('heatmap').hidden = $('regions').hidden = false;
  map.replace(data);
  lanes.begin();
  regions.begin();
  regions.show();
})();
