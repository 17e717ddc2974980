//! The eBPF programs that report USDT probes.

use std::fmt;
use std::fs::File;
use std::path::Path;

use libbpf_rs::{Link, Object, UprobeMultiOpts};
use rustix::process::getpid;

use super::files::{Files, attach};
use super::hits::Report;
use super::{UsdtError, UsdtProbe, notes, similar};
use crate::bpf::load_object;
use crate::watched::{self, Reports, WATCHED_MAP};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hits.bpf.o"));

/// The maps of the programs.
const HITS_MAP: &str = "hits";
const COUNTS_MAP: &str = "counts";

/// The programs that run at tracepoints, and the tracepoint of each.
const PROGRAMS: [(&str, &str); 3] =
    [("forked", "sched_process_fork"), ("executed", "sched_process_exec"), ("exited", "sched_process_exit")];

/// The program of this process.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Reports when watched processes execute USDT probes. At first, no process is watched.
pub struct UsdtTracer {
    object: Object,
    /// The programs run as long as these exist.
    _links: Vec<Link>,
    wanted: Vec<UsdtProbe>,
    files: Files,
}

impl fmt::Debug for UsdtTracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsdtTracer").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl UsdtTracer {
    /// Loads the eBPF programs, and finds out whether they can watch these probes, of which there are
    /// [`MOST_PROBES`](super::MOST_PROBES) at most: further ones are left out.
    ///
    /// # Errors
    /// Why this does not work here.
    pub fn open(probes: Vec<UsdtProbe>) -> Result<Self, UsdtError> {
        if !watched::has_process_ids_of_the_kernel() {
            return Err(UsdtError::PidNamespace);
        }
        let object = load_object(OBJECT).map_err(UsdtError::Load)?;
        try_uprobe(&object)?;
        let links = watched::attach(&object, &PROGRAMS);
        let links = links.map_err(|(tracepoint, source)| UsdtError::Attach { tracepoint, source })?;
        Ok(Self { object, _links: links, wanted: probes, files: Files::default() })
    }

    /// Tries whether USDT probes can be watched here.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn check() -> Result<(), UsdtError> {
        Self::open(Vec::new()).map(drop)
    }

    /// Watches the children that this process starts from now on, from their start.
    ///
    /// # Errors
    /// If there are too many processes.
    pub fn watch_children(&self, descendants: bool) -> Result<(), UsdtError> {
        watched::watch_children(&self.object, descendants).map_err(not_watched)
    }

    /// Watches no children that this process starts from now on.
    pub fn leave_children(&self) {
        self.leave(std::process::id());
    }

    /// Looks for probes in a program that will be started, so that none is missed at its start. Its libraries are found
    /// when it has mapped them.
    pub fn look_ahead(&mut self, program: &Path) {
        self.files.look_ahead(&self.object, &self.wanted, program);
    }

    /// Looks for probes in the files of a process. Returns whether it lives.
    pub(super) fn look(&mut self, pid: u32, again: bool) -> bool {
        self.files.look(&self.object, &self.wanted, pid, again)
    }

    /// Takes hits of a process from now on.
    pub(super) fn watch(&self, pid: u32, descendants: bool) -> Result<(), UsdtError> {
        watched::watch(&self.object, pid, descendants).map_err(not_watched)
    }

    /// Takes hits of a process no more. Does nothing if it has ended.
    pub(super) fn leave(&self, pid: u32) {
        watched::leave(&self.object, pid);
    }

    /// Watches no probe any more.
    pub(super) fn end(&mut self) {
        self.files.end();
    }

    /// What the programs report.
    pub(super) fn reports(&self) -> Result<Reports<Report>, UsdtError> {
        let reports = Reports::open(&self.object, HITS_MAP, Report::read);
        reports.map_err(|source| UsdtError::Map { name: HITS_MAP, source })
    }

    /// How many hits there were since the start.
    pub(super) fn hits(&self) -> u64 {
        let [hits, _] = watched::numbers(&self.object, COUNTS_MAP);
        hits
    }

    /// How many hits were lost since the start.
    pub(super) fn lost(&self) -> u64 {
        let [_, lost] = watched::numbers(&self.object, COUNTS_MAP);
        lost
    }

    /// The probe of this index.
    pub(super) fn probe(&self, index: u32) -> Option<&UsdtProbe> {
        self.wanted.get(index as usize)
    }

    /// Why not all wanted probes of all files are watched.
    pub(super) fn failure(&self) -> Option<&str> {
        self.files.failure()
    }

    /// For each probe that no watched program has, what is there instead.
    pub(super) fn missing(&self) -> Vec<String> {
        let looked = match self.files.looked_at() {
            1 => "1 file was looked at".into(),
            many => format!("{many} files were looked at"),
        };
        let tell = |probe| {
            let instead = similar::instead(probe, self.files.known());
            format!("no watched program has the USDT probe {probe} ({looked}); {instead}")
        };
        self.files.missing(&self.wanted).map(tell).collect()
    }
}

fn not_watched(source: libbpf_rs::Error) -> UsdtError {
    UsdtError::Map { name: WATCHED_MAP, source }
}

/// Lets the program run at the first instruction of this process, which has been executed, for a moment.
fn try_uprobe(object: &Object) -> Result<(), UsdtError> {
    let program = File::open(OWN_PROGRAM).map_err(UsdtError::OwnProgram)?;
    let Some(first) = notes::entry(program) else { return Ok(()) };
    let options = UprobeMultiOpts { offsets: vec![first], ..UprobeMultiOpts::default() };
    attach(object, getpid().as_raw_nonzero().get(), OWN_PROGRAM, options).map(drop).map_err(UsdtError::Uprobes)
}
