//! The probes for tracers: what the program says of them, and what a tracer gets.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use isotherm_testing::installed_or_skip;
use object::{Object, ObjectSection};
use serde_json::Value;

use crate::common::{HOT_IN_COLD, ISOTHERM, Kept, Place};

/// The probes, each with the number of its arguments.
const PROBES: [(&str, usize); 4] = [("aggregated", 6), ("scheme_applied", 6), ("surveyed", 4), ("tuned", 3)];

/// The probes in the notes of the program: provider, name, number of arguments, and the address of the semaphore.
fn notes() -> Vec<(String, String, usize, u64)> {
    let bytes = std::fs::read(ISOTHERM).unwrap();
    let program = object::File::parse(&*bytes).unwrap();
    let section = program.section_by_name(".note.stapsdt").expect("the program has notes of probes");
    let mut rest = section.data().unwrap();
    let mut notes = Vec::new();
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    while rest.len() >= 12 {
        let (owner, size) = (number(rest).next_multiple_of(4), number(&rest[4..]).next_multiple_of(4));
        let description = &rest[12 + owner..12 + owner + size];
        let semaphore = u64::from_le_bytes(description[16..24].try_into().unwrap());
        let mut texts = description[24..].split(|byte| *byte == 0);
        let mut next = || String::from_utf8_lossy(texts.next().unwrap()).into_owned();
        let (provider, name, arguments) = (next(), next(), next());
        notes.push((provider, name, arguments.split_whitespace().count(), semaphore));
        rest = &rest[12 + owner + size..];
    }
    notes
}

#[test]
fn the_program_tells_tracers_its_probes() {
    let notes = notes();
    for (name, arguments) in PROBES {
        let is_it = |(provider, known, ..): &&(String, String, usize, u64)| provider == "isotherm" && known == name;
        let found: Vec<_> = notes.iter().filter(is_it).collect();
        assert!(!found.is_empty(), "{name} is missing: {notes:?}");
        for (.., count, semaphore) in found {
            assert!(*count == arguments && *semaphore != 0, "{name}: {count} arguments, semaphore at {semaphore:#x}");
        }
    }
    assert!(notes.iter().all(|(_, name, ..)| PROBES.iter().any(|(known, _)| known == name)), "{notes:?}");
}

/// What a tracer says that listens to all probes of a run with schemes, until it has heard each of them.
fn traced(place: &Place) -> Result<(u32, BTreeMap<String, Value>), String> {
    let is_missing = |error| format!("bpftrace: {error}");
    Command::new("bpftrace").arg("--version").stdout(Stdio::null()).status().map_err(is_missing)?;
    std::fs::write(place.path("hot.toml"), HOT_IN_COLD).unwrap();
    std::fs::write(place.path("s.yaml"), "- {name: counts-all, action: stat}\n").unwrap();
    let quiet = |command: &mut Command| Kept(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let target = quiet(&mut place.isotherm(&["workload", "hot.toml", "--time", "600s"]));
    let pid = target.0.id();
    let run = quiet(&mut place.isotherm(&["run", "--schemes", "s.yaml", "--pid", &pid.to_string()]));
    let heard = |what: &str| format!("@{what} = 1; if (@regions && @survey && @scheme && @intervals) {{ exit(); }}");
    let probe = |name: &str| format!("usdt:{ISOTHERM}:isotherm:{name}");
    let script = [
        format!("{} {{ @pid = arg0; @largest = max(arg2 - arg1); {} }}", probe("aggregated"), heard("regions")),
        format!("{} {{ @present = max(arg1); {} }}", probe("surveyed"), heard("survey")),
        format!("{} {{ @name[str(arg0, arg1)] = arg2; {} }}", probe("scheme_applied"), heard("scheme")),
        format!("{} {{ @aggregation = arg1; {} }}", probe("tuned"), heard("intervals")),
        "interval:s:60 { exit(); }".to_owned(),
    ]
    .join("\n");
    let mut command = Command::new("bpftrace");
    let output = command.args(["-f", "json", "-p", &run.0.id().to_string(), "-e", &script]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let lines = out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let maps = lines.filter(|line| line["type"] == "map" || line["type"] == "stats");
    let all = maps.flat_map(|line| line["data"].as_object().cloned().unwrap_or_default()).collect();
    Ok((pid, all))
}

#[test]
fn a_tracer_gets_regions_surveys_schemes_and_intervals() {
    let place = Place::new();
    let (pid, heard) = installed_or_skip!(traced(&place));
    assert_eq!(heard["@pid"], pid, "{heard:?}");
    assert_eq!(heard["@name"]["counts-all"], pid, "{heard:?}");
    let number = |name: &str| heard[name].as_u64().unwrap_or_else(|| panic!("{name}: {heard:?}"));
    assert!(number("@present") > 64 << 20 && number("@largest") >= 4096, "{heard:?}");
    assert!(number("@aggregation") >= 100_000, "{heard:?}");
}
