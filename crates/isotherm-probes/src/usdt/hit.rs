//! Hits of USDT probes, as they are handed out.

use std::time::Instant;

/// A watched process has executed a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdtHit {
    /// When it did so.
    pub time: Instant,
    /// The process.
    pub pid: u32,
    /// The string that the first argument of `isotherm:mark` points to. Without one, and for all other probes, the
    /// provider and the name.
    pub text: Vec<u8>,
}

/// Hits that were read at once, in about the order of their times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsdtHits {
    /// The hits.
    pub hits: Vec<UsdtHit>,
    /// Whether more hits are there already.
    pub more: bool,
}
