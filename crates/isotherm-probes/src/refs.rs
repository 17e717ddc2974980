//! The probe `refs`: watches processes with `/proc/PID/clear_refs` and `/proc/PID/smaps`.
//!
//! An ordinary user can watch a process of their own with it. Its limits are:
//!
//! - A clear applies to the whole process. A read shows how many bytes of each mapping were referenced, but not which.
//!   A mapping counts as accessed if any page of it was referenced.
//! - Each round walks all page tables of the process twice. The cost grows with the size of the process; a longer
//!   sampling interval lowers it.
//! - The kernel does not flush the TLB when it clears. A small mapping whose translations all stay in the TLB can look
//!   idle although it is in use.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::PathBuf;

use isotherm_core::{AccessProbe, AddrRange, BoxError, Granularity, Observation, Sample, TargetId, TargetSpace};
use procfs::FromBufRead;
use procfs::process::{MemoryMap, MemoryMaps, VmFlags};
use thiserror::Error;

/// Written to `/proc/PID/clear_refs`, this clears the referenced bits of all pages (`proc(5)`).
const CLEAR_ALL: &[u8] = b"1";

/// Why `refs` cannot watch a process.
#[derive(Debug, Error)]
pub enum RefsError {
    /// A file of the process does not exist, or opening it is not permitted.
    #[error("{path} cannot be opened ({})", fix(source))]
    Open {
        /// The file.
        path: PathBuf,
        /// The error of open(2).
        source: io::Error,
    },
    /// A file of the process cannot be read or written.
    #[error("{path} cannot be used")]
    Use {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The target is not a process.
    #[error("{0} is not a process, and the refs probe can only watch processes (use another probe)")]
    NotAProcess(TargetId),
    /// The referenced bits are wrong.
    #[error("a page was {0}: this kernel does not keep referenced bits as proc(5) says (use another probe)")]
    Untrue(&'static str),
}

fn fix(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "has the process ended, or has the kernel no CONFIG_PROC_PAGE_MONITOR?",
        _ => "watch a process of your own, or run isotherm as root",
    }
}

/// Reads from `clear_refs` and `smaps` which mappings were accessed.
#[derive(Debug, Default)]
pub struct RefsProbe {
    targets: Vec<Target>,
    /// The number of mappings with referenced pages that were cleared.
    clears: u64,
}

#[derive(Debug)]
struct Target {
    id: TargetId,
    pid: u32,
    clear_refs: Option<File>,
    /// The result of the last read for each mapping, sorted by address.
    mappings: Vec<(AddrRange, Observation)>,
}

impl RefsProbe {
    /// A probe without targets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tests the probe on this process: clears the referenced bits, touches pages, and reads the bits again.
    ///
    /// # Errors
    /// If a file cannot be opened or used, or if the touched pages are not reported as referenced.
    pub fn check() -> Result<(), RefsError> {
        let me = std::process::id();
        let mut clear_refs = open(me, "clear_refs")?;
        // These pages are new. The first touch of a page sets its referenced bit, whatever the TLB holds.
        let mut memory = vec![0_u8; 8 << 20];
        clear_refs.write_all(CLEAR_ALL).map_err(|source| RefsError::Use { path: path(me, "clear_refs"), source })?;
        for byte in memory.iter_mut().step_by(4096) {
            *std::hint::black_box(byte) += 1;
        }
        let addr = memory.as_ptr() as u64 + memory.len() as u64 / 2;
        let mappings = observe(me).map_err(|source| RefsError::Use { path: path(me, "smaps"), source })?;
        match mappings.iter().find(|(range, _)| range.contains(addr)) {
            Some((_, Observation::Accessed)) => Ok(()),
            _ => Err(RefsError::Untrue("touched, but is not shown as referenced")),
        }
    }
}

impl AccessProbe for RefsProbe {
    fn granularity(&self) -> Granularity {
        Granularity::Mapping
    }

    fn update(&mut self, targets: &[TargetSpace]) -> Result<(), BoxError> {
        let mut known = std::mem::take(&mut self.targets);
        for space in targets {
            if let Some(i) = known.iter().position(|target| target.id == space.id) {
                self.targets.push(known.swap_remove(i));
                continue;
            }
            let pid = space.id.pid().ok_or(RefsError::NotAProcess(space.id))?;
            let clear_refs = match open(pid, "clear_refs") {
                Ok(file) => Some(file),
                // The process has ended since the targets were updated.
                Err(RefsError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error.into()),
            };
            self.targets.push(Target { id: space.id, pid, clear_refs, mappings: Vec::new() });
        }
        Ok(())
    }

    fn clear(&mut self, _samples: &[Sample]) -> Result<(), BoxError> {
        for target in &mut self.targets {
            // The next update notices that the target has ended.
            if let Some(file) = &mut target.clear_refs
                && file.write_all(CLEAR_ALL).is_err()
            {
                target.clear_refs = None;
            }
        }
        Ok(())
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        for target in &mut self.targets {
            target.mappings = match target.clear_refs {
                Some(_) => observe(target.pid).unwrap_or_default(),
                None => Vec::new(),
            };
            self.clears += target.mappings.iter().filter(|m| m.1 == Observation::Accessed).count() as u64;
        }
        for (sample, answer) in samples.iter().zip(answers) {
            let target = self.targets.iter().find(|target| target.id == sample.target);
            *answer = target.map_or(Observation::Idle, |target| target.answer(sample.addr));
        }
        Ok(())
    }

    fn clears(&self) -> u64 {
        self.clears
    }
}

impl Target {
    fn answer(&self, addr: u64) -> Observation {
        let passed = self.mappings.partition_point(|(range, _)| range.end() <= addr);
        match self.mappings.get(passed) {
            Some(&(range, observation)) if range.contains(addr) => observation,
            _ => Observation::Idle,
        }
    }
}

/// Reads from `smaps` which mappings were referenced since the last clear.
fn observe(pid: u32) -> io::Result<Vec<(AddrRange, Observation)>> {
    let mut text = Vec::new();
    File::open(path(pid, "smaps"))?.read_to_end(&mut text)?;
    let maps = MemoryMaps::from_buf_read(BufReader::new(&text[..])).map_err(io::Error::other)?;
    let seen = |map: &MemoryMap| {
        let range = isotherm_kernel::mapping(map)?.range;
        // smaps does not count the pages of hugetlbfs, nor pages without a page frame descriptor (device memory).
        let observation = if map.extension.vm_flags.intersects(VmFlags::HT | VmFlags::PF) {
            Observation::Unobservable
        } else if map.extension.map.get("Referenced").is_some_and(|&bytes| bytes > 0) {
            Observation::Accessed
        } else {
            Observation::Idle
        };
        Some((range, observation))
    };
    Ok(maps.iter().filter_map(seen).collect())
}

fn open(pid: u32, name: &str) -> Result<File, RefsError> {
    let path = path(pid, name);
    File::options().write(true).open(&path).map_err(|source| RefsError::Open { path, source })
}

fn path(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}
