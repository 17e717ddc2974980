//! Reports on a recording whose sampling interval changes while memory is accessed as before.

use std::time::Duration;

use isotherm_core::{Attributes, BoxError, Monitor, Next, Sink, Snapshot};
use isotherm_record::TargetInfo;
use isotherm_report::axis::AxisResolution;
use isotherm_report::heatmap::{Cell, Heatmap, Plan};
use isotherm_report::{Measure, Selection};
use isotherm_sim::{Pattern, SimClock, SimMemory};
use rand_pcg::Pcg64Mcg;

use crate::made::{Made, Row, made};

/// Memory that is accessed all the time, regularly, at random, and not at all.
const PATTERN: &str = r#"
about = "steady"
[[area]]
name = "always"
size = "4 MiB"
[[area]]
name = "each 41 ms"
size = "4 MiB"
[[area]]
name = "random 41 ms"
size = "4 MiB"
[[area]]
name = "each 203 ms"
size = "4 MiB"
[[area]]
name = "random 203 ms"
size = "4 MiB"
[[area]]
name = "random 2 s"
size = "4 MiB"
[[area]]
name = "never"
size = "4 MiB"
[[phase]]
time = "10000s"
touch = [
  { area = "always", every = "1ms" },
  { area = "each 41 ms", every = "41ms" },
  { area = "random 41 ms", every = "41ms", order = "random" },
  { area = "each 203 ms", every = "203ms" },
  { area = "random 203 ms", every = "203ms", order = "random" },
  { area = "random 2 s", every = "2s", order = "random" },
]
"#;

#[derive(Default)]
struct Rows(Vec<Row>);

impl Sink for Rows {
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError> {
        let info = TargetInfo { command: "sim".into(), ..TargetInfo::default() };
        let row = |target: &isotherm_core::TargetSnapshot| Row {
            time: snapshot.time,
            aggregation: snapshot.aggregation,
            samples: snapshot.samples,
            target: target.clone(),
            info: info.clone().into(),
            cost: None,
        };
        self.0.extend(snapshot.targets.iter().map(row));
        Ok(())
    }
}

/// A recording in which each of these sampling intervals, in ms, is in force for 40 s.
fn recorded(intervals: &[u64]) -> Made {
    let clock = SimClock::default();
    let memory = SimMemory::new(Pattern::parse(PATTERN).unwrap(), clock.clone(), 1);
    let attributes = |ms: u64| {
        let sampling = Duration::from_millis(ms);
        Attributes::new(sampling, sampling * 100, Duration::from_secs(1), 50, 1000).unwrap()
    };
    let rng = Pcg64Mcg::new(1);
    let mut monitor = Monitor::new(attributes(intervals[0]), rng, memory.clone(), memory, Rows::default());
    let mut next = monitor.start().unwrap();
    for (nth, &interval) in (1..).zip(intervals) {
        monitor.set_attributes(attributes(interval));
        while clock.now() < Duration::from_secs(40 * nth) {
            let Next::Step { after } = next else { panic!("the target never ends") };
            next = monitor.step(clock.pass(after)).unwrap();
        }
    }
    made(std::mem::take(&mut monitor.sink_mut().0))
}

/// The means of the cells of each area in each 40 s, by name.
fn means(map: &Heatmap, phases: usize, of: impl Fn(Cell) -> f64) -> Vec<(String, Vec<f64>)> {
    let target = &map.targets[0];
    let mut sums: Vec<(String, Vec<(f64, f64)>)> = vec![];
    for row in 0..target.axis.rows {
        let name = target.axis.row_name(row).to_string();
        if sums.last().is_none_or(|(last, _)| *last != name) {
            sums.push((name, vec![(0.0, 0.0); phases]));
        }
        for column in 0..map.columns {
            let Some(cell) = target.cell(row, column) else { continue };
            let sum = &mut sums.last_mut().unwrap().1[column * phases / map.columns];
            *sum = (sum.0 + of(cell), sum.1 + 1.0);
        }
    }
    let mean = |(sum, count): &(f64, f64)| sum / count;
    sums.into_iter().map(|(name, sums)| (name, sums.iter().map(mean).collect())).collect()
}

fn heatmap(source: &Made, selection: &Selection, columns: usize) -> Heatmap {
    let axis = AxisResolution { rows: 60, rows_of_area: 10, areas: 8, group: 1 };
    Heatmap::new(source, selection, |extent| Plan::all(extent, columns, axis)).unwrap()
}

#[test]
fn the_same_memory_has_the_same_frequency_however_the_interval_changes() {
    let source = recorded(&[5, 100, 5, 20]);
    let map = heatmap(&source, &Selection::default(), 16);
    let found = means(&map, 4, |cell| cell.hz.into());
    let of = |name: &str| &found.iter().find(|(of, _)| of == name).unwrap().1;
    for (name, hz) in [("each 41 ms", 24.4), ("random 41 ms", 24.4), ("each 203 ms", 4.9), ("random 203 ms", 4.9)] {
        for (phase, found) in of(name).iter().enumerate() {
            // Most samples over 100 ms find an access of those that come 24 times a second: there may be more.
            let is_least = phase == 1 && hz > 10.0;
            let right = if is_least { hz / 3.0..hz * 2.0 } else { hz / 1.5..hz * 1.5 };
            assert!(right.contains(found), "{name}, phase {phase}: {found:.1} Hz for {hz}");
        }
    }
    assert!(of("random 2 s").iter().all(|hz| (0.2..1.2).contains(hz)), "{:?}", of("random 2 s"));
    assert!(of("never").iter().all(|hz| *hz < 0.2) && of("always")[0] > 100.0, "{found:?}");
    // The colour is that of the frequency.
    let heat = means(&map, 4, |cell| f64::from(cell.rate) - f64::from(Measure::heat_of(cell.hz.into())));
    assert!(heat.iter().flat_map(|(_, of)| of).all(|difference| *difference == 0.0));
}

#[test]
fn a_change_of_the_interval_ends_no_age() {
    let source = recorded(&[5, 100, 5, 20]);
    let map = heatmap(&source, &Selection::default(), 160);
    let ages = means(&map, 160, |cell| cell.age.as_secs_f64());
    // Ages are times: they go on through all changes, whatever an aggregation is.
    let of = |name: &str| &ages.iter().find(|(of, _)| of == name).unwrap().1;
    for (name, least) in [("always", 120.0), ("never", 120.0)] {
        assert!(of(name)[159] > least, "{name}: {:.0?}", of(name));
    }
    // Chance ends ages of what few samples find accessed. After the change, in an aggregation of 10 s, it does not.
    for name in ["each 41 ms", "random 41 ms", "each 203 ms", "random 203 ms", "random 2 s"] {
        assert!(of(name)[49] > 5.0 && of(name)[79] > 20.0, "{name}: {:.0?}", of(name));
    }
}
