//! Events as bytes of a stream. Each is made once, however many clients follow its group.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use hyper::body::Bytes;

use crate::view::Streamed;

/// So many events are kept. All clients get an event before most of them get the next one.
const KEPT: usize = 8;

thread_local! {
    /// The events that were encoded last. One thread serves all clients.
    static LAST: RefCell<VecDeque<(Arc<Streamed>, Bytes)>> = const { RefCell::new(VecDeque::new()) };
}

/// The bytes of an event, as server-sent events have it.
pub fn encoded(event: &Arc<Streamed>) -> Bytes {
    LAST.with_borrow_mut(|last| {
        if let Some((_, bytes)) = last.iter().find(|(known, _)| Arc::ptr_eq(known, event)) {
            return bytes.clone();
        }
        let json = serde_json::to_string(&**event).unwrap_or_default();
        let bytes = Bytes::from(format!("event: {}\ndata: {json}\n\n", event.name()));
        last.truncate(KEPT - 1);
        last.push_front((Arc::clone(event), bytes.clone()));
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_made_once_and_no_two_are_confused() {
        let event = |text: &str| Arc::new(Streamed::End { reason: text.into() });
        let (first, second) = (event("one"), event("two"));
        let bytes = encoded(&first);
        assert_eq!(&*bytes, b"event: end\ndata: {\"event\":\"end\",\"reason\":\"one\"}\n\n");
        assert_ne!(encoded(&second), bytes);
        assert_eq!(encoded(&first).as_ptr(), bytes.as_ptr(), "it was made once");
        (0..KEPT).for_each(|_| drop(encoded(&event("other"))));
        assert_eq!(encoded(&first), bytes);
    }
}
