//! A guest of KVM, and a process with a device: what probes see of their memory, and what schemes do with it.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::Path;
use std::process::Command;

use isotherm_core::AddrRange;
use isotherm_core::survey::{PageSums, Unseen};
use isotherm_kernel::memory_use;
use isotherm_lab::idle::{bytes, idle};
use isotherm_lab::{EMULATED, Running, Workload, Zram, eventually, isotherm, report, result_file, succeed};
use isotherm_record::Recording;
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// The memory of the guest, and its end of what the guest touches all the time, from the first mebibyte on.
const SIZE: u64 = 64 * MIB;
const USED: u64 = 16 * MIB;

/// A process with a guest (`lab/guest.c`).
struct Guest {
    process: Running,
    memory: AddrRange,
}

impl Guest {
    fn start(how: &[&str]) -> Self {
        let mut command = Command::new("guest");
        let mut process = Running::start(command.args([&["64", "16"], how].concat()));
        let start = u64::from_str_radix(process.wait_for_line("").trim(), 16).unwrap();
        Self { process, memory: AddrRange::new(start, start + SIZE).unwrap() }
    }

    fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// What the last survey of a recording says of `range` of process `pid`, which is recorded for some seconds.
fn surveyed(name: &str, probe: &str, pid: u32, range: AddrRange) -> PageSums {
    let recording = result_file(&format!("{name}-{probe}.rec"));
    let (pid, file) = (pid.to_string(), recording.to_str().unwrap());
    let options = ["--probe", probe, "--survey", "1s", "--target-budget", "100%", "--duration", "6s", "-o", file];
    succeed(&[&["record", "--pid", &pid], &options[..], &EMULATED].concat());
    println!("{}", succeed(&["report", "summary", file]));
    let last = Recording::open(&recording).unwrap().surveys().map(Result::unwrap).last().unwrap();
    let target = &last.survey.targets[0];
    let of_memory = target.surveyed().filter(|(mapping, _)| mapping.range.intersection(range).is_some());
    let sums: PageSums = of_memory.map(|(_, sums)| *sums).sum();
    assert!((SIZE..SIZE + MIB).contains(&sums.figures.present), "{probe}: {sums:?}");
    sums
}

/// Asserts that memory is unobservable for this reason.
fn is_hidden(probe: &str, sums: &PageSums, why: Unseen) {
    assert!(
        sums.kinds.unseen[why] >= SIZE && sums.figures.unobservable >= SIZE && sums.figures.touched < MIB,
        "{probe}: {sums:?}"
    );
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_accesses_of_a_guest_are_seen_by_idle_page_tracking_and_its_memory_is_unobservable_to_other_surveys() {
    let guest = Guest::start(&[]);
    let of = |probe| surveyed("guest", probe, guest.pid(), guest.memory);
    let idle = of("idle");
    assert!(
        (USED - 2 * MIB..USED + 4 * MIB).contains(&idle.figures.touched) && idle.figures.unobservable < MIB,
        "{idle:?}"
    );
    for probe in ["bpf", "refs"] {
        is_hidden(probe, &of(probe), Unseen::Guest);
    }
    let shared = Guest::start(&["shared"]);
    is_hidden("bpf", &surveyed("guest-shared", "bpf", shared.pid(), shared.memory), Unseen::Guest);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_command_idle_sees_the_accesses_of_a_guest_by_idle_page_tracking() {
    let guest = Guest::start(&[]);
    let report = &idle(&["--pid", &guest.pid().to_string(), "--interval", "4s", "--count", "1"])[0];
    assert_eq!(report["way"], "idle_page_tracking");
    let mappings = report["processes"][0]["mappings"].as_array().unwrap();
    let is_of_guest = |of: &&Value| guest.memory.contains(bytes(of, "start"));
    let sum = |key| mappings.iter().filter(is_of_guest).map(|of| bytes(of, key)).sum::<u64>();
    let (accessed, idle) = (sum("accessed_bytes"), sum("idle_bytes"));
    assert!((USED - 2 * MIB..USED + 4 * MIB).contains(&accessed) && accessed + idle >= SIZE - MIB, "{report}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_accesses_of_a_guest_are_seen_by_the_kernels_damon() {
    let guest = Guest::start(&[]);
    let recording = result_file("guest-damon.rec");
    let (pid, file) = (guest.pid().to_string(), recording.to_str().unwrap());
    let intervals = ["--sample", "30ms", "--aggr", "600ms", "--duration", "15s"];
    succeed(&[&["record", "--probe", "damon", "--pid", &pid, "-o", file], &intervals[..]].concat());
    let snapshots = report("regions", &recording);
    let rate = |from: u64, to: u64| {
        let range = AddrRange::new(guest.memory.start() + from, guest.memory.start() + to).unwrap();
        let regions = snapshots.iter().flat_map(|snapshot| snapshot["regions"].as_array().unwrap());
        let of = |region: &Value| {
            let at = |key: &str| region[key].as_u64().unwrap();
            let part = AddrRange::new(at("start"), at("end")).unwrap().intersection(range)?;
            Some(part.size() as f64 * region["access_rate"].as_f64().unwrap())
        };
        regions.filter_map(of).sum::<f64>() / (to - from) as f64 / snapshots.len() as f64
    };
    let (used, rest) = (rate(MIB, USED), rate(USED + 8 * MIB, SIZE));
    println!("{used:.3} of the samples found the used part accessed, {rest:.3} the rest");
    assert!(used > 0.05 && used > 5.0 * rest, "{used} {rest}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn reclaim_leaves_a_guest_alone_unless_the_scheme_allows_what_is_not_observed() {
    let _swap = Zram::of(128);
    let guest = Guest::start(&[]);
    let swapped = || memory_use(Path::new("/"), guest.pid()).unwrap().swapped;
    let scheme = result_file("guest.yaml");
    let pid = guest.pid().to_string();
    let reclaim = |more: &str, duration: &str| {
        let text =
            format!("- {{name: prcl, size: {{min: 4K}}, access_rate: 0%, age: {{min: 2s}}, action: pageout{more}}}\n");
        fs::write(&scheme, text).unwrap();
        let mut command = isotherm(&["run", "--probe", "bpf", "--survey", "1s", "--pid", &pid, "--duration", duration]);
        Running::start(command.arg("--schemes").arg(&scheme).args(EMULATED))
    };
    assert_eq!(reclaim("", "8s").wait(), 0);
    assert!(swapped() < MIB, "{} bytes of the guest are in swap", swapped());
    let mut run = reclaim(", unobserved: allow", "5m");
    eventually("memory of the guest is in swap", || swapped() > USED);
    stop(&mut run);
}

fn stop(process: &mut Running) {
    process.interrupt();
    assert_eq!(process.wait(), 0);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn memory_of_a_process_with_a_device_is_unobservable_to_all_surveys() {
    // The file stands for a group of VFIO, which this machine does not have.
    fs::create_dir_all("/dev/vfio").unwrap();
    fs::write("/dev/vfio/17", "").unwrap();
    let pattern = result_file("device.toml");
    let text = "about = \"device\"\n[[area]]\nname = \"all\"\nsize = \"64 MiB\"\n[[phase]]\ntime = \"1000s\"\n";
    fs::write(&pattern, text).unwrap();
    let script = format!("exec 9</dev/vfio/17; exec isotherm workload {} --announce", pattern.display());
    let workload = Workload::announced(Command::new("sh").args(["-c", &script]));
    for probe in ["bpf", "idle", "refs"] {
        let sums = surveyed("device", probe, workload.process.pid(), workload.area("all"));
        is_hidden(probe, &sums, Unseen::Device);
    }
    fs::remove_dir_all("/dev/vfio").unwrap();
}
