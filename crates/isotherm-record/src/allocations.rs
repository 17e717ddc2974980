//! Calls that mapped memory: as columns and back, and reading those of a recording.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Allocation, Allocations, CallStack, MappingCall, StackFrame, StackId};

use crate::batches::Batches;
use crate::decode::{Kind, Rows};
use crate::id::StoredId;
use crate::identities::Identities;
use crate::source::Source;
use crate::target::range;
use crate::time::nanoseconds;
use crate::{RecordError, columns};

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

/// The calls of a recording that mapped memory, in the order in which they were read. After an error there is no
/// further one.
///
/// A stack that is missing, as in a damaged recording, is the stack of no call.
#[derive(Debug)]
pub struct AllocationBatches {
    /// `None` if the recording has no column for them.
    batches: Option<Batches>,
    reader: AllocationReader,
}

#[derive(Debug, Default)]
struct AllocationReader {
    /// The time of the last batch.
    time: Duration,
    identities: Identities,
    stacks: HashSet<StackId>,
}

impl AllocationBatches {
    pub(crate) fn new(source: Source) -> Self {
        let batches = Batches::with(columns::ALLOCATIONS, source);
        let batches = batches.map(|batches| batches.only(&columns::ALLOCATION_COLUMNS));
        Self { batches, reader: AllocationReader::default() }
    }
}

impl AllocationReader {
    /// The calls in row `index`, if it has some.
    fn read(&mut self, rows: &Rows, index: usize) -> Result<Option<Allocations>, &'static str> {
        match rows.kind(index) {
            Kind::Allocations => {
                let found = rows.row(index).allocations.ok_or("the row of calls has none")?;
                let time = Duration::from_nanos(found.time_ns);
                if time < self.time {
                    return Err("the time of calls goes backwards");
                }
                self.time = time;
                let stacks: Vec<(StackId, CallStack)> = found.stacks.into_iter().map(stack).collect();
                self.stacks.extend(stacks.iter().map(|(id, _)| *id));
                let calls = found.calls.into_iter().filter_map(|call| self.call(call).transpose());
                let calls = calls.collect::<Result<_, _>>()?;
                Ok(Some(Allocations { time, stacks, calls, lost: found.lost }))
            }
            Kind::Target | Kind::Survey => {
                self.identities.take(rows, index)?;
                Ok(None)
            }
            Kind::Activity | Kind::Mark | Kind::Missed | Kind::Panel | Kind::Unknown => Ok(None),
        }
    }

    /// The call; `None` if it is one, or of a target, that this version does not know.
    fn call(&self, found: columns::Call) -> Result<Option<Allocation>, &'static str> {
        let call = MappingCall::ALL.into_iter().find(|call| call.name() == &*found.call);
        let (Some(call), Some(id)) = (call, StoredId::read(&found.id)?) else { return Ok(None) };
        Ok(Some(Allocation {
            time: Duration::from_nanos(found.time_ns),
            target: self.identities.target(id),
            call,
            range: range(found.start, found.end)?,
            stack: found.stack.filter(|stack| self.stacks.contains(stack)),
        }))
    }
}

fn stack(found: columns::Stack) -> (StackId, CallStack) {
    let frames = found.frames.into_iter();
    let frames = frames.map(|columns::Frame { function, module, offset }| StackFrame { function, module, offset });
    (found.stack, frames.collect::<Arc<[_]>>())
}

impl Iterator for AllocationBatches {
    type Item = Result<Allocations, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = &mut self.reader;
        self.batches.as_mut()?.find(|rows, index, _| reader.read(rows, index))
    }
}
