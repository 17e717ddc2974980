//! JSON Schemas, made from the types that are written as JSON.

use std::time::Duration;

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::diff::Diff;
use crate::idle::IdleReport;
use crate::tiering::TierTrial;
use crate::tuning::Tuning;
use crate::{Format, Kind};

/// Documents that are no reports on a recording: the command that writes them, what they are, and their schema.
const OTHERS: [(&str, &str, Made); 4] = [
    ("diff", "The difference of two recordings.", of::<Diff>),
    ("idle", "Idle memory at the end of one interval. One line of JSON for each report.", of::<IdleReport>),
    ("scheme-tune", "What came of tuning a scheme.", of::<Tuning>),
    (
        "tier-try",
        "The share of accesses that slow memory would serve, by the size of the fast memory.",
        of::<TierTrial>,
    ),
];

type Made = fn(&str, &str) -> Value;

/// The names of the schemas that there are.
pub fn names() -> impl Iterator<Item = &'static str> {
    let reports = Kind::ALL.into_iter().filter(|kind| kind.formats().contains(&Format::Json)).map(Kind::name);
    reports.chain(OTHERS.map(|(name, ..)| name))
}

/// The schema of this name.
pub fn named(name: &str) -> Option<Value> {
    let other = OTHERS.into_iter().find(|(other, ..)| *other == name);
    match other {
        Some((command, about, schema)) => Some(schema(&command.replace('-', " "), about)),
        None => Kind::ALL.into_iter().find(|kind| kind.name() == name)?.schema(),
    }
}

/// The schema of the documents of a command, such as `report wss`, which are values of type `T`.
pub(crate) fn of<T: JsonSchema>(command: &str, about: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with_transform(exact);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".into(), format!("isotherm {command}").into());
    schema.insert("description".into(), about.into());
    schema.to_value()
}

/// Refuses objects with fields that no type has, and words descriptions for readers of JSON.
fn exact(schema: &mut Schema) {
    if schema.get("properties").is_some() {
        schema.insert("additionalProperties".into(), false.into());
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace("`None`", "`null`").replace('\n', " ");
    }
    transform_subschemas(&mut exact, schema);
}

/// Writes a type as another one, which is made of a reference to it.
macro_rules! serialized_as {
    ($type:ty, $other:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&<$other>::from(self), serializer)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$other>::schema_name()
            }

            fn schema_id() -> std::borrow::Cow<'static, str> {
                <$other>::schema_id()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$other>::json_schema(generator)
            }
        }
    };
}

pub(crate) use serialized_as;

/// Writes a time, which may be `None`, in nanoseconds.
pub(crate) fn as_ns<S: Serializer>(
    time: &(impl Into<Option<Duration>> + Copy),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    (*time).into().map(ns).serialize(serializer)
}

/// A time in nanoseconds.
pub(crate) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
