//! Calls that mapped memory, in JSON.

use isotherm_core::{Allocation, Allocations, CallStack, StackFrame, StackId};
use serde::Serialize;

use super::identity::IdOut;
use crate::id::pid_column;
use crate::time::nanoseconds;

#[derive(Serialize)]
pub(super) struct AllocationsOut<'a> {
    time_ns: u64,
    stacks: Vec<StackOut<'a>>,
    calls: Vec<CallOut>,
    lost: u64,
}

#[derive(Serialize)]
struct StackOut<'a> {
    stack: StackId,
    frames: Vec<FrameOut<'a>>,
}

#[derive(Serialize)]
struct FrameOut<'a> {
    function: Option<&'a str>,
    module: Option<&'a str>,
    offset: u64,
}

#[derive(Serialize)]
struct CallOut {
    time_ns: u64,
    pid: u32,
    id: IdOut,
    call: &'static str,
    start: u64,
    end: u64,
    stack: Option<StackId>,
}

impl<'a> AllocationsOut<'a> {
    pub(super) fn new(found: &'a Allocations, from_boot: bool) -> Self {
        let frame = |frame: &'a StackFrame| FrameOut {
            function: frame.function.as_deref(),
            module: frame.module.as_deref(),
            offset: frame.offset,
        };
        let stack = |(stack, frames): &'a (StackId, CallStack)| StackOut {
            stack: *stack,
            frames: frames.iter().map(frame).collect(),
        };
        let call = |call: &Allocation| CallOut {
            time_ns: nanoseconds(call.time),
            pid: pid_column(call.target),
            id: IdOut::new(call.target, from_boot),
            call: call.call.name(),
            start: call.range.start(),
            end: call.range.end(),
            stack: call.stack,
        };
        Self {
            time_ns: nanoseconds(found.time),
            stacks: found.stacks.iter().map(stack).collect(),
            calls: found.calls.iter().map(call).collect(),
            lost: found.lost,
        }
    }
}
