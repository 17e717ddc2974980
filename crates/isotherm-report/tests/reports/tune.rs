//! Attributes, working sets and advice from made recordings.

use std::time::Duration;

use isotherm_core::survey::SurveySnapshot;
use isotherm_core::{MemoryUse, SystemMemory};
use isotherm_record::Activity;
use isotherm_report::tune::{AnonymousMemory, Cgroup, Limit, Surroundings, Swap, Topic, Tune};
use isotherm_report::{Format, Kind, Options, Selection, Terminal, write};
use serde_json::Value;

use crate::made::valid::assert_valid;
use crate::made::{MIB, Made, process, surveyed};

/// The recording with these surroundings at half of its time.
fn recorded(source: &Made, surroundings: &Surroundings) -> Made {
    let Surroundings { swap, transparent_huge_pages, anonymous, cgroup, .. } = surroundings.clone();
    let swap = swap.unwrap_or_default();
    let activity = Activity {
        time: source.rows.last().unwrap().time / 2,
        memory: vec![(process(1234), MemoryUse::default())],
        system: SystemMemory {
            total: 1 << 33,
            swap_total: swap.total_bytes,
            swap_free: swap.free_bytes,
            ..SystemMemory::default()
        },
        surroundings: Some(isotherm_record::Surroundings { transparent_huge_pages, anonymous, cgroup }),
        ..Activity::default()
    };
    Made { activities: vec![activity], ..source.clone() }
}

fn tune(source: &Made, surroundings: &Surroundings) -> Tune {
    let source = recorded(source, surroundings);
    let tune = Tune::new(&source, &Selection::default(), surroundings.target_options.clone()).unwrap();
    assert_eq!(&tune.surroundings, surroundings);
    tune
}

fn alone(source: &Made) -> Tune {
    Tune::new(source, &Selection::default(), None).unwrap()
}

fn text(tune: &Tune, columns: usize) -> String {
    let mut out = vec![];
    tune.write(Format::Text, &Terminal { columns, ..Terminal::default() }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// A machine with swap, and a service with a cgroup of its own.
fn machine() -> Surroundings {
    Surroundings {
        target_options: Some("--pid 1234".into()),
        swap: Some(Swap { total_bytes: 1 << 30, free_bytes: 1 << 30 }),
        transparent_huge_pages: Some("madvise".into()),
        anonymous: Some(AnonymousMemory { bytes: 64 * MIB, huge_bytes: Some(0) }),
        cgroup: Some(Cgroup {
            path: "/system.slice/demo.service".into(),
            directory: Some("/sys/fs/cgroup/system.slice/demo.service".into()),
            version: 2,
            current_bytes: Some(80 * MIB),
            high_bytes: None,
            max_bytes: None,
            lowest_limit: None,
            other_processes: Some(0),
        }),
    }
}

/// The same recording of a program that started long before.
fn old(seconds: u32) -> Made {
    let mut source = surveyed(seconds);
    source.header.started_unix_ns = 1_790_000_000_000_000_000;
    source
}

fn topics(tune: &Tune) -> (Vec<Topic>, Vec<Topic>) {
    (tune.advice.iter().map(|a| a.topic).collect(), tune.withheld.iter().map(|w| w.topic).collect())
}

#[test]
fn the_working_set_and_what_is_idle_are_told_by_window() {
    let found = alone(&old(45)).working_set;
    let windows: Vec<u64> = found.windows.iter().map(|window| window.window_ns / 1_000_000_000).collect();
    assert_eq!(windows, [1, 2, 5, 10, 30]);
    assert_eq!((found.resident_bytes, found.covered_ns), (Some(64 * MIB), Some(44_000_000_000)));
    let last = found.windows[4];
    assert_eq!((last.median_bytes, last.peak_bytes), (8 * MIB, 16 * MIB));
    // 4 MiB are unobservable and 4 MiB unknown, which is no evidence.
    assert_eq!(last.peak_needed_bytes, 24 * MIB);
    let idle = last.idle.unwrap();
    assert_eq!((idle.bytes, idle.anonymous_bytes, idle.file_bytes), (48 * MIB, Some(48 * MIB), Some(0)));
    // 24 blocks were never accessed: 48 MiB, of which 8 MiB may be the unobservable and unknown ones.
    assert_eq!(found.idle_throughout_bytes, Some(40 * MIB));
}

#[test]
fn a_window_is_known_only_if_it_begins_after_the_first_survey() {
    // What was accessed before the first survey was accessed at some time, and not within the window.
    let mut source = old(12);
    for record in &mut source.surveys {
        record.survey.time -= Duration::from_millis(10) * u32::from(record.survey.time.as_secs() > 1);
    }
    let windows = alone(&source).working_set.windows;
    assert_eq!(windows.last().unwrap().window_ns, 10_000_000_000);
    let short = alone(&Made { surveys: source.surveys[..11].to_vec(), ..old(12) }).working_set.windows;
    assert_eq!(short.last().unwrap().window_ns, 5_000_000_000, "9.99 s are no 10 s");
}

#[test]
fn the_settled_attributes_are_options_of_record() {
    let found = alone(&old(45)).attributes;
    let options =
        ["--sample", "5ms", "--aggr", "100ms", "--survey", "1s", "--regions", "10:1000", "--cpu-budget", "2%"];
    assert_eq!(found.options, options);
    assert_eq!((found.sampling_interval_ns, found.aggregation_ns), (Some(5_000_000), 100_000_000));
    // The second half samples every 40 ms.
    let mut source = old(45);
    for row in source.rows.iter_mut().filter(|row| row.time > Duration::from_secs(20)) {
        row.aggregation = Duration::from_millis(800);
    }
    let found = alone(&source).attributes;
    assert_eq!(found.options[..4], ["--sample", "40ms", "--aggr", "800ms"]);
}

#[test]
fn advice_rests_on_what_is_known() {
    let with = tune(&old(45), &machine());
    assert_eq!(topics(&with), (vec![Topic::MemoryLimit, Topic::Reclaim, Topic::HugePages], vec![]));
    let [limit, reclaim, huge] = &with.advice[..] else { panic!("{:?}", with.advice) };
    // 24 MiB needed and the least margin.
    assert_eq!(limit.figures["limit_bytes"], 40 * MIB);
    assert_eq!(limit.command.as_deref(), Some("systemctl set-property --runtime 'demo.service' MemoryHigh=40M"));
    assert_eq!(reclaim.figures["reclaimable_bytes"], 48 * MIB);
    assert!(reclaim.scheme.as_ref().unwrap().contains("age: {min: 30s}"));
    assert!(huge.text.starts_with("Huge pages are not worth it: only 8 MiB") && huge.scheme.is_none(), "{huge:?}");

    let no_swap = Surroundings { swap: Some(Swap::default()), ..machine() };
    assert_eq!(topics(&tune(&old(45), &no_swap)).1, [Topic::MemoryLimit, Topic::Reclaim]);
}

#[test]
fn targets_that_are_not_selected_are_other_processes_of_the_cgroup() {
    let mut source = recorded(&old(45), &machine());
    let activity = &mut source.activities[0];
    activity.memory.push((process(7), MemoryUse::default()));
    let later = Activity { time: activity.time * 2, surroundings: None, ..activity.clone() };
    source.activities.push(later);
    let found = alone(&source).surroundings;
    assert_eq!((found.cgroup.unwrap().other_processes, found.anonymous), (Some(1), None));
    assert_eq!(found.transparent_huge_pages.as_deref(), Some("madvise"));
    // The activities are of 22.5 s and 45 s.
    let before = Selection { time: Some(Duration::ZERO..Duration::from_secs(20)), ..Selection::default() };
    assert_eq!(Tune::new(&source, &before, None).unwrap().surroundings, Surroundings::default());
}

#[test]
fn little_evidence_is_said_first_and_gives_no_advice() {
    let all = vec![Topic::MemoryLimit, Topic::Reclaim, Topic::HugePages];
    let short = alone(&old(8));
    assert_eq!(topics(&short), (vec![], all.clone()));
    assert!(text(&short, 80).starts_with("! little evidence: the surveys cover 7 s; watch for at least 30 s"));
    let blind = alone(&Made { surveys: vec![], ..old(45) });
    assert_eq!(topics(&blind), (vec![], all));
    assert!(text(&blind, 80).starts_with("! little evidence: none of the samples"), "{}", text(&blind, 80));
    assert!(blind.withheld.iter().all(|withheld| withheld.reason == "it needs surveys, and there are none"));

    let mut dark = old(45);
    for record in &mut dark.surveys {
        let SurveySnapshot { targets, total, .. } = &mut record.survey;
        targets
            .iter_mut()
            .flat_map(|target| &mut target.by_mapping)
            .for_each(|of| of.sums.figures.unobservable = 40 * MIB);
        *total = None;
    }
    let dark = tune(&dark, &machine());
    assert!(dark.warnings[0].contains("62 % of the resident memory could not be observed"), "{:?}", dark.warnings);
    assert_eq!(topics(&dark).1, [Topic::MemoryLimit]);
    assert_eq!(dark.advice[0].figures["reclaimable_bytes"], 12 * MIB, "only what is known to be idle");

    let mut young = old(45);
    young.rows.iter_mut().for_each(|row| {
        let info = isotherm_record::TargetInfo {
            command: "demo".into(),
            started_unix_ns: young.header.started_unix_ns - 5_000_000_000,
            ..isotherm_record::TargetInfo::default()
        };
        row.info = info.into();
    });
    assert!(
        alone(&young).warnings[0].contains("the target had run for 50 s at the end"),
        "{:?}",
        alone(&young).warnings
    );
}

#[test]
fn the_text_fits_its_terminal() {
    let source = old(45);
    for columns in [80, 100] {
        let text = text(&tune(&source, &machine()), columns);
        assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
        insta::assert_snapshot!(format!("tune-{columns}"), text);
    }
    insta::assert_snapshot!("tune-alone", text(&alone(&old(8)), 80));
}

#[test]
fn the_json_matches_its_schema() {
    let json = |tune: &Tune| -> Value {
        let mut out = vec![];
        tune.write(Format::Json, &Terminal::default(), &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    };
    let blind = Made { surveys: vec![], ..old(45) };
    let mut limited = machine();
    let limit = Limit { path: "/system.slice".into(), bytes: 1 << 30 };
    limited.cgroup = limited.cgroup.map(|cgroup| Cgroup { lowest_limit: Some(limit), ..cgroup });
    let old_on = |machine: &Surroundings| json(&tune(&old(45), machine));
    for value in [old_on(&machine()), old_on(&limited), json(&alone(&old(8))), json(&alone(&blind))] {
        assert_valid("tune", &value);
    }
    let value = json(&tune(&old(45), &machine()));
    assert_eq!(value["advice"][1]["figures"]["idle_anonymous_bytes"], 48 * MIB);
    assert_eq!(value["working_set"]["windows"][4]["window_ns"], 30_000_000_000_u64);
}

#[test]
fn the_report_on_a_recording_is_the_same_without_the_machine() {
    let mut out = vec![];
    let options = Options { terminal: Terminal { columns: 80, ..Terminal::default() }, ..Options::default() };
    write(Kind::Tune, Format::Text, &old(45), &Selection::default(), &options, &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), text(&alone(&old(45)), 80));
    let picture = write(Kind::Tune, Format::Svg, &old(45), &Selection::default(), &options, &mut vec![]);
    assert!(picture.unwrap_err().to_string().contains("use --format text or json"));
}
