//! The fuzz targets on a fixed number of inputs, the same each time: any bytes, changed seeds, the corpus, and what
//! fuzzing has found.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use isotherm_fuzz_targets::{TARGETS, Target};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{RngSeed, TestRunner};

/// The number of inputs of each kind for each target.
const CASES: u32 = 500;

/// A part of an input that is replaced.
#[derive(Clone, Debug)]
struct Change {
    at: Index,
    replaced: usize,
    by: Replacement,
}

#[derive(Clone, Debug)]
enum Replacement {
    Bytes(Vec<u8>),
    Text(&'static str),
    /// A part of a seed.
    Seed(Index, Index, usize),
}

/// Texts that mean something to a parser.
const TEXTS: [&str; 60] = [
    ":",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "\n",
    "\t",
    "  ",
    "%",
    "#",
    "&a ",
    "*a",
    "!!int ",
    "|\n",
    ">",
    "?",
    ",",
    "---\n",
    "\r",
    "\0",
    "\u{feff}",
    "ä",
    "\u{2028}",
    "0",
    "-1",
    "1",
    "0.5",
    "5%",
    "1e400",
    "NaN",
    "max",
    "min",
    "null",
    "~",
    "true",
    "4K",
    "5 s",
    "-5 ms",
    "9999999999999999999999",
    "18446744073709551615",
    "0xffffffffffffffff",
    "schemes",
    "action: stat\n",
    "pageout",
    "4K max 0 0 5s max pageout\n",
    "{\"min\": 0, \"max\": 1}",
    "\"access_pattern\": {}",
    "\"snapshots\": []",
    "\"regions\": []",
    "\"target_id\": 4194304",
    "\"end_time\": 7",
    "offset:",
    "size:8;",
    "field:",
    " kB",
    "0-0",
    "/",
];

/// Numbers in the byte order of most file formats.
fn number() -> impl Strategy<Value = Vec<u8>> {
    let wide = select(vec![i64::MAX, i64::MIN, -1, -2, 0, 1, 1 << 30, 1 << 31, 1 << 32, 1 << 61]);
    let narrow = select(vec![i32::MAX, i32::MIN, -1, 0, 1, 3, 100]);
    prop_oneof![wide.prop_map(|n| n.to_le_bytes().to_vec()), narrow.prop_map(|n| n.to_le_bytes().to_vec())]
}

fn change() -> impl Strategy<Value = Change> {
    let by = prop_oneof![
        2 => any::<u8>().prop_map(|byte| Replacement::Bytes(vec![byte])),
        2 => number().prop_map(Replacement::Bytes),
        3 => select(TEXTS.to_vec()).prop_map(Replacement::Text),
        1 => (any::<Index>(), any::<Index>(), 1..200_usize)
            .prop_map(|(seed, at, len)| Replacement::Seed(seed, at, len)),
    ];
    // Bytes of the same number keep the layout of binary formats.
    (any::<Index>(), by, any::<bool>(), 0..12_usize).prop_map(|(at, by, keep, replaced)| {
        let replaced = match &by {
            Replacement::Bytes(bytes) if keep => bytes.len(),
            _ => replaced,
        };
        Change { at, replaced, by }
    })
}

fn apply(changes: &[Change], seeds: &[Vec<u8>], input: &mut Vec<u8>) {
    for Change { at, replaced, by } in changes {
        let at = at.index(input.len() + 1);
        let end = (at + replaced).min(input.len());
        let by = match by {
            Replacement::Bytes(bytes) => bytes,
            Replacement::Text(text) => text.as_bytes(),
            Replacement::Seed(seed, at, len) => {
                let seed = seed.get(seeds);
                let at = at.index(seed.len());
                &seed[at..(at + len).min(seed.len())]
            }
        };
        input.splice(at..end, by.iter().copied());
    }
}

fn target(name: &str) -> Target {
    TARGETS.into_iter().find(|target| target.name == name).unwrap()
}

/// Runs a target on its seeds, on what fuzzing has found, on the corpus, on any bytes, and on changed seeds.
#[track_caller]
fn check(name: &str) {
    let target = target(name);
    let seeds = (target.seeds)();
    seeds.iter().for_each(|seed| (target.run)(seed));
    kept("targets/findings", name).iter().for_each(|input| (target.run)(input));
    let corpus = kept("corpus", name);
    assert!(!corpus.is_empty(), "there is no corpus");
    corpus.iter().for_each(|input| (target.run)(input));

    let config = ProptestConfig {
        cases: CASES,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = TestRunner::new(config);
    let bytes = prop::collection::vec(any::<u8>(), 0..300);
    let text = "[\\PC\n\t]{0,200}".prop_map(String::into_bytes);
    let any_input = prop_oneof![bytes, text];
    let run = |input: Vec<u8>| {
        (target.run)(&input);
        Ok(())
    };
    runner.run(&any_input, run).unwrap_or_else(|error| panic!("{error}"));

    let changed = (select(seeds.clone()), prop::collection::vec(change(), 1..6)).prop_map(|(mut input, changes)| {
        apply(&changes, &seeds, &mut input);
        input
    });
    runner.run(&changed, run).unwrap_or_else(|error| panic!("{error}"));
}

/// The inputs in a directory of `fuzz/`: `targets/findings` has those that have revealed defects, `corpus` one for each
/// part of the code that libFuzzer has reached.
fn kept(directory: &str, name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(directory).join(name);
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
}

#[test]
fn recording_reader() {
    check("recording_reader");
}

#[test]
fn scheme_yaml() {
    check("scheme_yaml");
}

#[test]
fn scheme_lines() {
    check("scheme_lines");
}

#[test]
fn scheme_damo() {
    check("scheme_damo");
}

#[test]
fn damo_import() {
    check("damo_import");
}

#[test]
fn tracepoint_format() {
    check("tracepoint_format");
}

#[test]
fn proc_readers() {
    check("proc_readers");
}

#[test]
fn recording_convert() {
    check("recording_convert");
}

#[test]
fn pattern_toml() {
    check("pattern_toml");
}

#[test]
fn container_names() {
    check("container_names");
}

#[test]
fn perf_map() {
    check("perf_map");
}

#[test]
fn cargo_fuzz_has_the_same_targets() {
    let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz_targets")).unwrap();
    let names: BTreeSet<String> =
        files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names, TARGETS.map(|target| target.name.to_owned()).into());
    let manifest = include_str!("../../Cargo.toml");
    for name in names {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
    }
}
