//! Call stacks on architectures other than x86-64: they cannot be recorded.

use std::convert::Infallible;
use std::time::Duration;

use isotherm_core::Allocations;

use super::StacksError;

/// Records which code of watched processes maps memory. It works on x86-64 only.
#[derive(Debug)]
pub struct StackTracer(Infallible);

/// Reads the calls of the watched processes that map memory. It works on x86-64 only.
#[derive(Debug)]
pub struct StackCollector(Infallible);

impl StackTracer {
    /// Returns an error.
    ///
    /// # Errors
    /// Always, because this machine is not x86-64.
    pub fn open() -> Result<Self, StacksError> {
        Err(StacksError::Architecture(std::env::consts::ARCH))
    }

    /// Whether each system call of the machine takes longer.
    pub fn slows_all_calls(&self) -> bool {
        match self.0 {}
    }

    /// Watches a process from now on.
    ///
    /// # Errors
    /// None.
    pub fn watch(&self, _: u32, _: bool) -> Result<(), StacksError> {
        match self.0 {}
    }

    /// Watches the children that this process starts from now on.
    ///
    /// # Errors
    /// None.
    pub fn watch_children(&self, _: bool) -> Result<(), StacksError> {
        match self.0 {}
    }

    /// Watches no children that this process starts from now on.
    pub fn leave_children(&self) {
        match self.0 {}
    }

    /// Watches a process no more.
    pub fn leave(&self, _: u32) {
        match self.0 {}
    }
}

impl StackCollector {
    /// Collects the calls that `tracer` reports.
    ///
    /// # Errors
    /// None.
    pub fn new(tracer: StackTracer) -> Result<Self, StacksError> {
        match tracer.0 {}
    }

    /// Watches and leaves processes.
    pub fn tracer(&self) -> &StackTracer {
        match self.0 {}
    }

    /// The next calls.
    ///
    /// # Errors
    /// None.
    pub fn next(&mut self, _: Duration) -> Result<Allocations, StacksError> {
        match self.0 {}
    }
}
