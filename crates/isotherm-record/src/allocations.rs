//! Calls that mapped memory: as columns and back, and reading those of a recording.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Allocation, Allocations, CallStack, MappingCall, StackFrame, StackId};

use crate::columns;
use crate::id::StoredId;
use crate::identities::Identities;
use crate::target::range;
use crate::time::nanoseconds;

/// The columns of calls. The start of a process that is not counted from the boot (`from_boot`) is left out.
pub(crate) fn to_columns(found: &Allocations, from_boot: bool) -> columns::Allocations {
    let frame = |frame: &StackFrame| columns::Frame {
        function: frame.function.clone(),
        module: frame.module.clone(),
        offset: frame.offset,
    };
    let stacks = found
        .stacks
        .iter()
        .map(|(id, frames)| columns::Stack { stack: *id, frames: frames.iter().map(frame).collect() });
    let calls = found.calls.iter().map(|call| columns::Call {
        time_ns: nanoseconds(call.time),
        id: StoredId::new(call.target, from_boot).column(),
        call: call.call.name().into(),
        start: call.range.start(),
        end: call.range.end(),
        stack: call.stack,
    });
    columns::Allocations {
        time_ns: nanoseconds(found.time),
        stacks: stacks.collect(),
        calls: calls.collect(),
        lost: found.lost,
    }
}

/// The stacks that a recording has told so far.
pub(crate) type Stacks = HashSet<StackId>;

/// The calls that these columns hold. A stack that is missing, as in a damaged recording, is the stack of no call.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn read(
    found: columns::Allocations,
    known: &mut Stacks,
    identities: &Identities,
) -> Result<Allocations, &'static str> {
    let stacks: Vec<(StackId, CallStack)> = found.stacks.into_iter().map(stack).collect();
    known.extend(stacks.iter().map(|(id, _)| *id));
    let calls = found.calls.into_iter().filter_map(|found| call(found, known, identities).transpose());
    let calls = calls.collect::<Result<_, _>>()?;
    Ok(Allocations { time: Duration::from_nanos(found.time_ns), stacks, calls, lost: found.lost })
}

/// The call; `None` if it is one, or of a target, that this version does not know.
fn call(found: columns::Call, known: &Stacks, identities: &Identities) -> Result<Option<Allocation>, &'static str> {
    let call = MappingCall::ALL.into_iter().find(|call| call.name() == &*found.call);
    let (Some(call), Some(id)) = (call, StoredId::read(&found.id)?) else { return Ok(None) };
    Ok(Some(Allocation {
        time: Duration::from_nanos(found.time_ns),
        target: identities.target(id),
        call,
        range: range(found.start, found.end)?,
        stack: found.stack.filter(|stack| known.contains(stack)),
    }))
}

fn stack(found: columns::Stack) -> (StackId, CallStack) {
    let frames = found.frames.into_iter();
    let frames = frames.map(|columns::Frame { function, module, offset }| StackFrame { function, module, offset });
    (found.stack, frames.collect::<Arc<[_]>>())
}
