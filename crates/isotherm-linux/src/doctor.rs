//! Which probes work here, found out by trying each.

use serde::Serialize;

use crate::RefsProbe;
use crate::bpf::BpfProbe;
use crate::idle::IdleProbe;

/// What trying one probe showed.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The probe's name, as `--probe` takes it.
    pub probe: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Whether it works here, for this user.
    pub works: bool,
    /// If it does not: what failed, why, and what would mend it.
    pub why_not: Option<String>,
}

/// Tries every probe, the best first.
pub fn examine() -> Vec<Finding> {
    let finding =
        |probe, about, tried: Result<(), String>| Finding { probe, about, works: tried.is_ok(), why_not: tried.err() };
    vec![
        finding(
            "idle",
            "the kernel's idle page tracking, page by page; physical memory, too",
            IdleProbe::check().map_err(|error| error.to_string()),
        ),
        finding("bpf", "page tables read by eBPF, page by page", BpfProbe::check().map_err(|error| error.to_string())),
        finding(
            "refs",
            "/proc/PID/clear_refs and smaps; coarse, a mapping at a time",
            RefsProbe::check().map_err(|error| error.to_string()),
        ),
    ]
}
