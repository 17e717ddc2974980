//! Helpers that open the probe and watch targets with it.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AccessProbe, Layout, Observation, Sample, TargetId, TargetSpace};
use isotherm_kernel::Process;
use isotherm_probes::bpf::BpfProbe;

use crate::target::Target;

pub use Observation::{Accessed, Idle, Unobservable};
pub use isotherm_testing::or_skip;

pub const PAGE: u64 = 4096;
pub const MIB: u64 = 1 << 20;

/// Opens the probe. An error is the reason to skip the test.
pub fn open() -> Result<BpfProbe, &'static str> {
    if !rustix::process::geteuid().is_root() {
        return Err("the bpf probe needs root");
    }
    if !std::fs::exists("/sys/kernel/btf/vmlinux").unwrap() {
        return Err("this kernel has no BTF, which the bpf probe needs");
    }
    Ok(BpfProbe::open().expect("root with BTF can open the bpf probe"))
}

/// Updates the probe with the targets and their current mappings.
pub fn update(probe: &mut BpfProbe, targets: &[&Target]) {
    let spaces: Vec<_> = targets.iter().map(|target| space(target)).collect();
    probe.update(&spaces).unwrap();
}

pub fn space(target: &Target) -> TargetSpace {
    space_of(target.pid())
}

/// The space of any process.
pub fn space_of(pid: u32) -> TargetSpace {
    let mappings = Process::open(pid).unwrap().mappings().unwrap();
    TargetSpace { id: TargetId::process(pid, Duration::ZERO), layout: Layout::Process, mappings }
}

/// A space without mappings.
pub fn empty_space(pid: u32) -> TargetSpace {
    TargetSpace { id: TargetId::process(pid, Duration::ZERO), layout: Layout::Process, mappings: Arc::from([]) }
}

/// One sample for every page of the range.
pub fn pages(target: &Target, start: u64, size: u64) -> Vec<Sample> {
    let target = TargetId::process(target.pid(), Duration::ZERO);
    (0..size / PAGE).map(|page| Sample { target, addr: start + page * PAGE }).collect()
}

pub fn read(probe: &mut BpfProbe, samples: &[Sample]) -> Vec<Observation> {
    let mut answers = vec![Idle; samples.len()];
    probe.read(samples, &mut answers).unwrap();
    answers
}

/// The number of answers that are equal to `answer`.
pub fn count(answers: &[Observation], answer: Observation) -> usize {
    answers.iter().filter(|&&a| a == answer).count()
}

/// Whether at least 49 of 50 answers are right. Others may clear accessed bits between the probe's clear and read. The
/// kernel's DAMON does so if it runs, and it finds a huge page far more often than a small one.
pub fn nearly_all(right: usize, total: usize) -> bool {
    right * 50 >= total * 49
}

/// The largest number of pages, of a few hundred, that may be unobservable because they are new. A new page may wait on
/// another processor before it is put on a reclaim list.
pub const STRAGGLERS: usize = 64;

/// A field of `/proc/PID/smaps`, in KiB, for the mapping that contains `addr`.
pub fn smaps_kib(pid: u32, addr: u64, field: &str) -> u64 {
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mut inside = false;
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap();
        if let Some((start, end)) = first.split_once('-') {
            let hex = |s| u64::from_str_radix(s, 16).unwrap();
            inside = (hex(start)..hex(end)).contains(&addr);
        } else if inside && first.strip_suffix(':') == Some(field) {
            return line.split_whitespace().nth(1).unwrap().parse().unwrap();
        }
    }
    panic!("{addr:#x} of process {pid} has no {field} in smaps");
}

/// The flags of the page frames of a range, from `/proc/PID/pagemap` and `/proc/kpageflags`; 0 for a page that is not
/// present.
pub fn kernel_flags(pid: u32, start: u64, size: u64) -> Vec<u64> {
    use std::os::unix::fs::FileExt;
    let pagemap = std::fs::File::open(format!("/proc/{pid}/pagemap")).unwrap();
    let flags = std::fs::File::open("/proc/kpageflags").unwrap();
    let word = |file: &std::fs::File, index: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, index * 8).unwrap();
        u64::from_ne_bytes(bytes)
    };
    let pages = (start..start + size).step_by(PAGE as usize);
    pages
        .map(|page| word(&pagemap, page / PAGE))
        .map(|entry| if entry >> 63 == 1 { word(&flags, entry & ((1 << 55) - 1)) } else { 0 })
        .collect()
}

pub const COMPOUND: u64 = HEAD | 1 << 16;

/// The flag of the first page of a folio (`KPF_COMPOUND_HEAD`).
pub const HEAD: u64 = 1 << 15;
