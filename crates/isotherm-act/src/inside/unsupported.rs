//! Acting from inside where registers are not those of x86-64: it says so.

use std::time::Duration;

use isotherm_core::AddrRange;
use rustix::io::Errno;

use super::{InsideCall, InsideError};

/// Makes system calls inside other processes, on x86-64; here it makes none.
#[derive(Debug, Default)]
pub struct Inside;

impl Inside {
    /// There is nothing to start.
    pub fn new() -> Self {
        Self
    }

    /// Fails.
    ///
    /// # Errors
    /// Always: this is not x86-64.
    pub fn make(
        &mut self,
        _: u32,
        _: InsideCall,
        _: &[AddrRange],
        _: &mut Vec<Result<(), Errno>>,
    ) -> Result<(), InsideError> {
        Err(InsideError::Architecture(std::env::consts::ARCH))
    }

    /// Nothing has stood still.
    pub fn stopped(&self) -> Duration {
        Duration::ZERO
    }

    /// There is none.
    pub fn helper(&self) -> Option<u32> {
        None
    }

    /// There is nothing to forget.
    pub fn retain(&mut self, _: impl Fn(u32) -> bool) {}
}
