//! Runs on real processes.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use isotherm_core::{AttributeOptions, Budget, Pace};
use isotherm_kernel::monitor_cpu_time;
use isotherm_record::{Cost, NotAfforded};
use isotherm_run::{
    EndReason, Event, ProbeChoice, RunConfig, RunError, SchemeOptions, SchemeSource, Selection, Selector, SharedRun,
};

/// A process that lives until it is dropped.
struct Target(Child);

impl Target {
    fn start() -> Self {
        // `cat` of an open pipe waits for ever.
        Self(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A run on a process by the probe that works for every user.
fn watch(pid: u32) -> RunConfig {
    RunConfig::processes([pid]).probe(ProbeChoice::Refs)
}

#[test]
fn a_run_ends_with_its_last_target() {
    let target = Target::start();
    let mut run = watch(target.pid()).prepare().unwrap();
    let events = run.subscribe();
    let session = run.start().unwrap();
    let mut target = Some(target);
    let mut ended = false;
    for event in events {
        match event {
            Event::Snapshot(record) => {
                if let Some(target) = target.take() {
                    assert_eq!(record.infos[0].0.pid(), Some(target.pid()));
                    assert_eq!(record.infos[0].1.command, "cat");
                }
            }
            Event::End(reason) => ended = matches!(reason, EndReason::Finished),
            _ => {}
        }
    }
    assert!(ended);
    assert!(session.wait().unwrap().snapshots >= 1);
}

#[test]
fn a_run_does_not_wait_for_samples_of_targets_that_have_ended() {
    let target = Target::start();
    let hour = Duration::from_secs(3600);
    let (sampling, aggregation, update) = (Some(hour), Some(hour), Some(hour));
    let attributes = AttributeOptions { sampling, aggregation, update, regions: None };
    let mut run = watch(target.pid()).attributes(attributes).prepare().unwrap();
    let events = run.subscribe();
    let session = run.start().unwrap();
    drop(target);
    assert!(events.into_iter().any(|event| matches!(event, Event::End(EndReason::Finished))));
    session.wait().unwrap();
}

#[test]
fn a_mark_is_of_the_moment_at_which_it_was_made() {
    let target = Target::start();
    let mut run = watch(target.pid()).prepare().unwrap();
    let (control, events) = (run.control(), run.subscribe());
    control.mark("before the start").unwrap();
    let session = run.start().unwrap();
    let (mut last, mut marks) = (Duration::ZERO, vec![]);
    for event in events {
        match event {
            Event::Snapshot(record) if last.is_zero() => {
                last = record.snapshot.time;
                control.mark("after a snapshot").unwrap();
            }
            Event::Mark(mark) => marks.push((mark.time >= last && mark.time.is_zero() == last.is_zero(), mark.text)),
            _ => {}
        }
        if marks.len() == 2 {
            control.stop();
        }
    }
    session.wait().unwrap();
    let right: Vec<bool> = marks.iter().map(|(right, _)| *right).collect();
    assert_eq!(right, [true, true], "{marks:?}");
}

#[test]
fn a_command_is_watched_from_its_start_and_left_to_the_caller() {
    let command = ["sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exit 7"];
    let mut run = RunConfig::command(command).probe(ProbeChoice::Refs);
    run.attributes = AttributeOptions {
        sampling: Some(Duration::from_millis(1)),
        aggregation: Some(Duration::from_millis(5)),
        ..AttributeOptions::default()
    };
    let summary = run.prepare().unwrap().start().unwrap().wait().unwrap();
    assert!(matches!(summary.reason, EndReason::Finished));
    assert_eq!(summary.command.unwrap().wait().unwrap().code(), Some(7));
}

#[test]
fn a_target_that_is_not_there_is_told_before_any_probe_is_opened() {
    let pid = {
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        ended.id()
    };
    // Whether the probe works here does not matter.
    let config = RunConfig::processes([pid]).probe(ProbeChoice::Damon);
    let error = config.prepare().err().unwrap();
    assert!(matches!(error, RunError::Target(_)), "{error:?}");
}

#[test]
fn threads_of_the_program_that_help_are_part_of_the_cost() {
    const SPENT: u64 = 20_000_000;
    let target = Target::start();
    let mut run = watch(target.pid()).prepare().unwrap();
    let (events, helpers) = (run.subscribe(), run.helper_cpu());
    let session = run.start().unwrap();
    let helper = std::thread::spawn(move || {
        let mut thread = helpers.thread();
        let began = monitor_cpu_time();
        while monitor_cpu_time() < began + Duration::from_nanos(SPENT) {}
        thread.count();
    });
    let mut others = 0;
    for event in events {
        if let Event::Snapshot(record) = event {
            others += record.cost.unwrap().other_cpu_ns.unwrap();
        }
        if others >= SPENT {
            break;
        }
    }
    helper.join().unwrap();
    session.stop().unwrap();
}

/// The first pace of a run that `is_told` accepts, with what the cost of the snapshot before it says.
fn pace_of(run: RunConfig, is_told: impl Fn(Pace, NotAfforded) -> bool) -> (Pace, Cost) {
    let mut run = run.prepare().unwrap();
    let events = run.subscribe();
    let session = run.start().unwrap();
    let mut cost = Cost::default();
    let mut told = None;
    for event in events {
        match event {
            Event::Snapshot(record) => cost = record.cost.unwrap(),
            Event::Pace { pace, not_afforded } if is_told(pace, not_afforded) => {
                assert_eq!(cost.not_afforded, Some(not_afforded));
                told = Some((pace, cost));
                break;
            }
            _ => {}
        }
    }
    session.stop().unwrap();
    told.unwrap()
}

#[test]
fn a_run_tells_what_it_has_settled_on() {
    let target = Target::start();
    let (pace, cost) = pace_of(watch(target.pid()), |_, _| true);
    assert!(pace.survey_interval.is_some() || pace.sampling_interval.is_some(), "{pace:?}");
    assert!(cost.limited.is_some());
}

#[test]
fn a_run_tells_what_its_budget_does_not_suffice_for() {
    let target = Target::start();
    let run = watch(target.pid()).budget(Budget { cpu: 1e-5, ..Budget::default() });
    let (pace, cost) = pace_of(run, |_, not_afforded| not_afforded.surveys);
    assert!(pace.is_limited && cost.limited == Some(true));
    assert!(pace.survey_interval > Some(Duration::from_secs(1)), "{pace:?}");
}

#[test]
fn activities_of_views_have_times_from_the_start_of_the_run() {
    let target = Target::start();
    let run = SharedRun::start(watch(target.pid()), false, |_| {}).unwrap();
    let counts = isotherm_scheme::parse("counts", "- {name: counts, action: stat}").unwrap();
    let (sender, times) = std::sync::mpsc::channel();
    let view = || {
        let sender = sender.clone();
        let selection = Selection { any: vec![Selector::Pid(target.pid())], ..Selection::default() };
        let schemes = SchemeOptions::new(SchemeSource::Fixed(counts.clone()));
        let heard = move |event: &Event| {
            if let Event::Activity(activity) = event {
                sender.send(activity.time)?;
            }
            Ok(())
        };
        run.view(selection, Some(schemes), heard).unwrap()
    };
    let first = view();
    let before = times.recv().unwrap();
    drop(first);
    // It reports at its end, before there is a snapshot.
    drop(view());
    let mut all: Vec<Duration> = times.try_iter().collect();
    assert!(!all.is_empty() && all.is_sorted() && before <= all.remove(0), "{before:?}, then {all:?}");
}

#[test]
fn a_dropped_session_stops_and_leaves_the_target_alive() {
    let mut target = Target::start();
    drop(watch(target.pid()).prepare().unwrap().start().unwrap());
    assert!(target.0.try_wait().unwrap().is_none());
}

#[test]
fn the_example_watches_changes_attributes_and_applies_a_scheme() {
    let target = Target::start();
    let mut example = std::env::current_exe().unwrap();
    example.pop();
    example.pop();
    let example: PathBuf = example.join("examples/embed");
    let ran = Command::new(&example).arg(target.pid().to_string()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{err}");
    assert!(out.contains(" bytes in use") && out.contains("cold: ") && out.ends_with("snapshots\n"), "{out}");
}
