//! Small files that hold very much: each takes a bounded amount of memory and time.
//!
//! The bounds are about ten times what is needed, so that only a bomb exceeds them.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use isotherm_core::{
    AddrRange, Allocation, Allocations, Mapping, MappingCall, PAGE_SIZE, RegionSnapshot, Snapshot, StackFrame,
    TargetId, TargetSnapshot,
};
use isotherm_record::{Contents, Header, Recorder, Recording, SnapshotRecord, TargetInfo};

use crate::common::{ISOTHERM, Place, Ran};

const MIB: u64 = 1 << 20;
/// The most CPU time of a call, in seconds. The kernel ends a call that takes more.
const MOST_CPU: u64 = 60;

/// What isotherm maps without any input: its text, its libraries, and the stacks of its threads.
const WITHOUT_INPUT: u64 = 256 * MIB;

/// Runs isotherm, which may take this much memory and [`MOST_CPU`]. The kernel refuses it more memory, so that it
/// aborts.
///
/// The peak of the resident memory that the kernel tells of a child holds that of this process before the child has
/// executed its program, and tests run at the same time.
fn run(place: &Place, arguments: &[&str], most: u64) -> Ran {
    let memory = (most + WITHOUT_INPUT) / 1024;
    let script = format!("ulimit -t {MOST_CPU} -v {memory} && exec \"$0\" \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, ISOTHERM]).args(arguments).current_dir(place.dir.path()).stdin(Stdio::null());
    // Each thread would reserve address space for an arena of its own.
    let output = command.env("MALLOC_ARENA_MAX", "1").output().unwrap();
    let limits = format!("{arguments:?} took more than {MOST_CPU} s of a CPU or {} MiB", most / MIB);
    assert_eq!(output.status.signal(), None, "{limits}: {}", String::from_utf8_lossy(&output.stderr));
    Ran::new(output)
}

/// A file of damo whose list of snapshots has `item` very often.
fn damo(place: &Place, name: &str, item: &str, count: usize) -> u64 {
    let mut file = ZlibEncoder::new(std::fs::File::create(place.path(name)).unwrap(), Compression::best());
    let intervals = r#"{"sample_us": 5000, "aggr_us": 100000, "ops_update_us": 1000000}"#;
    write!(file, r#"[{{"target_id": 0, "intervals": {intervals}, "snapshots": ["#).unwrap();
    let many = item.repeat(1000);
    (0..count / 1000).for_each(|_| file.write_all(many.as_bytes()).unwrap());
    file.finish().unwrap();
    std::fs::metadata(place.path(name)).unwrap().len()
}

/// A header as isotherm writes it.
fn header(place: &Place) -> Header {
    place.make_recording("a.rec");
    Recording::open(&place.path("a.rec")).unwrap().header().clone()
}

/// Writes a recording with these targets in each of `snapshots` snapshots.
fn write(place: &Place, name: &str, snapshots: u32, targets: impl Fn(u32) -> Vec<TargetSnapshot>) -> u64 {
    let mut recorder = Recorder::create(&place.path(name), &header(place)).unwrap();
    for nth in 1..=snapshots {
        let interval = Duration::from_millis(100);
        let (time, targets) = (interval * nth, targets(nth));
        let snapshot = Snapshot { time, aggregation: interval, samples: 20, targets, ..Snapshot::default() };
        recorder.write(&SnapshotRecord { snapshot, ..SnapshotRecord::default() }).unwrap();
    }
    recorder.finish().unwrap();
    std::fs::metadata(place.path(name)).unwrap().len()
}

/// The pages from `from` to `to`.
fn pages(from: u64, to: u64) -> AddrRange {
    AddrRange::new(from * PAGE_SIZE, to * PAGE_SIZE).unwrap()
}

fn region(range: AddrRange) -> RegionSnapshot {
    RegionSnapshot { nr_accesses: 1, nr_samples: 20, age: 1, ..RegionSnapshot::new(range) }
}

/// Reports on a recording, each with less memory than this.
fn report(place: &Place, recording: &str, most: u64) {
    place.make_two_recordings();
    for call in [
        "check REC",
        "report summary REC -f json",
        "report summary REC --by mapping -f json",
        "report summary REC --by command -f text",
        "report wss REC -f json",
        "report idle-time REC -f json",
        "report temperature REC -f json",
        "report heatmap REC -f json",
        "report heatmap REC -f text",
        "report regions REC -f svg -o out.svg",
        "report html REC -o out.html",
        "diff REC REC -f json",
        "tier try REC -f json",
        "cut REC --time 0s: -o out.rec",
        "merge REC other.rec -o out.rec",
        "convert REC out.csv",
    ] {
        let call = call.replace("REC", recording);
        let ran = run(place, &call.split(' ').collect::<Vec<_>>(), most);
        assert_eq!(ran.status, 0, "{call}: {}", ran.err);
    }
}

#[test]
fn reports_on_very_many_targets_take_bounded_memory_and_time() {
    let place = Place::new();
    let mappings: Arc<[Mapping]> = Arc::new([Mapping::anonymous(pages(1, 1000))]);
    let target = |pid| TargetSnapshot {
        id: TargetId::process(pid, Duration::ZERO),
        regions: vec![region(pages(1, 1000))],
        mappings: Arc::clone(&mappings),
    };
    let bytes = write(&place, "targets.rec", 3, |_| (1..=4_000).map(target).collect());
    assert!(bytes < 2 * MIB, "{bytes}");
    report(&place, "targets.rec", 512 * MIB);
}

#[test]
fn reports_on_very_many_names_take_bounded_memory_and_time() {
    let place = Place::new();
    let named =
        |nth: u64, name: String| Mapping { name: name.into(), ..Mapping::anonymous(pages(2 * nth + 1, 2 * nth + 2)) };
    let bytes = write(&place, "names.rec", 3, |time| {
        let mappings: Arc<[Mapping]> =
            (0..25_000).map(|nth| named(nth, format!("/{}", 3 * nth + u64::from(time)))).collect();
        let regions = vec![region(pages(1, 50_001))];
        vec![TargetSnapshot { id: TargetId::process(7, Duration::ZERO), regions, mappings }]
    });
    assert!(bytes < 2 * MIB, "{bytes}");
    report(&place, "names.rec", 512 * MIB);
    let ran = place.run(&["report", "summary", "names.rec", "-f", "json"]);
    let summary: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let names = summary["mappings"].as_array().unwrap();
    assert_eq!(names.len(), (1 << 16) + 1);
    assert!(names.iter().any(|name| name["name"] == "[other names]"));
}

/// A snapshot of the process 7 with memory at these pages.
fn snapshot(nth: u32) -> SnapshotRecord {
    let interval = Duration::from_millis(100);
    let target = TargetSnapshot {
        id: TargetId::process(7, Duration::ZERO),
        regions: vec![region(pages(1, 1000))],
        mappings: Arc::new([Mapping::anonymous(pages(1, 1000))]),
    };
    let (time, targets) = (interval * nth, vec![target]);
    let snapshot = Snapshot { time, aggregation: interval, samples: 20, targets, ..Snapshot::default() };
    SnapshotRecord { snapshot, ..SnapshotRecord::default() }
}

/// Writes a recording with these calls that mapped memory, each batch before a snapshot of its own.
fn write_calls(place: &Place, name: &str, batches: u32, batch: impl Fn(u32) -> Allocations) {
    let contents = Contents { allocations: true, ..Contents::default() };
    let mut recorder = Recorder::create_with(&place.path(name), &header(place), contents).unwrap();
    for nth in 1..=batches {
        recorder.write_allocations(&batch(nth)).unwrap();
        recorder.write(&snapshot(nth)).unwrap();
    }
    recorder.finish().unwrap();
}

/// A call of the process 7.
fn call(nth: u32, stack: u32) -> Allocation {
    let (target, range) = (TargetId::process(7, Duration::ZERO), pages(1, 1000));
    Allocation { time: Duration::from_millis(99) * nth, target, call: MappingCall::Mmap, range, stack: Some(stack) }
}

#[test]
fn reports_on_very_many_stacks_take_bounded_memory_and_time() {
    let place = Place::new();
    let long = "x".repeat(1 << 14);
    write_calls(&place, "stacks.rec", 40, |nth| {
        let stacks = (0..1_000).map(|each| {
            let id = 1_000 * nth + each;
            (id, [StackFrame { function: Some(format!("{id}{long}").into()), module: None, offset: 0 }].into())
        });
        let stacks: Vec<_> = stacks.collect();
        let calls = stacks.iter().map(|(id, _)| call(nth, *id)).collect();
        Allocations { time: Duration::from_millis(99) * nth, stacks, calls, lost: 0 }
    });
    for format in ["text", "json"] {
        let ran = run(&place, &["report", "summary", "stacks.rec", "--by", "stack", "-f", format], 512 * MIB);
        assert_eq!(ran.status, 0, "{}", ran.err);
    }
    for call in ["check stacks.rec", "report summary stacks.rec -f json", "convert stacks.rec out.csv"] {
        let ran = run(&place, &call.split(' ').collect::<Vec<_>>(), 512 * MIB);
        assert_eq!(ran.status, 0, "{call}: {}", ran.err);
    }
}

#[test]
fn reports_on_very_many_calls_are_refused_with_a_way_out() {
    let place = Place::new();
    write_calls(&place, "calls.rec", 10, |nth| {
        let of = |pid| Allocation { target: TargetId::process(pid, Duration::ZERO), ..call(nth, 0) };
        let calls = (100_000 * nth..100_000 * (nth + 1)).map(of).collect();
        Allocations { time: Duration::from_millis(99) * nth, stacks: vec![], calls, lost: 0 }
    });
    let ran = run(&place, &["report", "summary", "calls.rec", "--by", "stack"], 512 * MIB);
    assert!(ran.status == 1 && ran.err.contains("take more than 128 MiB of memory"), "{ran:?}");
    assert!(ran.err.contains("--target"), "{ran:?}");
    let ran = run(&place, &["report", "summary", "calls.rec", "--by", "stack", "--target", "8"], 512 * MIB);
    assert!(ran.status == 1 && ran.err.contains("nothing in the recording matches"), "{ran:?}");
}

#[test]
fn an_option_sets_the_memory_that_a_part_of_a_recording_may_take() {
    let place = Place::new();
    let target = TargetSnapshot {
        id: TargetId::process(7, Duration::ZERO),
        regions: (0..20_000).map(|nth| region(pages(2 * nth + 1, 2 * nth + 2))).collect(),
        mappings: Arc::new([Mapping::anonymous(pages(1, 40_001))]),
    };
    write(&place, "a.rec", 2, |_| vec![target.clone()]);
    place.make_two_recordings();
    for call in [
        "check a.rec",
        "report summary a.rec",
        "diff a.rec a.rec",
        "tier try a.rec",
        "cut a.rec --time 0s: -o out.rec",
        "merge a.rec other.rec -o out.rec",
        "convert a.rec out.csv",
        "check a.rec --save out.rec",
        "scheme try all.yaml a.rec",
    ] {
        std::fs::write(place.path("all.yaml"), "- {name: all, action: stat}\n").unwrap();
        let call: Vec<&str> = call.split(' ').collect();
        let ran = place.run(&[&call[..], &["--max-memory", "100K"]].concat());
        let said = ran.err + &ran.out;
        assert_ne!(ran.status, 0, "{call:?}: {said}");
        assert!(said.contains("takes more than 100 KiB of memory"), "{call:?}: {said}");
        assert!(said.contains("raise the limit with --max-memory"), "{call:?}: {said}");
        let ran = place.run(&[&call[..], &["--max-memory", "1G"]].concat());
        assert_eq!(ran.status, 0, "{call:?}: {}", ran.err);
    }
}

#[test]
fn a_batch_that_compresses_well_takes_bounded_memory() {
    let place = Place::new();
    let long = "x".repeat(1 << 20);
    let bytes = write(&place, "batch.rec", 1, |_| {
        let named = |nth: u64| Mapping {
            name: format!("/{nth}{long}").into(),
            ..Mapping::anonymous(pages(2 * nth + 1, 2 * nth + 2))
        };
        let (mappings, regions) = ((0..100).map(named).collect(), vec![region(pages(1, 201))]);
        vec![TargetSnapshot { id: TargetId::process(7, Duration::ZERO), regions, mappings }]
    });
    assert!(bytes < MIB, "{bytes}");
    for call in ["check REC", "report regions REC -f json", "report summary REC", "convert REC out.csv"] {
        let call = call.replace("REC", "batch.rec");
        let ran = run(&place, &call.split(' ').collect::<Vec<_>>(), 512 * MIB);
        let said = ran.err + &ran.out;
        assert!(ran.status != 0 && said.contains("of memory (if you trust the recording"), "{call}: {said}");
    }
}

#[test]
fn a_long_command_line_of_a_recording_is_cut() {
    let place = Place::new();
    let command = format!("/bin/program {}", "x".repeat(1_700_000));
    let info = TargetInfo { command, ..TargetInfo::default() };
    let mut recorder = Recorder::create(&place.path("long.rec"), &header(&place)).unwrap();
    for nth in 1..=2 {
        let infos = [(TargetId::process(7, Duration::ZERO), Arc::new(info.clone()))].into_iter().collect();
        recorder.write(&SnapshotRecord { infos, ..snapshot(nth) }).unwrap();
    }
    recorder.finish().unwrap();
    for call in [
        "report summary long.rec -f text",
        "report summary long.rec -f json",
        "report heatmap long.rec -f text",
        "report heatmap long.rec -f json",
        "report wss long.rec -f json",
        "report regions long.rec -f text",
        "report tune long.rec -f json",
        "tier try long.rec -f text",
    ] {
        let ran = place.run(&call.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.status, 0, "{call}: {}", ran.err);
        let longest = ran.out.split(' ').map(|word| word.matches('x').count()).max().unwrap_or_default();
        assert!(longest <= 4_096, "{call}: {longest}");
    }
    let ran = place.run(&["report", "summary", "long.rec", "-f", "json"]);
    assert!(ran.out.contains("/bin/program xxxx") && ran.out.contains("xxxx…"), "{}", ran.out);
}

/// In one test, since memory is measured as the most that any child took.
#[test]
fn small_files_that_hold_very_much_take_bounded_memory_and_time() {
    let place = Place::new();

    // Each field was compared with all before it. As many as there are in 1 MiB are read.
    for (count, told) in [(80_000, "has no field \"f0\""), (100_000, "has more than 1048576 bytes")] {
        let fields: Vec<String> = (0..count).map(|i| format!("f{i}: 1")).collect();
        std::fs::write(place.path("fields.yaml"), format!("- {{action: stat, {}}}\n", fields.join(", "))).unwrap();
        let ran = run(&place, &["scheme", "check", "fields.yaml"], 512 * MIB);
        assert!(ran.status == 1 && ran.err.contains(told), "{}", ran.err);
    }
    std::fs::write(place.path("deep.yaml"), "[".repeat(1 << 19)).unwrap();
    assert_eq!(run(&place, &["scheme", "check", "deep.yaml"], 512 * MIB).status, 1);

    // A compressed file of damo.
    let bytes = damo(&place, "small.damo", r#"{"end_time":2,"regions":[]},"#, 1_000_000);
    let ran = run(&place, &["convert", "small.damo", "small.rec", "--pid", "1"], 512 * MIB);
    assert!(bytes < 2 * MIB && ran.status == 1 && ran.err.contains("--max-memory"), "{bytes}: {}", ran.err);
    let ran = run(&place, &["convert", "small.damo", "small.rec", "--pid", "1", "--max-memory", "10M"], 512 * MIB);
    assert!(ran.err.contains("takes more than 10 MiB of memory"), "{}", ran.err);

    // A recording with many regions: reports show one snapshot after another.
    let target = TargetSnapshot {
        id: TargetId::process(7, Duration::ZERO),
        regions: (1..150_000).map(|nth| region(pages(nth, nth + 1))).collect(),
        mappings: Arc::new([Mapping::anonymous(pages(1, 150_000))]),
    };
    write(&place, "large.rec", 6, |_| vec![target.clone()]);
    for kind in ["regions", "summary", "wss", "heatmap", "overhead"] {
        let ran = run(&place, &["report", kind, "large.rec", "--format", "json"], 512 * MIB);
        assert_eq!(ran.status, 0, "{kind}: {}", ran.err);
    }
    let ran = run(&place, &["report", "regions", "large.rec", "--at", "200ms"], 512 * MIB);
    assert!(ran.out.contains("49,999 more; choose fewer"), "{}", ran.err);
    let of_pid = |pid| TargetSnapshot { id: TargetId::process(pid, Duration::ZERO), ..target.clone() };
    write(&place, "wide.rec", 2, |_| [7, 8, 9].map(of_pid).to_vec());
    let ran = run(&place, &["report", "overhead", "wide.rec", "--format", "json"], 512 * MIB);
    assert_eq!(ran.status, 0, "a snapshot of many regions in three targets: {}", ran.err);
}
