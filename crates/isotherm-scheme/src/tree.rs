//! YAML (and so JSON) as a tree in which everything knows its place.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

use crate::{Complaint, Place};

/// A value, and where it begins.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it begins.
    pub place: Place,
    /// What it is.
    pub value: Value,
}

/// What a value is.
#[derive(Clone, Debug)]
pub enum Value {
    /// `null`, `~`, or nothing at all.
    Null,
    /// Any other scalar, as it was written.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// In the order of the file; no key comes twice.
    Map(Vec<(Key, Node)>),
}

/// A key of a map.
#[derive(Clone, Debug)]
pub struct Key {
    /// Where it begins.
    pub place: Place,
    /// How it is written.
    pub name: String,
}

impl Node {
    /// What it is, for whoever expected something else.
    pub fn what(&self) -> String {
        match &self.value {
            Value::Null => "nothing".into(),
            Value::Text(text) => format!("\"{}\"", shortened(text)),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a map of fields".into(),
        }
    }

    /// The value of this key, if it is a map that has it.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(fields) => fields.iter().find(|(key, _)| key.name == name).map(|(_, node)| node),
            _ => None,
        }
    }
}

/// The beginning of a text that may be long, on one line.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.escape_debug().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

/// Deeper than this nothing of ours is nested, by far.
const DEEPEST: usize = 32;

/// Reads one document.
pub(crate) fn tree(text: &str) -> Result<Node, Complaint> {
    let mut reader = Reader { events: Parser::new_from_str(text), at: Place { line: 1, column: 1 } };
    let mut root = None;
    loop {
        match reader.next()? {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            _ if root.is_some() => {
                return Err(Complaint::new(reader.at, "a second document begins here; a scheme file has one"));
            }
            event => root = Some(reader.node(event, 0)?),
        }
    }
    root.ok_or_else(|| Complaint::new(Place { line: 1, column: 1 }, "there is nothing in it; expected schemes"))
}

struct Reader<'a> {
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    /// Where the last event begins.
    at: Place,
}

fn place(marker: &Marker) -> Place {
    Place { line: marker.line(), column: marker.col() + 1 }
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Event<'a>, Complaint> {
        match self.events.next_event() {
            Some(Ok((event, span))) => {
                self.at = place(&span.start);
                Ok(event)
            }
            Some(Err(error)) => {
                Err(Complaint::new(place(error.marker()), format!("this is not YAML: {}", error.info())))
            }
            None => Ok(Event::StreamEnd),
        }
    }

    /// The node that begins with `event`.
    fn node(&mut self, event: Event<'a>, depth: usize) -> Result<Node, Complaint> {
        let place = self.at;
        if depth > DEEPEST {
            return Err(Complaint::new(place, "this is nested more deeply than any scheme is"));
        }
        let value = match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) if matches!(&*text, "" | "~" | "null" | "Null" | "NULL") => {
                Value::Null
            }
            Event::Scalar(text, ..) => Value::Text(text.into_owned()),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        Event::SequenceEnd => break Value::List(items),
                        event => items.push(self.node(event, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => self.map(depth)?,
            Event::Alias(_) => {
                return Err(Complaint::new(
                    place,
                    "an alias (*) is no part of a scheme file; write the value that it stands for",
                ));
            }
            _ => return Err(Complaint::new(place, "the document ends where a value was expected")),
        };
        Ok(Node { place, value })
    }

    fn map(&mut self, depth: usize) -> Result<Value, Complaint> {
        let mut fields: Vec<(Key, Node)> = Vec::new();
        loop {
            let event = match self.next()? {
                Event::MappingEnd => return Ok(Value::Map(fields)),
                event => event,
            };
            let place = self.at;
            let Event::Scalar(name, ..) = event else {
                return Err(Complaint::new(place, "expected the name of a field"));
            };
            let key = Key { place, name: name.into_owned() };
            if let Some((first, _)) = fields.iter().find(|(known, _)| known.name == key.name) {
                let message = format!("{} is given twice, first in line {}; leave one out", key.name, first.place.line);
                return Err(Complaint::new(place, message));
            }
            let event = self.next()?;
            let value = self.node(event, depth + 1)?;
            fields.push((key, value));
        }
    }
}
