//! Acting from inside on architectures other than x86-64: it always returns an error.

use std::time::Duration;

use isotherm_core::AddrRange;
use rustix::io::Errno;

use super::{InsideCall, InsideError};

/// Makes system calls inside other processes. This works on x86-64 only.
#[derive(Debug, Default)]
pub struct Inside;

impl Inside {
    /// A value that makes no calls.
    pub fn new() -> Self {
        Self
    }

    /// Returns an error.
    ///
    /// # Errors
    /// Always, because this machine is not x86-64.
    pub fn make(
        &mut self,
        _: u32,
        _: InsideCall,
        _: &[AddrRange],
        _: &mut Vec<Result<(), Errno>>,
    ) -> Result<(), InsideError> {
        Err(InsideError::Architecture(std::env::consts::ARCH))
    }

    /// How many times targets were stopped, which is 0.
    pub fn stops(&self) -> u64 {
        0
    }

    /// The total time for which targets were stopped, which is 0.
    pub fn stopped(&self) -> Duration {
        Duration::ZERO
    }

    /// The longest time for which a target was stopped, which is 0.
    pub fn longest_stop(&self) -> Duration {
        Duration::ZERO
    }

    /// The process ID of the helper, which does not exist.
    pub fn helper(&self) -> Option<u32> {
        None
    }

    /// Does nothing.
    pub fn retain(&mut self, _: impl Fn(u32) -> bool) {}
}
