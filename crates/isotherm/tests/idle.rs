//! `isotherm idle` with page tables, which works on every machine on which the probe `bpf` works.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

#[path = "cli/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Kept, Place, Ran, bpf_works, eventually};
use isotherm_testing::{installed_or_skip, or_skip};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const COLD: u64 = 48;
const HOT: u64 = 16;

/// Starts a workload with a cold and a hot area. Returns the addresses of the areas.
fn workload(place: &Place) -> (Kept, [(u64, u64); 2]) {
    let text = format!(
        "about = \"hot and cold\"\n[[area]]\nname = \"cold\"\nsize = \"{COLD} MiB\"\n\
         [[area]]\nname = \"hot\"\nsize = \"{HOT} MiB\"\n\
         [[phase]]\ntime = \"1000s\"\ntouch = [{{ area = \"hot\", every = \"20ms\" }}]\n"
    );
    std::fs::write(place.path("two.toml"), text).unwrap();
    let mut command = place.isotherm(&["workload", "two.toml", "--announce"]);
    let mut kept = Kept(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(kept.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let announced: Value = serde_json::from_str(&line).unwrap();
    let area = |i: usize| {
        let area = &announced["areas"][i];
        (area["start"].as_u64().unwrap(), area["end"].as_u64().unwrap())
    };
    (kept, [area(0), area(1)])
}

fn reports(ran: &Ran) -> Vec<Value> {
    assert_eq!(ran.status, 0, "{ran:?}");
    ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The sum of a figure over the mappings of the only process that overlap one of `ranges`.
fn within(report: &Value, ranges: &[(u64, u64)], key: &str) -> u64 {
    let mappings = report["processes"][0]["mappings"].as_array().unwrap();
    let addr = |mapping: &Value, key: &str| mapping[key].as_u64().unwrap();
    let overlaps = |mapping: &&Value| {
        ranges.iter().any(|range| addr(mapping, "start") < range.1 && range.0 < addr(mapping, "end"))
    };
    mappings.iter().filter(overlaps).map(|mapping| mapping[key].as_u64().unwrap()).sum()
}

#[test]
fn the_idle_memory_of_a_process_is_found_and_ages() {
    or_skip!(bpf_works());
    let _alone = alone();
    let place = Place::new();
    let (kept, areas) = workload(&place);
    let pid = kept.0.id().to_string();
    let arguments = ["idle", "--probe", "bpf", "--pid", &pid, "-i", "1s", "-n", "2", "--histogram", "-f", "json"];
    let reports = reports(&place.run(&arguments));
    assert_eq!(reports.len(), 2);
    for (report, number) in reports.iter().zip(1..) {
        assert_eq!((&report["way"], &report["number"]), (&"page_tables".into(), &number.into()));
        // A mapping with an area may contain a little other memory of the program.
        for (key, truth) in [("idle_bytes", COLD), ("accessed_bytes", HOT)] {
            let found = within(report, &areas, key);
            assert!(found.abs_diff(truth * MIB) * 100 <= (COLD + HOT) * MIB, "{key}: {found} instead of {truth} MiB");
        }
    }
    let ages = reports[1]["total"]["idle_by_intervals"].as_array().unwrap();
    let twice = ages.iter().find(|age| age["intervals"] == 2).unwrap();
    assert!(twice["bytes"].as_u64().unwrap() * 100 >= COLD * MIB * 99, "{ages:?}");
}

#[test]
fn a_part_of_a_process_that_is_waited_for_is_reported() {
    or_skip!(bpf_works());
    let _alone = alone();
    let place = Place::new();
    let program = place.path("idlewaited");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let named = ["idle", "--probe", "bpf", "--name", "^idlewaited$", "-i", "200ms", "-n", "1", "-f", "json"];
    let none = place.run(&named);
    assert!(none.status == 1 && none.err.contains("no process matches"), "{none:?}");
    let mut command = place.isotherm(&[&named[..], &["--wait", "--mapping", "^\\[stack\\]$"]].concat());
    let idle = command.stdout(Stdio::piped()).spawn().unwrap();
    let _kept = Kept(Command::new(&program).arg("1000").spawn().unwrap());
    let out = idle.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let mappings = report["processes"][0]["mappings"].as_array().unwrap();
    assert!(!mappings.is_empty() && mappings.iter().all(|mapping| mapping["name"] == "[stack]"), "{report}");

    for (wrong, word) in [
        (&["--wait", "--pid", "1"][..], "--wait needs processes that can appear"),
        (&["--range", "0:4096", "--name", "x"], "--range is of one process"),
        (&["--user", "0", "--user", "no-such-user"], "there is no user no-such-user"),
    ] {
        let ran = place.run(&[&["idle"], wrong].concat());
        assert!(ran.status == 2 && ran.err.contains(word), "{ran:?}");
    }
}

#[test]
fn locked_memory_is_neither_idle_nor_accessed() {
    or_skip!(bpf_works());
    let mut memory = memmap2::MmapMut::map_anon((8 * MIB) as usize).unwrap();
    memory.fill(1);
    or_skip!(memory.lock());
    let range = (memory.as_ptr() as u64, memory.as_ptr() as u64 + 8 * MIB);
    let pid = std::process::id().to_string();
    let reports =
        reports(&Place::new().run(&["idle", "--probe", "bpf", "--pid", &pid, "-i", "500ms", "-n", "1", "-f", "json"]));
    assert_eq!(within(&reports[0], &[range], "unevictable_bytes"), 8 * MIB);
    assert_eq!(within(&reports[0], &[range], "size_bytes"), 0);
}

#[test]
fn a_report_replaces_the_previous_one_and_its_permissions_depend_on_the_format() {
    or_skip!(bpf_works());
    let place = Place::new();
    let pid = std::process::id().to_string();
    for (name, by, mode, begin, addresses) in [
        ("idle.json", None, 0o600, "{\"number\":2,", true),
        ("idle.prom", None, 0o644, "# HELP isotherm_idle", false),
        ("secret.prom", Some("--by=mapping"), 0o600, "# HELP isotherm_idle", true),
    ] {
        std::fs::write(place.path(name), "the previous report").unwrap();
        std::fs::set_permissions(place.path(name), PermissionsExt::from_mode(0o666)).unwrap();
        let arguments = ["idle", "--probe", "bpf", "--pid", &pid, "-i", "200ms", "-n", "2", "-o", name];
        let ran = place.run(&[&arguments[..], by.as_slice()].concat());
        assert_eq!((ran.status, &*ran.out), (0, ""), "{ran:?}");
        let text = std::fs::read_to_string(place.path(name)).unwrap();
        assert!(text.starts_with(begin), "{text}");
        assert_eq!(text.contains("start"), addresses, "{text}");
        assert_eq!(std::fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o777, mode);
        assert_eq!(ran.err.contains("only you can read secret.prom"), by.is_some(), "{ran:?}");
    }
    let left: Vec<_> = std::fs::read_dir(place.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn wrong_options_are_refused_at_once() {
    let place = Place::new();
    for (arguments, status, words) in [
        (&["--pid", "4194304"][..], 1, &["no process 4194304", "ps -e"][..]),
        (&["--interval", "0s"], 2, &["zero", "60s"]),
        (&["--rate", "0"], 2, &["--rate", "no memory"]),
        (&["--rate", "fast"], 2, &["a size such as 4K", "a share of a CPU such as 5% or 0.05"]),
        (&["--rate", "101%"], 2, &["101%", "100%"]),
        (&["--count", "0"], 2, &["--count", "1.."]),
        (&["--shared", "often"], 2, &["--shared", "auto, always, never"]),
        (&["--output", "idle.xml"], 2, &["idle.xml", ".txt, .json or .prom", "--format"]),
        (&["--exclude", "redis"], 2, &["--exclude", "KIND=VALUE"]),
        (&["--name", "^no-such-program$"], 1, &["no process matches: name ^no-such-program$", "ps -e"]),
        (&["--output", "nowhere/idle.json"], 1, &["nowhere/idle.json", "name another file"]),
        (&["--output", "."], 1, &["a directory", "name another file"]),
    ] {
        let ran = place.run(&[&["idle"], arguments].concat());
        assert_eq!((ran.status, &*ran.out), (status, ""), "{arguments:?}: {ran:?}");
        for word in words {
            assert!(ran.err.contains(word), "{arguments:?}: {word:?} is not in {}", ran.err);
        }
    }
}

#[test]
fn an_empty_cgroup_is_refused() {
    or_skip!(bpf_works());
    let ran = Place::new().run(&["idle", "--probe", "bpf", "--cgroup", "/no/such"]);
    assert!(ran.status == 1 && ran.err.contains("no process in the cgroup /no/such"), "{ran:?}");
}

/// Keeps two tests from running at the same time: one clears the accessed bits that the other is about.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn without_targets_all_processes_are_read_and_each_page_counts_once() {
    or_skip!(bpf_works());
    let _alone = alone();
    let place = Place::new();
    let (kept, _) = workload(&place);
    let bytes = |value: &Value, key: &str| value[key].as_u64().unwrap();
    for all in [&[][..], &["--all"]] {
        let arguments = ["idle", "--probe", "bpf", "-i", "500ms", "-n", "1", "--by", "process", "-f", "json"];
        // Other processes of the machine may end during a look, and what they shared then counts for one process less.
        eventually("no process has ended during a look", || {
            let report = &reports(&place.run(&[&arguments, all].concat()))[0];
            let processes = report["processes"].as_array().unwrap();
            let workload = processes.iter().find(|process| process["pid"] == kept.0.id()).unwrap();
            assert!(bytes(workload, "size_bytes") >= (COLD + HOT) * MIB);
            // isotherm itself and the workload are the same program.
            assert!(bytes(workload, "shared_bytes") > 0 && bytes(workload, "shared_bytes") < COLD * MIB, "{workload}");
            let notes = report["notes"].to_string();
            assert!(notes.contains("in use are left out: what no process maps"), "{notes}");
            let (total, shared) = (bytes(&report["total"], "size_bytes"), bytes(&report["shared"], "size_bytes"));
            assert!(shared > 0);
            let sum: u64 = processes.iter().map(|process| bytes(process, "size_bytes")).sum();
            let alone: u64 = processes.iter().map(|p| bytes(p, "size_bytes") - bytes(p, "shared_bytes")).sum();
            total + shared <= sum && alone + shared >= total - total / 50
        });
    }
}

/// Maps shared memory, prints its range, and goes on to access it in two processes. The second one ends with the first.
const SHARERS: &str = "
import ctypes, mmap, os, time
size = 16 << 20
memory = mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
parent = os.getpid()
child = os.fork()
announced = False
while child or os.getppid() == parent:
    for at in range(0, size, 4096): memory[at] = 1
    if child and not announced: announced = print(start, start + size, flush=True) is None
    time.sleep(0.02)
";

#[test]
fn shared_memory_is_observed_as_the_option_says() {
    or_skip!(bpf_works());
    let place = Place::new();
    let python = Command::new("python3").args(["-c", SHARERS]).stdout(Stdio::piped()).spawn();
    let mut python = Kept(installed_or_skip!(python.map_err(|e| format!("python3 cannot be run: {e}"))));
    let mut line = String::new();
    BufReader::new(python.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let area: Vec<u64> = line.split_whitespace().map(|addr| addr.parse().unwrap()).collect();
    let pid = python.0.id().to_string();
    for (shared, key) in [("always", "accessed_bytes"), ("never", "unobservable_bytes")] {
        let arguments = ["idle", "--probe", "bpf", "--pid", &pid, "--shared", shared, "-i", "1s", "-n", "1"];
        // A kernel with DAMON may clear accessed bits meanwhile, too.
        eventually(&format!("{shared} has 15 MiB of {key}"), || {
            let report = &reports(&place.run(&[&arguments[..], &["-f", "json"]].concat()))[0];
            within(report, &[(area[0], area[1])], key) >= 15 * MIB
        });
    }
}
