//! Reads a tree of values into any type that Serde can read, and says where a value is wrong.

use std::fmt::{self, Display};

use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::diagnostic::{Diagnostics, Position};
use crate::message::{did_you_mean, shortened};
use crate::tree::{Key, Node, Value};

impl Node {
    /// The value as a `T`. The first error is reported at its position.
    pub fn typed<T: DeserializeOwned>(&self, diagnostics: &mut Diagnostics) -> Option<T> {
        match T::deserialize(Reader(self)) {
            Ok(value) => Some(value),
            Err(Failure { position, message }) => diagnostics.fail(position.unwrap_or(self.position), message),
        }
    }
}

/// Hands a value to Serde.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a Node);

/// Why a value is not of its type.
#[derive(Debug)]
struct Failure {
    /// Where. `None` until the innermost value that is wrong is known.
    position: Option<Position>,
    message: String,
}

impl Failure {
    fn at(self, position: Position) -> Self {
        Self { position: self.position.or(Some(position)), ..self }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl de::Error for Failure {
    fn custom<T: Display>(message: T) -> Self {
        Self { position: None, message: message.to_string() }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let known = did_you_mean(field, expected);
        Self::custom(format_args!("there is no field \"{}\"; {known}", shortened(field)))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let known = did_you_mean(variant, expected);
        Self::custom(format_args!("\"{}\" is not possible here; {known}", shortened(variant)))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format_args!("the field {field} is missing"))
    }
}

/// Calls a method of the visitor with the number or word that a scalar has.
macro_rules! scalar {
    ($($method:ident $visit:ident $type:ty, $what:literal;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
            let text = self.bare($what)?;
            let value = text.parse::<$type>().map_err(|_| self.expected($what))?;
            visitor.$visit(value).map_err(|error: Failure| error.at(self.0.position))
        })*
    };
}

impl<'a> Reader<'a> {
    fn bare(self, expected: &str) -> Result<&'a str, Failure> {
        match &self.0.value {
            Value::Text(text) => Ok(text),
            Value::Null | Value::List(_) | Value::Map(_) => Err(self.expected(expected)),
        }
    }

    fn expected(self, what: &str) -> Failure {
        Failure { position: Some(self.0.position), message: format!("expected {what}, found {}", self.0.shown()) }
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let visited = match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(Items(items.iter())),
            Value::Map(fields) => visitor.visit_map(Entries { fields: fields.iter(), value: None }),
        };
        visited.map_err(|error| error.at(self.0.position))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.bare("true or false")? {
            "true" | "yes" | "on" => visitor.visit_bool(true),
            "false" | "no" | "off" => visitor.visit_bool(false),
            _ => Err(self.expected("true or false")),
        }
    }

    scalar! {
        deserialize_u8 visit_u8 u8, "a whole number";
        deserialize_u16 visit_u16 u16, "a whole number";
        deserialize_u32 visit_u32 u32, "a whole number";
        deserialize_u64 visit_u64 u64, "a whole number";
        deserialize_i64 visit_i64 i64, "a whole number";
        deserialize_f64 visit_f64 f64, "a number";
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.0.value {
            Value::Null => visitor.visit_none(),
            Value::Text(_) | Value::List(_) | Value::Map(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let word = self.bare("a word")?;
        visitor.visit_enum(word.into_deserializer()).map_err(|error: Failure| error.at(self.0.position))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

struct Items<'a>(std::slice::Iter<'a, Node>);

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failure> {
        let read = |node: &Node| seed.deserialize(Reader(node)).map_err(|error| error.at(node.position));
        self.0.next().map(read).transpose()
    }
}

struct Entries<'a> {
    fields: std::slice::Iter<'a, (Key, Node)>,
    value: Option<&'a Node>,
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failure> {
        let Some((key, value)) = self.fields.next() else { return Ok(None) };
        self.value = Some(value);
        let name: de::value::StrDeserializer<'_, Failure> = key.name.as_str().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|error| error.at(key.position))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Failure> {
        let value = self.value.take().ok_or_else(|| de::Error::custom("a value without a field"))?;
        seed.deserialize(Reader(value)).map_err(|error| error.at(value.position))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use serde::Deserialize;

    use crate::{Diagnostics, Document};

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "snake_case")]
    enum Word {
        Auto,
        Off,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        name: String,
        #[serde(default)]
        many: Vec<u32>,
        acts: Option<bool>,
        word: Option<Word>,
        inner: Option<Box<Settings>>,
    }

    fn read(text: &str) -> Result<Settings, Diagnostics> {
        let document = Document::parse("a.yaml", text)?;
        let root = document.root().unwrap();
        document.read(|diagnostics| root.typed(diagnostics)).map(Option::unwrap)
    }

    #[test]
    fn a_tree_becomes_a_value() {
        let read = read("{name: 7, many: [1, 2], acts: yes, word: off, inner: {name: x, acts: ~}}").unwrap();
        let inner = Settings { name: "x".into(), many: vec![], acts: None, word: None, inner: None };
        let name = "7".into();
        let inner = Some(inner.into());
        assert_eq!(read, Settings { name, many: vec![1, 2], acts: Some(true), word: Some(Word::Off), inner });
    }

    #[test]
    fn an_error_has_the_place_of_the_innermost_value() {
        for (text, expected) in [
            ("name: x\nmany: [1, b]", "2:11: expected a whole number, found \"b\""),
            ("name: x\ninner: {nam: y}", "2:9: there is no field \"nam\"; did you mean name?"),
            ("name: x\ninner: {acts: 1}", "2:15: expected true or false"),
            ("many: []", "1:1: the field name is missing"),
            ("name: x\nword: of", "2:7: \"of\" is not possible here; did you mean off?"),
            ("name: [x]", "1:7: invalid type: sequence, expected a string"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("a.yaml:{expected}")), "{text}: {error}");
        }
    }
}
