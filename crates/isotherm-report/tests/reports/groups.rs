//! Groups of memory: by process, command, cgroup, unit and mapping.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{MappingSums, PageSums, SurveySnapshot, TargetSurvey, TotalSums, WINDOWS};
use isotherm_core::{Figures, Mapping, MemoryUse, SystemMemory};
use isotherm_record::{Activity, SurveyRecord, TargetInfo};
use isotherm_report::{Format, GroupBy, Kind, Options, ReportError, Selection, SummarySort, Terminal, write};
use serde_json::{Value, json};

use crate::made::checked::{json_of, report};
use crate::made::{ANON, MIB, Made, Row, made, mapping, process, region, row};

/// A process with anonymous memory: its process ID, command, cgroup, MiB, and the first and last of its snapshots.
type Process<'a> = (u32, &'a str, Option<&'a str>, u64, u32, u32);

const CC1: &str = "/usr/lib/gcc/x86_64-linux-gnu/12/cc1 -quiet -O2 a.c -o /tmp/ccXq1.s";

/// A recording of these processes. Half of the memory of each is hot.
fn recording(processes: &[Process<'_>]) -> Made {
    let last = processes.iter().map(|process| process.5).max().unwrap_or(0);
    let mut rows: Vec<Row> = vec![];
    for index in 1..=last {
        let living = processes.iter().filter(|process| (process.4..=process.5).contains(&index));
        for (nth, &(pid, command, cgroup, mib, ..)) in living.enumerate() {
            let (middle, end) = (ANON + mib * MIB / 2, ANON + mib * MIB);
            let mappings: Arc<[Mapping]> = vec![mapping(ANON, middle, "[heap]"), mapping(middle, end, "")].into();
            let regions = vec![region(ANON, middle, 20, index), region(middle, end, 0, index)];
            let mut row = row(index, pid, &mappings, regions);
            row.info = Arc::new(TargetInfo {
                command: command.into(),
                started_unix_ns: 1,
                cgroup: cgroup.map(String::from),
                inner_pid: None,
            });
            row.cost = row.cost.filter(|_| nth == 0);
            rows.push(row);
        }
    }
    made(rows)
}

/// Ten compilers of 80 MiB for half a second each, two at a time from the sixth on, and a small process all the time.
fn build() -> Made {
    let mut processes: Vec<Process<'_>> = vec![(1, "make -j2", None, 2, 1, 60)];
    processes.extend((0..10).map(|nth| {
        let start = 1 + 5 * nth.min(5) + 5 * (nth.max(5) - 5) / 2;
        (100 + nth, CC1, None, 80, start, start + 4)
    }));
    recording(&processes)
}

fn by(by: GroupBy) -> Options {
    Options { by: Some(by), ..Options::default() }
}

fn groups(kind: Kind, source: &Made, options: &Options) -> Vec<Value> {
    json_of(kind, source, options)["groups"].as_array().unwrap().clone()
}

fn names(groups: &[Value]) -> Vec<&str> {
    groups.iter().map(|group| group["name"].as_str().unwrap()).collect()
}

#[test]
fn a_short_process_has_the_size_that_it_had_while_it_lived() {
    let summary = json_of(Kind::Summary, &build(), &by(GroupBy::Process));
    let cc1 = &summary["targets"][1];
    assert_eq!((&cc1["pid"], &cc1["command"]), (&json!(100), &json!(CC1)));
    for (name, expected) in [
        ("size_bytes", 80 * MIB),
        ("hot_bytes", 40 * MIB),
        ("peak_bytes", 80 * MIB),
        ("first_ns", 0),
        ("last_ns", 500_000_000),
        ("lived_ns", 500_000_000),
    ] {
        assert_eq!(cc1[name], json!(expected), "{name}");
    }
    assert_eq!(summary["groups"][0]["name"], json!("cc1 -quiet -O2 a.c -o /tmp/ccXq1.s"));
    let wss = groups(Kind::Wss, &build(), &by(GroupBy::Process));
    assert_eq!((wss.len(), &wss[0]["mean_bytes"], &wss[0]["lived_ns"]), (11, &json!(40 * MIB), &json!(500_000_000)));
}

#[test]
fn a_group_has_the_mean_over_its_life_and_the_peak_of_what_it_had_at_once() {
    let found = groups(Kind::Summary, &build(), &Options::default());
    assert_eq!(names(&found), ["cc1", "make"], "more than eight targets");
    let cc1 = &found[0];
    assert_eq!((&cc1["processes"], &cc1["pids"][9], &cc1["counted_once"]), (&json!(10), &json!(109), &json!(false)));
    assert_eq!((&cc1["peak_bytes"], &cc1["peak_ns"]), (&json!(160 * MIB), &json!(2_800_000_000_u64)));
    // Of ten lives of half a second, some are at the same time.
    let lived = cc1["lived_ns"].as_u64().unwrap();
    assert_eq!(cc1["size_bytes"].as_u64().unwrap() / MIB, 80 * 5_000_000_000 / lived);
    let make = &found[1];
    assert_eq!((&make["lived_ns"], &make["counted_once"]), (&json!(6_000_000_000_u64), &json!(true)));
    let wss = &groups(Kind::Wss, &build(), &Options::default())[0];
    assert_eq!((&wss["peak_bytes"], &wss["peak_ns"]), (&json!(80 * MIB), &json!(2_800_000_000_u64)));
}

#[test]
fn few_targets_are_by_process_and_others_are_so_on_request() {
    let few: Vec<Process<'_>> = (1..=8).map(|pid| (pid, "a", None, 4, 1, 2)).collect();
    let group_by = |source: &Made, options: &Options| json_of(Kind::Summary, source, options)["group_by"].clone();
    assert_eq!(group_by(&recording(&few), &Options::default()), json!("process"));
    assert_eq!(group_by(&build(), &Options::default()), json!("command"));
    assert_eq!(groups(Kind::Summary, &build(), &by(GroupBy::Process)).len(), 11);
    let of_one_program: Vec<Process<'_>> = (1..=12).map(|pid| (pid, "a", None, 4, 1, 2)).collect();
    assert_eq!(group_by(&recording(&of_one_program), &Options::default()), json!("process"));
}

#[test]
fn groups_are_by_cgroup_and_by_the_innermost_unit() {
    let source = recording(&[
        (1, "a", Some("/system.slice/web.service/blue"), 40, 1, 4),
        (2, "b", Some("/system.slice/web.service/green"), 20, 1, 4),
        (3, "c", Some("/"), 10, 1, 4),
        (4, "d", None, 8, 1, 4),
    ]);
    let of = |kind, what| groups(kind, &source, &by(what));
    let cgroups = of(Kind::Summary, GroupBy::Cgroup);
    let paths = ["/system.slice/web.service/blue", "/system.slice/web.service/green", "/", "unknown cgroup"];
    assert_eq!(names(&cgroups), paths);
    let units = of(Kind::Summary, GroupBy::Unit);
    assert_eq!(names(&units), ["web.service", "no unit", "unknown cgroup"]);
    assert_eq!(units[0]["size_bytes"], json!(60 * MIB));
    assert_eq!(names(&of(Kind::Wss, GroupBy::Unit)), ["web.service", "no unit", "unknown cgroup"]);
    for kind in [Kind::IdleTime, Kind::Temperature] {
        assert_eq!(names(&of(kind, GroupBy::Cgroup)), paths, "{kind:?}");
        let units = of(kind, GroupBy::Unit);
        assert_eq!(names(&units), ["web.service", "no unit", "unknown cgroup"], "{kind:?}");
        let bytes = units[0]["bytes"].as_array().unwrap().iter().map(|bytes| bytes.as_u64().unwrap());
        assert_eq!(bytes.sum::<u64>(), 60 * MIB, "{kind:?}");
        assert_eq!(names(&of(kind, GroupBy::Process)), ["1 a", "2 b", "3 c", "4 d"], "{kind:?}");
        assert!(of(kind, GroupBy::Mapping).is_empty(), "mappings are listed in any case");
        let text = report(kind, Format::Text, &source, &by(GroupBy::Unit));
        assert!(text.contains("web.service"), "{kind:?}");
        let json = json_of(kind, &source, &Options::default());
        assert_eq!(json["group_by"], json!("command"), "{kind:?}");
    }
}

#[test]
fn a_recording_without_cgroups_says_how_to_get_them() {
    let mut out = vec![];
    let error = write(Kind::Wss, Format::Text, &build(), &Selection::default(), &by(GroupBy::Unit), &mut out);
    let error = error.unwrap_err();
    assert!(matches!(error, ReportError::NoCgroups) && error.to_string().contains("record again"), "{error}");
}

#[test]
fn groups_by_mapping_are_over_all_targets() {
    for kind in [Kind::Summary, Kind::Wss] {
        let found = groups(kind, &build(), &by(GroupBy::Mapping));
        assert_eq!(found.len(), 2, "{kind:?}");
        let heap = found.iter().find(|group| group["name"] == "[heap]").unwrap();
        assert_eq!((&heap["processes"], &heap["pids"]), (&json!(11), &Value::Null));
        assert_eq!(heap["peak_bytes"], json!(81 * MIB), "{kind:?}: two compilers and make");
    }
    assert!(groups(Kind::Wss, &build(), &by(GroupBy::Mapping))[1]["mean_bytes"] == json!(0), "no access");
}

#[test]
fn a_process_that_was_no_longer_known_keeps_its_name() {
    let mut source = build();
    let of_cc1 = |row: &&mut Row| row.target.id == process(100);
    source.rows.iter_mut().rfind(of_cc1).unwrap().info = Arc::default();
    assert_eq!(json_of(Kind::Summary, &source, &Options::default())["targets"][1]["command"], json!(CC1));
    assert_eq!(groups(Kind::Summary, &source, &Options::default()).len(), 2);
}

#[test]
fn a_summary_is_sorted_by_what_was_asked_for() {
    let mut source = recording(&[(1, "big", None, 64, 1, 4), (2, "able", None, 8, 1, 4)]);
    for row in source.rows.iter_mut().filter(|row| row.target.id == process(1)) {
        row.target.regions.iter_mut().for_each(|region| region.nr_accesses = 0);
    }
    let of = |summary_sort| {
        let summary = json_of(Kind::Summary, &source, &Options { summary_sort, ..Options::default() });
        let lists = ["groups", "mappings"].map(|list| summary[list].as_array().unwrap().clone());
        (names(&lists[0]).join(" "), names(&lists[1]).join(" "))
    };
    assert_eq!(of(SummarySort::Size), ("big able".into(), "[heap] anonymous".into()));
    assert_eq!(of(SummarySort::Cold), ("big able".into(), "anonymous [heap]".into()));
    assert_eq!(of(SummarySort::Hot), ("able big".into(), "[heap] anonymous".into()));
    assert_eq!(of(SummarySort::Wss), of(SummarySort::Hot));
    assert_eq!(of(SummarySort::Name), ("able big".into(), "[heap] anonymous".into()));
}

/// Two processes with the same pages, of which a survey each second finds 6 of 10 MiB touched. Both live for three of
/// six seconds, the second two of them with the first; the first survey after the end of a process finds nothing.
fn surveyed(total: bool) -> Made {
    let sums = |mib: u64| PageSums {
        figures: Figures { present: 10 * mib / 10 * MIB, touched: 6 * mib / 10 * MIB, ..Figures::default() },
        within: [6 * mib / 10 * MIB; WINDOWS.len()],
        ..PageSums::default()
    };
    let mut source = recording(&[(1, "a x", None, 10, 1, 60), (2, "a y", None, 10, 1, 60)]);
    let mappings = Arc::clone(&source.rows[0].target.mappings);
    let target = |pid, mib| TargetSurvey {
        id: process(pid),
        mappings: Arc::clone(&mappings),
        by_mapping: vec![MappingSums::new(0, &mappings, sums(mib)).unwrap()],
        by_block: [].into_iter().collect(),
        by_node: Vec::new(),
    };
    let found =
        [vec![], vec![(1, 10)], vec![(1, 10), (2, 10)], vec![(1, 10), (2, 10)], vec![(1, 0), (2, 10)], vec![(2, 0)]];
    let info = |pid: u32| (process(pid), source.rows[0].info.clone());
    let infos: Arc<[_]> = [info(1), info(2)].into();
    source.surveys = (1..)
        .zip(found)
        .map(|(second, found)| SurveyRecord {
            survey: SurveySnapshot {
                time: Duration::from_secs(second),
                interval: Duration::from_secs(u64::from(second > 1)),
                total: total.then(|| TotalSums { sums: sums(10), shared: 10 * MIB }),
                by_node: Vec::new(),
                targets: found.into_iter().map(|(pid, mib)| target(pid, mib)).collect(),
                ..SurveySnapshot::default()
            },
            cpu: None,
            infos: Arc::clone(&infos),
            ..SurveyRecord::default()
        })
        .collect();
    source
}

#[test]
fn surveys_tell_the_means_over_lives_and_the_sum_of_a_group() {
    let source = surveyed(false);
    let wss = groups(Kind::Wss, &source, &by(GroupBy::Process));
    for of in &wss {
        assert_eq!((&of["mean_bytes"], &of["present_bytes"]), (&json!(6 * MIB), &json!(10 * MIB)), "{of}");
    }
    let group = &groups(Kind::Wss, &source, &by(GroupBy::Command))[0];
    assert_eq!((&group["peak_bytes"], &group["peak_ns"]), (&json!(12 * MIB), &json!(3_000_000_000_u64)));
    assert_eq!((&group["mean_bytes"], &group["counted_once"]), (&json!(9 * MIB), &json!(false)));
    let summary = json_of(Kind::Summary, &source, &by(GroupBy::Command));
    assert_eq!(summary["groups"][0]["resident_bytes"], json!(15 * MIB));
    assert_eq!(summary["targets"][0]["resident_bytes"], json!(10 * MIB));
    let mapped = groups(Kind::Wss, &source, &by(GroupBy::Mapping));
    assert_eq!((&mapped[0]["name"], &mapped[0]["peak_bytes"]), (&json!("[heap]"), &json!(12 * MIB)));
}

#[test]
fn a_process_that_only_surveys_have_found_has_its_size_and_its_life() {
    let mut source = surveyed(false);
    source.rows.retain(|row| row.target.id == process(1));
    let summary = json_of(Kind::Summary, &source, &by(GroupBy::Process));
    for of in [&summary["targets"][1], &summary["groups"][1]] {
        assert_eq!((&of["size_bytes"], &of["unknown_bytes"]), (&json!(10 * MIB), &json!(10 * MIB)));
        assert_eq!((&of["first_ns"], &of["last_ns"]), (&json!(2_000_000_000_u64), &json!(6_000_000_000_u64)));
    }
}

#[test]
fn pages_count_once_in_the_group_of_all_targets_where_the_recording_tells() {
    let group = &groups(Kind::Wss, &surveyed(true), &by(GroupBy::Command))[0];
    assert_eq!((&group["peak_bytes"], &group["counted_once"]), (&json!(6 * MIB), &json!(true)));
}

#[test]
fn a_group_has_the_proportional_memory_of_its_processes_while_they_live() {
    let mut source = build();
    let used = |pid| (process(pid), MemoryUse { resident: 80 * MIB, proportional: Some(70 * MIB), swapped: 0 });
    let activity = |second, memory| Activity {
        time: Duration::from_secs(second),
        schemes: vec![],
        memory,
        system: SystemMemory::default(),
        ..Activity::default()
    };
    source.activities =
        vec![activity(1, vec![used(100)]), activity(2, vec![used(101), used(102)]), activity(6, vec![])];
    let summary = json_of(Kind::Summary, &source, &Options::default());
    assert_eq!(summary["groups"][0]["proportional_bytes"], json!(105 * MIB));
    assert_eq!(summary["groups"][1]["proportional_bytes"], Value::Null);
    assert_eq!(summary["targets"][1]["proportional_bytes"], json!(70 * MIB));
}

#[test]
fn texts_name_the_biggest_groups_and_count_the_others() {
    let programs: Vec<String> = (1..=30).map(|nth| format!("/usr/bin/program-{nth} --number {nth}")).collect();
    let processes: Vec<Process<'_>> = (1..=30)
        .zip(&programs)
        .map(|(nth, program)| (nth, program.as_str(), None, u64::from(4 * nth), 1 + nth, 31 + nth))
        .collect();
    let source = recording(&processes);
    let text = |kind, columns, by| {
        let terminal = Terminal { columns, rows: 24, ..Terminal::default() };
        report(kind, Format::Text, &source, &Options { terminal, by, ..Options::default() })
    };
    insta::assert_snapshot!("summary-80", text(Kind::Summary, 80, None));
    insta::assert_snapshot!("summary-120", text(Kind::Summary, 120, Some(GroupBy::Process)));
    insta::assert_snapshot!("summary-mapping", text(Kind::Summary, 100, Some(GroupBy::Mapping)));
    insta::assert_snapshot!("wss-80", text(Kind::Wss, 80, None));
}

/// The layers of a picture: what each says of itself, and where it begins and ends across.
fn layers(svg: &str) -> Vec<(String, f64, f64)> {
    let layer = |line: &str| {
        let (path, rest) = line.strip_prefix("<path d=\"")?.split_once("\" fill=")?;
        let tip = rest.split_once("<title>")?.1.split_once("</title>")?.0;
        let number = |text: &str| text.split(['H', 'V', 'Z', ' ']).next()?.parse::<f64>().ok();
        let across = path.split(['M', 'H']).filter_map(number);
        let (left, right) = across.fold((f64::MAX, 0.0_f64), |(left, right), x| (left.min(x), right.max(x)));
        Some((tip.to_owned(), left, right))
    };
    svg.lines().filter_map(layer).collect()
}

#[test]
fn the_picture_of_the_working_set_has_a_layer_for_each_of_the_biggest_groups_and_one_for_the_others() {
    let found = layers(&report(Kind::Wss, Format::Svg, &build(), &by(GroupBy::Command)));
    let tips: Vec<&str> = found.iter().map(|(tip, ..)| tip.as_str()).collect();
    let [cc1, make] = &tips[..] else { panic!("{tips:?}") };
    assert!(cc1.starts_with("cc1: ") && *make == "make: 1 MiB", "{tips:?}");

    let svg = report(Kind::Wss, Format::Svg, &build(), &by(GroupBy::Process));
    assert!(svg.contains("Working set by process: 11 groups"), "{svg}");
    let found = layers(&svg);
    assert_eq!(found.len(), 9, "{found:?}");
    assert!(found[..8].iter().all(|(tip, ..)| tip.contains(" cc1 -quiet") && tip.ends_with(": 40 MiB")), "{found:?}");
    assert!(found[8].0.starts_with("3 others: "), "{found:?}");
    // A compiler that lived for half a second of six has a twelfth of the width, within a column on each side.
    let (_, left, right) = found.iter().find(|(tip, ..)| tip.starts_with("102 ")).unwrap();
    let (_, first, last) = &found[8];
    let share = (right - left) / (last - first);
    assert!((share - 1.0 / 12.0).abs() < 0.01, "{share}");

    let alone = recording(&[(1, "a", None, 4, 1, 4)]);
    assert!(layers(&report(Kind::Wss, Format::Svg, &alone, &Options::default())).is_empty());
    let mapped = layers(&report(Kind::Wss, Format::Svg, &alone, &by(GroupBy::Mapping)));
    assert_eq!(mapped.len(), 1, "what was never accessed has no layer: {mapped:?}");
}

#[test]
fn the_picture_of_the_summary_has_a_bar_for_each_group() {
    let svg = |options: &Options| report(Kind::Summary, Format::Svg, &build(), options);
    let picture = svg(&Options::default());
    for text in [">by command, means", ">cc1</text>", "10 processes", ">make</text>", ">by mapping, means", ">[heap]<"]
    {
        assert!(picture.contains(text), "{text} in {picture}");
    }
    let picture = svg(&by(GroupBy::Mapping));
    assert!(picture.contains(">by mapping, means over the life") && !picture.contains("over all of the time"));
    let many: Vec<Process<'_>> = (1..=30).map(|pid| (pid, "a", None, u64::from(pid), 1, 2)).collect();
    let picture = report(Kind::Summary, Format::Svg, &recording(&many), &by(GroupBy::Process));
    assert!(picture.contains(">30 a</text>") && picture.contains("10 more, 10 MiB at most each"), "{picture}");
    assert!(report(Kind::Html, Format::Html, &build(), &Options::default()).contains("10 processes"));
}

#[test]
fn the_page_has_the_groups_and_then_the_targets_the_largest_first() {
    let page = report(Kind::Html, Format::Html, &build(), &Options::default());
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(at("<th>command</th><th>processes</th>") < at("<tr><th>cc1</th><td>10</td>"));
    assert!(at("<tr><th>cc1</th><td>10</td>") < at("<tr><th>make</th><td>1</td>"));
    assert!(at("<tr><th>100 cc1 -quiet") < at("<tr><th>1 make -j2"));
    let page = report(Kind::Html, Format::Html, &build(), &by(GroupBy::Process));
    assert!(!page.contains("<th>processes</th>"));
}

#[test]
fn a_process_of_another_pid_namespace_is_shown_with_both_ids() {
    let mut source = recording(&[(1234, "/bin/server -v", None, 2, 1, 4)]);
    for row in &mut source.rows {
        row.info = Arc::new(TargetInfo { inner_pid: Some(7), ..(*row.info).clone() });
    }
    for kind in [Kind::Summary, Kind::Tune] {
        let text = report(kind, Format::Text, &source, &Options::default());
        assert!(text.contains("server -v (pid 1234 (inside: 7))"), "{text}");
        assert_eq!(json_of(kind, &source, &Options::default())["targets"][0]["inner_pid"], 7);
    }
}
