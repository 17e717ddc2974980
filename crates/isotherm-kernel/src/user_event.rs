//! Events of the program for tracers, by the kernel's user_events (Linux 6.4 with `CONFIG_USER_EVENTS`).

#![allow(unsafe_code, reason = "the kernel writes to a word of the process")]

use std::ffi::CStr;
use std::pin::Pin;
use std::sync::Once;

use tracepoint::{EventDataDescriptor, TracepointState};

/// An event that the kernel knows as `user_events:NAME` once the process has asked whether somebody listens, and until
/// the process ends. A kernel without user_events, and one that does not let the process in, has no such event, and
/// nobody listens then.
pub struct UserEvent {
    definition: &'static CStr,
    state: TracepointState,
    registered: Once,
}

impl UserEvent {
    /// An event with its definition, as the kernel's documentation has it: `NAME u64 FIELD; u64 FIELD`, and after these
    /// `__rel_loc char[] FIELD` if it has a text.
    pub const fn new(definition: &'static CStr) -> Self {
        Self { definition, state: TracepointState::new(0), registered: Once::new() }
    }

    /// Whether somebody listens. It costs the reading of two words.
    pub fn is_heard(&'static self) -> bool {
        self.registered.call_once(|| {
            // SAFETY: the state is a part of a static, whose place is the same until the process ends.
            unsafe { Pin::static_ref(&self.state).register(self.definition) };
        });
        self.state.enabled()
    }

    /// Tells it with its numbers, and its text if it is defined with one. It is lost if nobody listens any more. A text
    /// is cut at 64 KiB.
    pub fn tell(&'static self, numbers: &[u64], text: Option<&str>) {
        let mut payload: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        if let Some(text) = text {
            let text = &text.as_bytes()[..text.len().min(usize::from(u16::MAX) - 1)];
            // The place of the text, in bytes after this word, and its length with a zero at its end.
            payload.extend(((text.len() as u32 + 1) << 16).to_ne_bytes());
            payload.extend(text);
            payload.push(0);
        }
        self.state.write(&mut [EventDataDescriptor::zero(), EventDataDescriptor::from_bytes(&payload)]);
    }
}
