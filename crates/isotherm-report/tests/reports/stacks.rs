//! Which code mapped memory.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{BLOCK_SIZE, BlockSums, MappingSums, PageSums, SurveySnapshot, TargetSurvey, WINDOWS};
use isotherm_core::{Allocation, Allocations, Figures, Mapping, MappingCall, StackFrame};
use isotherm_record::SurveyRecord;
use isotherm_report::{Format, GroupBy, Kind, Options, ReportError, Selection, Terminal, write};
use serde_json::json;

use crate::made::checked::{json_of, report};
use crate::made::{ANON, HEAP, MIB, Made, made, mapping, process, region, row};

fn by_stack() -> Options {
    Options {
        by: Some(GroupBy::Stack),
        terminal: Terminal { columns: 80, rows: 40, ..Terminal::default() },
        ..Options::default()
    }
}

fn frames(functions: &[&str]) -> Arc<[StackFrame]> {
    let frame = |name: &&str| StackFrame {
        function: Some((*name).into()),
        module: Some(if *name == "malloc" { "/lib/libc.so.6" } else { "/bin/program" }.into()),
        offset: 16,
    };
    functions.iter().map(frame).collect()
}

/// A process with a heap of 16 MiB that is in use, 32 MiB of anonymous memory that is not, and a file. The heap belongs
/// to one stack. Half of the anonymous memory belongs to another one, which begins to own it after a second.
fn allocated() -> Made {
    let mappings: Arc<[Mapping]> = vec![
        mapping(HEAP, HEAP + 16 * MIB, "[heap]"),
        mapping(ANON, ANON + 32 * MIB, ""),
        mapping(ANON + 64 * MIB, ANON + 72 * MIB, "/lib/libc.so.6"),
    ]
    .into();
    let regions = |index| {
        vec![
            region(HEAP, HEAP + 16 * MIB, 20, index),
            region(ANON, ANON + 32 * MIB, 0, index),
            region(ANON + 64 * MIB, ANON + 72 * MIB, 0, index),
        ]
    };
    let mut source = made((1..=20).map(|index| row(index, 1, &mappings, regions(index))).collect());
    let call = |seconds, call, start: u64, mib: u64, stack| Allocation {
        time: Duration::from_secs(seconds),
        target: process(1),
        call,
        range: mapping(start, start + mib * MIB, "").range,
        stack,
    };
    source.allocations = vec![
        Allocations {
            time: Duration::ZERO,
            stacks: vec![(3, frames(&["malloc", "table_grow", "main"]))],
            calls: vec![call(0, MappingCall::Brk, HEAP, 16, Some(3))],
            lost: 0,
        },
        Allocations {
            time: Duration::from_secs(1),
            stacks: vec![(9, frames(&["mmap", "open_index", "main"]))],
            calls: vec![call(1, MappingCall::Mmap, ANON + 16 * MIB, 16, Some(9))],
            lost: 0,
        },
    ];
    source
}

#[test]
fn memory_belongs_to_the_stack_that_mapped_it_while_it_does() {
    let summary = json_of(Kind::Summary, &allocated(), &by_stack());
    let groups = summary["groups"].as_array().unwrap();
    let told: Vec<_> = groups.iter().map(|of| (of["name"].as_str().unwrap(), of["hot_bytes"] != json!(0))).collect();
    let unknown = "(mapped before, or stack not recorded)";
    let of = |name: &str| groups.iter().find(|of| of["name"] == json!(name)).unwrap();
    assert_eq!(told.len(), 4, "{told:?}");
    let table = of("malloc ← table_grow ← main");
    assert_eq!((&table["size_bytes"], &table["hot_bytes"]), (&json!(16 * MIB), &json!(16 * MIB)));
    assert_eq!((&table["processes"], &table["pids"]), (&json!(1), &json!(null)));
    assert_eq!(table["frames"][1], json!({"function": "table_grow", "module": "/bin/program", "offset": 16}));
    let index = of("mmap ← open_index ← main");
    assert_eq!((&index["size_bytes"], &index["first_ns"]), (&json!(16 * MIB), &json!(900_000_000)));
    // 32 MiB up to the call, 16 MiB after it.
    assert_eq!(of(unknown)["peak_bytes"], json!(32 * MIB));
    assert_eq!(of("(files and other memory with a name)")["size_bytes"], json!(8 * MIB));
}

#[test]
fn surveys_tell_what_each_stack_holds_and_does_not_use() {
    let mut source = allocated();
    // After the call at 1 s, all of the anonymous memory belongs to a stack.
    let first = source.allocations[1].calls[0].clone();
    let range = mapping(ANON, ANON + 16 * MIB, "").range;
    source.allocations[1].calls.push(Allocation { stack: Some(3), range, ..first });
    let block = |nth: u64, touched, idle| BlockSums {
        pages: Figures { present: 512, touched, ..Figures::default() },
        start: ANON + nth * BLOCK_SIZE,
        idle: Duration::from_secs(idle),
        ..BlockSums::default()
    };
    let blocks: Vec<_> = (0..8).map(|nth| block(nth, 512, 0)).chain((8..10).map(|nth| block(nth, 0, 1000))).collect();
    let sums = PageSums {
        figures: Figures { present: 20 * MIB, touched: 16 * MIB, ..Figures::default() },
        within: [16 * MIB; WINDOWS.len()],
        ..PageSums::default()
    };
    let found = |seconds: u64, interval: u64| SurveyRecord {
        survey: SurveySnapshot {
            time: Duration::from_secs(seconds),
            interval: Duration::from_secs(interval),
            targets: vec![TargetSurvey {
                id: process(1),
                mappings: Arc::clone(&source.rows[0].target.mappings),
                by_mapping: vec![MappingSums::new(1, &source.rows[0].target.mappings, sums).unwrap()],
                by_block: blocks.iter().copied().collect(),
                by_node: Vec::new(),
            }],
            ..SurveySnapshot::default()
        },
        ..SurveyRecord::default()
    };
    source.surveys = vec![found(1, 0), found(2, 1), found(12, 10)];
    let summary = json_of(Kind::Summary, &source, &by_stack());
    let of = |name: &str| {
        let groups = summary["groups"].as_array().unwrap();
        let group = groups.iter().find(|of| of["name"] == json!(name)).unwrap();
        ["resident_bytes", "touched_bytes", "idle_10s_bytes"].map(|field| group[field].as_u64().unwrap())
    };
    assert_eq!(of("malloc ← table_grow ← main"), [16 * MIB, 16 * MIB, 0]);
    assert_eq!(of("mmap ← open_index ← main"), [4 * MIB, 0, 4 * MIB]);
}

#[test]
fn the_picture_is_a_flame_graph_in_which_callers_are_as_wide_as_what_they_called() {
    let picture = report(Kind::Summary, Format::Svg, &allocated(), &by_stack());
    let boxes: Vec<(f64, f64, &str)> = picture
        .lines()
        .filter_map(|line| {
            let attribute =
                |name: &str| line.split_once(&format!(" {name}=\"")).map(|(_, rest)| rest.split('"').next());
            let number = |name: &str| attribute(name).flatten().and_then(|text| text.parse().ok());
            let tip = line.split_once("<title>")?.1.split(" (").next()?;
            Some((number("width")?, number("y")?, tip))
        })
        .collect();
    let of = |tip: &str| boxes.iter().find(|of| of.2 == tip).unwrap_or_else(|| panic!("no {tip}: {boxes:?}"));
    let (main, table, malloc) = (of("main: 32 MiB"), of("table_grow: 16 MiB"), of("malloc: 16 MiB"));
    assert!((main.0 - 2.0 * table.0).abs() < 2.0 && (table.0 - malloc.0).abs() < 0.1, "{boxes:?}");
    assert!(of("all: 63.2 MiB").1 > main.1 && main.1 > table.1 && table.1 > malloc.1, "{boxes:?}");
    assert!(picture.contains("malloc: 16 MiB (25 % of all), 100 % accessed"), "{picture}");
    assert!(picture.contains("mmap: 16 MiB (25 % of all), 0 % accessed"), "{picture}");
    assert!(of("accessed: 16 MiB").1 < malloc.1 && of("not accessed: 16 MiB").1 < malloc.1, "{boxes:?}");
}

#[test]
fn a_recording_without_call_stacks_says_how_to_get_them() {
    let source = Made { allocations: vec![], ..allocated() };
    let error = write(Kind::Summary, Format::Text, &source, &Selection::default(), &by_stack(), &mut Vec::new());
    assert!(matches!(error, Err(ReportError::NoStacks)));
}

#[test]
fn text_numbers_the_stacks_and_tells_their_functions_below() {
    insta::assert_snapshot!(report(Kind::Summary, Format::Text, &allocated(), &by_stack()));
}
