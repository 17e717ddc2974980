//! Processes with as many mappings as runtimes and databases have, and with new ones.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use isotherm_core::survey::TargetSurvey;
use isotherm_core::{Figures, Snapshot};
use isotherm_record::Recording;
use isotherm_testing::or_skip;
use memmap2::{Mmap, MmapMut};

use crate::common::{ISOTHERM, Place, bpf_works, record_until};

const MAPPINGS: usize = 30_000;
const PAGE: usize = 4096;
const MIB: u64 = 1 << 20;

/// Pages in memory, each a mapping of its own: neighbours have other permissions, so that the kernel does not join
/// them.
fn pages() -> (Vec<MmapMut>, Vec<Mmap>) {
    let page = || {
        let mut page = MmapMut::map_anon(PAGE).unwrap();
        page[0] = 1;
        page
    };
    (0..MAPPINGS / 2).map(|_| (page(), page().make_read_only().unwrap())).unzip()
}

/// Is set when this is dropped, also by a panic.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_process_with_30_000_mappings_is_surveyed_to_the_page() {
    or_skip!(bpf_works());
    let place = Place::new();
    let (mut used, idle) = pages();
    let ended = AtomicBool::new(false);
    let pid = std::process::id().to_string();
    // A build without optimisation needs more than the default budgets, and so does a machine on which it is expensive
    // to set accessed bits again.
    let budgets = ["--cpu-budget", "50%", "--target-budget", "20%"];
    let how = ["-q", "--probe", "bpf", "--survey", "1s", "--pid", &pid];
    // The test reads the recording while it is its target: its other memory is used as well.
    let places = [
        used.iter().map(|page| page.as_ptr() as u64).collect(),
        idle.iter().map(|page| page.as_ptr() as u64).collect(),
    ];
    let sums = |survey: &TargetSurvey, places: &HashSet<u64>| -> Figures {
        let of_pages = survey.surveyed().filter(|(mapping, _)| places.contains(&mapping.range.start()));
        of_pages.map(|(_, sums)| sums.figures).sum()
    };
    let known = |recording: &Recording| {
        let found = recording.surveys().map(|survey| {
            let survey = &survey.unwrap().survey.targets[0];
            places.each_ref().map(|places| sums(survey, places))
        });
        found.filter(|of_both| of_both.iter().all(|figures| figures.unknown < MIB)).last()
    };
    let recording = std::thread::scope(|scope| {
        let _ended = Ended(&ended);
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                used.iter_mut().for_each(|page| page[0] = page[0].wrapping_add(1));
            }
        });
        // On a machine that is busy with other work, surveys take longer to clear all pages.
        let call = [&how[..], &budgets].concat();
        record_until(&place, &call, "a survey knows nearly all pages", |recording| known(recording).is_some())
    });

    let last = recording.snapshots().last().unwrap().unwrap().snapshot;
    let target = &last.targets[0];
    assert!(target.mappings.len() >= MAPPINGS, "{}", target.mappings.len());
    assert!((10..=1000).contains(&target.regions.len()), "{}", target.regions.len());
    let [used, idle] = known(&recording).unwrap();
    let half = (MAPPINGS / 2 * PAGE) as u64;
    assert_eq!((used.present, idle.present), (half, half));
    assert!(used.touched + used.unobservable + MIB >= half, "{used:?}");
    assert!(idle.touched < MIB, "{idle:?}");

    for kind in ["summary", "heatmap", "wss"] {
        let ran = place.run(&["report", kind, "a.rec"]);
        assert!(ran.status == 0 && !ran.out.is_empty(), "{kind}: {}", ran.err);
    }
}

#[test]
fn a_snapshot_has_new_memory_before_the_aggregation_interval_is_over() {
    or_skip!(bpf_works());
    let place = Place::new();
    // The workload maps 64 MiB more every three seconds.
    let how = ["record", "-q", "--probe", "bpf", "--aggr", "10s", "--sample", "50ms", "-o", "a.rec", "--"];
    let ran = place.run(&[&how[..], &[ISOTHERM, "workload", "growing-and-shrinking", "--time", "11s"]].concat());
    assert_eq!(ran.status, 0, "{}", ran.err);
    let recording = Recording::open(&place.path("a.rec")).unwrap();
    let snapshots: Vec<Snapshot> = recording.snapshots().map(|record| record.unwrap().snapshot).collect();
    let present = |snapshot: &Snapshot| -> u64 { snapshot.regions().map(|region| region.size()).sum() };
    // The last snapshot is short, because the run ends.
    let (_, before_the_end) = snapshots.split_last().unwrap();
    let grown = before_the_end.windows(2).filter(|pair| {
        pair[1].samples < 200 && present(&pair[0]) > 60 * MIB && present(&pair[1]) > present(&pair[0]) + 3 * MIB
    });
    let seen: Vec<_> = snapshots.iter().map(|snapshot| (snapshot.samples, present(snapshot) / MIB)).collect();
    assert!(grown.count() > 0, "{seen:?}");
}
