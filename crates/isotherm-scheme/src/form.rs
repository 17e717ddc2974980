//! What the reader of a further form needs: values with their places, fields, units, and what all schemes must hold.

pub use crate::fields::{Fields, flag, list, or, scalar, text};
pub use crate::parts::{Names, action, at_least_one, may_act};
pub use crate::tree::{Key, Node, Value};
