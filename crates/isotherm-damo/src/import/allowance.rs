//! A bound on the memory that a file takes while it is read: a small compressed file can hold any number of values.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

thread_local! {
    /// The bytes that this thread may still take for values.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// About how many bytes a value takes for the whole import, without the lists in it.
pub(super) trait Weight {
    /// The bytes.
    const BYTES: u64;
}

/// Runs `read`, in which [`list`] takes no more than this number of bytes. Returns its result, and whether it wanted
/// more.
pub(super) fn within<T>(bytes: u64, read: impl FnOnce() -> T) -> (T, bool) {
    LEFT.set(bytes);
    let read = read();
    (read, LEFT.replace(u64::MAX) == 0)
}

/// Reads a list.
///
/// # Errors
/// As that of its items, and if it takes more than is allowed.
pub(super) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de> + Weight>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(List(PhantomData))
}

struct List<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Weight> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            let left = LEFT.get().saturating_sub(T::BYTES);
            LEFT.set(left);
            if left == 0 {
                return Err(A::Error::custom("it takes too much memory"));
            }
            list.push(item);
        }
        Ok(list)
    }
}
