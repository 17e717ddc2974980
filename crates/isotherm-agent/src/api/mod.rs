//! The control interface: HTTP/1.1 and JSON on a Unix socket.
//!
//! [`OPERATIONS`] is the one table of what can be asked. The server looks requests up in it, and the OpenAPI document
//! is made of it and of the types that are written and read.

mod answer;
mod openapi;
mod operations;
mod page;
mod problem;

use std::collections::BTreeMap;

use schemars::{Schema, SchemaGenerator};

pub use answer::Answer;
pub(crate) use answer::{ARROW, EVENTS, HTML, SVG};
pub use openapi::document;
pub(crate) use operations::metrics;
pub use operations::{OPENMETRICS, OPERATIONS};
pub use page::PAGE;
pub use problem::Problem;

use crate::daemon::Daemon;

/// Makes the schema of a type.
pub type Make = fn(&mut SchemaGenerator) -> Schema;

/// What may be asked.
pub struct Operation {
    /// The method, such as `GET`.
    pub method: &'static str,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// The parameters after `?`, each with what it is.
    pub query: &'static [(&'static str, &'static str)],
    /// The schema of the body of the request, if it has one.
    pub body: Option<Make>,
    /// The media type of the answer, and its schema if it is JSON. `None` if the answer is empty.
    pub answer: Option<(&'static str, Option<Make>)>,
    /// Whether the log has each request, if the operation changes something. It has refusals in any case.
    pub is_logged: bool,
    /// Does it.
    pub run: fn(&Daemon, &Call) -> Result<Answer, Problem>,
}

/// A request.
#[derive(Debug, Default)]
pub struct Call {
    /// The parameters of the path, in its order.
    pub path: Vec<String>,
    /// The parameters after `?`.
    pub query: BTreeMap<String, String>,
    /// The body.
    pub body: String,
    /// The user and the process that ask. `None` if that is not known.
    pub peer: Option<(u32, u32)>,
}

impl Operation {
    /// Whether it changes something, which not everybody may.
    pub fn changes(&self) -> bool {
        self.method != "GET"
    }

    /// The parameters of a path, if it is that of the operation.
    fn parameters(&self, path: &str) -> Option<Vec<String>> {
        let (mut wanted, mut given) = (self.path.split('/'), path.split('/'));
        let mut parameters = Vec::new();
        loop {
            match (wanted.next(), given.next()) {
                (None, None) => return Some(parameters),
                (Some(wanted), Some(given)) if wanted.starts_with('{') => parameters.push(decoded(given)?),
                (Some(wanted), Some(given)) if wanted == given => {}
                _ => return None,
            }
        }
    }
}

/// The operation of a method and a path, with the parameters of the path.
///
/// # Errors
/// 404 if no operation has this path, 405 if only other methods have it.
pub fn find(method: &str, path: &str) -> Result<(&'static Operation, Vec<String>), Problem> {
    let at_path = OPERATIONS.iter().filter_map(|operation| Some((operation, operation.parameters(path)?)));
    let mut methods = Vec::new();
    for (operation, parameters) in at_path {
        if operation.method == method {
            return Ok((operation, parameters));
        }
        methods.push(operation.method);
    }
    Err(match &methods[..] {
        [] => Problem::new(404, format!("there is nothing at {path}; GET /v1/openapi.json says what there is")),
        _ => Problem::new(405, format!("{path} has the methods {}", methods.join(", "))),
    })
}

/// The parameters after `?`.
pub fn query(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name)?, decoded(value)?))
        })
        .collect()
}

/// Text of a URL without its escapes. `None` if one is wrong, or the text is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                (digit(rest.next())? * 16 + digit(rest.next())?) as u8
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Text as a part of a URL.
pub fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|byte| if is_plain(byte) { char::from(byte).into() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_request_finds_its_operation() {
        let (operation, parameters) = find("POST", "/v1/groups/a%2Fb/pause").unwrap();
        assert_eq!((operation.path, &parameters[..]), ("/v1/groups/{group}/pause", &["a/b".to_owned()][..]));
        assert_eq!(find("GET", "/v1/nothing").err().map(|problem| problem.status), Some(404));
        let problem = find("PATCH", "/v1/groups").err().unwrap();
        assert!(problem.status == 405 && problem.detail.contains("GET, POST"), "{problem:?}");
        assert!(find("GET", "/v1/groups/%zz").is_err());
    }

    #[test]
    fn parameters_are_what_they_were_encoded_from() {
        for text in ["a b&c=d", "10%", "ä/?"] {
            let query = query(&format!("last={}&x", encoded(text)));
            assert_eq!((query["last"].as_str(), query["x"].as_str()), (text, ""));
        }
    }

    #[test]
    fn no_two_operations_are_the_same() {
        let mut all: Vec<_> = OPERATIONS.iter().map(|operation| (operation.path, operation.method)).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
