//! USDT probes on architectures other than x86-64: they cannot be watched.

use std::convert::Infallible;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use super::{UsdtError, UsdtHits, UsdtProbe};

/// Reports when watched processes execute USDT probes. It works on x86-64 only.
#[derive(Debug)]
pub struct UsdtTracer(Infallible);

/// Reads the hits of USDT probes. It works on x86-64 only.
#[derive(Debug)]
pub struct UsdtCollector(Infallible);

/// The USDT probes of a program: none.
pub fn usdt_probes_of(_: File) -> Vec<UsdtProbe> {
    Vec::new()
}

impl UsdtTracer {
    /// Returns an error.
    ///
    /// # Errors
    /// Always, because this machine is not x86-64.
    pub fn open(_: Vec<UsdtProbe>) -> Result<Self, UsdtError> {
        Err(UsdtError::Architecture(std::env::consts::ARCH))
    }

    /// Returns an error.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn check() -> Result<(), UsdtError> {
        Self::open(Vec::new()).map(drop)
    }

    /// Watches the children that this process starts from now on.
    ///
    /// # Errors
    /// None.
    pub fn watch_children(&self, _: bool) -> Result<(), UsdtError> {
        match self.0 {}
    }

    /// Watches no children that this process starts from now on.
    pub fn leave_children(&self) {
        match self.0 {}
    }

    /// Looks for probes in a program that will be started.
    pub fn look_ahead(&mut self, _: &Path) {
        match self.0 {}
    }
}

impl UsdtCollector {
    /// Collects the hits that `tracer` reports.
    ///
    /// # Errors
    /// None.
    pub fn new(tracer: UsdtTracer) -> Result<Self, UsdtError> {
        match tracer.0 {}
    }

    /// Watches a process from now on.
    ///
    /// # Errors
    /// None.
    pub fn watch(&mut self, _: u32, _: bool) -> Result<(), UsdtError> {
        match self.0 {}
    }

    /// Watches a process no more.
    pub fn leave(&mut self, _: u32) {
        match self.0 {}
    }

    /// Watches no probe any more.
    pub fn end(&mut self) {
        match self.0 {}
    }

    /// The next hits.
    ///
    /// # Errors
    /// None.
    pub fn next(&mut self, _: Duration) -> Result<UsdtHits, UsdtError> {
        match self.0 {}
    }

    /// Whether no more hits are reported.
    pub fn is_exhausted(&self) -> bool {
        match self.0 {}
    }

    /// How many hits were lost.
    pub fn lost(&self) -> u64 {
        match self.0 {}
    }

    /// Whether a process was looked at for long enough.
    pub fn has_settled(&self) -> bool {
        match self.0 {}
    }

    /// The wanted probes that no watched program has.
    pub fn missing(&self) -> Vec<String> {
        match self.0 {}
    }

    /// Why the wanted probes of a file are not watched.
    pub fn failure(&self) -> Option<&str> {
        match self.0 {}
    }
}
