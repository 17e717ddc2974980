//! Bytes of which a part may be unknown, as reports show them.

use std::ops::Add;

use isotherm_core::{Quantity, units};
use schemars::JsonSchema;
use serde::Serialize;

use crate::schema::serialized_as;

/// Bytes of which a part may be unknown. As JSON, they are a number if all is known, an object with the least that
/// there is if a part is, and `null` if nothing is. The default is that nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub Quantity);

impl Bytes {
    /// So many, and no more.
    pub const fn exact(bytes: u64) -> Self {
        Self(Quantity::exact(bytes))
    }

    /// The least that there is.
    pub const fn least(self) -> u64 {
        self.0.least()
    }

    /// Whether nothing is known.
    pub fn is_unknown(&self) -> bool {
        self.0.is_unknown()
    }

    /// Whether there are none, or nothing is known.
    pub(crate) const fn is_zero(&self) -> bool {
        self.least() == 0
    }

    /// For a sentence, if there are any.
    pub(crate) fn some(self) -> Option<String> {
        self.text().filter(|_| !self.is_zero())
    }

    /// The bytes, marked if there may be more. `None` if nothing is known.
    fn written(self, write: fn(u64) -> String) -> Option<String> {
        let mark = if self.0.is_bound() { "≥ " } else { "" };
        (!self.is_unknown()).then(|| format!("{mark}{}", write(self.least())))
    }

    /// For a sentence.
    pub(crate) fn text(self) -> Option<String> {
        self.written(units::bytes)
    }

    /// For a table.
    pub(crate) fn cell(self) -> Option<String> {
        self.written(units::table_bytes)
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self(Quantity::unknown())
    }
}

impl From<Option<u64>> for Bytes {
    fn from(bytes: Option<u64>) -> Self {
        Self(bytes.into())
    }
}

impl Add for Bytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

/// Bytes in JSON: a number if all of them are known, and else the least that there is.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Bytes")]
enum BytesJson {
    /// All of them are known.
    Exact(u64),
    /// A part of them is not known.
    AtLeast {
        /// The least that there is.
        at_least: u64,
    },
    /// Nothing is known.
    Unknown(()),
}

serialized_as!(Bytes, BytesJson);

impl From<&Bytes> for BytesJson {
    fn from(bytes: &Bytes) -> Self {
        match bytes.0.known() {
            Some(exact) => Self::Exact(exact),
            None if bytes.is_unknown() => Self::Unknown(()),
            None => Self::AtLeast { at_least: bytes.least() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_unknown_shows_wherever_the_sum_does() {
        let sum = Bytes::exact(3 << 20) + Bytes::default();
        assert_eq!((sum.text(), sum.cell()), (Some("≥ 3 MiB".into()), Some("≥ 3 MiB".into())));
        let json = [sum, Bytes::exact(7), Bytes::default()].map(|bytes| serde_json::to_string(&bytes).unwrap());
        assert_eq!(json, [r#"{"at_least":3145728}"#, "7", "null"]);
    }
}
