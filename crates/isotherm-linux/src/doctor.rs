//! Which probes work here, found out by trying each.

use serde::Serialize;

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
