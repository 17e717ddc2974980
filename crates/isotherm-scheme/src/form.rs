//! The parts that the reader of a further form needs: values with positions, fields, and the rules for all schemes.
//!
//! Such a reader takes the [root](crate::Document::root) of a [`Document`](crate::Document), reads it with the
//! methods of [`Node`] and [`Fields`], and reports what is wrong to the [`Diagnostics`](crate::Diagnostics) that
//! [`Document::read`](crate::Document::read) hands to it.

pub use crate::common::{
    A_NODE, A_NODE_WEIGHT, AN_ACTION, Names, action, at_least_one, check_inside, destinations, node_number,
    node_weight, with_destinations,
};
pub use crate::fields::Fields;
pub use crate::tree::{Key, Node, Value};
pub use crate::yaml::schemes;
