//! Quantities as people write them: `10s`, `64M`, `1%`, `10:1000`.

use std::borrow::Cow;
use std::time::Duration;

use isotherm_core::units;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A quantity that is text in a configuration and in JSON.
macro_rules! quantity {
    ($about:literal $name:ident($type:ty), $read:expr, $write:expr, $example:literal) => {
        #[doc = $about]
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name(pub $type);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $read(&String::deserialize(from)?).map(Self).map_err(de::Error::custom)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&$write(self.0))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                // In YAML, a bare number is a text, too.
                json_schema!({ "type": ["string", "number"], "description": $about, "examples": [$example] })
            }
        }
    };
}

quantity! {
    "A time with its unit."
    Time(Duration), above_zero, units::setting::duration, "10s"
}
quantity! {
    "Bytes. K, M, G and T are powers of 1,024."
    Size(u64), units::parse_bytes, units::setting::bytes, "64M"
}
quantity! {
    "A share, above 0."
    Share(f64), some_share, units::setting::percent, "1%"
}
quantity! {
    "The least and the greatest number of regions."
    Regions((u64, u64)), units::parse_count_range, |(least, most)| format!("{least}:{most}"), "10:1000"
}

fn above_zero(text: &str) -> Result<Duration, String> {
    match units::parse_duration(text) {
        Ok(Duration::ZERO) => Err("the time is zero; write a time such as 10s".into()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

fn some_share(text: &str) -> Result<f64, String> {
    match units::parse_share(text) {
        Ok(share) if share > 0.0 => Ok(share),
        Ok(_) => Err("a share of 0 allows nothing; write a share such as 1%".into()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read_again() {
        for time in ["100us", "5ms", "90s", "2m", "1h"] {
            let read: Time = serde_json::from_value(time.into()).unwrap();
            assert_eq!(serde_json::from_value::<Time>(serde_json::to_value(read).unwrap()).unwrap(), read, "{time}");
        }
        let size: Size = serde_json::from_value("1.5GiB".into()).unwrap();
        assert_eq!(serde_json::from_value::<Size>(serde_json::to_value(size).unwrap()).unwrap(), size);
        let share: Share = serde_json::from_value("0.5%".into()).unwrap();
        assert_eq!(serde_json::from_value::<Share>(serde_json::to_value(share).unwrap()).unwrap(), share);
        for wrong in ["0s", "soon", ""] {
            assert!(serde_json::from_value::<Time>(wrong.into()).is_err(), "{wrong}");
        }
        assert!(serde_json::from_value::<Share>("0".into()).is_err());
    }
}
