//! What a run writes, what it collects, and that it leaves nothing behind.

use std::fs::{self, File};
use std::time::Duration;

use isotherm_core::IntervalsGoal;
use isotherm_probes::damon::{Run, Scope, Settings};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::made::{KDAMOND, Made, processes, range, settings};

#[test]
fn processes_are_monitored_by_vaddr_with_the_given_attributes() {
    let made = Made::new();
    let mut run = Run::prepare(made.places.clone()).unwrap();
    run.start(&processes(&[4321])).unwrap();
    assert_eq!(made.read("nr_kdamonds"), "1");
    assert_eq!(made.read("0/state"), "on");
    let read = |name: &str| made.read_context(name);
    assert_eq!(read("operations"), "vaddr");
    assert_eq!((read("targets/nr_targets"), read("targets/0/pid_target")), ("1".into(), "4321".into()));
    let intervals =
        ["sample_us", "aggr_us", "update_us"].map(|name| read(&format!("monitoring_attrs/intervals/{name}")));
    assert_eq!(intervals, ["5000", "100000", "1000000"]);
    let bounds = ["min", "max"].map(|name| read(&format!("monitoring_attrs/nr_regions/{name}")));
    assert_eq!(bounds, ["10", "1000"]);
    assert_eq!(run.cpu_time().as_nanos(), 123_456_789);
}

#[test]
fn a_kernel_that_can_tune_the_intervals_gets_the_goal() {
    let made = Made::new();
    let goal = |name: &str| format!("monitoring_attrs/intervals/intervals_goal/{name}");
    for name in ["access_bp", "aggrs", "min_sample_us", "max_sample_us"] {
        made.context(&goal(name), "0\n");
    }
    let mut run = Run::prepare(made.places.clone()).unwrap();
    // 20 samples an aggregation.
    let most_aggregation = Duration::from_secs(2);
    let wanted = IntervalsGoal { most_aggregation, ..IntervalsGoal::default() };
    run.start(&Settings { goal: Some(wanted), ..processes(&[4321]) }).unwrap();
    let written = ["access_bp", "aggrs", "min_sample_us", "max_sample_us"].map(|name| made.read_context(&goal(name)));
    assert_eq!(written, ["400", "3", "5000", "100000"]);
}

#[test]
fn ranges_are_monitored_by_fvaddr_and_physical_memory_by_paddr() {
    for (scope, operations, pid) in [
        (Scope::Ranges(4321, vec![range(0x1000, 0x3000)]), "fvaddr", "4321"),
        (Scope::Physical(vec![range(0x1000, 0x3000), range(0x8000, 0x9000)]), "paddr", "0"),
    ] {
        let made = Made::new();
        let mut run = Run::prepare(made.places.clone()).unwrap();
        run.start(&settings(scope.clone())).unwrap();
        let read = |name: &str| made.read_context(name);
        assert_eq!((read("operations").as_str(), read("targets/0/pid_target").as_str()), (operations, pid));
        let (Scope::Ranges(_, ranges) | Scope::Physical(ranges)) = scope else { unreachable!() };
        assert_eq!(read("targets/0/regions/nr_regions"), ranges.len().to_string());
        for (i, range) in ranges.iter().enumerate() {
            assert_eq!(read(&format!("targets/0/regions/{i}/start")), range.start().to_string());
            assert_eq!(read(&format!("targets/0/regions/{i}/end")), range.end().to_string());
        }
    }
}

#[test]
fn a_run_leaves_nothing_behind_when_it_is_ended_or_dropped() {
    let made = Made::new();
    for dropped in [false, true] {
        let mut run = Run::prepare(made.places.clone()).unwrap();
        run.start(&processes(&[4321])).unwrap();
        assert!(made.claim().exists());
        if dropped {
            drop(run)
        } else {
            run.end().unwrap()
        }
        assert_eq!((made.read("nr_kdamonds"), made.read("0/state")), ("0".into(), "off".into()));
        assert!(!made.places.run.exists(), "neither the claim nor its directory is left");
        // The kernel removes the settings with the directory.
        std::fs::remove_file(made.path("0/contexts/0/operations")).unwrap();
        made.context("operations", "vaddr\n");
    }
}

#[test]
fn a_kdamond_that_ended_with_its_targets_is_removed() {
    let made = Made::new();
    let mut run = Run::prepare(made.places.clone()).unwrap();
    run.start(&processes(&[4321])).unwrap();
    made.file("0/state", "off\n");
    made.file("0/pid", "-1\n");
    made.end_thread();
    assert!(!run.is_on());
    run.end().unwrap();
    assert_eq!(made.read("nr_kdamonds"), "0");
}

#[test]
fn a_kdamond_that_ends_while_the_run_removes_it_is_removed() {
    let made = Made::new();
    let mut run = Run::prepare(made.places.clone()).unwrap();
    run.start(&processes(&[4321])).unwrap();
    // The run has read the state and the thread's ID when it opens this file.
    let stat = made.places.proc.join(format!("{KDAMOND}/stat"));
    fs::remove_file(&stat).unwrap();
    mknodat(CWD, &stat, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reading = File::options().write(true).open(&stat).unwrap();
            made.file("0/state", "off\n");
            made.file("0/pid", "-1\n");
            made.end_thread();
            drop(reading);
        });
        run.end().unwrap();
    });
    assert_eq!(made.read("nr_kdamonds"), "0");
}

#[test]
fn without_tracefs_regions_come_from_tried_regions() {
    let made = Made::new();
    made.region(1, (0x3000, 0x5000), 0, 40);
    made.region(0, (0x1000, 0x3000), 17, 3);
    let mut run = Run::prepare(made.places.clone()).unwrap();
    assert!(!run.is_complete());
    run.start(&processes(&[4321])).unwrap();
    assert_eq!(
        (made.read_context("schemes/nr_schemes"), made.read_context("schemes/0/action")),
        ("1".into(), "stat".into())
    );
    let found = run.collect().unwrap();
    assert_eq!(made.read("0/state"), "update_schemes_tried_regions");
    let [(0, regions)] = &found[0].targets[..] else { panic!("{found:?}") };
    let regions: Vec<_> = regions.iter().map(|r| (r.range, r.nr_accesses, r.age)).collect();
    assert_eq!(regions, [(range(0x1000, 0x3000), 17, 3), (range(0x3000, 0x5000), 0, 40)]);
}

#[test]
fn several_targets_need_the_tracepoint() {
    let made = Made::new();
    let mut run = Run::prepare(made.places.clone()).unwrap();
    let error = run.start(&processes(&[4321, 4322])).unwrap_err().to_string();
    assert!(error.contains("only one target") && error.contains("mount -t tracefs"), "{error}");
    drop(run);
    assert_eq!((made.read("nr_kdamonds"), made.read("0/state")), ("0".into(), "off".into()));
}
