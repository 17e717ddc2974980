//! The probe `refs`: `/proc/PID/clear_refs` and `/proc/PID/smaps`, for an ordinary user and a process of their own.
//!
//! It is coarse: clearing is for the whole process, and reading tells for each mapping how much of it was referenced,
//! not where. A mapping of which any page was referenced counts as accessed. Each round walks all page tables of the
//! process twice, so its cost grows with the process; longer intervals keep it low. The kernel does not flush the TLB
//! when it clears, so that a small mapping whose translations all stay there can look idle although it is used.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::PathBuf;

use isotherm_core::{AccessProbe, AddrRange, BoxError, Granularity, Observation, Sample, TargetId, TargetSpace};
use procfs::FromBufRead;
use procfs::process::{MemoryMap, MemoryMaps, VmFlags};
use thiserror::Error;

/// Clears the referenced bits of all pages (`proc(5)`, `/proc/PID/clear_refs`).
const CLEAR_ALL: &[u8] = b"1";

/// Why a process cannot be watched by `refs`.
#[derive(Debug, Error)]
pub enum RefsError {
    /// A file of it may not be opened, or is not there.
    #[error("{path} cannot be opened: {source}; {}", mend(source))]
    Open {
        /// The file.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// A file of it cannot be used.
    #[error("{path} cannot be used: {source}")]
    Use {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// The target is not a process.
    #[error("{0} is not a process, and `refs` reads the files of a process; choose another probe")]
    NotAProcess(TargetId),
    /// The bits do not tell what they should.
    #[error("a page was {0}; this kernel does not keep referenced bits as proc(5) says")]
    Untrue(&'static str),
}

fn mend(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "has the process ended, or has the kernel no CONFIG_PROC_PAGE_MONITOR?",
        _ => "watch a process of your own, or run isotherm as root",
    }
}

/// Learns from `clear_refs` and `smaps` which mappings were accessed.
#[derive(Debug, Default)]
pub struct RefsProbe {
    targets: Vec<Target>,
    /// Pages that the kernel was told to clear: those that were referenced.
    clears: u64,
}

#[derive(Debug)]
struct Target {
    id: TargetId,
    pid: u32,
    clear_refs: Option<File>,
    /// What the last read said of each mapping.
    mappings: Vec<(AddrRange, Observation)>,
}

impl RefsProbe {
    /// A probe that knows no target yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tries the probe on this very process: clears, touches, reads.
    ///
    /// # Errors
    /// Says which step failed.
    pub fn check() -> Result<(), RefsError> {
        let me = std::process::id();
        let mut clear_refs = open(me, "clear_refs")?;
        // Pages that were never touched: the first touch of a page marks it whatever the TLB holds.
        let mut memory = vec![0_u8; 8 << 20];
        clear_refs.write_all(CLEAR_ALL).map_err(|source| RefsError::Use { path: path(me, "clear_refs"), source })?;
        for byte in memory.iter_mut().step_by(4096) {
            *std::hint::black_box(byte) += 1;
        }
        let addr = memory.as_ptr() as u64 + memory.len() as u64 / 2;
        let mappings = observe(me).map_err(|source| RefsError::Use { path: path(me, "smaps"), source })?;
        match mappings.iter().find(|(range, _)| range.contains(addr)) {
            Some((_, Observation::Accessed)) => Ok(()),
            _ => Err(RefsError::Untrue("touched, but not seen as referenced")),
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
                // It has ended since it was surveyed.
                Err(RefsError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error.into()),
            };
            self.targets.push(Target { id: space.id, pid, clear_refs, mappings: Vec::new() });
        }
        Ok(())
    }

    fn clear(&mut self, _samples: &[Sample]) -> Result<(), BoxError> {
        for target in &mut self.targets {
            // A target that has ended is noticed at the next survey.
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

/// What `smaps` says of each mapping since the last clear.
fn observe(pid: u32) -> io::Result<Vec<(AddrRange, Observation)>> {
    let mut text = Vec::new();
    File::open(path(pid, "smaps"))?.read_to_end(&mut text)?;
    let maps = MemoryMaps::from_buf_read(BufReader::new(&text[..])).map_err(io::Error::other)?;
    let seen = |map: &MemoryMap| {
        let range = isotherm_kernel::mapping(map)?.range;
        // smaps counts neither the pages of hugetlbfs nor those that are no memory at all.
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
