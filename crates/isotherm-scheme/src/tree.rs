//! A YAML or JSON document as a tree of values that know their positions.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput};

use crate::diagnostic::{Diagnostic, Position};
use crate::message::shortened;

/// A value in a document.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where the value begins.
    pub position: Position,
    /// The value.
    pub value: Value,
}

/// A value of YAML or JSON.
#[derive(Clone, Debug)]
pub enum Value {
    /// `null`, `~`, or an empty value.
    Null,
    /// Any other scalar, without its quotes. Numbers and booleans are kept as they are written.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the document. No key occurs twice.
    Map(Vec<(Key, Node)>),
}

/// A key of a mapping.
#[derive(Clone, Debug)]
pub struct Key {
    /// Where the key begins.
    pub position: Position,
    /// The key without its quotes.
    pub name: String,
}

impl Node {
    /// The value in a message about it.
    pub(crate) fn shown(&self) -> String {
        match &self.value {
            Value::Null => "nothing".into(),
            Value::Text(text) => format!("\"{}\"", shortened(text)),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a map of fields".into(),
        }
    }
}

/// The nesting depth at which reading stops. Schemes need less than ten levels.
const MAX_DEPTH: usize = 32;

/// Reads the one document in `text`.
pub(crate) fn parse(text: &str) -> Result<Node, Diagnostic> {
    let mut reader = Reader { events: Parser::new_from_str(text), position: Position::START };
    let mut root = None;
    loop {
        match reader.next()? {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            _ if root.is_some() => {
                let message = "a second document begins here; a scheme file has one";
                return Err(Diagnostic::new(reader.position, message));
            }
            event => root = Some(reader.node(event, 0)?),
        }
    }
    root.ok_or_else(|| Diagnostic::new(Position::START, "the file is empty; expected schemes"))
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    /// Where the last event begins.
    position: Position,
}

fn position(marker: &Marker) -> Position {
    Position { line: marker.line(), column: marker.col() + 1 }
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Event<'a>, Diagnostic> {
        match self.events.next_event() {
            Some(Ok((event, span))) => {
                self.position = position(&span.start);
                Ok(event)
            }
            Some(Err(error)) => {
                Err(Diagnostic::new(position(error.marker()), format!("invalid YAML: {}", error.info())))
            }
            None => Ok(Event::StreamEnd),
        }
    }

    /// Reads the value that begins with `event`.
    fn node(&mut self, event: Event<'a>, depth: usize) -> Result<Node, Diagnostic> {
        let position = self.position;
        let error = |message| Err(Diagnostic::new(position, message));
        if depth > MAX_DEPTH {
            return error("values are nested too deeply for a scheme file");
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
            Event::Alias(_) => return error("scheme files have no aliases (*name); write the value itself"),
            _ => return error("expected a value, found the end of the document"),
        };
        Ok(Node { position, value })
    }

    fn map(&mut self, depth: usize) -> Result<Value, Diagnostic> {
        let mut fields: Vec<(Key, Node)> = Vec::new();
        // The line of each field.
        let mut lines: HashMap<String, usize> = HashMap::new();
        loop {
            let event = match self.next()? {
                Event::MappingEnd => return Ok(Value::Map(fields)),
                event => event,
            };
            let position = self.position;
            let Event::Scalar(name, ..) = event else {
                return Err(Diagnostic::new(position, "expected the name of a field"));
            };
            let key = Key { position, name: name.into_owned() };
            if let Some(line) = lines.insert(key.name.clone(), position.line) {
                let message = format!("the field {:?} is already given in line {line}; remove one of them", key.name);
                return Err(Diagnostic::new(position, message));
            }
            let event = self.next()?;
            let value = self.node(event, depth + 1)?;
            fields.push((key, value));
        }
    }
}
