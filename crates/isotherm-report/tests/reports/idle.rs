//! The report of `isotherm idle`: text at several widths, JSON by its schema, and the text format of Prometheus.

use isotherm_core::{IdleTally, PageState};
use isotherm_report::idle::{
    IdleCost, IdleFigures, IdleFormat, IdleReport, MappingFigures, NodeFigures, ProcessFigures, cgroup_tree, write_idle,
};
use isotherm_report::{Colour, Terminal};
use serde_json::Value;

use crate::made::valid::assert_valid;

const MIB: u64 = 1 << 20;

/// A tally of MiB: idle for a number of intervals, accessed, unobservable.
fn tally(idle: &[(u8, u64)], accessed: u64, unobservable: u64) -> IdleTally {
    let mut tally = IdleTally::default();
    idle.iter().for_each(|&(intervals, mib)| tally.add(PageState::Idle(intervals), mib * MIB));
    tally.add(PageState::Accessed, accessed * MIB);
    tally.add(PageState::Unobservable, unobservable * MIB);
    tally
}

fn made(ages: bool) -> IdleReport {
    let mut locked = tally(&[(1, 300), (2, 200), (9, 500)], 24, 0);
    locked.add(PageState::Unevictable, 3 * MIB);
    let owns = [
        (Some("/".into()), None, tally(&[(1, 30)], 10, 2)),
        (Some("/system.slice/database.service".into()), None, locked),
        (Some("/system.slice/cron.service".into()), None, tally(&[(9, 2)], 0, 0)),
        (Some("/system.slice/small.service".into()), None, tally(&[(9, 1)], 0, 0)),
        (Some("/system.slice/smaller.service".into()), None, tally(&[], 1, 0)),
        (Some("/user.slice/user-1000.slice/session \"7\"\\\u{1b}[31m.scope".into()), None, tally(&[(1, 80)], 600, 0)),
        (None, Some(4711), tally(&[(40, 64)], 0, 0)),
    ];
    let mut total = IdleTally::default();
    owns.iter().for_each(|(_, _, own)| total += own);
    let mapping = |start: u64, name: &str, tally: IdleTally| MappingFigures {
        start,
        end: start + tally.size(),
        permissions: "rw-p".into(),
        name: name.into(),
        figures: IdleFigures::new(&tally, ages),
    };
    IdleReport {
        number: 3,
        time_unix_ns: 1_700_000_000_000_000_000,
        interval_ns: 60_000_400_000,
        cut_short: false,
        way: "idle_page_tracking",
        cgroup_version: Some(2),
        cost: IdleCost { cpu_ns: 42_000_000, wall_ns: 43_000_000 },
        notes: vec!["process 17 has ended".into()],
        total: IdleFigures::new(&total, ages),
        shared: None,
        nodes: Vec::new(),
        cgroups: cgroup_tree(&owns, ages),
        processes: vec![ProcessFigures {
            pid: 1234,
            inner_pid: Some(7),
            command: "database --serve\n".into(),
            cgroup: Some("/system.slice/database.service".into()),
            figures: IdleFigures::new(&tally(&[(1, 290)], 20, 1), ages),
            shared_bytes: 0,
            mappings: vec![
                mapping(0x1000, "anonymous", tally(&[(1, 200)], 10, 0)),
                mapping(0x7000_0000_0000, "/usr/lib/libc.so.6", tally(&[], 0, 1)),
                mapping(0x7f00_0000_0000, "anonymous", tally(&[(1, 90)], 10, 0)),
            ],
        }],
    }
}

/// A report of the processes of a machine with two memory nodes, by page tables.
fn of_processes() -> IdleReport {
    let mut report = IdleReport { way: "page_tables", notes: Vec::new(), ..made(false) };
    report.cgroups.clear();
    report.shared = Some(IdleFigures::new(&tally(&[(1, 64)], 32, 4), false));
    let node = |node, tally| NodeFigures { node, figures: IdleFigures::new(&tally, false) };
    report.nodes = vec![
        node(Some(0), tally(&[(1, 900)], 300, 0)),
        node(Some(1), tally(&[(1, 177)], 334, 0)),
        node(None, tally(&[], 1, 2)),
    ];
    report.processes[0].shared_bytes = 100 * MIB;
    report.processes[0].mappings.clear();
    let mut other = report.processes[0].clone();
    (other.pid, other.shared_bytes) = (1235, 0);
    report.processes.push(other);
    report
}

fn written(report: &IdleReport, format: IdleFormat, columns: usize) -> String {
    let terminal = Terminal { columns, rows: 24, colour: Colour::None, unicode: true };
    let mut out = Vec::new();
    write_idle(report, format, &terminal, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_text_at_80_columns() {
    insta::assert_snapshot!(written(&made(true), IdleFormat::Text, 80));
}

#[test]
fn the_text_at_120_columns() {
    insta::assert_snapshot!(written(&made(false), IdleFormat::Text, 120));
}

#[test]
fn the_text_shows_memory_nodes_and_what_several_processes_map() {
    insta::assert_snapshot!(written(&of_processes(), IdleFormat::Text, 80));
}

#[test]
fn no_line_is_wider_than_the_terminal_and_control_characters_are_escaped() {
    for columns in [20, 40, 60, 80, 100, 200] {
        let texts = [made(true), of_processes()].map(|report| written(&report, IdleFormat::Text, columns));
        for line in texts.iter().flat_map(|text| text.lines()) {
            assert!(line.chars().count() <= columns, "{columns}: {line}");
            assert!(!line.contains(char::is_control), "{line:?}");
        }
    }
}

#[test]
fn the_json_matches_its_schema() {
    for (report, ages) in [(made(false), false), (made(true), true), (of_processes(), false)] {
        let json = written(&report, IdleFormat::Json, 80);
        assert_eq!(json.lines().count(), 1);
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_valid("idle", &value);
        assert_eq!(value["total"].get("idle_by_intervals").is_some(), ages);
    }
}

/// A line with a sample, parsed by the rules of the format: a name, labels in quotes with three escapes, and a number.
fn sample(line: &str) -> (String, Vec<(String, String)>, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, rest) = series.split_once('{').unwrap_or((series, "}"));
    assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
    let mut labels = Vec::new();
    let mut chars = rest.chars();
    loop {
        let label: String = chars.by_ref().take_while(|c| !matches!(c, '=' | '}')).collect();
        if label.is_empty() {
            break;
        }
        assert_eq!(chars.next(), Some('"'), "{line}");
        let mut text = String::new();
        loop {
            match chars.next().unwrap() {
                '"' => break,
                '\\' => text.push(match chars.next().unwrap() {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("the escape \\{c} in {line}"),
                }),
                c => text.push(c),
            }
        }
        labels.push((label, text));
        assert!(matches!(chars.next(), Some(',' | '}')), "{line}");
    }
    (name.into(), labels, value.parse().unwrap())
}

#[test]
fn the_text_format_of_prometheus_is_valid_and_sums_are_right() {
    let report = made(true);
    let text = written(&report, IdleFormat::Prometheus, 80);
    let mut described = Vec::new();
    let mut samples = Vec::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            described.push(help.split_once(' ').unwrap().0.to_owned());
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            assert_eq!(kind, format!("{} gauge", described.last().unwrap()));
        } else {
            let sample = sample(line);
            assert_eq!(&sample.0, described.last().unwrap(), "samples follow their description");
            samples.push(sample);
        }
    }
    described.dedup();
    let names = described.len();
    described.sort();
    described.dedup();
    assert_eq!(described.len(), names, "each is described once");

    let sum = |name: &str, state: &str| -> f64 {
        let of = samples.iter().filter(|(n, labels, _)| n == name && labels.contains(&("state".into(), state.into())));
        of.map(|(_, _, value)| value).sum()
    };
    for (state, bytes) in [("idle", report.total.idle_bytes), ("accessed", report.total.accessed_bytes)] {
        assert_eq!(sum("isotherm_idle_cgroup_memory_bytes", state), bytes as f64);
        assert_eq!(sum("isotherm_idle_memory_bytes", state), bytes as f64);
    }
    // A control character is written out, because metrics may go to a terminal.
    let name = "/user.slice/user-1000.slice/session \"7\"\\\\x1b[31m.scope";
    assert!(samples.iter().any(|(_, labels, _)| labels.contains(&("cgroup".into(), name.into()))));
    // The bands are cumulative: memory that has been idle for two minutes has been idle for one minute too.
    let at_least = |seconds: &str| {
        let database = ("cgroup".into(), "/system.slice/database.service".into());
        let labels = vec![database, ("at_least_seconds".into(), seconds.into())];
        samples.iter().find(|(_, l, _)| *l == labels).map(|(_, _, value)| *value as u64 / MIB)
    };
    assert_eq!((at_least("60"), at_least("120"), at_least("480")), (Some(1000), Some(700), Some(500)));
}

#[test]
fn the_metrics_of_nodes_and_shared_memory_have_a_sample_for_each_state() {
    let text = written(&of_processes(), IdleFormat::Prometheus, 80);
    let value = |series: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map(|value| value.parse::<u64>().unwrap() / MIB)
    };
    for (series, mib) in [
        ("isotherm_idle_shared_memory_bytes{state=\"idle\"}", 64),
        ("isotherm_idle_shared_memory_bytes{state=\"unobservable\"}", 4),
        ("isotherm_idle_node_memory_bytes{node=\"1\",state=\"accessed\"}", 334),
        ("isotherm_idle_node_memory_bytes{node=\"\",state=\"unobservable\"}", 2),
    ] {
        assert_eq!(value(series), Some(mib), "{series}: {text}");
    }
    let of_process = text.lines().filter(|line| line.starts_with("isotherm_idle_process_shared_memory_bytes{"));
    assert_eq!(of_process.count(), 2);
    let alone = written(&made(false), IdleFormat::Prometheus, 80);
    assert!(!alone.contains("shared_memory") && !alone.contains("isotherm_idle_node"), "{alone}");
}
